//! Metrics of every owner. For people, processes of one program share a row.

use std::collections::BTreeMap;

use pmu_common::owner::Rare;

use super::{
    Quality, blind,
    groups::Groups,
    interrupt, off_cpu,
    ratio::{EventReport, RatioReport, Scale},
    shed,
    value::{Distribution, How, Known, Value},
};
use crate::{
    drain::{Owner, TARGET_UNSEEN, TasksHeader, Work},
    machine::cgroup::ancestors,
    model::{
        Counts, Interval, Ledger, OwnerIndex,
        histogram::Bucket,
        rare::{self, Rarely, plus},
    },
    plan::{
        Plan, Target,
        request::{By, Descend},
    },
    table::metric::{self, Metric},
};

/// Owner of numbers, or the target as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerOrTarget {
    /// Everything that was requested, together.
    Target,
    /// One owner of the target.
    Owner(Owner),
}

impl OwnerOrTarget {
    /// Returns the owner, if it is one.
    pub const fn owner(&self) -> Option<&Owner> {
        match self {
            Self::Owner(owner) => Some(owner),
            Self::Target => None,
        }
    }
}

/// Metrics of one owner.
#[derive(Clone, Debug)]
pub struct OwnerReport {
    /// Owner or target that the metrics belong to.
    pub who: OwnerOrTarget,
    /// Whether it has ended.
    pub ended: bool,
    /// Metrics in the order of [`metric::TASKS`] without run-queue latency. [`metric::OFF_CPU`] and
    /// [`metric::INTERRUPTS`] follow where they were requested.
    pub metrics: Vec<(Metric, Value)>,
    /// Run-queue latency, or the reason why it is missing.
    pub waits: Result<Distribution, String>,
    /// Estimates from samples, by event; empty where only a clock samples.
    pub events: Vec<EventReport>,
    /// Ratios of these estimates.
    pub ratios: Vec<RatioReport>,
    /// Rare events: in no table, but findings rest on them.
    pub rare: Rare,
}

impl OwnerReport {
    /// Returns a metric's value.
    pub fn value(&self, wanted: &Metric) -> Option<&Known> {
        self.metrics
            .iter()
            .find(|(metric, _)| metric.name == wanted.name)
            .and_then(|(_, value)| value.known())
    }

    /// Returns a metric's estimate, 0 where it is missing: for sorting, never for display.
    fn weight(&self, wanted: &Metric) -> u64 {
        self.value(wanted).map_or(0, |known| known.estimate as u64)
    }
}

/// Inputs from which the metrics are computed.
pub(super) struct Context<'a> {
    pub(super) header: &'a TasksHeader,
    pub(super) ledger: &'a Ledger,
    pub(super) interval: &'a Interval,
    pub(super) quality: &'a Quality,
    pub(super) scale: &'a Scale,
}

/// Returns the metrics of the target, with the counts `total`.
pub(super) fn target(context: &Context<'_>, total: &Counts) -> OwnerReport {
    let all = || context.interval.owners.keys().copied();
    let rare = context.interval.rare.values().fold(Rare::ZERO, |sum, rare| plus(&sum, rare));
    OwnerReport { rare, ..report(context, OwnerOrTarget::Target, Life::of(context, all(), false), total) }
}

/// Returns the metrics of every owner, most CPU time first. Owners of a group share a row.
pub(super) fn owners(context: &Context<'_>, groups: &Groups) -> Vec<OwnerReport> {
    let by_owner = match context.header.plan.by {
        By::Cgroup => with_subtrees(context),
        _ => together(context.interval, groups),
    };
    let rare = rarely(context, groups);
    let mut owners: Vec<OwnerReport> = by_owner
        .iter()
        .map(|(&index, counts)| {
            let owner = groups.owner(context.ledger, index);
            let ended = groups.has_ended(context.ledger, index);
            let life = Life::of(context, groups.members_of(index), ended);
            let rare = rare.get(&index).copied().unwrap_or_default();
            OwnerReport { rare, ..report(context, OwnerOrTarget::Owner(owner), life, counts) }
        })
        .collect();
    owners.extend(silent_targets(context, &by_owner));
    sort(&mut owners);
    owners
}

/// Sorts owners by CPU time, most first. Among equals the name decides, so that the order never depends on an
/// owner's slot.
pub(super) fn sort(owners: &mut [OwnerReport]) {
    owners.sort_by_cached_key(|owner| {
        let weight = (owner.weight(&metric::CPU_TIME), owner.weight(&metric::CONTEXT_SWITCHES));
        (std::cmp::Reverse(weight), owner.who.clone())
    });
}

/// Returns the counts of owners, those of a group together.
fn together(interval: &Interval, groups: &Groups) -> BTreeMap<OwnerIndex, Counts> {
    let mut sums: BTreeMap<OwnerIndex, Counts> = BTreeMap::new();
    for (&index, counts) in &interval.owners {
        sums.entry(groups.of(index)).or_default().merge(counts);
    }
    sums
}

