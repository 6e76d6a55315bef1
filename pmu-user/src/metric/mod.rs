//! From an interval to a report: every number with its interval and coverage, or with the reason why it is missing.

mod blind;
mod cost;
pub mod counts;
pub mod culprit;
pub mod derived;
pub mod diff;
pub mod estimate;
pub mod finding;
mod floor;
pub mod formulas;
mod hot;
pub mod io;
mod limited;
pub mod number;
mod off_cpu;
pub mod offline;
mod owners;
mod pressure;
mod quality;
mod ratio;
pub mod repeat;
pub mod stat;
#[cfg(test)]
pub(crate) mod testing;
mod throttled;
pub mod topdown;
pub mod value;

use std::collections::{BTreeMap, BTreeSet};

pub use self::{
    blind::{Blind, BlindClass, GapReport, Masked},
    cost::{CostReport, ProgramCost},
    floor::Floor,
    hot::{Frame, HotEvent, HotFunction, HotStack, StackEnds},
    limited::Limited,
    owners::{OwnerOrTarget, OwnerReport},
    pressure::Pressure,
    quality::{Books, Quality, SampleQuality, TargetQuality, TargetSamples, TickQuality},
    ratio::{EventReport, RatioReport},
    throttled::Throttled,
};
use self::{
    owners::Groups,
    topdown::{Prepared, TopDown},
};
use crate::{
    drain::{Absent, Owner, TasksHeader},
    machine::Machine,
    model::{Interval, Ledger},
};

/// What an interval says, with a part for each source of the run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Of tasks.
    pub tasks: Option<TasksReport>,
    /// Of I/O.
    pub io: Option<io::IoReport>,
    /// Counts without owners.
    pub counts: Option<stat::Stat>,
    /// What of any source is not measured, and why.
    pub missing: Vec<Absent>,
    /// What was lost of any source, by reason. Empty if nothing was.
    pub losses: BTreeMap<String, u64>,
    /// What stands out, of the whole run.
    pub findings: Vec<finding::Finding>,
    /// What pmbpf itself cost since counting started; `None` where nothing but counters was opened.
    pub cost: Option<CostReport>,
}

impl Report {
    /// Adds what was lost, by reason.
    pub fn lose<'a>(&mut self, losses: impl IntoIterator<Item = (&'a String, &'a u64)>) {
        for (reason, count) in losses {
            let lost = self.losses.entry(reason.clone()).or_default();
            *lost = lost.saturating_add(*count);
        }
    }

    /// The owners that numbers belong to, those of tasks first, most CPU time first; some come more than once.
    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        let of_tasks =
            self.tasks.iter().flat_map(|tasks| &tasks.owners).filter_map(|owner| owner.who.owner());
        let of_io = self.io.iter().flat_map(|io| &io.rows).filter_map(|row| match &row.subject {
            io::Subject::Owner(owner, _) => Some(owner),
            _ => None,
        });
        of_tasks.chain(of_io)
    }

    /// Leaves out the numbers of owners that are not among these.
    pub fn keep_only(&mut self, owners: &BTreeSet<Owner>) {
        let is_kept = |who: &OwnerOrTarget| match who {
            OwnerOrTarget::Target => true,
            OwnerOrTarget::Owner(owner) => owners.contains(owner),
        };
        if let Some(tasks) = &mut self.tasks {
            tasks.owners.retain(|owner| is_kept(&owner.who));
            if let Ok(topdown) = &mut tasks.topdown {
                topdown.owners.retain(|(who, _)| is_kept(who));
            }
        }
        if let Some(io) = &mut self.io {
            io.rows.retain(|row| match &row.subject {
                io::Subject::Owner(owner, _) => owners.contains(owner),
                _ => true,
            });
        }
    }

    /// Gives owners one name in all sources: tasks see what a process executes, I/O only what it was called when it first moved something.
    pub fn name_alike(&mut self) {
        let (Some(tasks), Some(io)) = (&self.tasks, &mut self.io) else { return };
        let owners = tasks.owners.iter().filter_map(|report| report.who.owner());
        let known: BTreeMap<&Owner, &Owner> = owners.map(|owner| (owner, owner)).collect();
        for row in &mut io.rows {
            if let io::Subject::Owner(owner, _) = &mut row.subject
                && let Some(named) = known.get(&*owner)
            {
                owner.clone_from(named);
            }
        }
    }

    /// Adds what one source cost.
    pub fn spend(&mut self, cost: CostReport) {
        self.cost = Some(match self.cost.take() {
            Some(first) => first.beside(cost),
            None => cost,
        });
    }
}

