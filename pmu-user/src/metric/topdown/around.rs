//! What formulas need to know beside counts.

use crate::{
    machine::topology::{Smt, Topology},
    plan::metrics::Extent,
};

/// What is known about the machine and the interval.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// The machine's layout.
    pub topology: &'a Topology,
    /// CPUs that counted.
    pub cpus: usize,
    /// Whose counts they are.
    pub extent: Extent,
    /// Length of the interval.
    pub seconds: f64,
}

impl Around<'_> {
    /// A constant of a formula; NaN if the machine does not say.
    pub(super) fn constant(&self, name: &str) -> f64 {
        let known = |number: Option<u32>| number.map_or(f64::NAN, f64::from);
        let topology = self.topology;
        match name {
            "HYPERTHREADING_ON" => match topology.smt {
                Smt::On => 1.0,
                Smt::Off => 0.0,
                Smt::Unknown => f64::NAN,
            },
            "THREADS_PER_CORE" => known(topology.threads_per_core),
            "CORES_PER_SOCKET" => known(topology.cores_per_socket),
            "SOCKET_COUNT" => known(topology.sockets),
            "CHAS_PER_SOCKET" => known(topology.caches_per_socket),
            "CPU_COUNT" => self.cpus as f64,
            "DURATIONTIMEINSECONDS" => self.seconds,
            "DURATIONTIMEINMILLISECONDS" => self.seconds * 1e3,
            "SYSTEM_TSC_FREQ" => topology.tsc_hz.unwrap_or(f64::NAN),
            "TSC_TICKS" => topology.tsc_hz.map_or(f64::NAN, |hz| hz * self.seconds),
            _ => f64::NAN,
        }
    }
}
