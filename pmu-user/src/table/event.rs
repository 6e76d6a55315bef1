//! Events named by the kernel, and those of them that can trigger samples.

use serde::{Deserialize, Serialize};

/// `perf_event_attr.type` of hardware and software events (include/uapi/linux/perf_event.h).
const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;

/// Unit of one count of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counts {
    /// A nanosecond of wall time: a timer samples at a fixed rate, idle or not.
    WallNs,
    /// A processor cycle.
    Cycles,
    /// An occurrence of anything else.
    Occurrences,
}

/// Event as `perf_event_open` defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingEvent {
    /// Name of the event in perf.
    pub name: &'static str,
    /// Other name of the event in perf, or the same.
    pub alias: &'static str,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// Unit of one count.
    pub counts: Counts,
}

const fn software(name: &'static str, alias: &'static str, config: u64) -> SamplingEvent {
    SamplingEvent { name, alias, kind: SOFTWARE, config, counts: Counts::Occurrences }
}

const fn hardware(name: &'static str, alias: &'static str, config: u64) -> SamplingEvent {
    SamplingEvent { name, alias, kind: HARDWARE, config, counts: Counts::Occurrences }
}

/// Clock that samples where there is no PMU.
pub const CPU_CLOCK: SamplingEvent =
    SamplingEvent { counts: Counts::WallNs, ..software("cpu-clock", "cpu-clock", 0) };
/// Event that samples where there is a PMU.
pub const CYCLES: SamplingEvent =
    SamplingEvent { counts: Counts::Cycles, ..hardware("cycles", "cpu-cycles", 0) };

/// Page faults of either kind.
pub const PAGE_FAULTS: SamplingEvent = software("page-faults", "faults", 2);
/// Switches away from a task.
pub const CONTEXT_SWITCHES: SamplingEvent = software("context-switches", "cs", 3);
/// Page faults without I/O.
pub const MINOR_FAULTS: SamplingEvent = software("minor-faults", "minor-faults", 5);
/// Page faults that waited for I/O.
pub const MAJOR_FAULTS: SamplingEvent = software("major-faults", "major-faults", 6);

/// Events that can be sampled on by name.
pub const ALL: [SamplingEvent; 15] = [
    CPU_CLOCK,
    PAGE_FAULTS,
    CONTEXT_SWITCHES,
    software("cpu-migrations", "migrations", 4),
    MINOR_FAULTS,
    MAJOR_FAULTS,
    software("alignment-faults", "alignment-faults", 7),
    software("emulation-faults", "emulation-faults", 8),
    CYCLES,
    hardware("instructions", "instructions", 1),
    hardware("cache-references", "cache-references", 2),
    hardware("cache-misses", "cache-misses", 3),
    hardware("branch-instructions", "branches", 4),
    hardware("branch-misses", "branch-misses", 5),
    hardware("ref-cycles", "ref-cycles", 9),
];

/// Returns the event of that name, in any case, or the names nearest to it.
///
/// # Errors
///
/// No event has that name.
pub fn find(name: &str) -> Result<SamplingEvent, Vec<String>> {
    let wanted = name.to_ascii_lowercase();
    let found = ALL.iter().find(|event| event.name == wanted || event.alias == wanted);
    found.copied().ok_or_else(|| {
        let names = ALL.iter().flat_map(|event| [event.name, event.alias]).map(str::to_owned);
        let mut near = crate::suggest::nearest(&wanted, names, |name| name);
        near.dedup();
        near
    })
}

#[cfg(test)]
mod tests {
    use super::{ALL, find};

    #[test]
    fn an_event_is_found_by_either_name_in_any_case() {
        assert_eq!(find("CPU-Cycles").unwrap().name, "cycles");
        assert_eq!(find("faults").unwrap().name, "page-faults");
    }

    #[test]
    fn an_unknown_event_names_its_nearest() {
        assert_eq!(find("cpu-clok").unwrap_err(), ["cpu-clock"]);
    }

    #[test]
    fn no_two_events_share_a_name_or_an_encoding() {
        for (index, event) in ALL.iter().enumerate() {
            for other in &ALL[index + 1..] {
                assert!(event.name != other.name && event.alias != other.name && event.name != other.alias);
                assert!((event.kind, event.config) != (other.kind, other.config));
            }
        }
    }
}
