//! Tests that merging keeps the sums.

use super::{Bounds, is_rest};
use crate::{
    drain::{At, CodeRow, CodeStackRow, CountRow, Located, Owner, OwnerRow, SlotId, TasksDrain},
    machine::cpu::Cpu,
    model::{Interval, Ledger, StackKey, gap::tests::row},
    untrusted::Untrusted,
};
use pmu_common::count::Count;

const BOUNDS: Bounds = Bounds { owners: 4, names: 2, hot: 8, stack_bytes: 400, gaps: 6, upwards: true };
const SECOND: u64 = 1_000_000_000;

/// A run in which one owner after the other lives and ends in slot 1, one a tick. Each runs for 10 ns and is
/// hit once.
struct Run {
    ledger: Ledger,
    total: Interval,
    ticks: u32,
}

impl Run {
    fn new() -> Self {
        Self { ledger: Ledger::new(), total: Interval::default(), ticks: 0 }
    }

    fn live(&mut self, owner: Owner, ended: bool) {
        self.ticks += 1;
        let slot = SlotId { slot: 1, generation: self.ticks };
        let at_ns = u64::from(self.ticks) * SECOND;
        let at = At { source: 3, offset: u64::from(self.ticks) };
        let drain = TasksDrain {
            at_ns,
            owners: vec![OwnerRow { slot, owner, ended_ns: ended.then_some(at_ns) }],
            counts: vec![CountRow {
                slot,
                cpu: Cpu(0),
                count: Count { cpu_time_ns: 10, ..Count::ZERO },
                samples: Vec::new(),
                latencies: Vec::new(),
            }],
            located: Located {
                code: vec![CodeRow { slot, at, count: 1, event: 0, cpu: None }],
                stacks: vec![CodeStackRow { slot, frames: vec![at, at], count: 1, event: 0 }],
                ..Located::default()
            },
            ..TasksDrain::default()
        };
        let interval = self.ledger.advance(&drain);
        self.total.extend(&interval);
        self.ledger.fold(&BOUNDS, &mut [&mut self.total]);
    }

    /// Returns the CPU time by owner.
    fn times(&self) -> Vec<(String, u64)> {
        let time = |(&index, counts): (_, &crate::model::Counts)| {
            (self.ledger.owner(index).in_words(), counts.cpu_time_ns)
        };
        self.total.owners.iter().map(time).collect()
    }
}

fn process(pid: u32, name: &str) -> Owner {
    Owner::Process { pid, born_ns: u64::from(pid), name: Untrusted::from(name) }
}

fn cgroup(id: u64, path: &str) -> Owner {
    Owner::cgroup(id, Untrusted::from(path))
}

#[test]
fn processes_that_ended_are_put_together_by_name_and_nothing_is_lost() {
    let mut run = Run::new();
    for pid in 1..=100 {
        run.live(process(pid, if pid % 2 == 0 { "cc1" } else { "as" }), true);
    }
    run.live(process(101, "daemon"), false);
    assert!(run.ledger.owners().count() <= BOUNDS.owners + 4, "{:?}", run.times());
    let times = run.times();
    assert_eq!(times.iter().map(|(_, time)| time).sum::<u64>(), 101 * 10);
    assert!(times.iter().any(|(name, time)| name.starts_with("cc1 × 4") && *time >= 450), "{times:?}");
    assert!(times.contains(&("daemon (101)".to_owned(), 10)), "who lives is apart: {times:?}");
    assert_eq!(run.total.hot.values().map(|tally| tally.samples).sum::<u64>(), 101);
    assert_eq!(run.total.stacks.values().map(|tally| tally.samples).sum::<u64>(), 101);
}

#[test]
fn more_names_than_may_be_are_one() {
    let mut run = Run::new();
    for pid in 1..=60 {
        run.live(process(pid, &format!("name-{pid}")), true);
    }
    let times = run.times();
    let other = times.iter().find(|(name, _)| name == "other").map(|&(_, time)| time);
    assert!(other > Some(400), "{times:?}");
    assert_eq!(times.iter().map(|(_, time)| time).sum::<u64>(), 600);
}

