//! Intervals for tests: a run of known blind time. Random numbers, the same on every run (xorshift64*, Vigna
//! 2016).

use std::path::Path;

use pmu_common::gap::MASKED;

use super::io::{History, IoReport, Prepared};
use crate::{
    drain::{
        Header, Owner, OwnerRow, SlotId, TasksDrain, TasksHeader,
        io::{self, IoDrain, IoHeader},
        recording::Recording,
    },
    machine::{Machine, cpu::Cpu},
    model::{
        Counts, CpuCounts, Interval, Ledger,
        io::{IoInterval, IoLedger},
    },
    plan::Target,
    untrusted::Untrusted,
};

/// Length of the interval of [`with_late_ticks`], in ns.
pub(crate) const LENGTH_NS: u64 = 2_000_000_000;
/// Time from one tick to the next, in ns.
pub(crate) const TICK_NS: u64 = 4_000_000;

fn recorded() -> Header {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings/masked.pmbpf");
    let mut header = Recording::read(&file).unwrap().header;
    header.machine.cpu.tick_ns = TICK_NS;
    header
}

/// Returns the host of a recording.
pub(crate) fn machine() -> Machine {
    recorded().machine
}

/// Returns the header of its tasks, with another target.
pub(crate) fn header(target: Target) -> TasksHeader {
    let mut header = recorded().tasks.unwrap();
    header.plan.target = target;
    header
}

/// Returns the report of a run's drains on the simulated host.
pub(crate) fn io_report(header: &IoHeader, drains: impl IntoIterator<Item = IoDrain>) -> IoReport {
    let (prepared, mut ledger) =
        (Prepared::new(header, &io::testing::machine().topology).unwrap(), IoLedger::new(&header.plan));
    let (mut history, mut total) = (History::new(&header.plan), IoInterval::default());
    for drain in drains {
        let tick = ledger.advance(drain);
        history.add(&prepared, &ledger, &tick);
        total.append(tick);
    }
    history.report(&prepared, &ledger, &total)
}

impl From<TasksHeader> for Header {
    fn from(tasks: TasksHeader) -> Self {
        Self { tasks: Some(tasks), ..recorded() }
    }
}

/// Returns an interval of [`LENGTH_NS`] in which `late` ticks were late on each of `cpus` CPUs, half of them
/// while process 7 ran. It had each CPU for half of the time.
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

/// Reciprocal of the standard deviation of uniform numbers from 0 to 1.
const SQRT_12: f64 = 3.464_101_615_137_754_6;

pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number from 0 to 1, excluding 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Returns a number for which every order of magnitude is equally likely.
    pub(crate) fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.uniform() * end as f64) as usize
    }

    pub(in crate::metric) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }

    /// Returns the number of arrivals at unit rate until the time is over (Knuth).
    pub(in crate::metric) fn poisson(&mut self, mean: f64) -> u64 {
        let (mut time, mut count) = (0.0, 0);
        loop {
            time += self.exponential(1.0);
            if time > mean {
                return count;
            }
            count += 1;
        }
    }

    /// Returns a uniform number with mean 0 and variance 1: several make a slice, and their sum is nearly
    /// normal.
    pub(in crate::metric) fn noise(&mut self) -> f64 {
        (self.uniform() - 0.5) * SQRT_12
    }

    pub(in crate::metric) fn shuffle(&mut self, items: &mut [u32]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}
