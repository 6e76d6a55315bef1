//! What happened between two moments.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pmu_common::{off_cpu::OffCpu, sample::EVENTS_MAX};

use super::{
    CpuCounts, WeightedSamples,
    culprit::{self, Charged},
    histogram::Histogram,
    interrupt::{HandlerRuns, Interrupted, SpareInterrupts},
    limit::{self, IoLimited, Limited},
    owner::OwnerIndex,
    pressure::{self, Stalling},
    rare::{self, Rarely},
    slice::condense,
    sum::{add, merge_by_event},
};
use crate::{
    drain::{At, GapRow, Handler, Owner, Shed, Work, reading::SliceRow, unwinding::Unwinding},
    machine::{cpu::Cpu, throttling::Throttling},
};

/// Samples of one event that hit an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OwnerEvent {
    /// In user mode.
    pub user: WeightedSamples,
    /// In kernel mode.
    pub kernel: WeightedSamples,
    /// Those that found interrupts masked.
    pub masked: u64,
}

impl OwnerEvent {
    /// In both modes.
    pub fn all(&self) -> WeightedSamples {
        let mut all = self.user;
        all.merge(&self.kernel);
        all
    }
}

/// Slices of an owner that are told apart: a few minutes' worth, and enough for any interval.
const SLICES_MAX: usize = 4096;

/// What one owner did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Time on a CPU.
    pub cpu_time_ns: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Moves to another CPU.
    pub migrations: u64,
    /// Run-queue latencies.
    pub waits: Histogram,
    /// Their sum.
    pub wait_ns: u64,
    /// Bounds of the longest.
    pub wait_max_ns: (u64, u64),
    /// Late ticks while it ran with interrupts masked.
    pub late_ticks: u64,
    /// Tick instants in those spans.
    pub blind_ticks: u64,
    /// How long those spans were ([`pmu_common::gap::lateness`]); 0 in older recordings.
    pub lateness: i64,
    /// Ticks that came while it ran.
    pub ticks: u64,
    /// Those that found it in the kernel.
    pub kernel_ticks: u64,
    /// Late ticks that came right where the kernel lets interrupts in.
    pub enable_ticks: u64,
    /// Ticks on time that came there; 0 in older recordings.
    pub enable_ticks_on_time: u64,
    /// Tick instants in the spans of those that came late there; 0 in older recordings.
    pub enable_instants: u64,
    /// How long those spans were, likewise.
    pub enable_lateness: i64,
    /// Time off the CPU.
    pub off_cpu: OffCpu,
    /// Interrupt handlers that had its CPU meanwhile.
    pub interrupted: Interrupted,
    /// Samples, by event.
    pub events: Vec<OwnerEvent>,
    /// CPUs it ran on.
    pub cpus: BTreeSet<Cpu>,
}

impl Counts {
    /// Adds what another owner, or the same one in another interval, did.
    pub fn merge(&mut self, other: &Self) {
        add!(self, other: cpu_time_ns, voluntary_switches, involuntary_switches, minor_faults);
        add!(self, other: major_faults, migrations);
        self.waits.merge(&other.waits);
        add!(self, other: wait_ns);
        let (low, high) = (self.wait_max_ns, other.wait_max_ns);
        self.wait_max_ns = (low.0.max(high.0), low.1.max(high.1));
        add!(self, other: late_ticks, blind_ticks, lateness, ticks, kernel_ticks, enable_ticks, enable_ticks_on_time);
        add!(self, other: enable_instants, enable_lateness);
        self.off_cpu.merge(&other.off_cpu);
        self.interrupted.merge(&other.interrupted);
        merge_by_event(&mut self.events, &other.events, |sum, event| {
            sum.user.merge(&event.user);
            sum.kernel.merge(&event.kernel);
            sum.masked = sum.masked.saturating_add(event.masked);
        });
        self.cpus.extend(&other.cpus);
    }

    /// Context switches of both kinds.
    pub const fn switches(&self) -> u64 {
        self.voluntary_switches.saturating_add(self.involuntary_switches)
    }

    /// Samples of an event; none if it is not there.
    pub fn event(&self, event: usize) -> OwnerEvent {
        self.events.get(event).copied().unwrap_or_default()
    }
}

/// Samples of one event that hit one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HotKey {
    /// The event's place in the plan.
    pub event: u32,
    /// Whose.
    pub owner: OwnerIndex,
    /// The instruction.
    pub at: At,
}

/// [`StackKey::event`]: no event, but waits of blocked tasks. They weigh their time in ns, and their squares are its variance.
pub const OFF_CPU: u32 = EVENTS_MAX as u32;

/// Samples of one event with one stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackKey {
    /// The event's place in the plan, or [`OFF_CPU`].
    pub event: u32,
    /// Whose.
    pub owner: OwnerIndex,
    /// Frames, innermost first, kernel before user.
    pub frames: Vec<At>,
}

