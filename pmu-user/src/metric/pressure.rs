//! Pressure (PSI): the share of the time in which tasks stalled, as the kernel accounts it.

use super::value::{Known, Value};
use crate::{
    drain::Owner,
    machine::pressure::Stall,
    model::{Interval, pressure::Stalled},
    table::{
        metric::{self, Metric},
        unit::Unit,
    },
};

/// Pressure of the host, or of a cgroup.
#[derive(Clone, Debug, PartialEq)]
pub struct Pressure {
    /// Cgroup under pressure; `None` for the host.
    pub whose: Option<Owner>,
    /// Shares of the time, in per cent, in the order of the catalogue.
    pub shares: Vec<(Metric, Value)>,
    /// Time that the shares cover, in ns: the files are read a moment after the others.
    pub of_ns: u64,
}

impl Pressure {
    /// Returns the pressures of an interval, the host's first.
    pub(super) fn of(interval: &Interval) -> Vec<Self> {
        let report = |(whose, stalled): (&Option<Owner>, &Stalled)| Self {
            whose: whose.clone(),
            shares: stalled
                .stalls
                .iter()
                .map(|(&stall, &time_us)| share(stall, time_us, stalled.of_ns))
                .collect(),
            of_ns: stalled.of_ns,
        };
        interval.pressure.iter().map(report).collect()
    }

    /// Returns the share of this metric, if it is known.
    pub fn share(&self, of: &Metric) -> Option<&Known> {
        self.shares.iter().find(|(metric, _)| metric == of)?.1.known()
    }
}

fn share(stall: Stall, time_us: u64, of_ns: u64) -> (Metric, Value) {
    let metric = match stall {
        Stall::CpuSome => metric::PRESSURE_CPU_SOME,
        Stall::CpuFull => metric::PRESSURE_CPU_FULL,
        Stall::MemorySome => metric::PRESSURE_MEMORY_SOME,
        Stall::MemoryFull => metric::PRESSURE_MEMORY_FULL,
        Stall::IoSome => metric::PRESSURE_IO_SOME,
        Stall::IoFull => metric::PRESSURE_IO_FULL,
        Stall::IrqFull => metric::PRESSURE_IRQ_FULL,
    };
    // The file is read a moment after the time is taken, so a full share may come out a little above 100 %.
    let share = (100.0 * time_us as f64 * 1e3).min(Unit::Percent.most() * of_ns as f64);
    (metric, Value::ratio(share, of_ns as f64, "no time passed between two readings"))
}
