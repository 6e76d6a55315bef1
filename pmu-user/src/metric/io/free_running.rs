//! Inbound traffic of every part of every stack, by free-running counters. They are not multiplexed, so a
//! part is counted separately even if no device is known behind it.

use crate::{
    machine::io::stack::Unit,
    model::io::{IoInterval, UncoreId},
    plan::io::{IoPlan, UncoreInstance, UncoreKind},
};

/// A part of a stack: its uncore PMU, and its number.
pub(super) type Part = (Unit, u32);

/// Kind of uncore PMU with free-running counters, one in addition to each stack's own.
pub(super) const BOXES: &str = "iio_free_running";
/// Name of these counters, before the number of the part.
const COUNTER: &str = "bw_in_port";
/// Only group of these counters.
const GROUP: Option<u32> = Some(0);

/// Counter of the inbound traffic of one part.
#[derive(Clone, Debug)]
pub(super) struct Inlet {
    /// Id of the uncore PMU.
    id: UncoreId,
    /// Index of the event.
    event: usize,
    /// Part that it counts, on the stack's own uncore PMU.
    pub(super) part: Part,
}

impl Inlet {
    /// Returns all inlets that a plan reads.
    pub(super) fn all(plan: &IoPlan) -> Vec<Self> {
        let kinds = (0..).zip(&plan.kinds).filter(|(_, kind)| kind.name == BOXES);
        kinds.flat_map(|(number, kind)| Self::of_kind(plan, number, kind)).collect()
    }

    fn of_kind(plan: &IoPlan, number: u32, kind: &UncoreKind) -> Vec<Self> {
        let events = kind.turns.groups.first().map_or(&[][..], |group| &group.events);
        let part = |name: &str| name.strip_prefix(COUNTER)?.parse::<u32>().ok();
        let parts: Vec<(usize, u32)> = events
            .iter()
            .enumerate()
            .filter_map(|(event, named)| Some((event, part(&named.name)?)))
            .collect();
        let stacks = (0..).zip(&kind.instances).filter_map(|(at, site)| Some((at, stack(plan, site)?)));
        let of_stack = |(at, unit): (u32, Unit)| {
            let inlet =
                |&(event, part): &(usize, u32)| Self { id: (number, at), event, part: (unit.clone(), part) };
            parts.iter().map(inlet).collect::<Vec<Self>>()
        };
        stacks.flat_map(of_stack).collect()
    }

    /// Returns the count in the counter's own unit, or none if it was not read.
    pub(super) fn counted(&self, interval: &IoInterval) -> Option<f64> {
        let slices = interval.uncore.get(&self.id)?.iter().filter(|slice| slice.group == GROUP);
        let add = |(count, running_ns): (f64, f64), slice: &crate::drain::reading::SliceRow| {
            Some((count + *slice.counts.get(self.event)? as f64, running_ns + slice.running_ns as f64))
        };
        let (count, running_ns) = slices.into_iter().try_fold((0.0, 0.0), add)?;
        // A failed reading leaves its time to the next one.
        (running_ns > 0.0).then(|| count / running_ns * 1e9 * interval.seconds())
    }
}

/// Returns the stack's own uncore PMU, which has the same number on the same die.
fn stack(plan: &IoPlan, site: &UncoreInstance) -> Option<Unit> {
    let mut sites = plan.kinds.iter().filter(|kind| kind.name == "iio").flat_map(|kind| &kind.instances);
    let own = sites.find(|own| (own.die, own.unit) == (site.die, site.unit))?;
    Some(Unit { pmu: own.pmu.clone(), cpu: own.cpu })
}

#[cfg(test)]
mod tests {
    use super::Inlet;
    use crate::{
        drain::io::testing::{always_running, steady},
        machine::cpu::Cpu,
        model::io::IoInterval,
    };

    #[test]
    fn every_part_of_every_stack_is_counted_by_itself() {
        let mut header = always_running();
        // The other PMU names a different CPU for the die.
        header.plan.kinds.iter_mut().filter(|kind| kind.name == super::BOXES).for_each(|kind| {
            kind.instances[1].cpu = Cpu(2);
        });
        let inlets = Inlet::all(&header.plan);
        let found: Vec<(&str, u32, u32)> = inlets
            .iter()
            .map(|inlet| (inlet.part.0.pmu.as_str(), inlet.part.0.cpu.0, inlet.part.1))
            .collect();
        let expected = ["uncore_iio_0", "uncore_iio_1"]
            .into_iter()
            .flat_map(|pmu| (0..8).map(move |part| (pmu, 0, part)));
        assert_eq!(found, expected.collect::<Vec<_>>());
        header.plan.kinds.retain(|kind| kind.name != super::BOXES);
        assert!(Inlet::all(&header.plan).is_empty());
    }

    #[test]
    fn a_slice_that_is_longer_than_the_tick_counts_as_much_of_it_and_none_is_not_0() {
        let header = always_running();
        let inlet = &Inlet::all(&header.plan)[3];
        let counted = |edit: fn(&mut Vec<crate::drain::io::UncoreSlice>)| {
            let mut drain = steady(&header, 1, &[("bw_in_port3", 5_000)]).remove(0);
            edit(&mut drain.uncore);
            inlet.counted(&IoInterval::of(drain.uncore, 0, drain.at_ns))
        };
        assert_eq!(counted(|_| {}), Some(5_000.0));
        let twice = |slices: &mut Vec<crate::drain::io::UncoreSlice>| {
            slices.iter_mut().for_each(|slice| slice.running_ns *= 2);
        };
        assert_eq!(counted(twice), Some(2_500.0));
        assert_eq!(counted(|slices| slices.iter_mut().for_each(|slice| slice.running_ns = 0)), None);
        assert_eq!(counted(|slices| slices.iter_mut().for_each(|slice| slice.counts.clear())), None);
        assert_eq!(counted(Vec::clear), None);
    }
}