/// What happened between two moments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// Start, in ns since counting started.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// Time in which its samples were taken, in ns; `None` in older recordings.
    pub sampled_ns: Option<u64>,
    /// Per owner. An owner that did nothing is not there.
    pub owners: BTreeMap<OwnerIndex, Counts>,
    /// What seldom happened, per owner.
    pub rare: Rarely,
    /// Cgroups that ended in it.
    pub ended: BTreeSet<OwnerIndex>,
    /// Waits for a CPU by who waited and who had it.
    pub charged: Charged,
    /// Per CPU.
    pub cpus: BTreeMap<Cpu, CpuCounts>,
    /// What counters said about an owner, by slice in the order of their ends.
    pub slices: BTreeMap<OwnerIndex, Vec<SliceRow>>,
    /// Interrupt handlers, by CPU; none where they do not count.
    pub handlers: BTreeMap<(Cpu, Handler), HandlerRuns>,
    /// Those that interrupted nobody who counts.
    pub spare_interrupts: BTreeMap<Cpu, SpareInterrupts>,
    /// Samples by event, owner and instruction.
    pub hot: HashMap<HotKey, WeightedSamples>,
    /// Samples by stack.
    pub stacks: HashMap<StackKey, WeightedSamples>,
    /// What became of those whose user stack was to be unwound.
    pub unwinding: Unwinding,
    /// Late timers that were listed, with their owner.
    pub gaps: Vec<(Option<OwnerIndex>, GapRow)>,
    /// Those that are not, because there were too many: shorter than all that are.
    pub gaps_left_out: u64,
    /// What limits of CPU time did to cgroups; only at the end of a run.
    pub throttling: BTreeMap<Owner, Throttling>,
    /// Limits of cgroups; only at the end of a run.
    pub limits: Limited,
    /// Limits of cgroups' I/O; only at the end of a run.
    pub io_limits: IoLimited,
    /// For how long tasks stood still, of the host and of cgroups.
    pub pressure: Stalling,
    /// What was lost, by reason.
    pub losses: BTreeMap<String, u64>,
    /// What was stopped before its end to keep to the budget.
    pub shed: Vec<Shed>,
}

impl Interval {
    /// Length in ns.
    pub const fn length_ns(&self) -> u64 {
        // A recording may hold drains in any order.
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// Time of the CPUs that were counted, in ns: length times CPUs.
    pub fn capacity_ns(&self) -> u64 {
        self.length_ns().saturating_mul(self.cpus.len() as u64)
    }

    /// When and for which cost this work was stopped before the interval ended; `None` if it went on.
    pub fn stopped(&self, work: Work) -> Option<&Shed> {
        self.shed.iter().find(|shed| shed.work == Some(work))
    }

    /// All CPUs together.
    pub fn all_cpus(&self) -> CpuCounts {
        let mut sum = CpuCounts::default();
        self.cpus.values().for_each(|cpu| sum.merge(cpu));
        sum
    }

    /// All owners together: what the target did.
    pub fn all_owners(&self) -> Counts {
        let mut sum = Counts::default();
        self.owners.values().for_each(|counts| sum.merge(counts));
        sum
    }

    /// The same as [`Interval::extend`], for which an empty one need not copy anything.
    pub fn append(&mut self, next: Self) {
        if *self == Self::default() && next.slices.values().all(|rows| rows.len() <= SLICES_MAX) {
            *self = next;
        } else {
            self.extend(&next);
        }
    }

    /// Appends the interval that follows.
    pub fn extend(&mut self, next: &Self) {
        if self.to_ns == 0 {
            (self.from_ns, self.sampled_ns) = (next.from_ns, Some(0));
        }
        self.sampled_ns =
            self.sampled_ns.zip(next.sampled_ns).map(|(sum_ns, more_ns)| sum_ns.saturating_add(more_ns));
        self.to_ns = next.to_ns;
        for (&owner, counts) in &next.owners {
            self.owners.entry(owner).or_default().merge(counts);
        }
        rare::merge(&mut self.rare, &next.rare);
        self.ended.extend(&next.ended);
        culprit::merge(&mut self.charged, &next.charged);
        for (&owner, rows) in &next.slices {
            let all = self.slices.entry(owner).or_default();
            all.extend_from_slice(rows);
            if all.len() > SLICES_MAX {
                condense(all);
            }
        }
        for (&cpu, counts) in &next.cpus {
            self.cpus.entry(cpu).or_default().merge(counts);
        }
        for (&key, runs) in &next.handlers {
            self.handlers.entry(key).or_default().merge(runs);
        }
        for (&cpu, spare) in &next.spare_interrupts {
            self.spare_interrupts.entry(cpu).or_default().merge(spare);
        }
        for (&key, tally) in &next.hot {
            self.hot.entry(key).or_default().merge(tally);
        }
        for (key, tally) in &next.stacks {
            self.stacks.entry(key.clone()).or_default().merge(tally);
        }
        self.unwinding.append(next.unwinding.clone());
        self.gaps.extend(next.gaps.iter().cloned());
        self.gaps_left_out += next.gaps_left_out;
        for (owner, more) in &next.throttling {
            let sum = self.throttling.entry(owner.clone()).or_default();
            *sum = sum.plus(more);
        }
        limit::merge(&mut self.limits, &next.limits);
        self.io_limits.extend(next.io_limits.clone());
        pressure::merge(&mut self.pressure, &next.pressure);
        // Every drain has all of it; what names come with has none.
        if next.shed.len() > self.shed.len() {
            self.shed.clone_from(&next.shed);
        }
        for (reason, count) in &next.losses {
            let lost = self.losses.entry(reason.clone()).or_default();
            *lost = lost.saturating_add(*count);
        }
    }
}
