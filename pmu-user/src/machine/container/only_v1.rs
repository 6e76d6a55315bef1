//! Containers with version 1 cgroups alone, as old runtimes make them where both versions are mounted. BPF
//! programs read a task's version 2 cgroup, which for all of these is the root.

use std::{fs, path::Path};

use super::{
    Containers,
    name::{Candidate, Kind, bare_hit, typed_hit},
};
use crate::{
    machine::cgroup::{Cgroup, CgroupId, ResolveError},
    untrusted::Untrusted,
};

/// Processes that an error lists, at most.
const LISTED_MAX: usize = 20;

/// Returns the error that reports the container that a name matches there, and its processes. Returns `None`
/// if there is no match.
pub(super) fn find(
    spec: &str,
    kind: Option<(Kind, &str)>,
    containers: &Containers,
    root: &Path,
) -> Option<ResolveError> {
    let processes = fs::read_dir(root.join("proc")).ok()?.flatten();
    let mut pids: Vec<u32> = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    let mut found: Option<(String, Vec<u32>)> = None;
    for pid in pids {
        let Ok(list) = fs::read(root.join(format!("proc/{pid}/cgroup"))) else { continue };
        let path = list.split(|&byte| byte == b'\n').find_map(|line| of_line(spec, kind, containers, line));
        if let Some(path) = path {
            found.get_or_insert((path, Vec::new())).1.push(pid);
        }
    }
    let (path, pids) = found?;
    let listed: Vec<String> = pids.iter().take(LISTED_MAX).map(u32::to_string).collect();
    Some(ResolveError::OnlyV1(spec.to_owned(), path, listed.join(",")))
}

/// Returns the hierarchy and the path of a line of `/proc/PID/cgroup` (cgroups(7)), if its cgroup is the
/// container that the name matches.
fn of_line(spec: &str, kind: Option<(Kind, &str)>, containers: &Containers, line: &[u8]) -> Option<String> {
    let mut parts = line.splitn(3, |&byte| byte == b':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    if controllers.is_empty() {
        return None;
    }
    let path = Untrusted::new(path);
    let identity = containers.identity(&path);
    identity.container.as_ref()?;
    let candidate = Candidate { cgroup: Cgroup { path: path.clone(), id: CgroupId(0) }, identity };
    let hit = match kind {
        Some((kind @ (Kind::Container(_) | Kind::Pod), name)) => typed_hit(&candidate, kind, name),
        None => bare_hit(&candidate, spec),
        Some(_) => None,
    };
    hit.map(|_| format!("{}:{}", Untrusted::new(controllers).terminal(), path.terminal()))
}
