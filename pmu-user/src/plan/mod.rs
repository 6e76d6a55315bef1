//! Decides everything before anything is opened: what counts, how often, and how much memory it takes.
//!
//! A plan is plain data: `--dry-run` prints it, a recording begins with it, a test can make one.

pub mod count;
mod error;
pub mod metrics;
pub mod request;
pub mod schedule;
pub mod turns;

use std::{ffi::OsString, os::unix::ffi::OsStrExt as _, path::Path, time::Duration};

use pmu_common::{
    config::{self, Config},
    count::Count,
    histogram::Buckets,
    sample::SampleCount,
};
use serde::{Deserialize, Serialize};

pub use self::error::{Class, PlanError};
use crate::{
    machine::{Machine, cgroup::Cgroup, cpu::Cpu},
    plan::{
        metrics::Choice,
        request::{By, Descend, Inherit, Rate, Request, Stacks, Target as Asked},
    },
    table::event::{self, CPU_CLOCK, CYCLES, Counts},
    untrusted::{Untrusted, exact},
};

/// Samples per second and CPU unless told otherwise: no multiple of any usual timer, and about 0.1 % of a CPU.
pub const FREQUENCY: u32 = 99;
/// A timer this late counts as late: well above the jitter of a quiet host.
const LATE_MIN_NS: u64 = 50_000;
/// Time between two drains if no shorter interval is asked for.
const TICK: Duration = Duration::from_secs(1);
/// Slots unless told otherwise.
const SLOTS: u32 = 2048;
/// Memory for rows by slot and CPU that is not exceeded unless told otherwise.
const ROWS_BYTES_MAX: u64 = 256 << 20;
/// Bytes that one owner takes on one CPU.
pub const ROW_BYTES: u64 = (size_of::<Count>() + size_of::<Buckets>() + size_of::<SampleCount>()) as u64;

/// Whose time is counted, resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Everything.
    System,
    /// Processes by id.
    Processes(Vec<u32>),
    /// Threads by id.
    Threads(Vec<u32>),
    /// Cgroups.
    Cgroups(Vec<Cgroup>),
    /// A command: its words.
    Command(Vec<Word>),
}

/// One word of a command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Word(#[serde(with = "exact")] pub Untrusted);

/// The event that triggers samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// perf's name for it.
    pub event: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// What one count is.
    pub counts: Counts,
    /// Counts from one sample to the next. Fixed: never adjusted while running.
    pub period: u64,
    /// What was asked for, if it was a frequency in Hz.
    pub frequency: Option<u32>,
}

impl Sampling {
    /// Length of a period in ns, if the event is a clock.
    #[must_use]
    pub fn period_ns(&self) -> Option<u64> {
        (self.counts == Counts::WallNs).then_some(self.period)
    }
}

