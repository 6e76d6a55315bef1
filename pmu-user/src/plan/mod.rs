//! Plan of a run, decided before anything is opened: what counts, how often, and how much memory it takes.
//!
//! A plan is plain data: `--dry-run` prints it, a recording begins with it, and a test can construct one.

pub mod count;
mod error;
pub mod io;
pub mod metrics;
pub mod multiplexing;
mod one_or_several;
pub mod profile;
pub mod request;
mod ring;
mod runs;
mod sampling;
pub mod schedule;
mod target;
#[cfg(test)]
mod tests;

use std::{path::Path, time::Duration};

use pmu_common::{
    config::{self, Config},
    count::Count,
    histogram::RunqueueBuckets,
    interrupt::Interrupted,
    sample::{SampleCount, hot_epoch_shift},
};
use serde::{Deserialize, Serialize};

pub use self::{
    error::{Class, PlanError},
    sampling::{Need, Precision, Sampling, in_step},
    target::{Target, Word, extent, in_words_with},
};
use self::{
    metrics::Choice,
    request::{
        By, CgroupPressure, Culprits, Descend, Inherit, Interrupts, OffCpu, Request, Stacks, Target as Asked,
        Unwind, WantedMetrics,
    },
    target::resolve,
};
use crate::{
    machine::{Machine, container::Follow, cpu::Cpu, pmu::catalog::Entry},
    untrusted::Untrusted,
};

/// Default number of samples per second and CPU: not a multiple of any usual timer, and about 0.1 % of a CPU.
pub const FREQUENCY: u32 = 99;
/// Delay from which a timer counts as late: well above the jitter of a quiet host.
const LATE_MIN_NS: u64 = 50_000;
/// Default maximum time between two drains.
const TICK: Duration = Duration::from_secs(1);
/// Default number of slots.
const SLOTS: u32 = 2048;
/// Default limit of the memory for rows by slot and CPU.
const ROWS_BYTES_MAX: u64 = 256 << 20;
/// Bytes that one owner takes on one CPU, without its samples, and for each sampling event.
const OWNER_BYTES: u64 = (size_of::<Count>() + size_of::<RunqueueBuckets>()) as u64;
const SAMPLE_BYTES: u64 = size_of::<SampleCount>() as u64;

/// Row that is not available here, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Quantity that the row measures.
    pub row: String,
    /// Reason why it is not available.
    pub why: String,
}

/// Plan of what a run opens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Target that is counted.
    pub target: Target,
    /// Names that may match more cgroups during the count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub follow: Vec<Follow>,
    /// Kind of owner to which counts are charged.
    pub by: By,
    /// Inheritance by children of processes.
    pub inherit: Inherit,
    /// Treatment of cgroups below the target.
    pub descend: Descend,
    /// CPUs that count.
    pub cpus: Vec<Cpu>,
    /// Events that trigger samples, if any. The hot functions are sorted by the first.
    #[serde(default, deserialize_with = "one_or_several::deserialize")]
    pub sampling: Vec<Sampling>,
    /// Configuration of the sampling events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Rows of the configuration that are not available here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<Lost>,
    /// Counters per owner, by core PMU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<multiplexing::Multiplexing>,
    /// Metrics of the counters, in the same order of core PMUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "one_or_several")]
    pub metrics: Vec<metrics::Metrics>,
    /// Whether metrics were requested explicitly, so that a run without them fails.
    #[serde(skip)]
    pub needs_metrics: bool,
    /// Reason why there are no metrics, if there are none: of all cores, or of one kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_metrics: Option<String>,
    /// Whether samples carry stacks.
    pub stacks: Stacks,
    /// Method of unwinding user stacks.
    #[serde(default, skip_serializing_if = "Unwind::is_fp")]
    pub unwind: Unwind,
    /// Whether waits for a CPU are charged to the owner that had it.
    #[serde(default, skip_serializing_if = "Culprits::is_yes")]
    pub culprits: Culprits,
    /// Whether time off the CPU is counted.
    #[serde(default, skip_serializing_if = "OffCpu::is_no")]
    pub off_cpu: OffCpu,
    /// Whether interrupt handlers are counted, with the tasks that they interrupt.
    #[serde(default, skip_serializing_if = "Interrupts::is_no")]
    pub interrupts: Interrupts,
    /// Whether the pressure of cgroups is read.
    #[serde(skip)]
    pub cgroup_pressure: CgroupPressure,
    /// Share of the CPUs (0 to 1) that counting may cost before work is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// Interval between two reports, for reports during the run.
    pub interval: Option<Duration>,
    /// Time between two drains.
    pub tick: Duration,
    /// Duration after which counting stops.
    pub duration: Option<Duration>,
    /// Owners that can be distinguished at a time, plus one.
    pub slots: u32,
    /// Entries of one hot-address table.
    pub hot_entries: u32,
    /// Size of the ring buffer.
    pub ring_bytes: u32,
    /// Delay from which a timer counts as late.
    pub late_min_ns: u64,
    /// Delay from which a timer is listed as a gap.
    pub gap_min_ns: u64,
}

