//! Pressure (PSI) of the host and of cgroups, from files that are open before anything is counted.

use std::path::Path;

use crate::{
    drain::{Absent, Owner, PressureRow},
    machine::{
        cgroup::{Cgroup, Layout},
        pressure::PressureFiles,
    },
    plan::{
        Plan, Target,
        request::{By, CgroupPressure},
    },
    untrusted::Untrusted,
};

/// Cgroups with pressure that is read at every tick, three files or four each, and with limits that are read
/// at both ends.
pub(super) const MOST: usize = 64;

/// Files of pressure: the host's, if the kernel accounts any, and those of cgroups.
#[derive(Debug, Default)]
pub(super) struct Pressures {
    host: Option<PressureFiles>,
    /// Resources for which tasks of the host stalled since the pressure of cgroups was read.
    changed: Vec<&'static str>,
    cgroups: Vec<(Owner, PressureFiles)>,
}

impl Pressures {
    /// Opens the files of the host, of target cgroups, and of the outermost cgroups if everything is counted
    /// by cgroup.
    pub(super) fn open(plan: &Plan, layout: &Layout, root: &Path, missing: &mut Vec<Absent>) -> Self {
        let Some(host) = PressureFiles::of_host(root) else {
            let why = "the kernel does not account it: it was built without CONFIG_PSI, or psi=0 is on its command line";
            missing.push(Absent { what: "pressure".to_owned(), why: why.to_owned() });
            return Self::default();
        };
        let mut of_cgroups = Vec::new();
        let wanted =
            if plan.cgroup_pressure == CgroupPressure::Yes { cgroups(plan, layout) } else { Vec::new() };
        for Cgroup { id, path } in wanted.into_iter().take(MOST) {
            match PressureFiles::of_cgroup(layout, &Cgroup { id, path: path.clone() }) {
                Some(files) => of_cgroups.push((Owner::cgroup(id.0, path), files)),
                None => missing.push(Absent {
                    what: format!("pressure of {}", path.terminal()),
                    why: "the kernel does not account it there: before Linux 5.2, or cgroup.pressure is 0"
                        .to_owned(),
                }),
            }
        }
        Self { host: Some(host), changed: Vec::new(), cgroups: of_cgroups }
    }

    /// Returns the kernel's accounts so far: of the host, and of cgroups if requested.
    pub(super) fn read(&mut self, of_cgroups: bool) -> Vec<PressureRow> {
        let Some(host) = &mut self.host else { return Vec::new() };
        // The host first, so that what a cgroup's tasks do from here on changes the host's pressure at the
        // next read.
        let (so_far, changed) = host.read();
        self.changed.extend(changed);
        let of_host = PressureRow { owner: None, so_far };
        let changed = if of_cgroups { std::mem::take(&mut self.changed) } else { Vec::new() };
        let cgroups = if of_cgroups { &mut self.cgroups[..] } else { &mut [] };
        let row = |(owner, files): &mut (Owner, PressureFiles)| PressureRow {
            owner: Some(owner.clone()),
            so_far: files.read_of(&changed),
        };
        let rows = std::iter::once(of_host).chain(cgroups.iter_mut().map(row));
        rows.filter(|row| !row.so_far.is_empty()).collect()
    }
}

/// Returns the cgroups to be read, the outermost first, without the root, which is the host.
pub(super) fn cgroups(plan: &Plan, layout: &Layout) -> Vec<Cgroup> {
    let mut found = match &plan.target {
        Target::Cgroups(targets) => targets.clone(),
        Target::System if plan.by == By::Cgroup => layout.list(&Untrusted::from("/")).unwrap_or_default(),
        Target::System | Target::Processes(_) | Target::Threads(_) | Target::Command(_) => Vec::new(),
    };
    found.retain(|cgroup| cgroup.path.as_bytes() != b"/");
    let depth = |cgroup: &Cgroup| cgroup.path.as_bytes().iter().filter(|&&byte| byte == b'/').count();
    found.sort_by_key(depth);
    found
}
