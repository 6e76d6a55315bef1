//! An event that triggers samples, on one PMU.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{
    machine::{
        Machine,
        cpu::Cpu,
        pmu::catalog::{Catalog, Entry, PmuCpus},
    },
    plan::{
        PlanError,
        schedule::capacity::{Held, Hold},
    },
    table::{
        event::{self, Counts},
        event_syntax::{
            Instance, List, Modifiers, Precise, ResolveError, Selected, SelectedGroup,
            kernel::{BREAKPOINT, CACHE, HARDWARE, SOFTWARE, TRACEPOINT},
            resolve, resolve_with,
        },
        model::Tables,
        quantity::Quantity,
    },
};

/// Mask of a kernel event's number: where cores differ, the upper half names the PMU.
const LOWER_HALF: u64 = u32::MAX as u64;

/// An event that triggers samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Name in results.
    pub event: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// `config1` to `config3`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub more_config: [u64; 3],
    /// Unit of one count.
    pub counts: Counts,
    /// Quantity that it measures, if that is known.
    #[serde(default, skip_serializing_if = "is_default")]
    pub quantity: Option<Quantity>,
    /// Counts from one sample to the next. Fixed: never adjusted while running.
    pub period: u64,
    /// Frequency that was requested, in Hz, if one was.
    pub frequency: Option<u32>,
    /// Modes in which it counts, in perf's letters: `u`, `k`, `h`, `G`, `H`, `I`; all if empty.
    #[serde(default, skip_serializing_if = "is_default")]
    pub modes: String,
    /// Requested precision with which samples hit the instruction that caused them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub precise: Precise,
    /// Precision in effect; not known before the event is open.
    #[serde(default, skip_serializing_if = "is_default")]
    pub precision: Option<Precision>,
    /// CPUs with cores that have it; all of the plan's if empty.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cpus: Vec<Cpu>,
    /// Event of the list that leads its group: both are on counters, or neither.
    #[serde(default, skip_serializing_if = "is_default")]
    pub leader: Option<u32>,
    /// Whether it may be left out if the kernel refuses it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub need: Need,
}

/// Precision of samples in effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precision {
    /// `perf_event_attr.precise_ip` in effect.
    pub level: u8,
    /// Reason why it is not higher, if a higher one was requested.
    pub why: Option<String>,
}

/// Effect of a refused event on the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// The run fails.
    #[default]
    Required,
    /// The run continues, and reports what is lost.
    Optional,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Sampling {
    /// Returns the length of a period in ns, if the event is a clock.
    pub fn period_ns(&self) -> Option<u64> {
        (self.counts == Counts::WallNs).then_some(self.period)
    }

    /// Returns whether hardware counts it. Its samples may then be late, it may have to be multiplexed, and
    /// it may interrupt by NMI.
    pub const fn is_hardware(&self) -> bool {
        !matches!(self.kind, SOFTWARE | TRACEPOINT)
    }

    /// Returns whether it is a tracepoint. Its program then runs at every hit and counts the period itself.
    pub const fn is_tracepoint(&self) -> bool {
        self.kind == TRACEPOINT
    }

    /// Returns the hits per sample of a tracepoint; 0 for another event.
    pub fn hits_period(&self) -> u64 {
        if self.is_tracepoint() { self.period } else { 0 }
    }

    /// Returns whether it is the tracepoint of a system call. Its caller is then in user mode.
    pub fn is_of_system_call(&self) -> bool {
        self.is_tracepoint() && self.event.starts_with("syscalls:")
    }

    /// Returns whether it is opened on `cpu`.
    pub fn is_on(&self, cpu: Cpu) -> bool {
        self.cpus.is_empty() || self.cpus.contains(&cpu)
    }

    /// Returns the counter of a core PMU that the event takes away from counting. The kernel decides which
    /// one: it moves events so that all of them fit. This event may leave its fixed counter to another of its
    /// kind.
    pub(in crate::plan) fn hold_on(&self, pmu: &Entry) -> Option<Hold> {
        let is_its = match self.kind {
            HARDWARE | CACHE => [0, u64::from(pmu.kind)].contains(&(self.config >> u32::BITS)),
            kind => kind == pmu.kind,
        };
        let is_there = self.cpus.is_empty() || self.cpus.iter().any(|&cpu| pmu.is_on(cpu));
        (is_its && is_there).then(|| Hold {
            by: format!("sampling of {}", self.event),
            counter: Held::AnyGeneral,
            hint: "--no-sampling frees it".to_owned(),
        })
    }

    /// Returns the approximate maximum of counts per second on one CPU. Returns `None` where each count takes
    /// the kernel longer than a sample: what the kernel itself does cannot overrun it.
    pub(super) fn per_second_max(&self, cycles_per_second: u64) -> Option<u64> {
        match (self.counts, self.quantity) {
            (Counts::WallNs, _) => Some(1_000_000_000),
            _ if !self.is_hardware() => None,
            (_, Some(quantity)) => Some((cycles_per_second as f64 * quantity.facts().per_cycle_max) as u64),
            // An unknown code: one in each cycle.
            _ => Some(cycles_per_second),
        }
    }
}

