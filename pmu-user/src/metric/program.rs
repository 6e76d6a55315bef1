//! Processes of one program together: rows that they share, and the functions and stacks of the target, whoever ran them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    OwnerOrTarget, OwnerReport, TasksReport,
    callers::{Weighing, callers},
    culprit,
    groups::Groups,
    hot, owners,
    topdown::{self, Prepared, TopDown, Tree},
};
use crate::{
    drain::{Owner, TasksHeader},
    machine::Machine,
    model::{Interval, Ledger},
    table::metric::{self, Metric},
};

/// Rows in which processes of one program are together: a build's report has one for a compiler, not a thousand, and a database's one for
/// its backends.
#[derive(Clone, Debug)]
pub struct Folded {
    /// As [`TasksReport::owners`].
    pub owners: Vec<OwnerReport>,
    /// As [`TasksReport::waited`].
    pub waited: Vec<culprit::Waited>,
    /// As [`TasksReport::topdown`].
    pub topdown: Vec<TopDown>,
    /// Owners that share a row, with what the row is of.
    pub members: BTreeMap<Owner, Owner>,
}

impl Folded {
    /// Leaves out owners that are not to be kept. A program of which only some processes are is shown as these.
    pub(super) fn keep_owners(
        &mut self,
        is_kept: &impl Fn(&Owner) -> bool,
        owners: &[OwnerReport],
        waited: &[culprit::Waited],
    ) {
        let left = incomplete(&self.members, is_kept);
        let programs: BTreeSet<Owner> =
            self.members.values().filter(|program| !left.contains(program)).cloned().collect();
        let stays = |who: &OwnerOrTarget| {
            who.owner()
                .is_none_or(|owner| programs.contains(owner) || is_kept(owner) && !left.contains(owner))
        };
        self.owners.retain(|owner| stays(&owner.who));
        self.waited.retain(|waited| stays(&waited.who));
        let apart: BTreeSet<&Owner> = self
            .members
            .iter()
            .filter(|(_, program)| left.contains(program))
            .map(|(member, _)| member)
            .collect();
        let is_apart =
            |who: &OwnerOrTarget| who.owner().is_some_and(|owner| apart.contains(owner) && is_kept(owner));
        self.owners.extend(owners.iter().filter(|owner| is_apart(&owner.who)).cloned());
        self.waited.extend(waited.iter().filter(|waited| is_apart(&waited.who)).cloned());
        owners::sort(&mut self.owners);
        culprit::sort(&mut self.waited);
        for topdown in &mut self.topdown {
            topdown.owners.retain(|(who, _)| stays(who));
        }
        self.members.retain(|_, program| !left.contains(program));
    }
}

/// Programs of which a process is not to be kept.
pub(super) fn incomplete(
    members: &BTreeMap<Owner, Owner>,
    is_kept: &impl Fn(&Owner) -> bool,
) -> BTreeSet<Owner> {
    members.iter().filter(|(process, _)| !is_kept(process)).map(|(_, program)| program.clone()).collect()
}

/// The Top-Down metrics of programs.
pub(super) fn topdown(
    (prepared, machine, header): (&[Prepared], &Machine, &TasksHeader),
    ledger: &Ledger,
    interval: &Interval,
    groups: &Groups,
) -> Vec<TopDown> {
    if prepared.is_empty() {
        return Vec::new();
    }
    let mut together = Interval { hot: HashMap::new(), stacks: HashMap::new(), ..interval.clone() };
    together.fold_owners(groups.all());
    let mut topdown = topdown::topdown(prepared, machine, header, ledger, &together);
    let members = groups.members(ledger);
    for (who, _) in topdown.iter_mut().flat_map(|topdown| &mut topdown.owners) {
        if let OwnerOrTarget::Owner(owner) = who
            && let Some(program) = members.get(owner)
        {
            owner.clone_from(program);
        }
    }
    topdown
}

impl TasksReport {
    /// Adds up the functions of all owners that are kept.
    pub(super) fn add_up_functions(&mut self) {
        let members = self.folded.as_ref().map(|folded| &folded.members);
        let shown = |owner| members.and_then(|members| members.get(owner)).unwrap_or(owner);
        let functions = hot::of_target(&self.hot, &self.sampled, shown);
        self.modules = hot::modules(&functions, &self.sampled);
        self.functions = functions;
    }

