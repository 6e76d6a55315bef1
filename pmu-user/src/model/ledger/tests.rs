//! Tests of subtracting drains: omitted rows, wraps, slots in a new life.

use pmu_common::{
    count::Count,
    cpu::{CpuCount, CpuSamples},
    loss,
    sample::SampleCount,
};
use proptest::prelude::{prop, prop_assert_eq, proptest};

use super::Ledger;
use crate::{
    drain::{CountRow, CpuRow, Owner, OwnerRow, PressureRow, SlotId, TasksDrain, reading::SliceRow},
    machine::{
        cpu::{Cpu, Times},
        pressure::Stall,
    },
    model::{Interval, pressure::Stalled},
    untrusted::Untrusted,
};

fn slot(slot: u32, generation: u32) -> SlotId {
    SlotId { slot, generation }
}

fn process(at: SlotId, pid: u32, name: &str) -> OwnerRow {
    OwnerRow {
        slot: at,
        owner: Owner::Process { pid, born_ns: 5, name: Untrusted::from(name) },
        ended_ns: None,
    }
}

fn count(at: SlotId, cpu: u32, cpu_time_ns: u64, latencies: Vec<(u8, u32)>) -> CountRow {
    let count = Count { cpu_time_ns, ..Count::ZERO };
    CountRow { slot: at, cpu: Cpu(cpu), count, samples: vec![SampleCount::ZERO], latencies }
}

fn only(interval: &Interval) -> u64 {
    assert_eq!(interval.owners.len(), 1);
    interval.owners.values().next().map_or(0, |counts| counts.cpu_time_ns)
}

#[test]
fn a_row_that_is_left_out_has_not_changed() {
    let mut ledger = Ledger::new();
    let first = TasksDrain {
        at_ns: 10,
        owners: vec![process(slot(1, 0), 7, "a")],
        counts: vec![count(slot(1, 0), 0, 100, vec![(40, 2)])],
        ..TasksDrain::default()
    };
    assert_eq!(only(&ledger.advance(&first)), 100);
    assert!(ledger.advance(&TasksDrain { at_ns: 20, ..TasksDrain::default() }).owners.is_empty());
    let later = TasksDrain {
        at_ns: 30,
        counts: vec![count(slot(1, 0), 0, 160, vec![(40, 5)])],
        ..TasksDrain::default()
    };
    let interval = ledger.advance(&later);
    assert_eq!((interval.from_ns, interval.to_ns, only(&interval)), (20, 30, 60));
    assert_eq!(interval.owners.values().next().map(|counts| counts.waits.count()), Some(3));
}

#[test]
fn a_slot_in_a_new_life_starts_from_zero() {
    let mut ledger = Ledger::new();
    let old = TasksDrain {
        owners: vec![process(slot(1, 0), 7, "old")],
        counts: vec![count(slot(1, 0), 0, 1_000, Vec::new())],
        ..TasksDrain::default()
    };
    ledger.advance(&old);
    let new = TasksDrain {
        owners: vec![process(slot(1, 1), 8, "new")],
        counts: vec![count(slot(1, 1), 0, 30, Vec::new())],
        ..TasksDrain::default()
    };
    let interval = ledger.advance(&new);
    assert_eq!(only(&interval), 30);
    let names: Vec<_> = interval.owners.keys().map(|&index| ledger.owner(index).clone()).collect();
    assert!(matches!(&names[0], Owner::Process { pid: 8, .. }));
}

#[test]
fn a_process_keeps_its_counts_when_it_executes_another_program() {
    let mut ledger = Ledger::new();
    let at = slot(1, 0);
    let mut total = ledger.advance(&TasksDrain {
        owners: vec![process(at, 7, "sh")],
        counts: vec![count(at, 0, 10, Vec::new())],
        ..TasksDrain::default()
    });
    total.extend(&ledger.advance(&TasksDrain {
        at_ns: 5,
        owners: vec![process(at, 7, "make")],
        counts: vec![count(at, 0, 25, Vec::new())],
        ..TasksDrain::default()
    }));
    assert_eq!(only(&total), 25);
    let index = *total.owners.keys().next().unwrap();
    assert!(matches!(ledger.owner(index), Owner::Process { name, .. } if name.as_bytes() == b"make"));
}

