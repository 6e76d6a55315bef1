//! Completeness of the numbers: missing events, samples that were not taken, lost records.
//!
//! Programs observe all tasks of a CPU, so these are the machine's numbers. [`TargetQuality`] compares a
//! target's samples with its own counts.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use pmu_common::loss;

use super::{Books, Floor, value::share};
use crate::{
    drain::{TasksHeader, Work},
    machine::{Machine, cpu::Cpu},
    model::{Counts, CpuCounts, Interval, Ledger, Ran},
    plan::{Sampling, Target},
    table::event::{self, SamplingEvent},
};

/// Completeness of the numbers. All but `target` covers the CPUs that were counted, regardless of the task
/// that ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Quality {
    /// Quality for the target; `None` where everything on the CPUs is the target.
    pub target: Option<TargetQuality>,
    /// Number of switch events seen.
    pub switches: u64,
    /// Number of switch events that never arrived. Counts catch up at the task's next one.
    pub switches_missing: u64,
    /// Share of the switches with a known task (0 to 1).
    pub switch_coverage: f64,
    /// Quality of the samples, by event.
    pub samples: Vec<SampleQuality>,
    /// Ticks, from which blind time is estimated.
    pub ticks: TickQuality,
    /// CPUs that were without events, and for how long in ns: offline, and until that was noticed.
    pub uncovered: Vec<(Cpu, u64)>,
    /// Distribution of the time of all CPUs, if everything was counted.
    pub books: Option<Books>,
}

impl Quality {
    /// Returns the share of the expected samples that were taken (0 to 1), by event: for the target, where
    /// they are distinguished.
    pub fn sample_coverages(&self) -> impl Iterator<Item = f64> + '_ {
        self.samples.iter().enumerate().map(|(event, samples)| {
            let targets = self.target.as_ref().and_then(|target| target.samples.get(event));
            targets.and_then(|samples| samples.coverage).unwrap_or(samples.coverage)
        })
    }
}

/// Number of samples that were taken, and of those that were expected.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleQuality {
    /// Name of the event.
    pub event: String,
    /// Number of expected samples: of a clock by the time, of other events by the counter's count. `None`
    /// where the counter was not read.
    pub expected: Option<u64>,
    /// Number of samples that were taken, regardless of the task that they hit.
    pub seen: u64,
    /// Number of samples that hit the idle task.
    pub idle: u64,
    /// Missing samples that idle or stolen time explains: not every kernel delivers the idle task's.
    pub idle_missing: u64,
    /// Missing samples between two that were on time: the kernel did not deliver them.
    pub withheld: u64,
    /// Number of silences that only a late timer explains.
    pub silences: u64,
    /// Time of the silences beyond a period, in ns.
    pub silent_ns: u64,
    /// Share of the samples expected outside idle and stolen time that are not missing (0 to 1); 1 if none
    /// can be expected.
    pub coverage: f64,
    /// Share of its time during which the event had a counter (0 to 1): its samples are weighted by it.
    pub running: f64,
}

/// Coverage of the time by ticks.
#[derive(Clone, Debug, PartialEq)]
pub struct TickQuality {
    /// Number of ticks seen.
    pub seen: u64,
    /// Time from one tick to the next in ns.
    pub period_ns: u64,
    /// Share of the CPUs' time that ticks watched (0 to 1). An idle CPU has no tick.
    pub coverage: f64,
    /// Floor: late ticks without anything being masked.
    pub floor: Option<Floor>,
    /// Whether a hypervisor runs this machine; its exits may delay the kernel more than user code.
    pub guest: bool,
}

pub(super) fn quality(
    machine: &Machine,
    (header, ledger): (&TasksHeader, &Ledger),
    interval: &Interval,
    total: &Counts,
) -> Quality {
    let cpus = interval.all_cpus();
    let unknown = interval.losses.get(loss::NAMES[loss::TASK_UNKNOWN]).copied().unwrap_or(0);
    let capacity_ns = interval.capacity_ns();
    let period_ns = machine.cpu.tick_ns;
    let watched_ns = cpus.ticks.saturating_mul(period_ns);
    Quality {
        target: (header.plan.target != Target::System).then(|| {
            let open_ns = period_ns.saturating_mul(running_cpus(ledger, interval));
            of_target(&header.plan.sampling, open_ns, total, sampled_share(interval) < 1.0)
        }),
        switches: cpus.switches,
        switches_missing: cpus.switches_missing,
        switch_coverage: if cpus.switches == 0 { 1.0 } else { 1.0 - share(unknown, cpus.switches) },
        samples: {
            let events = header.plan.sampling.iter().enumerate();
            events.map(|(event, sampling)| samples(event, sampling, (header, interval), &cpus)).collect()
        },
        ticks: TickQuality {
            seen: cpus.ticks,
            period_ns,
            coverage: share(watched_ns, capacity_ns),
            floor: Floor::of(&cpus),
            guest: machine.cpu.guest,
        },
        uncovered: {
            let times = interval.cpus.iter().map(|(&cpu, counts)| (cpu, counts.uncovered_ns));
            times.filter(|&(_, uncovered_ns)| uncovered_ns > 0).collect()
        },
        books: (header.plan.target == Target::System).then(|| Books::of(header, interval)).flatten(),
    }
}

