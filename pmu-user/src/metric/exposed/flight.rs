//! Series of the flight recorder.

use super::{
    families::Families,
    family::{Family, Kind},
    host::Host,
    target::Labels,
};

/// Counts of a flight recorder so far, and the extent of what it keeps.
#[derive(Clone, Debug)]
pub struct FlightCounts {
    /// Dumps that were made, by cause.
    pub dumps: [(&'static str, u64); 3],
    /// Dumps that were not made, because one was made just before, or that could not be.
    pub refused: [(&'static str, u64); 3],
    /// Number of times that it could not be written.
    pub failures: u64,
    /// Drains for which there was no room while the disk was slow.
    pub lost_drains: u64,
    /// Bytes that are kept.
    pub bytes: u64,
    /// Time that is kept.
    pub seconds: f64,
}

impl Host {
    /// Sets the series of a flight recorder.
    pub(super) fn flight(&mut self, families: &mut Families, counts: &FlightCounts) {
        let counter = |name: &str, help: &str| Family::own(name, Kind::Counter, None, help);
        let dumps = counter("pmbpf_flight_dumps", "Dumps of the flight recorder, by cause.");
        let help = "Dumps that were not made: one was made just before, or it could not be written.";
        let refused = counter("pmbpf_flight_dumps_refused", help);
        for (family, counts) in [(dumps, &counts.dumps), (refused, &counts.refused)] {
            let family = families.id(family);
            for (cause, count) in counts {
                self.set(family, vec![("cause", (*cause).to_owned())], *count as f64);
            }
        }
        let help = "Times that the flight recorder could not be written.";
        let failures = counter("pmbpf_flight_failures", help);
        let help = "Drains that the flight recorder lost because the disk was slow.";
        let lost = counter("pmbpf_flight_lost_drains", help);
        for (family, count) in [(failures, counts.failures), (lost, counts.lost_drains)] {
            self.set(families.id(family), Labels::new(), count as f64);
        }
        let (bytes, seconds) = (Some("bytes"), Some("seconds"));
        let gauge = |name: &str, unit, help: &str| Family::own(name, Kind::Gauge, unit, help);
        let bytes =
            gauge("pmbpf_flight_bytes", bytes, "Bytes that the flight recorder keeps, without dumps.");
        self.state(families.id(bytes), Labels::new(), counts.bytes as f64);
        let kept = gauge("pmbpf_flight_kept_seconds", seconds, "Time that the flight recorder keeps.");
        self.state(families.id(kept), Labels::new(), counts.seconds);
    }
}
