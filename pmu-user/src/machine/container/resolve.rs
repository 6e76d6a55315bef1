//! Resolution of `--cgroup SPEC` to cgroups: a path, a unit, a container, a pod, a job, or a process's. A
//! bare name is searched for among all of them. The resolution never guesses.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, fs, ops::Deref, path::Path};

use super::{
    Containers, Runtime,
    follow::Follow,
    name::{Candidate, Hit, Kind, absolute, bare_hit, has_pattern, typed, typed_hit},
    only_v1,
};
use crate::{
    machine::cgroup::{Cgroup, Layout, ResolveError, nearest_of},
    untrusted::Untrusted,
};

/// Matches that an error lists, at most.
const LISTED_MAX: usize = 10;
/// Names that an error suggests for a name without a match.
const NEAR_MAX: usize = 5;

/// Cgroups that a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meant {
    /// Cgroups that exist now.
    pub cgroups: Vec<Cgroup>,
    /// Name by which later cgroups are matched.
    pub next: Option<Follow>,
}

impl Meant {
    fn alone(cgroup: Cgroup) -> Self {
        Self { cgroups: vec![cgroup], next: None }
    }
}

/// Returns the existing cgroups that `spec` matches, several only if it contains a `*` or a `?`. Processes
/// are below `root`. `containers` is used only if no path decides.
///
/// # Errors
///
/// No cgroup matches, or several do without a pattern: the error lists them, each with the name that matches
/// it alone.
pub fn resolve(
    spec: &str,
    layout: &Layout,
    containers: &impl Deref<Target = Containers>,
    root: &Path,
) -> Result<Meant, ResolveError> {
    if spec == "self" {
        return of_process(root, "self", layout, spec).map(Meant::alone);
    }
    let (kind, has_pattern) = (typed(spec), has_pattern(spec));
    match kind {
        Some((Kind::Path, path)) if !has_pattern => {
            return layout.resolve(&absolute(path)).map(Meant::alone);
        }
        Some((Kind::Process, pid)) => return of_process(root, pid, layout, spec).map(Meant::alone),
        None if spec.starts_with('/') => return layout.resolve(spec).map(Meant::alone),
        None => {
            if let Some(cgroup) = layout.below(Path::new(spec)) {
                return Ok(Meant::alone(cgroup));
            }
        }
        _ => {}
    }
    let all = candidates(layout, containers)?;
    let hits: Vec<Hit<'_>> = match kind {
        Some((kind, name)) => all.iter().filter_map(|one| typed_hit(one, kind, name)).collect(),
        None => all.iter().filter_map(|one| bare_hit(one, spec)).collect(),
    };
    let hits = outermost(hits);
    match hits.as_slice() {
        [] => {
            let only_v1 =
                if layout.v1.is_empty() { None } else { only_v1::find(spec, kind, containers, root) };
            Err(only_v1.unwrap_or_else(|| unknown(spec, &all, containers)))
        }
        several if has_pattern && kind.is_some() => {
            let cgroups = several.iter().map(|hit| hit.cgroup.clone()).collect();
            Ok(Meant { cgroups, next: Follow::of(spec) })
        }
        [one] => {
            let next = one.next.as_deref().and_then(Follow::of);
            Ok(Meant { cgroups: vec![one.cgroup.clone()], next })
        }
        several => {
            // A name rather than an id: it matches a restarted container, too.
            let only =
                |name: &&String| several.iter().filter(|hit| hit.next.as_ref() == Some(*name)).count() == 1;
            let alone = |hit: &Hit<'_>| hit.next.as_ref().filter(only).unwrap_or(&hit.spec).clone();
            let line =
                |hit: &Hit<'_>| format!("{} {} ({})", hit.class, hit.cgroup.path.terminal(), alone(hit));
            Err(ResolveError::Ambiguous(spec.to_owned(), several.iter().take(LISTED_MAX).map(line).collect()))
        }
    }
}

fn candidates(layout: &Layout, containers: &Containers) -> Result<Vec<Candidate>, ResolveError> {
    let all = layout.list(&Untrusted::from("/"))?;
    let candidate = |cgroup: Cgroup| Candidate { identity: containers.identity(&cgroup.path), cgroup };
    Ok(all.into_iter().map(candidate).collect())
}

/// Returns the cgroups, each with the name that matches it alone, if it has one in addition to its path.
///
/// # Errors
///
/// The hierarchy cannot be read.
pub fn named(
    layout: &Layout,
    containers: &Containers,
) -> Result<Vec<(Cgroup, Option<String>)>, ResolveError> {
    let all = candidates(layout, containers)?;
    let names: Vec<_> = all.iter().map(Candidate::name).collect();
    let mut times: HashMap<String, usize> = HashMap::new();
    for (name, _) in names.iter().flatten() {
        *times.entry(name.clone()).or_default() += 1;
    }
    let alone = |(name, by_id): (String, Option<String>)| if times[&name] == 1 { Some(name) } else { by_id };
    let names = names.into_iter().map(|name| name.and_then(alone));
    Ok(all.into_iter().map(|one| one.cgroup).zip(names).collect())
}