fn samples(
    event: usize,
    sampling: &Sampling,
    (header, interval): (&TasksHeader, &Interval),
    cpus: &CpuCounts,
) -> SampleQuality {
    let seen = cpus.events.get(event).copied().unwrap_or_default();
    let quality = SampleQuality {
        event: sampling.event.clone(),
        expected: None,
        seen: seen.samples,
        idle: seen.idle_samples,
        idle_missing: 0,
        withheld: 0,
        silences: 0,
        silent_ns: 0,
        coverage: 1.0,
        running: 1.0,
    };
    match (sampling.period_ns(), seen.ran) {
        (Some(period_ns), _) => of_clock(quality, period_ns, (header, interval), cpus),
        (None, Some(_)) => of_counter(quality, event, sampling.period, interval),
        (None, None) => quality,
    }
}

/// Returns the quality for a counter, which overflows once for every period counted since it was opened, on
/// every CPU.
fn of_counter(quality: SampleQuality, event: usize, period: u64, interval: &Interval) -> SampleQuality {
    let (mut expected, mut all) = (0_u64, Ran::default());
    for ran in interval.cpus.values().filter_map(|cpu| cpu.events.get(event)?.ran) {
        expected = expected.saturating_add(ran.overflows(period));
        all.merge(&ran);
    }
    SampleQuality {
        expected: Some(expected),
        coverage: covered(expected.saturating_sub(quality.seen), expected),
        running: share(all.running_ns, all.enabled_ns),
        ..quality
    }
}

/// Returns the share (0 to 1) of what was expected that is not missing; 1 if nothing can be expected.
fn covered(missing: u64, expected: u64) -> f64 {
    if missing == 0 { 1.0 } else { (1.0 - share(missing, expected)).max(0.0) }
}

/// Returns the share of the interval (0 to 1) in which samples were taken: sampling may have been stopped to
/// keep to the budget.
fn sampled_share(interval: &Interval) -> f64 {
    interval.stopped(Work::Samples).map_or(1.0, |shed| {
        share(shed.at_ns.saturating_sub(interval.from_ns), interval.length_ns()).clamp(0.0, 1.0)
    })
}

/// Returns the time of all CPUs in which samples were due to the idle task or in stolen time, and the
/// possible error upward.
fn quiet_ns(cpus: &CpuCounts, excludes_steal: bool, cpu_count: u64) -> (u64, u64) {
    /// The kernel's own sums are exact to 10 ms at both ends, on every CPU.
    const EXACT_NS: u64 = 20_000_000;
    let told = cpus.times.unwrap_or_default();
    let Some(time) = &cpus.time else {
        return (told.idle_ns.saturating_add(told.stolen_ns), EXACT_NS.saturating_mul(cpu_count));
    };
    let left_out = time.excluded_ns.filter(|_| excludes_steal);
    let stolen_ns = left_out
        .map_or(told.stolen_ns, |excluded_ns| excluded_ns.saturating_sub(time.interrupts_ns.unwrap_or(0)));
    (time.idle_ns.saturating_add(stolen_ns), 0)
}

fn of_clock(
    quality: SampleQuality,
    period_ns: u64,
    (header, interval): (&TasksHeader, &Interval),
    cpus: &CpuCounts,
) -> SampleQuality {
    let (sampled, cpu_count) = (sampled_share(interval), interval.cpus.len() as u64);
    let due = |nanoseconds: u64| (nanoseconds as f64 * sampled) as u64 / period_ns.max(1);
    let expected = due(interval.sampled_ns.unwrap_or(interval.length_ns())).saturating_mul(cpu_count);
    let missing = expected.saturating_sub(quality.seen);
    let (quiet_ns, more_ns) = quiet_ns(cpus, header.excludes_steal, cpu_count);
    let quiet_due = due(quiet_ns);
    let idle_missing = missing.min(due(quiet_ns.saturating_add(more_ns)).saturating_sub(quality.idle));
    SampleQuality {
        expected: Some(expected),
        idle_missing,
        withheld: cpus.withheld,
        silences: cpus.silences,
        silent_ns: cpus.silent_ns,
        coverage: covered(missing - idle_missing, expected.saturating_sub(quiet_due)),
        ..quality
    }
}

