//! Differences between rows.

use pmu_common::{count::Count, cpu::CpuSamples, histogram::RUNQUEUE, off_cpu::OffCpu, sample::SampleCount};

use super::{
    CpuCounts, CpuEvent,
    cpu_time::CpuTime,
    histogram::Histogram,
    interrupt::Interrupted,
    interval::{Counts, OwnerEvent},
    samples::{WeightedSamples, Weights},
};
use crate::drain::{Cost, CountRow, CpuRow};

/// Cost of this process so far. Starting and looking up names take its CPU time, too, while nothing is
/// counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCost {
    /// Total cost so far.
    pub so_far: Cost,
    /// CPU time at the first drain and at the last, in ns.
    counted_ns: Option<(u64, u64)>,
}

impl OwnCost {
    /// Takes the cost in a drain.
    pub(super) fn drain(&mut self, cost: Cost) {
        let (first_ns, _) = self.counted_ns.unwrap_or((cost.cpu_ns, cost.cpu_ns));
        self.counted_ns = Some((first_ns, cost.cpu_ns));
        self.so_far = cost;
    }

    /// Takes the cost that is reported after the last drain.
    pub(super) const fn conclude(&mut self, cost: Cost) {
        self.so_far = cost;
    }

    /// Returns the CPU time of starting, until the first drain was read, in ns.
    pub fn startup_cpu_ns(&self) -> u64 {
        self.counted_ns.map_or(0, |(first_ns, _)| first_ns)
    }

    /// Returns the CPU time from the first drain to the last, in ns, which was taken from the counted tasks.
    pub fn counting_cpu_ns(&self) -> u64 {
        self.counted_ns.map_or(0, |(first_ns, last_ns)| last_ns.saturating_sub(first_ns))
    }
}

/// Returns the counts of an owner on a CPU between two readings of its row, without samples, time off the CPU
/// and interrupts.
pub(super) fn of_owner(last: Option<&CountRow>, row: &CountRow) -> Counts {
    let zero = Count::ZERO;
    let before = last.map_or(&zero, |last| &last.count);
    let now = &row.count;
    let waits = if row.latencies.is_empty() {
        Histogram::default()
    } else {
        Histogram::between(RUNQUEUE, last.map_or(&[], |last| &last.latencies), &row.latencies)
    };
    let longest = if now.wait_max_ns > before.wait_max_ns {
        (now.wait_max_ns, now.wait_max_ns)
    } else {
        // Not the longest ever, so only its bucket is known.
        waits.last().map_or((0, 0), |bucket| (bucket.low, bucket.high.min(now.wait_max_ns).max(bucket.low)))
    };
    let cpu_time_ns = now.cpu_time_ns.wrapping_sub(before.cpu_time_ns);
    Counts {
        cpu_time_ns,
        voluntary_switches: now.voluntary_switches.wrapping_sub(before.voluntary_switches),
        involuntary_switches: now.involuntary_switches.wrapping_sub(before.involuntary_switches),
        minor_faults: now.minor_faults.wrapping_sub(before.minor_faults),
        major_faults: now.major_faults.wrapping_sub(before.major_faults),
        migrations: now.migrations.wrapping_sub(before.migrations),
        waits,
        wait_ns: now.wait_ns.wrapping_sub(before.wait_ns),
        wait_max_ns: longest,
        late_ticks: now.late_ticks.wrapping_sub(before.late_ticks).into(),
        blind_ticks: now.blind_ticks.wrapping_sub(before.blind_ticks).into(),
        lateness: now.lateness.wrapping_sub(before.lateness).into(),
        ticks: now.ticks.wrapping_sub(before.ticks).into(),
        kernel_ticks: now.kernel_ticks.wrapping_sub(before.kernel_ticks),
        enable_ticks: now.enable_ticks.wrapping_sub(before.enable_ticks).into(),
        enable_ticks_on_time: now.enable_ticks_on_time.wrapping_sub(before.enable_ticks_on_time).into(),
        enable_instants: now.enable_instants.wrapping_sub(before.enable_instants).into(),
        enable_lateness: now.enable_lateness.wrapping_sub(before.enable_lateness).into(),
        off_cpu: OffCpu::ZERO,
        interrupted: Interrupted::default(),
        events: Vec::new(),
        cpus: (cpu_time_ns > 0).then_some(row.cpu).into_iter().collect(),
    }
}

/// Returns the samples of every event since the last reading, each with its current weight.
pub(super) fn samples(last: Option<&CountRow>, row: &CountRow, weights: &Weights) -> Vec<OwnerEvent> {
    let event = |(event, now): (usize, &SampleCount)| {
        let before = last.and_then(|last| last.samples.get(event)).copied().unwrap_or_default();
        let weight = weights.of(event as u32, Some(row.cpu));
        OwnerEvent {
            user: WeightedSamples::new(now.user.wrapping_sub(before.user), weight),
            kernel: WeightedSamples::new(now.kernel.wrapping_sub(before.kernel), weight),
            masked: now.masked.wrapping_sub(before.masked),
        }
    };
    row.samples.iter().enumerate().map(event).collect()
}

/// Returns the counts of a CPU between two readings of its row.
pub(super) fn of_cpu(last: &CpuRow, row: &CpuRow) -> CpuCounts {
    let classes =
        |now: [u64; 3], before: [u64; 3]| std::array::from_fn(|class| now[class].wrapping_sub(before[class]));
    let (count, before) = (&row.count, &last.count);
    let event = |(event, now): (usize, &CpuSamples)| {
        let before = last.samples.get(event).copied().unwrap_or_default();
        CpuEvent {
            samples: now.samples.wrapping_sub(before.samples),
            idle_samples: now.idle_samples.wrapping_sub(before.idle_samples),
            ran: None,
        }
    };
    // Only a clock has silences.
    let silent = |pick: fn(&CpuSamples) -> u64| {
        let sum = |row: &CpuRow| row.samples.iter().map(pick).fold(0, u64::wrapping_add);
        sum(row).wrapping_sub(sum(last))
    };
    CpuCounts {
        switches: count.switches.wrapping_sub(before.switches),
        switches_missing: count.switches_missing.wrapping_sub(before.switches_missing),
        times: None,
        ticks: count.ticks.wrapping_sub(before.ticks),
        late_ticks: classes(count.late_ticks, before.late_ticks),
        blind_ticks: classes(count.blind_ticks, before.blind_ticks),
        user_ticks: count.user_ticks.wrapping_sub(before.user_ticks).into(),
        kernel_ticks: count.kernel_ticks.wrapping_sub(before.kernel_ticks).into(),
        delayed_ticks: count.delayed_ticks.wrapping_sub(before.delayed_ticks).into(),
        lateness: count.lateness.wrapping_sub(before.lateness).into(),
        delayed_instants: count.delayed_instants.wrapping_sub(before.delayed_instants),
        enable_ticks: count.enable_ticks.wrapping_sub(before.enable_ticks).into(),
        enable_ticks_on_time: count.enable_ticks_on_time.wrapping_sub(before.enable_ticks_on_time).into(),
        enable_instants: count.enable_instants.wrapping_sub(before.enable_instants).into(),
        enable_lateness: count.enable_lateness.wrapping_sub(before.enable_lateness).into(),
        events: row.samples.iter().enumerate().map(event).collect(),
        silences: silent(|event| event.silences),
        silent_ns: silent(|event| event.silent_ns),
        withheld: silent(|event| event.withheld),
        uncovered_ns: 0,
        time: CpuTime::between(before, count),
    }
}
