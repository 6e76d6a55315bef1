//! What `pmbpf io` will open: boxes outside the cores, with groups of events that take turns on each.

pub mod request;
mod sites;

use std::{path::Path, time::Duration};

use serde::{Deserialize, Serialize};

use self::request::{IoRequest, Reporting};
use super::{
    Lost, PlanError, TICK, Target,
    request::{Descend, Inherit},
    resolve,
    turns::Turns,
};
use crate::machine::{Machine, cpu::Cpu, io::Platform, pmu::catalog::Catalog};

/// Everything that `pmbpf io` opens, decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoPlan {
    /// Whose bytes are told apart.
    pub target: Target,
    /// Children of processes.
    pub inherit: Inherit,
    /// Cgroups below.
    pub descend: Descend,
    /// The table of metrics, if there is one for this machine.
    pub table: Option<String>,
    /// What to report, and how.
    pub report: Reporting,
    /// Time between two drains.
    pub tick: Duration,
    /// Time between two reports, if reports are asked for while running.
    pub interval: Option<Duration>,
    /// Stop after.
    pub duration: Option<Duration>,
    /// Kinds of boxes, each with what is counted on every box of it.
    pub kinds: Vec<BoxKind>,
    /// What cannot be measured here, and why.
    pub missing: Vec<Lost>,
}

/// Boxes of one kind: they have the same events, formats and counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxKind {
    /// As PMUs are named: `iio` in `uncore_iio_3`.
    pub name: String,
    /// Every box, once a die.
    pub boxes: Vec<BoxSite>,
    /// Groups of events, of which each box counts one at a time.
    pub turns: Turns,
    /// What each of the events counts, by what the table's formulas call it: sums, each of them equal to the count.
    pub sums: Vec<Vec<Vec<String>>>,
    /// Parts of these stacks that are counted one by one, because a device is known behind them; the others are not counted.
    /// None: all of them together.
    pub parts: Option<Vec<u32>>,
}

impl IoPlan {
    /// Decides what to open for `request`. Needs no privilege, and the root of the file system only to see which processes
    /// exist and where CPUs stand.
    ///
    /// # Errors
    ///
    /// Names the target or model that cannot be had, and the nearest that can.
    pub fn new(
        request: &IoRequest,
        machine: &Machine,
        catalog: &Catalog,
        platform: &Platform,
        root: &Path,
    ) -> Result<Self, PlanError> {
        let tick = request.interval.unwrap_or(TICK);
        let plan = Self {
            target: resolve(&request.target, machine, root)?,
            inherit: request.inherit,
            descend: request.descend,
            table: None,
            report: request.report.clone(),
            tick,
            interval: request.interval,
            duration: request.duration,
            kinds: Vec::new(),
            missing: Vec::new(),
        };
        let _ = (catalog, platform, sites::sites("iio", catalog, root));
        Ok(plan)
    }
}

impl BoxKind {
    /// Descriptors that it takes.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.boxes.len() * self.turns.descriptors()
    }
}

/// One box of one die.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BoxSite {
    /// Its PMU.
    pub pmu: String,
    /// `perf_event_attr.type` of that.
    pub kind: u32,
    /// Number in the PMU's name; they may have holes.
    pub unit: u32,
    /// The die.
    pub die: u32,
    /// The CPU on which its events are opened, one of the die's (`cpumask`).
    pub cpu: Cpu,
}

/// Turns that every group of a kind has between two ticks: three tell how far off what is between them may be, and one is
/// cut by the tick.
const ROUNDS: u32 = 4;
/// Shortest mean slice: changing groups on all boxes of a large machine takes about a millisecond.
const SLICE_MIN: Duration = Duration::from_millis(20);
/// Longest mean slice, and that of boxes on which nothing takes turns: how finely bandwidth over time is known.
const SLICE_MAX: Duration = Duration::from_millis(125);

/// How long a group stays in force on average, if `groups` take turns between ticks that are `tick` apart.
#[must_use]
pub fn slice(groups: usize, tick: Duration) -> Duration {
    let turns = u32::try_from(groups).unwrap_or(u32::MAX).saturating_mul(ROUNDS).max(1);
    (tick / turns).clamp(SLICE_MIN, SLICE_MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::slice;

    #[test]
    fn every_group_has_several_turns_between_two_ticks() {
        let second = Duration::from_secs(1);
        assert_eq!(slice(1, second), Duration::from_millis(125));
        assert_eq!(slice(4, second), Duration::from_micros(62_500));
        assert_eq!(slice(400, second), Duration::from_millis(20));
        assert_eq!(slice(4, Duration::from_secs(60)), Duration::from_millis(125));
    }
}
