//! Intervals for tests: a run of known blind time.

use std::path::Path;

use pmu_common::gap::MASKED;

use crate::{
    drain::{Owner, OwnerRow, SlotId, TasksDrain, TasksHeader, recording::Recording},
    machine::cpu::Cpu,
    model::{Counts, CpuCounts, Interval, Ledger},
    plan::Target,
    untrusted::Untrusted,
};

/// Length of the interval of [`with_late_ticks`], in ns.
pub(crate) const LENGTH_NS: u64 = 2_000_000_000;
/// Time from one tick to the next, in ns.
pub(crate) const TICK_NS: u64 = 4_000_000;

/// A header as a recording has it, with another target.
pub(crate) fn header(target: Target) -> TasksHeader {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings/masked.pmbpf");
    let mut header = Recording::read(&file).unwrap().header.tasks.unwrap();
    header.machine.cpu.tick_ns = TICK_NS;
    header.plan.target = target;
    header
}

/// An interval of [`LENGTH_NS`] in which `late` ticks came late on each of `cpus` CPUs, half of them while process 7 ran,
/// which had each CPU for half of the time.
pub(crate) fn with_late_ticks(target: Target, cpus: u32, late: u64) -> (TasksHeader, Ledger, Interval) {
    let mut ledger = Ledger::new();
    let slot = SlotId { slot: 1, generation: 0 };
    let owner = Owner::Process { pid: 7, born_ns: 5, name: Untrusted::from("seven") };
    let owners = vec![OwnerRow { slot, owner, ended_ns: None }];
    ledger.advance(&TasksDrain { owners, ..TasksDrain::default() });
    let (index, _) = ledger.owners().last().unwrap();
    let mut cpu = CpuCounts { ticks: LENGTH_NS / TICK_NS, ..CpuCounts::default() };
    (cpu.late_ticks[MASKED], cpu.blind_ticks[MASKED]) = (late, late);
    let all = u64::from(cpus);
    let counts = Counts {
        cpu_time_ns: all * LENGTH_NS / 2,
        late_ticks: all * late / 2,
        blind_ticks: all * late / 2,
        cpus: (0..cpus).map(Cpu).collect(),
        ..Counts::default()
    };
    let interval = Interval {
        to_ns: LENGTH_NS,
        owners: [(index, counts)].into(),
        cpus: (0..cpus).map(|number| (Cpu(number), cpu.clone())).collect(),
        ..Interval::default()
    };
    (header(target), ledger, interval)
}
