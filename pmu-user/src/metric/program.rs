//! Rows that processes of one program share, and the functions and stacks of the target, regardless of the
//! owner.

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

/// Rows that combine the processes of one program: a build's report has one for a compiler, not a thousand,
/// and a database's has one for its backends.
#[derive(Clone, Debug)]
pub struct Folded {
    /// Owners, as in [`TasksReport::owners`].
    pub owners: Vec<OwnerReport>,
    /// Waits, as in [`TasksReport::waited`].
    pub waited: Vec<culprit::Waited>,
    /// Trees, as in [`TasksReport::topdown`].
    pub topdown: Vec<TopDown>,
    /// Owners that share a row, with the owner that the row shows.
    pub members: BTreeMap<Owner, Owner>,
}

impl Folded {
    /// Removes owners that are not kept. A program of which only some processes are kept is shown as those
    /// processes.
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

/// Returns the programs of which a process is not kept.
pub(super) fn incomplete(
    members: &BTreeMap<Owner, Owner>,
    is_kept: &impl Fn(&Owner) -> bool,
) -> BTreeSet<Owner> {
    members.iter().filter(|(process, _)| !is_kept(process)).map(|(_, program)| program.clone()).collect()
}

/// Returns the Top-Down metrics of programs.
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

    /// Returns the owners, with processes of one program combined.
    pub fn by_program(&self) -> &[OwnerReport] {
        self.folded.as_ref().map_or(&self.owners, |folded| &folded.owners)
    }

    /// Returns the same rows without the root cgroup, where it includes everything that the target did: the
    /// target's row shows that.
    pub fn rows(&self) -> impl Iterator<Item = &OwnerReport> {
        self.by_program().iter().filter(|owner| !self.is_everything(&owner.who))
    }

    /// Returns whether it is the root cgroup, with everything that the target did.
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

    /// Returns the programs of which several processes ran.
    pub fn programs(&self) -> impl Iterator<Item = &OwnerReport> {
        let is_one = |owner: &&OwnerReport| matches!(owner.who.owner(), Some(Owner::Program { .. }));
        self.folded.iter().flat_map(|folded| &folded.owners).filter(is_one)
    }

    /// Returns the processes that the row of a program combines.
    pub fn members_of<'a>(&'a self, program: &'a Owner) -> impl Iterator<Item = &'a Owner> {
        let members = self.folded.iter().flat_map(|folded| &folded.members);
        members.filter(move |(_, of)| *of == program).map(|(member, _)| member)
    }

    /// Returns the Top-Down trees of the target, which comes first, and of owners, with processes of one
    /// program combined.
    pub fn trees<'a>(&'a self, topdown: &'a TopDown) -> impl Iterator<Item = &'a (OwnerOrTarget, Tree)> {
        let mut folded = self.folded.iter().flat_map(|folded| &folded.topdown);
        let owners = folded.find(|one| one.pmu() == topdown.pmu()).map_or(&topdown.owners, |one| &one.owners);
        let owners = owners.iter().skip(1).filter(|(who, _)| !self.is_everything(who));
        topdown.owners.iter().take(1).chain(owners)
    }

    /// Returns the culprits of the owners' waits for CPUs, with processes of one program combined.
    pub fn waited_by_program(&self) -> &[culprit::Waited] {
        self.folded.as_ref().map_or(&self.waited, |folded| &folded.waited)
    }

    /// Returns the stack with most samples, regardless of the owner.
    pub(super) fn hottest_stack(&self) -> Option<hot::TargetStack<'_>> {
        let members = self.folded.as_ref().map(|folded| &folded.members);
        hot::hottest(&self.stacks, hot::share_of(&self.sampled.scale, 0), |owner| {
            members.and_then(|members| members.get(owner)).unwrap_or(owner)
        })
    }

    /// Shows processes individually.
    pub(super) fn unfold(&mut self) {
        self.folded = None;
        self.add_up_functions();
    }

    /// Builds the caller trees of the stacks. Branches below `min_share` of the samples are folded.
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
