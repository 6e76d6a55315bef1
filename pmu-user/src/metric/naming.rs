//! Names of cgroups in a report: whose each is, put to every owner that it has. They are told by path, whatever the source, and are no part
//! of who an owner is.

use std::collections::BTreeMap;

use super::{OwnerOrTarget, Report, TasksReport, culprit::Culprit, io::Subject};
use crate::{drain::Owner, machine::container::Identity, untrusted::Untrusted};

/// Whose cgroups are, by path.
pub type CgroupNames = BTreeMap<Untrusted, Identity>;

impl Report {
    /// Puts to every cgroup whose it is, as far as `names` tell.
    pub fn name_cgroups(&mut self, names: &CgroupNames) {
        if names.is_empty() {
            return;
        }
        let mut name = |owner: &mut Owner| {
            if let Owner::Cgroup { path, identity, .. } = owner {
                *identity = names.get(path).cloned().map(Box::new);
            }
        };
        if let Some(tasks) = &mut self.tasks {
            tasks.each_owner(&mut name);
        }
        if let Some(io) = &mut self.io {
            for row in &mut io.rows {
                if let Subject::Owner(owner, _) = &mut row.subject {
                    name(owner);
                }
            }
        }
        let of_counts = self.counts.iter_mut().flat_map(|counts| &mut counts.rows);
        of_counts.filter_map(|row| row.owner.as_mut()).for_each(&mut name);
        let findings = self.findings.iter_mut().filter_map(|finding| finding.whose.as_mut());
        findings.for_each(|whose| each(whose, &mut name));
    }
}

fn each(who: &mut OwnerOrTarget, name: &mut impl FnMut(&mut Owner)) {
    if let OwnerOrTarget::Owner(owner) = who {
        name(owner);
    }
}

impl TasksReport {
    /// Every owner that any row has.
    fn each_owner(&mut self, name: &mut impl FnMut(&mut Owner)) {
        let mut owners = vec![&mut self.owners];
        let mut hot = vec![&mut self.hot];
        let mut stacks = vec![&mut self.stacks, &mut self.off_cpu_stacks];
        let mut waited = vec![&mut self.waited];
        if let Some(folded) = &mut self.folded {
            owners.push(&mut folded.owners);
            hot.push(&mut folded.hot);
            stacks.extend([&mut folded.stacks, &mut folded.off_cpu_stacks]);
            waited.push(&mut folded.waited);
        }
        owners.into_iter().flatten().for_each(|row| each(&mut row.who, name));
        self.ended.iter_mut().for_each(&mut *name);
        hot.into_iter().flatten().for_each(|row| name(&mut row.owner));
        stacks.into_iter().flatten().for_each(|row| name(&mut row.owner));
        for row in waited.into_iter().flatten() {
            each(&mut row.who, name);
            for charge in &mut row.charges {
                if let Culprit::Owner(owner) = &mut charge.culprit {
                    name(owner);
                }
            }
        }
        let callers = self.callers.iter_mut().chain(&mut self.off_cpu_callers);
        callers.for_each(|row| name(&mut row.owner));
        self.throttled.iter_mut().for_each(|row| name(&mut row.owner));
        self.limits.iter_mut().for_each(|row| name(&mut row.owner));
        self.pressure.iter_mut().filter_map(|row| row.whose.as_mut()).for_each(&mut *name);
        let gaps = self.blind.gaps.iter_mut().chain(&mut self.blind.others_gaps);
        gaps.filter_map(|row| row.owner.as_mut()).for_each(&mut *name);
        if let Ok(topdown) = &mut self.topdown {
            topdown.owners.iter_mut().for_each(|(who, _)| each(who, name));
        }
    }
}