impl Plan {
    /// Decides what to open for `request` on `machine`, with its files below `root`. Needs no privilege.
    ///
    /// # Errors
    ///
    /// Returns what is not available, the reason, and the nearest match.
    pub fn new(request: &Request, machine: &Machine, root: &Path) -> Result<Self, PlanError> {
        let (target, follow) = resolve(&request.target, machine, root)?;
        let cgroups = matches!(target, Target::Cgroups(_)) || request.target == Asked::AllCgroups;
        let by = request.by.unwrap_or(if cgroups { By::Cgroup } else { By::Process });
        if by == By::Cgroup && machine.cgroups.v2.is_none() {
            return Err(crate::machine::cgroup::ResolveError::NoV2.into());
        }
        let cpus = cpus(request, machine)?;
        let (sampling, lost) = sampling::sampling(request, machine, root)?;
        let tick = tick(request.interval, request.tick_max);
        let held = |pmu: &Entry| sampling.iter().filter_map(|event| event.hold_on(pmu)).collect();
        let mut choice = Choice::new(&request.metrics, (extent(&target), &cpus, &held), machine, root)?;
        choice.tell_room(request.interval, tick);
        let Choice { turns, metrics, why_none } = choice;
        let row_bytes = row_bytes(sampling.len(), &turns, (request.off_cpu, request.interrupts));
        let slots = slots(request.owners_max, machine, by, &target, row_bytes)?;
        let per_tick = samples_per_tick(&sampling, tick);
        Ok(Self {
            by,
            target,
            follow,
            inherit: request.inherit,
            descend: request.descend,
            turns,
            metrics,
            needs_metrics: matches!(request.metrics, WantedMetrics::Required(_)),
            no_metrics: why_none,
            stacks: request.stacks,
            unwind: request.unwind,
            culprits: request.culprits,
            off_cpu: request.off_cpu,
            interrupts: request.interrupts,
            cgroup_pressure: request.cgroup_pressure,
            budget: request.budget,
            interval: request.interval,
            duration: request.duration,
            slots,
            hot_entries: match sampling.is_empty() {
                true => 1,
                false => (per_tick * 2).next_power_of_two().clamp(1024, 32_768),
            },
            ring_bytes: ring::bytes(
                (request.stacks, request.unwind, request.off_cpu),
                (per_tick, tick),
                ring::charge_bytes(request.culprits, by, cpus.len()),
                cpus.len(),
            ),
            late_min_ns: LATE_MIN_NS,
            gap_min_ns: u64::try_from(request.gap_min.as_nanos()).unwrap_or(u64::MAX).max(LATE_MIN_NS),
            cpus,
            sampling,
            profile: request.profile.clone(),
            lost,
            tick,
        })
    }

