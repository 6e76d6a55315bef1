//! Limits of CPU time of the cgroups that the targets are in, read at both ends of a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::{
    drain::{Owner, ThrottlingRow},
    machine::cgroup::{Cgroup, CgroupId, Layout, ancestors},
    plan::{Plan, Target, request::Descend},
    untrusted::Untrusted,
};

/// Number of cgroups that are read: a file or two for each, twice a run.
const MOST: usize = 4096;
/// Number of threads of a target cgroup whose v1 cgroup is read.
const MOST_THREADS: usize = 256;

/// Cgroups with limits that may throttle the targets.
#[derive(Debug, Default)]
pub(super) struct Limited {
    v2: BTreeMap<CgroupId, Cgroup>,
    /// Paths in the v1 hierarchy that has the controller, if one has it.
    v1: BTreeSet<Untrusted>,
}

impl Limited {
    /// Returns the throttling so far of the cgroups that targets are in or that are above those, or of all
    /// cgroups if everything is counted. Empty if no hierarchy has limits of CPU time.
    pub(super) fn read(&mut self, plan: &Plan, layout: &Layout, root: &Path) -> Vec<ThrottlingRow> {
        if layout.limits_cpu_time_v1() {
            return self.read_v1(plan, layout, root);
        }
        if !layout.limits_cpu_time() {
            return Vec::new();
        }
        let mut found = now(plan, layout, root);
        found.truncate(MOST);
        // A cgroup that is gone by the end of a run was there at its beginning.
        self.v2.extend(found.into_iter().map(|cgroup| (cgroup.id, cgroup)));
        let row = |cgroup: &Cgroup| {
            let owner = Owner::cgroup(cgroup.id.0, cgroup.path.clone());
            Some(ThrottlingRow { owner, so_far: layout.throttling(cgroup)? })
        };
        self.v2.values().filter_map(row).collect()
    }

    /// Returns the same for the v1 hierarchy. A cgroup of the v2 hierarchy with the same path is taken for
    /// the same one.
    fn read_v1(&mut self, plan: &Plan, layout: &Layout, root: &Path) -> Vec<ThrottlingRow> {
        let found = now_v1(plan, layout, root);
        self.v1.extend(found.into_iter().take(MOST));
        let row = |path: &Untrusted| {
            let so_far = layout.throttling_v1(path)?;
            Some(ThrottlingRow { owner: Owner::cgroup(layout.id_at(path), path.clone()), so_far })
        };
        self.v1.iter().filter_map(row).collect()
    }
}

/// Returns the cgroups that there are now.
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

/// Returns the paths of the cgroups of the v1 hierarchy that there are now.
fn now_v1(plan: &Plan, layout: &Layout, root: &Path) -> BTreeSet<Untrusted> {
    let of_process = |process: &str| layout.cpu_path_of(root, process);
    let inner: BTreeSet<Untrusted> = match &plan.target {
        Target::System => return layout.cpu_paths(&Untrusted::from("/"), MOST).into_iter().collect(),
        Target::Cgroups(targets) => {
            let threads = |cgroup: &Cgroup| layout.threads(cgroup).unwrap_or_default();
            let threads = targets.iter().flat_map(|cgroup| threads(cgroup).into_iter().take(MOST_THREADS));
            let theirs: Vec<_> = threads.filter_map(|thread| of_process(&thread.to_string())).collect();
            let same = targets.iter().filter(|cgroup| layout.has_cpu_path(&cgroup.path));
            let below = same.flat_map(|cgroup| match plan.descend {
                Descend::Yes => layout.cpu_paths(&cgroup.path, MOST),
                Descend::No => vec![cgroup.path.clone()],
            });
            below.chain(theirs).collect()
        }
        Target::Processes(ids) | Target::Threads(ids) => {
            ids.iter().filter_map(|id| of_process(&id.to_string())).collect()
        }
        Target::Command(_) => of_process("self").into_iter().collect(),
    };
    let above = inner.iter().flat_map(|path| ancestors(path.as_bytes()).map(Untrusted::new));
    let above: BTreeSet<Untrusted> = above.collect();
    inner.into_iter().chain(above).collect()
}