/// What an interval says of tasks. Plain data; views only choose words and columns.
#[derive(Clone, Debug)]
pub struct TasksReport {
    /// Start, in ns since counting started.
    pub from_ns: u64,
    /// Length in ns.
    pub length_ns: u64,
    /// Metrics of the CPU model, or why there are none.
    pub topdown: Result<TopDown, String>,
    /// Everything that the target did.
    pub total: OwnerReport,
    /// Per owner, most CPU time first. A cgroup's numbers hold its subtree's.
    pub owners: Vec<OwnerReport>,
    /// Functions that samples hit, most first.
    pub hot: Vec<HotFunction>,
    /// Stacks that samples hit, most first.
    pub stacks: Vec<HotStack>,
    /// How far the user stacks lead; none where no stacks were taken.
    pub stack_ends: Option<StackEnds>,
    /// The same for people, if processes of one name have ended.
    pub folded: Option<Folded>,
    /// Cgroups with a limit of CPU time, those that lost most by it first; only of the whole run.
    pub throttled: Vec<Throttled>,
    /// Limits of cgroups; only of the whole run.
    pub limits: Vec<Limited>,
    /// Pressure (PSI) of the host and of cgroups.
    pub pressure: Vec<Pressure>,
    /// Who had the CPUs that tasks waited for, of the target first; none where a recording does not tell.
    pub waited: Vec<culprit::Waited>,
    /// Blind time.
    pub blind: Blind,
    /// How complete the numbers are.
    pub quality: Quality,
}

impl TasksReport {
    /// Computes the report of `interval`. Pure. `prepared` is the CPU model of the plan.
    pub fn new(
        machine: &Machine,
        header: &TasksHeader,
        ledger: &Ledger,
        interval: &Interval,
        prepared: Option<&Prepared>,
    ) -> Self {
        let total = interval.all_owners();
        let quality = quality::quality(machine, header, interval, &total);
        let scale = ratio::Scale::new(header, interval, &quality);
        let context = owners::Context { header, ledger, interval, quality: &quality, scale: &scale };
        let apart = Groups::default();
        let folded = Groups::ended(ledger, interval).map(|groups| Folded {
            owners: owners::owners(&context, &groups),
            hot: hot::functions(ledger, interval, &scale, &groups),
            stacks: hot::stacks(ledger, interval, &groups),
            waited: culprit::Waited::of(header, ledger, interval, &groups),
        });
        let why = || header.plan.no_metrics.clone().unwrap_or_else(|| "they were not asked for".to_owned());
        Self {
            topdown: prepared
                .map(|prepared| prepared.topdown(&machine.topology, header, ledger, interval))
                .ok_or_else(why),
            from_ns: interval.from_ns,
            length_ns: interval.length_ns(),
            total: owners::target(&context, &total),
            owners: owners::owners(&context, &apart),
            hot: hot::functions(ledger, interval, &scale, &apart),
            stacks: hot::stacks(ledger, interval, &apart),
            stack_ends: hot::ends(ledger, interval),
            folded,
            throttled: Throttled::of(interval),
            limits: Limited::of(interval),
            pressure: Pressure::of(interval),
            waited: culprit::Waited::of(header, ledger, interval, &apart),
            blind: blind::blind(header, ledger, interval, &quality, &total),
            quality,
        }
    }
}

/// Rows in which processes of one name that have ended are together: a build's report has one for a compiler, not a
/// thousand.
#[derive(Clone, Debug)]
pub struct Folded {
    /// As [`TasksReport::owners`].
    pub owners: Vec<OwnerReport>,
    /// As [`TasksReport::hot`].
    pub hot: Vec<HotFunction>,
    /// As [`TasksReport::stacks`].
    pub stacks: Vec<HotStack>,
    /// As [`TasksReport::waited`].
    pub waited: Vec<culprit::Waited>,
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
        let mut tasks = TasksReport::new(&machine(), &header, &ledger, &interval, None);
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