/// Returns the hits that are not below another one.
fn outermost(mut hits: Vec<Hit<'_>>) -> Vec<Hit<'_>> {
    hits.sort_by(|one, other| one.cgroup.path.cmp(&other.cgroup.path));
    hits.dedup_by(|next, before| next.cgroup.path == before.cgroup.path);
    let mut kept: Vec<Hit<'_>> = Vec::new();
    for hit in hits {
        let is_below = |above: &Hit<'_>| {
            let rest = hit.cgroup.path.as_bytes().strip_prefix(above.cgroup.path.as_bytes());
            rest.is_some_and(|rest| rest.starts_with(b"/"))
        };
        if !kept.iter().any(is_below) {
            kept.push(hit);
        }
    }
    kept
}

/// Returns the cgroup of a process.
fn of_process(root: &Path, pid: &str, layout: &Layout, spec: &str) -> Result<Cgroup, ResolveError> {
    let unknown = || ResolveError::Unknown(spec.to_owned(), Vec::new());
    let id = if pid == "self" { std::process::id() } else { pid.parse().map_err(|_| unknown())? };
    let list = fs::read(root.join("proc").join(pid).join("cgroup")).map_err(|_| unknown())?;
    let path = list.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"0::"));
    layout.of_process(id, &Untrusted::new(path.ok_or(ResolveError::NoV2)?)).ok_or_else(unknown)
}

/// Returns the error for a name without a match, with the nearest names and the sources that could not be
/// read.
fn unknown(spec: &str, all: &[Candidate], containers: &Containers) -> ResolveError {
    let (kind, name) = typed(spec).map_or((None, spec), |(kind, name)| (Some(kind), name));
    let runtimes: Option<&[Runtime]> = match kind {
        None => Some(&[]),
        Some(Kind::Container(runtimes)) => Some(runtimes),
        Some(_) => None,
    };
    if let Some(known) = runtimes.and_then(|runtimes| containers.without_cgroup(name, runtimes)) {
        return ResolveError::NoneHere(spec.to_owned(), known);
    }
    let near = near(spec, (kind, name), all);
    let unread: Vec<&str> = containers.unread().collect();
    if unread.is_empty() {
        ResolveError::Unknown(spec.to_owned(), near)
    } else {
        ResolveError::Unread(spec.to_owned(), near, unread.join("; "))
    }
}

/// Returns names that may have been meant, each as typed on the command line. They are the same name of
/// another kind, ids with this beginning, or similar names, else all names of its kind.
fn near(spec: &str, (kind, name): (Option<Kind>, &str), all: &[Candidate]) -> Vec<String> {
    let names: Vec<(String, &Candidate)> = all.iter().filter_map(|one| Some((one.name()?.0, one))).collect();
    let of = |is_it: &dyn Fn(&str, &Candidate) -> bool| -> Vec<String> {
        let found = names.iter().filter(|(known, one)| is_it(known, one));
        let mut found: Vec<String> = found.map(|(known, _)| known.clone()).collect();
        found.dedup();
        found.truncate(NEAR_MAX);
        found
    };
    let without_kind = |known: &str| known.split_once(':').map_or(known, |(_, name)| name).to_owned();
    let same = of(&|known, _| without_kind(known) == name);
    if !same.is_empty() {
        return same;
    }
    let is_id = name.len() >= 4 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let by_id = of(&|_, one| is_id && one.has_id(name));
    if !by_id.is_empty() {
        return by_id;
    }
    let wanted = name.rsplit([':', '/']).next().unwrap_or(name);
    let is_unit = |known: &str| known.starts_with("unit:");
    let of_kind = |known: &&String| match kind {
        None => true,
        Some(Kind::Path | Kind::Process) => false,
        Some(Kind::Unit) => is_unit(known),
        Some(Kind::Container(_) | Kind::Pod | Kind::Job) => !is_unit(known),
    };
    let typed = names.iter().map(|(known, _)| known).filter(of_kind);
    let is_path = kind == Some(Kind::Path);
    let paths = all.iter().filter(|one| is_path || one.name().is_none());
    let paths = paths.map(|one| one.cgroup.path.terminal().into_owned());
    let paths = paths.filter(|path| path != "/" && (is_path || kind.is_none()));
    let mut like: Vec<String> = typed.cloned().chain(paths).collect();
    like.sort();
    like.dedup();
    let found = nearest_of(like.into_iter(), wanted);
    match spec.split_once(':') {
        Some((prefix, _)) if found.is_empty() && kind.is_some() => {
            let prefix = format!("{prefix}:");
            of(&|known, _| known.starts_with(&prefix))
        }
        _ => found,
    }
}