/// Completeness of the target's own numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetQuality {
    /// Samples of the target, by event.
    pub samples: Vec<TargetSamples>,
}

/// Samples of one event that hit the target, and those that were expected.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSamples {
    /// Name of the event.
    pub event: String,
    /// Number of samples that should have hit it: of a clock by its CPU time, of an event that the kernel
    /// counts for each task by that count. `None` where the event's count for the target is not known.
    pub expected: Option<u64>,
    /// Number of samples that hit it.
    pub seen: u64,
    /// Share of the expected samples that were taken (0 to 1): 1 unless more are missing than chance
    /// explains, `None` where none are expected.
    pub coverage: Option<f64>,
}

/// Returns the number of CPUs on which owners ran that may still run at an end of the interval.
fn running_cpus(ledger: &Ledger, interval: &Interval) -> u64 {
    let living = interval.owners.iter().filter(|(index, _)| ledger.ended_ns(**index).is_none());
    living.flat_map(|(_, counts)| &counts.cpus).collect::<BTreeSet<_>>().len() as u64
}

/// Returns the quality of a target with these total counts. `open_ns` of its CPU time may belong to another
/// interval: the kernel accounts a running task's time at ticks. `is_stopped`: sampling was stopped, and the
/// target's counts until then are not known.
fn of_target(sampling: &[Sampling], open_ns: u64, total: &Counts, is_stopped: bool) -> TargetQuality {
    let samples = |(event, sampling): (usize, &Sampling)| {
        let expected = expected(sampling, open_ns, total).filter(|_| !is_stopped);
        let seen = total.event(event).all().samples;
        TargetSamples {
            event: sampling.event.clone(),
            expected: expected.map(|expected| expected.samples),
            seen,
            coverage: expected.map(|expected| expected.coverage(seen)),
        }
    };
    TargetQuality { samples: sampling.iter().enumerate().map(samples).collect() }
}

/// Number of samples that are due, and by how many chance may reduce it.
#[derive(Clone, Copy)]
struct Expected {
    samples: u64,
    slack: u64,
}

impl Expected {
    fn coverage(self, seen: u64) -> f64 {
        if seen.saturating_add(self.slack) >= self.samples { 1.0 } else { seen as f64 / self.samples as f64 }
    }
}

fn expected(sampling: &Sampling, open_ns: u64, total: &Counts) -> Option<Expected> {
    // A task's counts do not distinguish modes.
    if !sampling.modes.is_empty() {
        return None;
    }
    let (count, open) = match sampling.period_ns() {
        Some(_) => (total.cpu_time_ns, open_ns),
        None => (occurrences(sampling, total)?, 0),
    };
    let samples = count / sampling.period.max(1);
    // A period of 1 leaves nothing to chance. Longer periods are shared: the task that ends one is sampled. A
    // target's samples are thus a random part of its CPUs', and spread by no more than a Poisson count. In a
    // span in which the target has a CPU to itself, only the first and the last period are shared: a variance
    // of 1/4 at most.
    let variance = match sampling.period {
        0 | 1 => None,
        _ if sampling.period_ns().is_some() => {
            Some((samples as f64).min(total.switches() as f64 / 4.0 + 1.0))
        }
        _ => Some(samples as f64),
    };
    let slack = variance.map_or(0, |variance| {
        ((3.0 * variance.sqrt()).ceil() as u64).saturating_add(open / sampling.period).saturating_add(1)
    });
    Some(Expected { samples, slack })
}

/// Returns the number of occurrences of the event in the target, where the kernel counts it for each task.
fn occurrences(sampling: &Sampling, total: &Counts) -> Option<u64> {
    let is = |event: &SamplingEvent| (sampling.kind, sampling.config) == (event.kind, event.config);
    if is(&event::CONTEXT_SWITCHES) {
        Some(total.switches())
    } else if is(&event::PAGE_FAULTS) {
        Some(total.minor_faults.saturating_add(total.major_faults))
    } else if is(&event::MINOR_FAULTS) {
        Some(total.minor_faults)
    } else if is(&event::MAJOR_FAULTS) {
        Some(total.major_faults)
    } else {
        None
    }
}
