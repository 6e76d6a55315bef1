//! Limits of the cgroups that are targets or have rows, and of those above them, read at both ends of a run.

use std::{collections::BTreeSet, fs, path::Path};

use super::pressure::{MOST, cgroups};
use crate::{
    drain::{LimitsRow, Owner},
    machine::cgroup::{Cgroup, CgroupId, Layout, ancestors},
    plan::{Plan, Target},
    untrusted::Untrusted,
};

/// Returns the present limits of cgroups: all limits of cgroups that are targets or have rows. Of those
/// above, and of the cgroups of target processes, it returns the limits of I/O.
pub(super) fn read(plan: &Plan, layout: &Layout, root: &Path) -> Vec<LimitsRow> {
    let own: Vec<Cgroup> = cgroups(plan, layout).into_iter().take(MOST).collect();
    let is_own: BTreeSet<Untrusted> = own.iter().map(|cgroup| cgroup.path.clone()).collect();
    let of_processes = of_processes(plan, layout, root);
    let paths = is_own.iter().chain(&of_processes);
    let above = paths.flat_map(|path| ancestors(path.as_bytes()).map(Untrusted::new));
    let others: BTreeSet<Untrusted> = above.chain(of_processes.iter().cloned()).collect();
    let others = others.into_iter().filter(|path| !is_own.contains(path)).take(MOST);
    // A cgroup in a v1 hierarchy alone has no id.
    let others = others.map(|path| Cgroup { id: CgroupId(layout.id_at(&path)), path });
    let row = |now, cgroup: Cgroup| {
        let io = layout.io_limits(&cgroup, root);
        LimitsRow { owner: Owner::cgroup(cgroup.id.0, cgroup.path), now, io }
    };
    let own = own.into_iter().map(|cgroup| row(layout.limits(&cgroup), cgroup));
    let rows = own.chain(others.map(|cgroup| row(Vec::new(), cgroup)));
    rows.filter(|row| !row.now.is_empty() || !row.io.is_empty()).collect()
}

/// Returns the paths of the cgroups of target processes, in the hierarchies that limit I/O.
fn of_processes(plan: &Plan, layout: &Layout, root: &Path) -> BTreeSet<Untrusted> {
    let of = |process: &str| {
        let text = fs::read(root.join(format!("proc/{process}/cgroup"))).unwrap_or_default();
        let v2 = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"0::"));
        v2.map(Untrusted::new).into_iter().chain(layout.io_path_of(root, process)).collect::<Vec<_>>()
    };
    match &plan.target {
        Target::Processes(ids) | Target::Threads(ids) => {
            ids.iter().take(MOST).flat_map(|id| of(&id.to_string())).collect()
        }
        Target::Command(_) => of("self").into_iter().collect(),
        Target::System | Target::Cgroups(_) => BTreeSet::new(),
    }
}