    /// Returns the programs' settings, without the offsets that only the kernel's BTF has.
    pub fn config(&self, machine: &Machine) -> Config {
        let clock = self.sampling.iter().position(|event| event.period_ns().is_some());
        Config {
            cpus: machine.cpu.possible,
            slots: self.slots,
            by: match self.by {
                By::Process | By::Comm | By::Exe => config::BY_PROCESS,
                By::Thread => config::BY_THREAD,
                By::Cgroup => config::BY_CGROUP,
            },
            filter: match self.target {
                Target::System => config::FILTER_NONE,
                Target::Processes(_) | Target::Command(_) => config::FILTER_PROCESSES,
                Target::Threads(_) => config::FILTER_THREADS,
                Target::Cgroups(_) => config::FILTER_CGROUPS,
            },
            inherit: u32::from(self.inherit == Inherit::Yes),
            descend: u32::from(self.descend == Descend::Yes),
            hot_mask: self.hot_entries - 1,
            stacks: u32::from(self.stacks == Stacks::Yes),
            sample_period_ns: clock.and_then(|event| self.sampling[event].period_ns()).unwrap_or(0),
            sampling_events: self.events(),
            clock_event: clock.unwrap_or(0) as u32,
            // Only the kernel decides whether samples in the kernel have user registers.
            unwind: match (self.stacks, self.unwind) {
                (Stacks::Yes, Unwind::Dwarf) => config::UNWIND_USER_MODE,
                _ => config::UNWIND_OFF,
            },
            tick_period_ns: machine.cpu.tick_ns,
            late_min_ns: self.late_min_ns,
            gap_min_ns: self.gap_min_ns,
            counters: self.counters(),
            names: self.by.names(),
            culprits: u32::from(self.culprits == Culprits::Yes),
            off_cpu: match self.off_cpu {
                OffCpu::No => 0,
                OffCpu::Yes if self.takes_off_cpu_stacks() => config::OFF_CPU_STACKS,
                OffCpu::Yes => 1,
            },
            follows: u32::from(!self.follow.is_empty()),
            interrupts: u32::from(!self.interrupts.is_no()),
            hot_epoch_shift: self.hot_epoch_shift(),
            ..Config::ZERO
        }
    }

    /// Returns the length of an epoch of hot addresses, as a power of two in ns.
    pub fn hot_epoch_shift(&self) -> u32 {
        hot_epoch_shift(samples_per_tick(&self.sampling, self.tick), self.hot_entries)
    }

    /// Returns the target in words, safe for a terminal, with the names that are followed.
    pub fn target_in_words(&self) -> String {
        in_words_with(&self.target, (self.inherit, self.descend), &self.follow)
    }

    /// Removes all metrics from the plan: counters that cannot be trusted are not reported.
    pub fn give_up_metrics(&mut self, why: String) {
        self.turns.clear();
        self.metrics.clear();
        self.no_metrics = Some(why);
    }

    /// Returns the CPUs of the cores to which `metrics` apply.
    pub fn cpus_of<'a>(&'a self, metrics: &'a metrics::Metrics) -> &'a [Cpu] {
        metrics.core_type.as_ref().map_or(&self.cpus, |cores| &cores.cpus)
    }

    /// Returns the counters of each core PMU, with their metrics.
    pub fn by_core_type(&self) -> impl Iterator<Item = (&multiplexing::Multiplexing, &metrics::Metrics)> {
        self.turns.iter().zip(&self.metrics)
    }

    /// Returns the places of the counters per owner on a CPU, the same for every core PMU; 0 without
    /// counters.
    pub fn counters(&self) -> u32 {
        let strides = self.turns.iter().map(multiplexing::Multiplexing::stride);
        strides.max().map_or(0, |stride| u32::try_from(stride).unwrap_or(u32::MAX))
    }

    /// Returns the rows that each owner has on each CPU for its samples: one for each event, or one without
    /// events.
    pub fn events(&self) -> u32 {
        self.sampling.len().max(1) as u32
    }

    /// Returns whether events are opened on the CPUs, to sample or to count.
    pub const fn has_events(&self) -> bool {
        !self.sampling.is_empty() || !self.turns.is_empty()
    }