#[test]
fn samples_that_change_alone_do_not_erase_the_latencies() {
    let mut ledger = Ledger::new();
    let at = slot(1, 0);
    ledger.advance(&TasksDrain { counts: vec![count(at, 0, 10, vec![(9, 4)])], ..TasksDrain::default() });
    let sampled = CountRow {
        samples: vec![SampleCount { user: 3, ..SampleCount::ZERO }],
        ..count(at, 0, 10, Vec::new())
    };
    let interval = ledger.advance(&TasksDrain { at_ns: 1, counts: vec![sampled], ..TasksDrain::default() });
    assert_eq!(
        interval.owners.values().next().map(|counts| (counts.event(0).user.samples, counts.waits.count())),
        Some((3, 0))
    );
    let interval = ledger.advance(&TasksDrain {
        at_ns: 2,
        counts: vec![count(at, 0, 11, vec![(9, 5)])],
        ..TasksDrain::default()
    });
    assert_eq!(interval.owners.values().next().map(|counts| counts.waits.count()), Some(1));
}

/// Returns the CPU time accounting of a CPU after drains with rows that were flushed at these times, each
/// with the idle time so far.
fn cpu_times(flushes: &[(u64, u64)]) -> Vec<Option<(u64, u64)>> {
    let mut ledger = Ledger::new();
    let mut times = |(at, &(flushed_ns, flushed_idle_ns)): (usize, &(u64, u64))| {
        let row = cpu_row(CpuCount { flushed_ns, flushed_idle_ns, ..CpuCount::ZERO });
        let drain = TasksDrain { at_ns: at as u64, cpus: vec![row], ..TasksDrain::default() };
        ledger.advance(&drain).cpus[&Cpu(0)].time.map(|time| (time.wall_ns, time.idle_ns))
    };
    flushes.iter().enumerate().map(&mut times).collect()
}

#[test]
fn the_time_of_a_cpu_that_is_offline_is_of_no_interval() {
    assert_eq!(
        cpu_times(&[(100, 5), (200, 15), (300, 25)]),
        [None, Some((100, 10)), Some((100, 10))],
        "the first drain is the baseline"
    );
    // Offline for two drains, then back: the times at which it went and came are not known.
    let gone = [(100, 5), (200, 15), (200, 15), (200, 15), (500, 20), (600, 30)];
    assert_eq!(cpu_times(&gone), [None, Some((100, 10)), None, None, None, Some((100, 10))]);
    assert_eq!(cpu_times(&[(0, 0), (0, 0)]), [None, None], "an older recording");
}

fn cpu_row(count: CpuCount) -> CpuRow {
    CpuRow { cpu: Cpu(0), count, samples: vec![CpuSamples::ZERO] }
}

#[test]
fn what_the_kernel_accounts_was_read_when_counting_started_however_late_the_first_drain_comes() {
    let mut ledger = Ledger::new();
    let drain = |at_ns, stalled_us| TasksDrain {
        at_ns,
        pressure: vec![PressureRow { owner: None, so_far: vec![(Stall::CpuSome, stalled_us)] }],
        ..TasksDrain::default()
    };
    ledger.advance(&drain(400, 1_000));
    let interval = ledger.advance(&drain(1_000, 1_700));
    let stalled = Stalled { of_ns: 1_000, stalls: [(Stall::CpuSome, 700)].into() };
    assert_eq!(interval.pressure, [(None, stalled)].into());
}

#[test]
fn the_first_drain_is_the_baseline_of_the_cpus() {
    let mut ledger = Ledger::new();
    let before = CpuCount { switches: 500, ..CpuCount::ZERO };
    let times = |idle_ns| vec![(Cpu(0), Times { idle_ns, ..Times::default() })];
    let first = ledger.advance(&TasksDrain {
        cpus: vec![cpu_row(before)],
        times: times(70),
        samples_until_ns: Some(30),
        ..TasksDrain::default()
    });
    assert_eq!(first.sampled_ns, Some(0));
    assert_eq!((first.all_cpus().switches, first.all_cpus().times), (0, None));
    let after = CpuCount { switches: 520, ..before };
    let second = ledger.advance(&TasksDrain {
        at_ns: 100,
        cpus: vec![cpu_row(after)],
        times: times(95),
        samples_until_ns: Some(90),
        ..TasksDrain::default()
    });
    assert_eq!(second.all_cpus().switches, 20);
    let mut both = first;
    both.extend(&second);
    assert_eq!((both.sampled_ns, both.length_ns()), (Some(60), 100));
    assert_eq!(second.all_cpus().times.map(|times| times.idle_ns), Some(25));
}

