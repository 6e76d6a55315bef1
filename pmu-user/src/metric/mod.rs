//! Computation of a report from an interval: every number with its interval and coverage, or the reason why
//! it is missing.

pub mod annotate;
mod blind;
mod books;
pub mod callers;
pub mod condition;
mod cost;
pub mod counts;
pub mod culprit;
pub mod derived;
pub mod diff;
pub mod estimate;
pub mod exposed;
pub mod filter;
pub mod finding;
mod floor;
pub mod formulas;
mod gap;
mod groups;
mod hot;
pub mod interrupt;
pub mod io;
mod limited;
pub mod naming;
pub mod number;
mod off_cpu;
pub mod off_cpu_stack;
pub mod offline;
mod owners;
mod pressure;
mod program;
mod quality;
mod ratio;
pub mod repeat;
pub mod shed;
pub mod stat;
#[cfg(test)]
pub(crate) mod testing;
mod throttled;
pub mod topdown;
pub mod unnamed;
pub mod value;

use std::collections::BTreeMap;

pub use self::{
    blind::{Blind, Masked},
    books::{Books, CpuBooks},
    cost::{CostReport, ProgramCost},
    floor::Floor,
    gap::{BlindClass, GapReport},
    hot::{
        Frame, HotCode, HotEvent, HotFunction, HotInlined, HotLine, HotModule, HotStack, Placed, StackEnds,
        TargetFunction,
    },
    limited::{IoLimited, Limited},
    owners::{OwnerOrTarget, OwnerReport},
    pressure::Pressure,
    program::Folded,
    quality::{Quality, SampleQuality, TargetQuality, TargetSamples, TickQuality},
    ratio::{EventReport, RatioReport},
    throttled::Throttled,
};
use self::{
    callers::Callers,
    groups::Groups,
    topdown::{Prepared, TopDown},
};
use crate::{
    drain::{self, Absent, Owner, TasksHeader},
    machine::Machine,
    model::{Interval, Ledger},
};

/// Numbers of an interval, with a part for each source of the run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Report on tasks.
    pub tasks: Option<TasksReport>,
    /// Report on I/O.
    pub io: Option<io::IoReport>,
    /// Counts without owners.
    pub counts: Option<stat::Stat>,
    /// Measurements of any source that are missing, and why.
    pub missing: Vec<Absent>,
    /// Cgroups that became targets since counting started.
    pub followed: Vec<Followed>,
    /// Start and end of the report, in ns since counting started, where a span of a recording was requested.
    pub span: Option<(u64, u64)>,
    /// Number of lost records of all sources, by reason. Empty if none were lost.
    pub losses: BTreeMap<String, u64>,
    /// Findings of the whole run.
    pub findings: Vec<finding::Finding>,
    /// Cost of pmbpf itself since counting started; `None` where nothing but counters was opened.
    pub cost: Option<CostReport>,
}

/// Cgroup that became a target during counting, because a name came to refer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Cgroup that is followed.
    pub owner: Owner,
    /// Time at which it became a target, in ns since counting started.
    pub at_ns: u64,
    /// Age of the cgroup at that time, in ns, if known: earlier activity in it may not be counted.
    pub late_ns: Option<u64>,
}

impl From<drain::Followed> for Followed {
    fn from(followed: drain::Followed) -> Self {
        let drain::Followed { cgroup, at_ns, late_ns } = followed;
        Self { owner: Owner::cgroup(cgroup.id.0, cgroup.path), at_ns, late_ns }
    }
}

