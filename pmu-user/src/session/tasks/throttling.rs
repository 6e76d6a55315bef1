//! Limits of CPU time of the cgroups that the targets are in, read at both ends of a run.

use std::{collections::BTreeMap, fs, path::Path};

use crate::{
    drain::{Owner, ThrottlingRow},
    machine::cgroup::{Cgroup, CgroupId, Layout, ancestors},
    plan::{Plan, Target, request::Descend},
    untrusted::Untrusted,
};

/// Cgroups that are looked at: a file is read for each, twice a run.
const MOST: usize = 4096;

/// Cgroups whose limits may hold the targets back.
#[derive(Debug, Default)]
pub(super) struct Limited(BTreeMap<CgroupId, Cgroup>);

impl Limited {
    /// What limits did so far to the cgroups that targets are in or that are above those; to all of them if everything is counted. None
    /// where the v2 hierarchy has no limits of CPU time.
    pub(super) fn read(&mut self, plan: &Plan, layout: &Layout, root: &Path) -> Vec<ThrottlingRow> {
        if !layout.limits_cpu_time() {
            return Vec::new();
        }
        let mut found = now(plan, layout, root);
        found.truncate(MOST);
        // What is gone by the end of a run was there at its beginning.
        self.0.extend(found.into_iter().map(|cgroup| (cgroup.id, cgroup)));
        let row = |cgroup: &Cgroup| {
            let owner = Owner::cgroup(cgroup.id.0, cgroup.path.clone());
            Some(ThrottlingRow { owner, so_far: layout.throttling(cgroup)? })
        };
        self.0.values().filter_map(row).collect()
    }
}

/// The cgroups that there are now.
fn now(plan: &Plan, layout: &Layout, root: &Path) -> Vec<Cgroup> {
    let of_process = |process: &str| {
        let text = fs::read(root.join(format!("proc/{process}/cgroup"))).ok()?;
        let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))?;
        layout.at(&Untrusted::new(line))
    };
    let inner: Vec<Cgroup> = match &plan.target {
        Target::System => return layout.list(&Untrusted::from("/")).unwrap_or_default(),
        Target::Cgroups(targets) => targets.clone(),
        Target::Processes(ids) | Target::Threads(ids) => {
            ids.iter().filter_map(|id| of_process(&id.to_string())).collect()
        }
        Target::Command(_) => of_process("self").into_iter().collect(),
    };
    let below = |cgroup: &Cgroup| match (&plan.target, plan.descend) {
        (Target::Cgroups(_), Descend::Yes) => layout.list(&cgroup.path).unwrap_or_default(),
        _ => Vec::new(),
    };
    let above = inner.iter().flat_map(|cgroup| ancestors(cgroup.path.as_bytes()));
    let above: Vec<Cgroup> = above.filter_map(|path| layout.at(&Untrusted::new(path))).collect();
    let below: Vec<Cgroup> = inner.iter().flat_map(below).collect();
    inner.into_iter().chain(above).chain(below).collect()
}