/// Returns the rare events of owners, added up like their other numbers.
fn rarely(context: &Context<'_>, groups: &Groups) -> Rarely {
    let above = Above::new(context.header, context.ledger);
    let mut sums = Rarely::new();
    for (&index, new) in &context.interval.rare {
        above.with(index).for_each(|owner| rare::add(&mut sums, groups.of(owner), new));
    }
    sums
}

/// Returns counts with those of subtrees. The kernel counts for the leaf, while a cgroup's number covers its
/// subtree, as in its `cpu.stat`.
fn with_subtrees(context: &Context<'_>) -> BTreeMap<OwnerIndex, Counts> {
    let mut sums: BTreeMap<OwnerIndex, Counts> = BTreeMap::new();
    let above = Above::new(context.header, context.ledger);
    for (&index, counts) in &context.interval.owners {
        above.with(index).for_each(|owner| sums.entry(owner).or_default().merge(counts));
    }
    sums
}

/// Owners that include an owner's counts: itself, and the cgroups above it where they do.
pub(super) struct Above<'a> {
    ledger: &'a Ledger,
    /// Target of the plan; `None` where no cgroup includes its subtree.
    target: Option<&'a Target>,
}

impl<'a> Above<'a> {
    pub(super) fn new(header: &'a TasksHeader, ledger: &'a Ledger) -> Self {
        let plan = &header.plan;
        let holds = plan.by == By::Cgroup && plan.descend == Descend::Yes;
        Self { ledger, target: holds.then_some(&plan.target) }
    }

    pub(super) fn with(&self, index: OwnerIndex) -> impl Iterator<Item = OwnerIndex> {
        let path = match (self.target, self.ledger.owner(index)) {
            (Some(_), Owner::Cgroup { path, .. }) => path.as_bytes(),
            _ => &[],
        };
        let above = ancestors(path).filter_map(|above| {
            let index = self.ledger.cgroup_at(above)?;
            let is_asked_for = self.target?.is_above(above) || self.ledger.has_followed(above);
            let has_row = !self.ledger.is_inner(index) || is_asked_for;
            has_row.then_some(index)
        });
        std::iter::once(index).chain(above.filter(move |&above| above != index))
    }
}

/// Returns reports of targets of which nothing ran: nothing was counted, and that is known.
fn silent_targets(context: &Context<'_>, seen: &BTreeMap<OwnerIndex, Counts>) -> Vec<OwnerReport> {
    let (Target::Cgroups(targets), By::Cgroup) = (&context.header.plan.target, context.header.plan.by) else {
        return Vec::new();
    };
    let is_seen = |id: u64| {
        seen.keys().any(
            |&index| matches!(context.ledger.owner(index), Owner::Cgroup { id: seen, .. } if *seen == id),
        )
    };
    let mut silent = Vec::new();
    for target in targets.iter().filter(|target| !is_seen(target.id.0)) {
        let owner = Owner::cgroup(target.id.0, target.path.clone());
        let counts = below(context, target.path.as_bytes());
        silent.push(report(context, OwnerOrTarget::Owner(owner), Life::default(), &counts));
    }
    silent
}

/// Returns the counts of the cgroups below a path, for a target without a slot because none of its own tasks
/// ran.
fn below(context: &Context<'_>, path: &[u8]) -> Counts {
    let mut sum = Counts::default();
    if context.header.plan.descend == Descend::No {
        return sum;
    }
    for (&index, counts) in &context.interval.owners {
        if let Owner::Cgroup { path: leaf, .. } = context.ledger.owner(index)
            && ancestors(leaf.as_bytes()).any(|above| above == path)
        {
            sum.merge(counts);
        }
    }
    sum
}

/// Start and end of an owner, relative to the interval.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    /// Whether it has ended.
    ended: bool,
    /// Whether it began within the interval.
    begins_within: bool,
    /// Whether it ended within the interval.
    ends_within: bool,
}

impl Life {
    /// Returns the life of owners that share a row.
    fn of(context: &Context<'_>, members: impl Iterator<Item = OwnerIndex>, ended: bool) -> Self {
        let Context { header, ledger, interval, .. } = context;
        let from_ns = header.started_boot_ns.saturating_add(interval.from_ns);
        // A command starts after counting has begun. A recording that began later counts time from its own
        // start.
        let is_first = interval.from_ns == 0 && ledger.begins_with_counting();
        let is_command = matches!(header.plan.target, Target::Command(_)) && is_first;
        let mut life = Self { ended, begins_within: true, ends_within: true };
        for index in members {
            let begins = match ledger.owner(index) {
                Owner::Process { born_ns, .. } | Owner::Thread { born_ns, .. } => {
                    header.started_boot_ns > 0 && *born_ns >= from_ns
                }
                _ => false,
            };
            life.begins_within &= begins || is_command;
            life.ends_within &= ledger.ended_ns(index).is_some_and(|ended_ns| ended_ns <= interval.to_ns);
        }
        life
    }
}