/// What will be opened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Whose time.
    pub target: Target,
    /// What an owner is.
    pub by: By,
    /// Children of processes.
    pub inherit: Inherit,
    /// Cgroups below.
    pub descend: Descend,
    /// CPUs that count.
    pub cpus: Vec<Cpu>,
    /// Samples, if any.
    pub sampling: Option<Sampling>,
    /// Counters per owner, by core PMU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<turns::Turns>,
    /// Metrics that the counters are for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<metrics::Metrics>,
    /// Why there are no metrics, if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_metrics: Option<String>,
    /// Stacks with the samples.
    pub stacks: Stacks,
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
        let target = resolve(&request.target, machine, root)?;
        let cgroups = matches!(target, Target::Cgroups(_)) || request.target == Asked::AllCgroups;
        let by = request.by.unwrap_or(if cgroups { By::Cgroup } else { By::Process });
        if by == By::Cgroup && machine.cgroups.v2.is_none() {
            return Err(crate::machine::cgroup::ResolveError::NoV2.into());
        }
        let cpus = cpus(request, machine)?;
        let sampling = sampling(request, machine, root)?;
        let Choice { turns, metrics, why_none } = Choice::new(&request.metrics, machine, root)?;
        let tick = tick(request.interval);
        let slots = slots(request.owners_max, machine, by, &target)?;
        let rate = sampling
            .as_ref()
            .and_then(Sampling::period_ns)
            .map_or(10_000, |period_ns| 1_000_000_000 / period_ns);
        let per_tick = (rate as f64 * tick.as_secs_f64()).ceil() as u32;
        Ok(Self {
            by,
            target,
            inherit: request.inherit,
            descend: request.descend,
            turns,
            metrics,
            no_metrics: why_none,
            stacks: request.stacks,
            interval: request.interval,
            duration: request.duration,
            slots,
            hot_entries: if sampling.is_some() {
                (per_tick * 2).next_power_of_two().clamp(1024, 32_768)
            } else {
                1
            },
            ring_bytes: ring_bytes(request.stacks, per_tick, cpus.len()),
            late_min_ns: LATE_MIN_NS,
            gap_min_ns: u64::try_from(request.gap_min.as_nanos()).unwrap_or(u64::MAX).max(LATE_MIN_NS),
            cpus,
            sampling,
            tick,
        })
    }

    /// The programs' settings, without the offsets that only the kernel's BTF knows.
    #[must_use]
    pub fn config(&self, machine: &Machine) -> Config {
        Config {
            cpus: machine.cpu.possible,
            slots: self.slots,
            by: match self.by {
                By::Process => config::BY_PROCESS,
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
            sample_period_ns: self.sampling.as_ref().and_then(Sampling::period_ns).unwrap_or(0),
            tick_period_ns: machine.cpu.tick_ns,
            late_min_ns: self.late_min_ns,
            gap_min_ns: self.gap_min_ns,
            counters: self.counters(),
            ..Config::ZERO
        }
    }

    /// Places of the counters per owner on a CPU, those of every core PMU alike; 0 if there are none.
    #[must_use]
    pub fn counters(&self) -> u32 {
        let strides = self.turns.iter().map(turns::Turns::stride);
        strides.max().map_or(0, |stride| u32::try_from(stride).unwrap_or(u32::MAX))
    }

    /// Do cgroups decide what counts, or own the counts?
    #[must_use]
    pub fn uses_cgroups(&self) -> bool {
        self.by == By::Cgroup || matches!(self.target, Target::Cgroups(_))
    }
}

fn resolve(asked: &Asked, machine: &Machine, root: &Path) -> Result<Target, PlanError> {
    let exists = |id: u32| root.join("proc").join(id.to_string()).is_dir();
    Ok(match asked {
        Asked::System | Asked::AllCgroups => Target::System,
        Asked::Processes(ids) => match ids.iter().find(|&&id| !exists(id)) {
            Some(&id) => return Err(PlanError::NoProcess(id)),
            None => Target::Processes(ids.clone()),
        },
        Asked::Threads(ids) => match ids.iter().find(|&&id| !exists(id)) {
            Some(&id) => return Err(PlanError::NoThread(id)),
            None => Target::Threads(ids.clone()),
        },
        Asked::Cgroups(names) => {
            let mut cgroups = Vec::new();
            for name in names {
                let cgroup = machine.cgroups.resolve(name)?;
                if !cgroups.contains(&cgroup) {
                    cgroups.push(cgroup);
                }
            }
            Target::Cgroups(cgroups)
        }
        Asked::Command(words) => Target::Command(
            words.iter().map(|word: &OsString| Word(Untrusted::new(word.as_bytes()))).collect(),
        ),
    })
}

fn cpus(request: &Request, machine: &Machine) -> Result<Vec<Cpu>, PlanError> {
    let online = &machine.cpu.online;
    let Some(asked) = &request.cpus else { return Ok(online.clone()) };
    match asked.iter().find(|cpu| !online.contains(cpu)) {
        Some(cpu) => Err(PlanError::NoCpu(*cpu, online.clone())),
        None => Ok(asked.clone()),
    }
}

