//! Counts between two moments.

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
    /// Samples in user mode.
    pub user: WeightedSamples,
    /// Samples in kernel mode.
    pub kernel: WeightedSamples,
    /// Samples that found interrupts masked.
    pub masked: u64,
}

impl OwnerEvent {
    /// Returns the samples in both modes.
    pub fn all(&self) -> WeightedSamples {
        let mut all = self.user;
        all.merge(&self.kernel);
        all
    }
}

/// Slices of an owner that are kept apart: a few minutes' worth, and enough for any interval.
const SLICES_MAX: usize = 4096;

/// Counts of one owner.
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
    /// Histogram of run-queue latencies.
    pub waits: Histogram,
    /// Sum of the latencies.
    pub wait_ns: u64,
    /// Bounds of the longest latency.
    pub wait_max_ns: (u64, u64),
    /// Late ticks while the owner ran with interrupts masked.
    pub late_ticks: u64,
    /// Tick instants in those spans.
    pub blind_ticks: u64,
    /// Lateness of those spans ([`pmu_common::gap::lateness`]); 0 in older recordings.
    pub lateness: i64,
    /// Ticks that came while the owner ran.
    pub ticks: u64,
    /// Ticks that found the owner in the kernel.
    pub kernel_ticks: u64,
    /// Late ticks that came right where the kernel enables interrupts.
    pub enable_ticks: u64,
    /// Ticks on time that came there; 0 in older recordings.
    pub enable_ticks_on_time: u64,
    /// Tick instants in the spans of those that came late there; 0 in older recordings.
    pub enable_instants: u64,
    /// Lateness of those spans, likewise.
    pub enable_lateness: i64,
    /// Time off the CPU.
    pub off_cpu: OffCpu,
    /// Interrupt handlers that had its CPU while it ran.
    pub interrupted: Interrupted,
    /// Samples, by event.
    pub events: Vec<OwnerEvent>,
    /// CPUs on which it ran.
    pub cpus: BTreeSet<Cpu>,
}

impl Counts {
    /// Adds the counts of another owner, or of the same one in another interval.
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

    /// Returns the context switches of both kinds.
    pub const fn switches(&self) -> u64 {
        self.voluntary_switches.saturating_add(self.involuntary_switches)
    }

    /// Returns the samples of an event, which are none if the event is not there.
    pub fn event(&self, event: usize) -> OwnerEvent {
        self.events.get(event).copied().unwrap_or_default()
    }
}

/// Samples of one event that hit one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HotKey {
    /// Index of the event in the plan.
    pub event: u32,
    /// Owner of the samples.
    pub owner: OwnerIndex,
    /// Location of the instruction.
    pub at: At,
}

/// [`StackKey::event`] of the waits of blocked tasks, which have no event. Their weight is their time in ns,
/// and their squares are its variance.
pub const OFF_CPU: u32 = EVENTS_MAX as u32;

/// Samples of one event with one stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackKey {
    /// Index of the event in the plan, or [`OFF_CPU`].
    pub event: u32,
    /// Owner of the samples.
    pub owner: OwnerIndex,
    /// Frames, innermost first, kernel before user.
    pub frames: Vec<At>,
}

/// Counts between two moments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// Start, in ns since counting started.
    pub from_ns: u64,
    /// End, in ns since counting started.
    pub to_ns: u64,
    /// Time in which the samples were taken, in ns; `None` in older recordings.
    pub sampled_ns: Option<u64>,
    /// Counts by owner, without owners that did nothing.
    pub owners: BTreeMap<OwnerIndex, Counts>,
    /// Rare events by owner.
    pub rare: Rarely,
    /// Cgroups that ended in the interval.
    pub ended: BTreeSet<OwnerIndex>,
    /// Waits for a CPU by victim and culprit.
    pub charged: Charged,
    /// Counts by CPU.
    pub cpus: BTreeMap<Cpu, CpuCounts>,
    /// Counts of events by owner and slice, in the order in which the slices ended.
    pub slices: BTreeMap<OwnerIndex, Vec<SliceRow>>,
    /// Interrupt handlers by CPU; empty if they are not counted.
    pub handlers: BTreeMap<(Cpu, Handler), HandlerRuns>,
    /// Handlers that interrupted no counted owner.
    pub spare_interrupts: BTreeMap<Cpu, SpareInterrupts>,
    /// Samples by event, owner and instruction.
    pub hot: HashMap<HotKey, WeightedSamples>,
    /// Samples by stack.
    pub stacks: HashMap<StackKey, WeightedSamples>,
    /// Outcomes of unwinding user stacks.
    pub unwinding: Unwinding,
    /// Late timers that are listed, with their owner.
    pub gaps: Vec<(Option<OwnerIndex>, GapRow)>,
    /// Late timers that are not listed, because there were too many: shorter than all that are.
    pub gaps_left_out: u64,
    /// Throttling of cgroups by limits of CPU time; only at the end of a run.
    pub throttling: BTreeMap<Owner, Throttling>,
    /// Limits of cgroups; only at the end of a run.
    pub limits: Limited,
    /// Limits of cgroups' I/O; only at the end of a run.
    pub io_limits: IoLimited,
    /// Stall times of tasks, of the host and of cgroups.
    pub pressure: Stalling,
    /// Losses by reason.
    pub losses: BTreeMap<String, u64>,
    /// Work that was stopped before the end of the interval, to keep to the budget.
    pub shed: Vec<Shed>,
}

impl Interval {
    /// Returns the length in ns.
    pub const fn length_ns(&self) -> u64 {
        // A recording may hold drains in any order.
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// Returns the time of the counted CPUs, in ns: length times CPUs.
    pub fn capacity_ns(&self) -> u64 {
        self.length_ns().saturating_mul(self.cpus.len() as u64)
    }

    /// Returns the time and cost at which this work was stopped before the interval ended; `None` if it went
    /// on.
    pub fn stopped(&self, work: Work) -> Option<&Shed> {
        self.shed.iter().find(|shed| shed.work == Some(work))
    }

    /// Returns the sum over all CPUs.
    pub fn all_cpus(&self) -> CpuCounts {
        let mut sum = CpuCounts::default();
        self.cpus.values().for_each(|cpu| sum.merge(cpu));
        sum
    }

    /// Returns the sum over all owners: the counts of the target.
    pub fn all_owners(&self) -> Counts {
        let mut sum = Counts::default();
        self.owners.values().for_each(|counts| sum.merge(counts));
        sum
    }

    /// Does the same as [`Interval::extend`]. An empty interval takes `next` without a copy.
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
        // Every drain has all of it. The interval that comes with names has none.
        if next.shed.len() > self.shed.len() {
            self.shed.clone_from(&next.shed);
        }
        for (reason, count) in &next.losses {
            let lost = self.losses.entry(reason.clone()).or_default();
            *lost = lost.saturating_add(*count);
        }
    }
}