fn report(context: &Context<'_>, who: OwnerOrTarget, life: Life, counts: &Counts) -> OwnerReport {
    let coverage = context.quality.switch_coverage;
    let first = counts.event(0);
    if context.interval.losses.contains_key(TARGET_UNSEEN) && is_silent(counts) {
        return unseen(who, life.ended, &context.header.plan);
    }
    let counted = |count| Value::counted(count, coverage);
    let stopped = |work| shed::why(context.header, context.interval, work);
    let no_samples = stopped(Work::Samples);
    let samples = |count| match (&no_samples, context.quality.sample_coverages().next()) {
        (Some(why), _) => Value::Missing(why.clone()),
        (None, Some(coverage)) => Value::counted(count, coverage),
        (None, None) => Value::Missing("sampling is off".to_owned()),
    };
    let mut metrics = vec![
        (metric::CPU_TIME, cpu_time(context, life, counts, coverage)),
        (metric::CONTEXT_SWITCHES, counted(counts.switches())),
        (metric::VOLUNTARY_SWITCHES, counted(counts.voluntary_switches)),
        (metric::INVOLUNTARY_SWITCHES, counted(counts.involuntary_switches)),
        (metric::MIGRATIONS, counted(counts.migrations)),
        (metric::MINOR_FAULTS, counted(counts.minor_faults)),
        (metric::MAJOR_FAULTS, counted(counts.major_faults)),
        (metric::SAMPLES, samples(first.all().samples)),
        (metric::USER_SAMPLES, samples(first.user.samples)),
        (metric::KERNEL_SAMPLES, samples(first.kernel.samples)),
        (metric::BLIND_TIME, blind::masked(context.quality, counts).time),
    ];
    metrics.extend(off_cpu::metrics(context.header, counts, coverage));
    let of = (context.header, context.interval);
    metrics.extend(interrupt::metrics(of, counts, &cpu_time(context, life, counts, coverage), coverage));
    let events = context.scale.events(|event| counts.event(event));
    let ratios = context.scale.ratios(|event| counts.event(event).all());
    let waits = stopped(Work::RunqueueLatency).map_or_else(|| waits(counts, coverage), Err);
    OwnerReport { who, ended: life.ended, metrics, waits, events, ratios, rare: Rare::ZERO }
}

/// Returns the run-queue latencies in ns.
fn waits(counts: &Counts, coverage: f64) -> Result<Distribution, String> {
    if counts.waits.count() == 0 {
        return Err("no task had to get a CPU".to_owned());
    }
    let (low, high) = counts.wait_max_ns;
    let (histogram, max) = (counts.waits.clone(), Bucket { low, high });
    Ok(Distribution { histogram, sum: counts.wait_ns, max, coverage })
}

/// Returns whether nothing at all was seen of it.
fn is_silent(counts: &Counts) -> bool {
    let switches = counts.switches();
    counts.cpu_time_ns == 0 && switches == 0 && counts.event(0).all().samples == 0
}

/// Returns a report without zeros for an owner that ran unseen.
fn unseen(who: OwnerOrTarget, ended: bool, plan: &Plan) -> OwnerReport {
    const WHY: &str = "it used CPU time, as the kernel accounts it, but no event of it was seen";
    let missing = |metric: &Metric| (*metric, Value::Missing(WHY.to_owned()));
    OwnerReport {
        who,
        ended,
        metrics: metric::TASKS
            .iter()
            .filter(|metric| **metric != metric::RUNQUEUE_LATENCY)
            .chain(off_cpu::wanted(plan.off_cpu))
            .chain(interrupt::wanted(plan.interrupts))
            .map(missing)
            .collect(),
        waits: Err(WHY.to_owned()),
        events: Vec::new(),
        ratios: Vec::new(),
        rare: Rare::ZERO,
    }
}

/// Returns the CPU time. The scheduler accounts a running task's time at switches and ticks. On every CPU the
/// sum thus includes up to one tick of the previous interval, and lacks up to one of this interval. Owners
/// that began in the interval have no time from before, and owners that ended in it have no time left.
fn cpu_time(context: &Context<'_>, life: Life, counts: &Counts, coverage: f64) -> Value {
    let edge_ns = context.quality.ticks.period_ns as f64 * counts.cpus.len() as f64;
    let estimate = counts.cpu_time_ns as f64;
    let low = if life.begins_within { estimate } else { (estimate - edge_ns).max(0.0) };
    let high = if life.ends_within { estimate } else { estimate + edge_ns };
    Value::Known(Known { estimate, low, high, coverage, how: How::Counted })
}