impl Report {
    /// Adds numbers of lost records, by reason.
    pub fn lose<'a>(&mut self, losses: impl IntoIterator<Item = (&'a String, &'a u64)>) {
        for (reason, count) in losses {
            let lost = self.losses.entry(reason.clone()).or_default();
            *lost = lost.saturating_add(*count);
        }
    }

    /// Returns the owners of numbers, those of tasks first, most CPU time first. Some appear more than once.
    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        let of_tasks =
            self.tasks.iter().flat_map(|tasks| &tasks.owners).filter_map(|owner| owner.who.owner());
        let of_io = self.io.iter().flat_map(|io| &io.rows).filter_map(|row| match &row.subject {
            io::Subject::Owner(owner, _) => Some(owner),
            _ => None,
        });
        let of_counts =
            self.counts.iter().flat_map(|counts| &counts.rows).filter_map(|row| row.owner.as_ref());
        of_tasks.chain(of_io).chain(of_counts)
    }

    /// Removes the numbers of owners that are not kept. Those of the target and of the host stay.
    pub fn keep_owners(&mut self, is_kept: impl Fn(&Owner) -> bool) {
        let of_kept = |who: &OwnerOrTarget| who.owner().is_none_or(&is_kept);
        if let Some(tasks) = &mut self.tasks {
            tasks.keep_owners(&is_kept);
        }
        if let Some(io) = &mut self.io {
            io.keep_owners(&is_kept);
        }
        if let Some(counts) = &mut self.counts {
            counts.rows.retain(|row| row.owner.as_ref().is_none_or(&is_kept));
        }
        let is_of_kept = |finding: &finding::Finding| finding.whose.as_ref().is_none_or(of_kept);
        self.findings.retain(is_of_kept);
        self.findings.iter_mut().for_each(|finding| finding.symptoms.retain(is_of_kept));
    }

    /// Gives owners the same name in all sources. Tasks carry the name of the executed program, I/O only the
    /// name at a process's first transfer. Processes of one program are combined in both.
    pub fn name_alike(&mut self) {
        let Some(io) = &mut self.io else { return };
        let owners = self.tasks.iter().flat_map(|tasks| &tasks.owners);
        let owners = owners.filter_map(|report| report.who.owner());
        let known: BTreeMap<&Owner, &Owner> = owners.map(|owner| (owner, owner)).collect();
        for row in &mut io.rows {
            if let io::Subject::Owner(owner, _) = &mut row.subject
                && let Some(named) = known.get(&*owner)
            {
                owner.clone_from(named);
            }
        }
        let folded = self.tasks.as_ref().and_then(|tasks| tasks.folded.as_ref());
        io.put_together(folded.map_or(&BTreeMap::new(), |folded| &folded.members));
    }

    /// Adds the cost of one source.
    pub fn spend(&mut self, cost: CostReport) {
        self.cost = Some(match self.cost.take() {
            Some(first) => first.beside(cost),
            None => cost,
        });
    }
}

/// Numbers of an interval on tasks. Plain data: views only choose words and columns.
#[derive(Clone, Debug)]
pub struct TasksReport {
    /// Start, in ns since counting started.
    pub from_ns: u64,
    /// Length in ns.
    pub length_ns: u64,
    /// Time in ns in which the target could run: a command, from its start to its end. CPU time is a share of
    /// it.
    pub target_ns: u64,
    /// Metrics of the CPU model, or the reason why there are none.
    pub topdown: Result<Vec<TopDown>, String>,
    /// Metrics of the target as a whole.
    pub total: OwnerReport,
    /// Metrics per owner, most CPU time first. A cgroup's numbers include its subtree's.
    pub owners: Vec<OwnerReport>,
    /// Cgroups that ended.
    pub ended: Vec<Owner>,
    /// Functions that samples hit, of each owner, most first.
    pub hot: Vec<HotFunction>,
    /// Functions that samples hit, regardless of the owner.
    pub functions: Vec<TargetFunction>,
    /// Modules of these functions.
    pub modules: Vec<HotModule>,
    sampled: hot::Sampled,
    /// Samples of the first event that hit the target, regardless of which functions are listed.
    pub hot_samples: u64,
    /// Stacks that samples hit, most first.
    pub stacks: Vec<HotStack>,
    /// Same stacks as caller trees; only of the whole run, and by [`TasksReport::grow_callers`].
    pub callers: Vec<Callers>,
    /// Stacks of tasks that block, those with most time first; empty where they were not taken.
    pub off_cpu_stacks: Vec<HotStack>,
    /// Same stacks as caller trees, also only of the whole run.
    pub off_cpu_callers: Vec<Callers>,
    /// Ends of the user stacks; `None` where no stacks were taken.
    pub stack_ends: Option<StackEnds>,
    /// Rows of programs, if several processes of one ran.
    pub folded: Option<Folded>,
    /// Cgroups with a limit of CPU time, those that lost most by it first; only of the whole run.
    pub throttled: Vec<Throttled>,
    /// Limits of cgroups; only of the whole run.
    pub limits: Vec<Limited>,
    /// Pressure (PSI) of the host and of cgroups.
    pub pressure: Vec<Pressure>,
    /// Culprits of the tasks' waits for CPUs, of the target first; empty where a recording does not contain
    /// them.
    pub waited: Vec<culprit::Waited>,
    /// Interrupt handlers by CPU, those with most time first; empty where they are not counted.
    pub handlers: Vec<interrupt::HandlerReport>,
    /// Tasks that handlers interrupted; `None` where handlers are not counted.
    pub interrupted_by: Option<interrupt::InterruptedBy>,
    /// Blind time of the target and of the CPUs.
    pub blind: Blind,
    /// Completeness of the numbers.
    pub quality: Quality,
}

