//! Decides everything before anything is opened: what counts, how often, and how much memory it takes.
//!
//! A plan is plain data: `--dry-run` prints it, a recording begins with it, a test can make one.

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

/// Samples per second and CPU unless told otherwise: no multiple of any usual timer, and about 0.1 % of a CPU.
pub const FREQUENCY: u32 = 99;
/// A timer this late counts as late: well above the jitter of a quiet host.
const LATE_MIN_NS: u64 = 50_000;
/// The longest time between two drains unless told otherwise.
const TICK: Duration = Duration::from_secs(1);
/// Slots unless told otherwise.
const SLOTS: u32 = 2048;
/// Memory for rows by slot and CPU that is not exceeded unless told otherwise.
const ROWS_BYTES_MAX: u64 = 256 << 20;
/// Bytes that one owner takes on one CPU, without its samples, and for each sampling event.
const OWNER_BYTES: u64 = (size_of::<Count>() + size_of::<RunqueueBuckets>()) as u64;
const SAMPLE_BYTES: u64 = size_of::<SampleCount>() as u64;

/// A row of a configuration that cannot be had here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// What it measures.
    pub row: String,
    /// Why not.
    pub why: String,
}

/// What will be opened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Whose time.
    pub target: Target,
    /// Names that may mean more cgroups while counting goes on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub follow: Vec<Follow>,
    /// What an owner is.
    pub by: By,
    /// Children of processes.
    pub inherit: Inherit,
    /// Cgroups below.
    pub descend: Descend,
    /// CPUs that count.
    pub cpus: Vec<Cpu>,
    /// Events that trigger samples, if any. The first sorts the hot functions.
    #[serde(default, deserialize_with = "one_or_several::deserialize")]
    pub sampling: Vec<Sampling>,
    /// Configuration that they are from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Rows of the configuration that cannot be had here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<Lost>,
    /// Counters per owner, by core PMU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<multiplexing::Multiplexing>,
    /// Metrics that the counters are for, by core PMU as these are.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "one_or_several")]
    pub metrics: Vec<metrics::Metrics>,
    /// Were they asked for in so many words, so that a run without them is none?
    #[serde(skip)]
    pub needs_metrics: bool,
    /// Why there are no metrics, if there are none: of all cores, or of one kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_metrics: Option<String>,
    /// Stacks with the samples.
    pub stacks: Stacks,
    /// How those of user mode are unwound.
    #[serde(default, skip_serializing_if = "Unwind::is_fp")]
    pub unwind: Unwind,
    /// Who had the CPU while tasks waited for it.
    #[serde(default, skip_serializing_if = "Culprits::is_yes")]
    pub culprits: Culprits,
    /// Time off the CPU.
    #[serde(default, skip_serializing_if = "OffCpu::is_no")]
    pub off_cpu: OffCpu,
    /// Interrupt handlers, and whom they interrupt.
    #[serde(default, skip_serializing_if = "Interrupts::is_no")]
    pub interrupts: Interrupts,
    /// Pressure of cgroups.
    #[serde(skip)]
    pub cgroup_pressure: CgroupPressure,
    /// Share of the CPUs (0 to 1) that counting may cost before work is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// Time between two reports, if reports are asked for while running.
    pub interval: Option<Duration>,
    /// Time between two drains.
    pub tick: Duration,
    /// Stop after.
    pub duration: Option<Duration>,
    /// Owners that can be told apart at a time, plus one.
    pub slots: u32,
    /// Entries of one hot-address table.
    pub hot_entries: u32,
    /// Size of the ring buffer.
    pub ring_bytes: u32,
    /// A timer this late counts as late.
    pub late_min_ns: u64,
    /// A timer this late is listed as a gap.
    pub gap_min_ns: u64,
}

impl Plan {
    /// Decides what to open for `request` on `machine`, whose files are below `root`. Needs no privilege.
    ///
    /// # Errors
    ///
    /// Names what cannot be had, why, and the nearest thing that can.
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

    /// The programs' settings, without the offsets that only the kernel's BTF knows.
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
            // Whether samples in the kernel can be told their user registers, only the kernel knows.
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

    /// Length of an epoch of hot addresses, as a power of two in ns.
    pub fn hot_epoch_shift(&self) -> u32 {
        hot_epoch_shift(samples_per_tick(&self.sampling, self.tick), self.hot_entries)
    }

    /// The target in words, safe for a terminal, with the names that are followed.
    pub fn target_in_words(&self) -> String {
        in_words_with(&self.target, (self.inherit, self.descend), &self.follow)
    }

    /// Measures no metrics after all: counters that cannot be believed are not shown.
    pub fn give_up_metrics(&mut self, why: String) {
        self.turns.clear();
        self.metrics.clear();
        self.no_metrics = Some(why);
    }

    /// CPUs of the cores that `metrics` are of.
    pub fn cpus_of<'a>(&'a self, metrics: &'a metrics::Metrics) -> &'a [Cpu] {
        metrics.core_type.as_ref().map_or(&self.cpus, |cores| &cores.cpus)
    }

    /// What is counted of each core PMU, with the metrics that it is for.
    pub fn by_core_type(&self) -> impl Iterator<Item = (&multiplexing::Multiplexing, &metrics::Metrics)> {
        self.turns.iter().zip(&self.metrics)
    }

    /// Places of the counters per owner on a CPU, those of every core PMU alike; 0 if there are none.
    pub fn counters(&self) -> u32 {
        let strides = self.turns.iter().map(multiplexing::Multiplexing::stride);
        strides.max().map_or(0, |stride| u32::try_from(stride).unwrap_or(u32::MAX))
    }

    /// Rows that each owner has on each CPU for its samples: one for each event, and one where there is none.
    pub fn events(&self) -> u32 {
        self.sampling.len().max(1) as u32
    }

    /// Are events opened on the CPUs, to sample or to count?
    pub const fn has_events(&self) -> bool {
        !self.sampling.is_empty() || !self.turns.is_empty()
    }

    /// Are stacks of tasks that block taken?
    pub fn takes_off_cpu_stacks(&self) -> bool {
        self.off_cpu == OffCpu::Yes && self.stacks == Stacks::Yes
    }

    /// Bytes that one owner takes on one CPU.
    pub fn row_bytes(&self) -> u64 {
        row_bytes(self.sampling.len(), &self.turns, (self.off_cpu, self.interrupts))
    }

    /// Does anything but the clock sample? Then what samples stand for is worth a table of its own.
    pub fn samples_events(&self) -> bool {
        self.sampling.len() > 1 || self.sampling.iter().any(|event| event.period_ns().is_none())
    }

    /// Do cgroups decide what counts, or own the counts?
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

/// The longest time that divides the interval evenly and is no longer than `longest`.
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

/// Samples of a CPU in a second, at most: of clocks it is known.
/// Samples expected on a CPU between two drains.
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