#[test]
fn losses_are_counted_once_and_by_reason() {
    let mut ledger = Ledger::new();
    let mut count = CpuCount::ZERO;
    ledger.advance(&TasksDrain { cpus: vec![cpu_row(count)], ..TasksDrain::default() });
    count.losses[loss::RING_FULL] = 3;
    let losses = vec![("cpu_not_flushed".to_owned(), 2)];
    let drain = TasksDrain { at_ns: 1, cpus: vec![cpu_row(count)], losses, ..TasksDrain::default() };
    let interval = ledger.advance(&drain);
    assert_eq!(interval.losses.get("ring_full"), Some(&3));
    assert_eq!(interval.losses.get("cpu_not_flushed"), Some(&2));
    assert!(ledger.advance(&TasksDrain { at_ns: 2, ..drain }).losses.is_empty());
}

#[test]
fn the_longest_wait_is_exact_when_it_happens_and_bounded_later() {
    let mut ledger = Ledger::new();
    let row = |max, latencies| {
        let mut row = count(slot(1, 0), 0, 1, latencies);
        row.count.wait_max_ns = max;
        TasksDrain { counts: vec![row], ..TasksDrain::default() }
    };
    let first = ledger.advance(&row(1_000, vec![(56, 1)]));
    assert_eq!(first.owners.values().next().map(|counts| counts.wait_max_ns), Some((1_000, 1_000)));
    let second = ledger.advance(&row(1_000, vec![(56, 1), (32, 1)]));
    let (low, high) = second.owners.values().next().map(|counts| counts.wait_max_ns).unwrap();
    assert!(low <= 32 * 4 && high < 1_000, "{low}..{high}");
}

#[test]
fn slices_go_to_the_owner_that_had_the_slot_and_follow_each_other() {
    let mut ledger = Ledger::new();
    let row = |at, slice| SliceRow { slot: at, slice, ..SliceRow::default() };
    let mut total = ledger.advance(&TasksDrain {
        owners: vec![process(slot(1, 0), 7, "old")],
        slices: vec![row(slot(1, 0), 1), row(slot(0, 0), 1), row(slot(1, 0), 2)],
        ..TasksDrain::default()
    });
    total.extend(&ledger.advance(&TasksDrain {
        at_ns: 5,
        owners: vec![process(slot(1, 1), 8, "new"), process(slot(2, 0), 7, "old")],
        slices: vec![row(slot(1, 1), 3), row(slot(2, 0), 3)],
        ..TasksDrain::default()
    }));
    let of = |wanted: &str| -> Vec<u64> {
        let named = |owner: &Owner| match owner {
            Owner::Process { name, .. } => name.as_bytes() == wanted.as_bytes(),
            _ => wanted.is_empty(),
        };
        let (index, _) = ledger.owners().find(|(_, owner)| named(owner)).unwrap();
        total.slices[&index].iter().map(|row| row.slice).collect()
    };
    assert_eq!((of("old"), of("new"), of("")), (vec![1, 2, 3], vec![3], vec![1]));
}

proptest! {
    /// Intervals add up to the count, however drains cut a growing, wrapping counter.
    #[test]
    fn intervals_add_up(start in proptest::num::u64::ANY, steps in prop::collection::vec(0_u64..1 << 40, 1..20)) {
        let mut ledger = Ledger::new();
        let at = slot(1, 0);
        ledger.advance(&TasksDrain { counts: vec![count(at, 0, start, Vec::new())], ..TasksDrain::default() });
        let (mut now, mut total, mut appended) = (start, Interval::default(), Interval::default());
        for (index, step) in steps.iter().enumerate() {
            now = now.wrapping_add(*step);
            let drain = TasksDrain { at_ns: index as u64, counts: vec![count(at, 0, now, Vec::new())], ..TasksDrain::default() };
            let interval = ledger.advance(&drain);
            total.extend(&interval);
            appended.append(interval);
        }
        prop_assert_eq!(only(&total), steps.iter().sum::<u64>());
        prop_assert_eq!(total, appended);
    }
}