    /// Returns whether stacks of tasks that block are taken.
    pub fn takes_off_cpu_stacks(&self) -> bool {
        self.off_cpu == OffCpu::Yes && self.stacks == Stacks::Yes
    }

    /// Returns the bytes that one owner takes on one CPU.
    pub fn row_bytes(&self) -> u64 {
        row_bytes(self.sampling.len(), &self.turns, (self.off_cpu, self.interrupts))
    }

    /// Returns whether any event but the clock samples. A separate table then shows what samples stand for.
    pub fn samples_events(&self) -> bool {
        self.sampling.len() > 1 || self.sampling.iter().any(|event| event.period_ns().is_none())
    }

    /// Returns whether cgroups decide what counts, or own the counts.
    pub fn uses_cgroups(&self) -> bool {
        self.by == By::Cgroup || matches!(self.target, Target::Cgroups(_))
    }
}

fn cpus(request: &Request, machine: &Machine) -> Result<Vec<Cpu>, PlanError> {
    let online = &machine.cpu.online;
    let Some(asked) = &request.cpus else { return Ok(online.clone()) };
    match asked.iter().find(|cpu| !online.contains(cpu)) {
        Some(cpu) => Err(PlanError::NoCpu(*cpu, online.clone())),
        None => Ok(asked.clone()),
    }
}

/// Returns the longest time that divides the interval evenly and is at most `longest`.
fn tick(interval: Option<Duration>, longest: Duration) -> Duration {
    interval.map_or(longest, |interval| {
        let parts = interval.as_nanos().div_ceil(longest.as_nanos().max(1)).max(1);
        interval / u32::try_from(parts).unwrap_or(u32::MAX)
    })
}

fn row_bytes(
    events: usize,
    turns: &[multiplexing::Multiplexing],
    (off_cpu, interrupts): (OffCpu, Interrupts),
) -> u64 {
    let counters = if turns.is_empty() { 0 } else { multiplexing::ROW_BYTES };
    let waits = if off_cpu.is_no() { 0 } else { size_of::<pmu_common::off_cpu::OffCpu>() as u64 };
    let interrupted = if interrupts.is_no() { 0 } else { size_of::<Interrupted>() as u64 };
    OWNER_BYTES + SAMPLE_BYTES * events.max(1) as u64 + counters + waits + interrupted
}

/// Returns the samples expected on a CPU between two drains, at most. The rate of clocks is known.
fn samples_per_tick(sampling: &[Sampling], tick: Duration) -> u32 {
    (samples_per_second(sampling) as f64 * tick.as_secs_f64()).ceil() as u32
}

fn samples_per_second(sampling: &[Sampling]) -> u64 {
    let rate =
        |event: &Sampling| event.period_ns().map_or(10_000, |period_ns| 1_000_000_000 / period_ns.max(1));
    sampling.iter().map(rate).sum()
}

fn slots(
    asked: Option<u32>,
    machine: &Machine,
    by: By,
    target: &Target,
    row_bytes: u64,
) -> Result<u32, PlanError> {
    if let Some(owners) = asked {
        return Ok(owners.saturating_add(1).max(2));
    }
    let existing = match (by, target) {
        (By::Cgroup, Target::Cgroups(cgroups)) => {
            cgroups.iter().map(|cgroup| machine.cgroups.list(&cgroup.path).map_or(1, |list| list.len())).sum()
        }
        (By::Cgroup, _) => machine.cgroups.list(&Untrusted::from("/"))?.len(),
        (By::Process | By::Thread | By::Comm | By::Exe, _) => 0,
    };
    let wanted = u32::try_from(existing * 2).unwrap_or(u32::MAX).max(SLOTS);
    let affordable = ROWS_BYTES_MAX / (row_bytes * u64::from(machine.cpu.possible.max(1)));
    Ok(wanted.min(u32::try_from(affordable).unwrap_or(u32::MAX)).max(64))
}