/// Resolves with the machine's list of PMUs. All of sysfs, and the CPU models' `tables`, are read only if
/// that is not enough.
pub(in crate::plan) fn resolved(
    list: &List,
    machine: &Machine,
    root: &Path,
    tables: &dyn Fn() -> Tables,
) -> Result<Vec<SelectedGroup>, ResolveError> {
    let cores: Vec<_> = machine.pmus.iter().filter(|pmu| pmu.is_core()).collect();
    let entry = |pmu: &crate::machine::pmu::Pmu| Entry {
        name: std::str::from_utf8(pmu.name.as_bytes()).unwrap_or_default().to_owned(),
        kind: pmu.kind,
        place: PmuCpus::Anywhere,
        terms: Vec::new(),
        events: Vec::new(),
        caps: Vec::new(),
        dies: Vec::new(),
    };
    let few = Catalog { pmus: cores.iter().map(|pmu| entry(pmu)).collect(), ..Catalog::default() };
    // Where cores differ, sysfs has the CPUs of each PMU.
    let first = resolve(list, &few);
    if first.is_ok() && cores.len() <= 1 {
        return first;
    }
    match Catalog::read(root) {
        Ok(all) => resolve_with(list, &all, &tables()),
        Err(_) => first,
    }
}

/// Returns an event on one PMU, of `places` that count it. Its period is 0 if the event gives none.
pub(in crate::plan) fn of_instance(
    event: &Selected,
    at: &Instance,
    places: usize,
) -> Result<Sampling, PlanError> {
    let unfit = |why: &str| Err(PlanError::NotSampled(event.name.clone(), why.to_owned()));
    let known =
        event::ALL.iter().find(|known| at.kind == known.kind && at.words.0[0] & LOWER_HALF == known.config);
    let [config, more_config @ ..] = at.words.0;
    if matches!(at.place, PmuCpus::Uncore(_)) {
        return unfit("an event outside the cores interrupts no code: it can only be counted");
    }
    if at.kind == SOFTWARE && known.is_none() {
        return unfit("it never overflows, or only in step with cpu-clock");
    }
    if at.kind == BREAKPOINT {
        return unfit("a breakpoint can only be counted: `pmbpf stat -e` does");
    }
    if at.kind == TRACEPOINT && !is_hit_in(event.modifiers) {
        let why = "the kernel hits a tracepoint in kernel mode, without interrupting an instruction: of the modifiers only k makes sense";
        return unfit(why);
    }
    Ok(Sampling {
        event: match &at.place {
            PmuCpus::Cores(_) if places > 1 => format!("{}/{}/", at.pmu, event.name),
            _ => event.name.clone(),
        },
        kind: at.kind,
        config,
        more_config,
        quantity: known
            .map_or_else(|| Quantity::of_event(bare(&event.name)), |known| Quantity::of_event(known.name)),
        counts: known.map_or(Counts::Occurrences, |known| known.counts),
        period: event.period.unwrap_or(0),
        frequency: None,
        modes: modes(event.modifiers),
        precise: event.modifiers.precise,
        precision: None,
        cpus: if let PmuCpus::Cores(cpus) = &at.place { cpus.clone() } else { Vec::new() },
        leader: None,
        need: Need::Required,
    })
}

/// Returns whether modifiers leave hits of a tracepoint, and request nothing that it cannot have.
fn is_hit_in(modifiers: Modifiers) -> bool {
    let Modifiers { user, kernel, hypervisor, guest, not_idle, precise, .. } = modifiers;
    (kernel || !user && !hypervisor) && !guest && !not_idle && precise == Precise::default()
}

/// Returns the name of an event without its PMU and its modifiers: `cpu/instructions/u` is `instructions`.
fn bare(name: &str) -> &str {
    let mut parts = name.split('/');
    match (parts.next(), parts.next()) {
        (Some(_), Some(term)) => term,
        (first, _) => first.unwrap_or_default().split(':').next().unwrap_or_default(),
    }
}

fn modes(modifiers: Modifiers) -> String {
    let Modifiers { user, kernel, hypervisor, guest, host, not_idle, .. } = modifiers;
    Modifiers { user, kernel, hypervisor, guest, host, not_idle, ..Modifiers::default() }.to_string()
}
