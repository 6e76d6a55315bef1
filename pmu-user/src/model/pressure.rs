//! Differences of pressure (PSI): stall times of tasks between two readings.

use std::collections::BTreeMap;

use crate::{
    drain::{Owner, PressureRow},
    machine::pressure::{Stall, Stalls},
};

/// Stall times of tasks in some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stalled {
    /// Time from one reading to another, in ns.
    pub of_ns: u64,
    /// Stall times in µs, by kind.
    pub stalls: BTreeMap<Stall, u64>,
}

/// Stall times by owner; `None` for the host.
pub type Stalling = BTreeMap<Option<Owner>, Stalled>;

/// The last reading of every owner.
#[derive(Debug, Default)]
pub(super) struct Pressures(BTreeMap<Option<Owner>, (u64, Stalls)>);

impl Pressures {
    /// Returns the stall times since the previous readings, without owners that had none. Readings are of the
    /// end of an interval. The first ones are of its beginning: they were taken when counting started.
    pub(super) fn advance(&mut self, (from_ns, to_ns): (u64, u64), rows: &[PressureRow]) -> Stalling {
        let at_ns = if self.0.is_empty() { from_ns } else { to_ns };
        let mut stalling = Stalling::new();
        for PressureRow { owner, so_far } in rows {
            let Some((since_ns, before)) = self.0.insert(owner.clone(), (at_ns, so_far.clone())) else {
                continue;
            };
            let before: BTreeMap<Stall, u64> = before.into_iter().collect();
            let stall =
                |&(stall, total): &(Stall, u64)| Some((stall, total.saturating_sub(*before.get(&stall)?)));
            let stalls = so_far.iter().filter_map(stall).collect();
            stalling.insert(owner.clone(), Stalled { of_ns: at_ns.saturating_sub(since_ns), stalls });
        }
        stalling
    }
}

/// Adds the stall times of another interval.
pub(super) fn merge(into: &mut Stalling, more: &Stalling) {
    for (owner, more) in more {
        let sum = into.entry(owner.clone()).or_default();
        sum.of_ns = sum.of_ns.saturating_add(more.of_ns);
        for (&stall, &time_us) in &more.stalls {
            let sum = sum.stalls.entry(stall).or_default();
            *sum = sum.saturating_add(time_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Pressures, Stall, Stalled, Stalling, merge};
    use crate::drain::PressureRow;

    #[test]
    fn what_stood_still_before_the_run_is_not_its_own_and_ticks_add_up() {
        let row = |io_us| [PressureRow { owner: None, so_far: vec![(Stall::IoSome, io_us)] }];
        let (mut pressures, mut whole) = (Pressures::default(), Stalling::new());
        for (span_ns, io_us) in [((10, 500), 700), ((500, 1_000_010), 900), ((1_000_010, 3_000_010), 1500)] {
            merge(&mut whole, &pressures.advance(span_ns, &row(io_us)));
        }
        let all = Stalled { of_ns: 3_000_000, stalls: [(Stall::IoSome, 800)].into() };
        assert_eq!(whole, [(None, all)].into());
    }
}