fn sampling(request: &Request, machine: &Machine, root: &Path) -> Result<Option<Sampling>, PlanError> {
    if request.rate == Rate::Off {
        return Ok(None);
    }
    let no_pmu = machine.no_core_pmu();
    let event = match &request.event {
        Some(name) => event::find(name).map_err(|near| PlanError::NoEvent(name.clone(), near))?,
        None if no_pmu.is_none() => CYCLES,
        None => CPU_CLOCK,
    };
    if let (true, Some(why)) = (event.needs_pmu(), no_pmu) {
        return Err(PlanError::Unsupported(event.name.to_owned(), why));
    }
    let per_second = match event.counts {
        Counts::WallNs => 1_000_000_000,
        Counts::Cycles => machine.cpu.cycles_per_second(root),
        Counts::Occurrences => 0,
    };
    let (period, frequency) = match request.rate {
        Rate::Period(period) => (period, None),
        Rate::Frequency(frequency) if per_second > 0 => {
            (per_second / u64::from(frequency.max(1)), Some(frequency))
        }
        Rate::Frequency(_) if request.event.is_some() => {
            return Err(PlanError::NeedsPeriod(event.name.to_owned()));
        }
        Rate::Frequency(_) | Rate::Off => return Ok(None),
    };
    if let (Some(limit), true) = (machine.cpu.sample_rate_max(root), per_second > 0)
        && per_second / period.max(1) > limit
    {
        return Err(PlanError::TooOften {
            event: event.name.to_owned(),
            period,
            least: per_second.div_ceil(limit),
            limit,
        });
    }
    if period == 0 {
        return Err(PlanError::TooOften { event: event.name.to_owned(), period, least: 1, limit: 0 });
    }
    Ok(Some(Sampling {
        event: event.name.to_owned(),
        kind: event.kind,
        config: event.config,
        counts: event.counts,
        period,
        frequency,
    }))
}

/// The longest time that divides the interval evenly and is no longer than [`TICK`].
fn tick(interval: Option<Duration>) -> Duration {
    interval.map_or(TICK, |interval| {
        let parts = interval.as_nanos().div_ceil(TICK.as_nanos()).max(1);
        interval / u32::try_from(parts).unwrap_or(u32::MAX)
    })
}

fn slots(asked: Option<u32>, machine: &Machine, by: By, target: &Target) -> Result<u32, PlanError> {
    if let Some(owners) = asked {
        return Ok(owners.saturating_add(1).max(2));
    }
    let existing = match (by, target) {
        (By::Cgroup, Target::Cgroups(cgroups)) => {
            cgroups.iter().map(|cgroup| machine.cgroups.list(&cgroup.path).map_or(1, |list| list.len())).sum()
        }
        (By::Cgroup, _) => machine.cgroups.list(&Untrusted::from("/"))?.len(),
        (By::Process, _) => 0,
    };
    let wanted = u32::try_from(existing * 2).unwrap_or(u32::MAX).max(SLOTS);
    let affordable = ROWS_BYTES_MAX / (ROW_BYTES * u64::from(machine.cpu.possible.max(1)));
    Ok(wanted.min(u32::try_from(affordable).unwrap_or(u32::MAX)).max(64))
}

/// Room for the stacks of a tick and half, at a kilobyte each; without stacks, for rare facts.
fn ring_bytes(stacks: Stacks, per_tick: u32, cpus: usize) -> u32 {
    let bytes = match stacks {
        Stacks::No => 0,
        Stacks::Yes => u64::from(per_tick) * cpus as u64 * 1536,
    };
    u32::try_from(bytes.clamp(256 << 10, 64 << 20).next_power_of_two()).unwrap_or(64 << 20)
}

#[cfg(test)]
mod tests;