impl TasksReport {
    /// Computes the report of `interval`. Pure. `prepared` are the CPU models of the plan.
    pub fn new(
        machine: &Machine,
        header: &TasksHeader,
        ledger: &Ledger,
        interval: &Interval,
        prepared: &[Prepared],
    ) -> Self {
        let total = interval.all_owners();
        let quality = quality::quality(machine, (header, ledger), interval, &total);
        let scale = ratio::Scale::new(header, interval, &quality);
        let context = owners::Context { header, ledger, interval, quality: &quality, scale: &scale };
        let apart = Groups::default();
        let folded = Groups::programs(ledger, interval, header.plan.by).map(|groups| Folded {
            owners: owners::owners(&context, &groups),
            waited: culprit::Waited::of(header, ledger, interval, &groups),
            topdown: program::topdown((prepared, machine, header), ledger, interval, &groups),
            members: groups.members(ledger),
        });
        let (hot, totals) = hot::functions(ledger, interval, &scale);
        let why = || header.plan.no_metrics.clone().unwrap_or_else(|| "they were not asked for".to_owned());
        let mut report = Self {
            topdown: match prepared {
                [] => Err(why()),
                prepared => Ok(topdown::topdown(prepared, machine, header, ledger, interval)),
            },
            from_ns: interval.from_ns,
            length_ns: interval.length_ns(),
            target_ns: interval.length_ns(),
            total: owners::target(&context, &total),
            owners: owners::owners(&context, &apart),
            ended: interval.ended.iter().map(|&index| ledger.owner(index).clone()).collect(),
            hot_samples: hot::samples(interval),
            hot,
            functions: Vec::new(),
            modules: Vec::new(),
            stacks: hot::stacks(ledger, interval, &scale),
            callers: Vec::new(),
            off_cpu_stacks: off_cpu_stack::stacks(ledger, interval),
            off_cpu_callers: Vec::new(),
            stack_ends: hot::ends(ledger, interval),
            folded,
            throttled: Throttled::of(interval),
            limits: Limited::of(interval),
            pressure: Pressure::of(interval),
            waited: culprit::Waited::of(header, ledger, interval, &apart),
            handlers: interrupt::handlers(ledger, interval),
            interrupted_by: interrupt::interrupted_by(header, interval),
            blind: blind::blind(header, ledger, interval, &quality, &total),
            sampled: hot::Sampled { scale, totals },
            quality,
        };
        report.add_up_functions();
        report
    }

    /// Removes the numbers of owners that are not kept.
    fn keep_owners(&mut self, is_kept: &impl Fn(&Owner) -> bool) {
        let of_kept = |who: &OwnerOrTarget| who.owner().is_none_or(is_kept);
        self.owners.retain(|owner| of_kept(&owner.who));
        self.hot.retain(|function| is_kept(&function.owner));
        self.stacks.retain(|stack| is_kept(&stack.owner));
        self.off_cpu_stacks.retain(|stack| is_kept(&stack.owner));
        self.throttled.retain(|limit| is_kept(&limit.owner));
        self.limits.retain(|limited| is_kept(&limited.owner));
        self.pressure.retain(|pressure| pressure.whose.as_ref().is_none_or(is_kept));
        self.waited.retain(|waited| of_kept(&waited.who));
        for gaps in [&mut self.blind.gaps, &mut self.blind.others_gaps] {
            gaps.retain(|gap| gap.owner.as_ref().is_some_and(is_kept));
        }
        for topdown in self.topdown.iter_mut().flatten() {
            topdown.owners.retain(|(who, _)| of_kept(who));
        }
        if let Some(folded) = &mut self.folded {
            folded.keep_owners(is_kept, &self.owners, &self.waited);
        }
        self.add_up_functions();
    }
}

#[cfg(test)]
mod tests {
    use super::{
        OwnerOrTarget, Report, TasksReport,
        io::{IoReport, Label, Row, Scope, Subject},
        testing::{machine, with_late_ticks},
        value::Value,
    };
    use crate::{drain::Owner, plan::Target, table::metric};

    #[test]
    fn what_moved_bytes_is_called_what_its_tasks_are() {
        let process = |pid, name: &str| Owner::Process { pid, born_ns: 7, name: name.into() };
        let (header, ledger, interval) = with_late_ticks(Target::System, 1, 0);
        let mut tasks = TasksReport::new(&machine(), &header, &ledger, &interval, &[]);
        tasks.total.who = OwnerOrTarget::Target;
        let who = OwnerOrTarget::Owner(process(1, "find"));
        tasks.owners = vec![super::OwnerReport { who, ..tasks.total.clone() }];
        let row = |owner| Row {
            subject: Subject::Owner(owner, Box::new(Subject::Scope(Scope::Platform))),
            metric: metric::BLOCK_READ_BW.name.to_owned(),
            unit: metric::BLOCK_READ_BW.unit,
            value: Value::exact(1.0),
            distribution: None,
            label: Label::Measured,
            note: None,
        };
        let io = IoReport { rows: vec![row(process(1, "sh")), row(process(2, "dd"))], ..IoReport::default() };
        let mut report = Report { tasks: Some(tasks), io: Some(io), ..Report::default() };
        report.name_alike();
        let names = report.io.unwrap().rows.into_iter().map(|row| match row.subject {
            Subject::Owner(Owner::Process { name, .. }, _) => name.terminal().into_owned(),
            other => panic!("{other:?}"),
        });
        assert_eq!(names.collect::<Vec<_>>(), ["find", "dd"]);
    }
}