#[test]
fn what_an_ended_cgroup_did_is_its_parents() {
    let mut run = Run::new();
    run.live(cgroup(1, "/jobs"), false);
    for id in 2..=50 {
        run.live(cgroup(id, &format!("/jobs/{id}")), true);
    }
    let times = run.times();
    let jobs = times.iter().find(|(name, _)| name == "/jobs").map(|&(_, time)| time);
    assert!(jobs > Some(300), "{times:?}");
    assert_eq!(times.iter().map(|(_, time)| time).sum::<u64>(), 500);
}

#[test]
fn instructions_and_stacks_beyond_the_most_are_a_rest_of_each_owner() {
    let mut run = Run::new();
    let owner = || process(7, "web");
    for _ in 0..100 {
        run.live(owner(), false);
    }
    let stack_bytes: usize = run.total.stacks.keys().map(StackKey::bytes).sum();
    assert!(run.total.hot.len() <= BOUNDS.hot && stack_bytes <= BOUNDS.stack_bytes);
    assert!(run.total.stacks.keys().any(|key| key.frames.len() == 2), "some are whole");
    let rest = run.total.hot.iter().filter(|(key, _)| is_rest(key.at));
    assert!(rest.map(|(_, tally)| tally.samples).sum::<u64>() > 50);
    assert_eq!(run.total.hot.values().map(|tally| tally.samples).sum::<u64>(), 100);
    assert_eq!(run.total.stacks.values().map(|tally| tally.samples).sum::<u64>(), 100);
}

#[test]
fn the_longest_gaps_stay_and_the_others_are_counted() {
    let gap = |late_ns| row(0, late_ns, late_ns);
    let (mut ledger, mut total) = (Ledger::new(), Interval::default());
    for tick in 1..=10 {
        let gaps = (1..=3).map(|index| gap(tick * 10 + index)).collect();
        total.extend(&ledger.advance(&TasksDrain { at_ns: tick, gaps, ..TasksDrain::default() }));
        ledger.fold(&BOUNDS, &mut [&mut total]);
    }
    assert!(total.gaps.len() <= BOUNDS.gaps);
    assert_eq!(total.gaps.len() as u64 + total.gaps_left_out, 30);
    assert!(total.gaps.iter().any(|(_, row)| row.late_ns == 103), "the longest");
}

#[test]
fn what_is_known_by_a_name_is_one_owner_and_names_are_bounded() {
    let mut run = Run::new();
    let comm = |name: String| Owner::Comm { name: Untrusted::from(name.as_str()) };
    for _ in 0..3 {
        run.live(comm("cc1".to_owned()), false);
    }
    assert_eq!(run.times(), [("cc1".to_owned(), 30)]);
    // Names of one tick, each of a separate process.
    let names = super::BOUNDS.owners + 10;
    let slots = (0..names as u32).map(|slot| SlotId { slot: slot + 2, generation: 0 });
    let count = |slot| CountRow {
        slot,
        cpu: Cpu(0),
        count: Count { cpu_time_ns: 10, ..Count::ZERO },
        samples: Vec::new(),
        latencies: Vec::new(),
    };
    let owner = |slot: SlotId| OwnerRow { slot, owner: comm(slot.slot.to_string()), ended_ns: None };
    let drain = TasksDrain {
        at_ns: 9 * SECOND,
        owners: slots.clone().map(owner).collect(),
        counts: slots.map(count).collect(),
        ..TasksDrain::default()
    };
    let interval = run.ledger.advance(&drain);
    assert_eq!(run.ledger.owners().count(), super::BOUNDS.owners);
    let time: u64 = interval.owners.values().map(|counts| counts.cpu_time_ns).sum();
    assert_eq!(time, 10 * names as u64);
}