    /// Owners, processes of one program together.
    pub fn by_program(&self) -> &[OwnerReport] {
        self.folded.as_ref().map_or(&self.owners, |folded| &folded.owners)
    }

    /// The same without the root cgroup where it holds everything that the target did: the target's row says that.
    pub fn rows(&self) -> impl Iterator<Item = &OwnerReport> {
        self.by_program().iter().filter(|owner| !self.is_everything(&owner.who))
    }

    /// Is it the root cgroup, with all that the target did?
    pub fn is_everything(&self, who: &OwnerOrTarget) -> bool {
        let is_root = |owner: &Owner| matches!(owner, Owner::Cgroup { path, .. } if path.as_bytes() == b"/");
        if !who.owner().is_some_and(is_root) {
            return false;
        }
        let root = self.owners.iter().find(|owner| owner.who == *who);
        let alike = |metric: &Metric| {
            let of = |owner: &OwnerReport| owner.value(metric).map(|known| known.estimate);
            root.is_some_and(|root| of(root) == of(&self.total))
        };
        [metric::CPU_TIME, metric::CONTEXT_SWITCHES, metric::SAMPLES].iter().all(alike)
    }

    /// Programs of which several processes ran.
    pub fn programs(&self) -> impl Iterator<Item = &OwnerReport> {
        let is_one = |owner: &&OwnerReport| matches!(owner.who.owner(), Some(Owner::Program { .. }));
        self.folded.iter().flat_map(|folded| &folded.owners).filter(is_one)
    }

    /// The processes that the row of a program is of.
    pub fn members_of<'a>(&'a self, program: &'a Owner) -> impl Iterator<Item = &'a Owner> {
        let members = self.folded.iter().flat_map(|folded| &folded.members);
        members.filter(move |(_, of)| *of == program).map(|(member, _)| member)
    }

    /// The Top-Down trees of the target, which comes first, and of owners, processes of one program together.
    pub fn trees<'a>(&'a self, topdown: &'a TopDown) -> impl Iterator<Item = &'a (OwnerOrTarget, Tree)> {
        let mut folded = self.folded.iter().flat_map(|folded| &folded.topdown);
        let owners = folded.find(|one| one.pmu() == topdown.pmu()).map_or(&topdown.owners, |one| &one.owners);
        let owners = owners.iter().skip(1).filter(|(who, _)| !self.is_everything(who));
        topdown.owners.iter().take(1).chain(owners)
    }

    /// Who had the CPUs that they waited for.
    pub fn waited_by_program(&self) -> &[culprit::Waited] {
        self.folded.as_ref().map_or(&self.waited, |folded| &folded.waited)
    }

    /// The stack that most samples have, whoever had it.
    pub(super) fn hottest_stack(&self) -> Option<hot::TargetStack<'_>> {
        let members = self.folded.as_ref().map(|folded| &folded.members);
        hot::hottest(&self.stacks, hot::share_of(&self.sampled.scale, 0), |owner| {
            members.and_then(|members| members.get(owner)).unwrap_or(owner)
        })
    }

    /// Shows processes one by one.
    pub(super) fn unfold(&mut self) {
        self.folded = None;
        self.add_up_functions();
    }

    /// Makes caller trees of the stacks; branches below `min_share` of the samples are folded.
    pub fn grow_callers(&mut self, min_share: f64) {
        let members = self.folded.as_ref().map(|folded| &folded.members);
        let shown = |owner| members.and_then(|members| members.get(owner)).unwrap_or(owner);
        let events = self.stacks.iter().map(|stack| stack.tallies.len()).max().unwrap_or(0);
        let on_cpu = callers(
            &self.stacks,
            events,
            |event| Weighing::samples(min_share, hot::share_of(&self.sampled.scale, event)),
            shown,
        );
        let off_cpu = callers(&self.off_cpu_stacks, 1, |_| Weighing::time(min_share), shown);
        (self.callers, self.off_cpu_callers) = (on_cpu, off_cpu);
    }
}
