//! Which cgroups are meant by `--cgroup SPEC`: a path, a unit, a container, a pod, a job, a process's; or a bare name, which is looked for
//! among all of them. Never guesses.

#[cfg(test)]
mod tests;

use std::{fmt::Display, fs, ops::Deref, path::Path};

use super::{Containers, Identity, Runtime, SHORT_ID_DIGITS, follow::Follow};
use crate::{
    machine::cgroup::{Cgroup, Layout, ResolveError, UNITS, nearest_of},
    suggest::glob,
    untrusted::Untrusted,
};

/// Digits of an id that a bare name has at least.
const ID_DIGITS_MIN: usize = SHORT_ID_DIGITS;
/// Meanings that an error lists.
const LISTED_MAX: usize = 10;

/// What a typed name is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Path,
    Unit,
    /// A container of one of these.
    Container(&'static [Runtime]),
    Pod,
    Job,
    Process,
}

/// Prefixes of typed names.
const KINDS: [(&str, Kind); 10] = [
    ("path", Kind::Path),
    ("unit", Kind::Unit),
    ("docker", Kind::Container(&[Runtime::Docker])),
    ("podman", Kind::Container(&[Runtime::Podman])),
    ("ctr", Kind::Container(&[Runtime::Containerd])),
    ("cri", Kind::Container(&[Runtime::Containerd, Runtime::CriO])),
    ("container", Kind::Container(&[])),
    ("k8s", Kind::Pod),
    ("slurm", Kind::Job),
    ("pid", Kind::Process),
];

/// A cgroup with whose it is.
pub(super) struct Candidate {
    pub(super) cgroup: Cgroup,
    pub(super) identity: Identity,
}

/// Something that a name means.
pub(super) struct Hit<'a> {
    cgroup: &'a Cgroup,
    /// What it is, and how it is named without doubt.
    class: &'static str,
    spec: String,
    /// The name that means the next one like it, whose cgroup has another path.
    next: Option<String>,
}

/// What a name means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meant {
    /// Cgroups that are there now.
    pub cgroups: Vec<Cgroup>,
    /// Cgroups to come.
    pub next: Option<Follow>,
}

impl Meant {
    fn alone(cgroup: Cgroup) -> Self {
        Self { cgroups: vec![cgroup], next: None }
    }
}

/// The cgroups that `spec` means, of those that are there now; several only where it has a `*` or a `?`. Processes are below `root`, and
/// `containers` is looked at only where no path says all.
///
/// # Errors
///
/// None is meant, or several without a pattern: the error lists them, each with the name that means it alone.
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
        [] => Err(unknown(spec, &all, containers)),
        several if has_pattern && kind.is_some() => {
            let cgroups = several.iter().map(|hit| hit.cgroup.clone()).collect();
            Ok(Meant { cgroups, next: Follow::of(spec) })
        }
        [one] => {
            let next = one.next.as_deref().and_then(Follow::of);
            Ok(Meant { cgroups: vec![one.cgroup.clone()], next })
        }
        several => {
            let line = |hit: &Hit<'_>| format!("{} {} ({})", hit.class, hit.cgroup.path.terminal(), hit.spec);
            Err(ResolveError::Ambiguous(spec.to_owned(), several.iter().take(LISTED_MAX).map(line).collect()))
        }
    }
}

/// A name's kind, and what follows it, where it has one.
pub(super) fn typed(spec: &str) -> Option<(Kind, &str)> {
    let (prefix, name) = spec.split_once(':')?;
    let (_, kind) = KINDS.iter().find(|(known, _)| *known == prefix)?;
    Some((*kind, name))
}

/// Does a name stand for others, too?
pub(super) fn has_pattern(spec: &str) -> bool {
    spec.contains(['*', '?'])
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn candidates(layout: &Layout, containers: &Containers) -> Result<Vec<Candidate>, ResolveError> {
    let all = layout.list(&Untrusted::from("/"))?;
    let candidate = |cgroup: Cgroup| Candidate { identity: containers.identity(&cgroup.path), cgroup };
    Ok(all.into_iter().map(candidate).collect())
}

/// Those that no other is above.
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

/// Is `name` the same as the pattern's, in which `*` and `?` stand for others?
fn matches(pattern: &str, name: &Untrusted) -> bool {
    glob(pattern.as_bytes(), name.as_bytes())
}

/// Does the pattern say what a unit is called, with or without what kind of unit it is?
fn is_unit(pattern: &str, unit: &Untrusted) -> bool {
    let name = unit.as_bytes();
    let without = UNITS.iter().find_map(|kind| name.strip_suffix(kind.as_bytes()));
    matches(pattern, unit) || without.is_some_and(|name| glob(pattern.as_bytes(), name))
}

impl Candidate {
    fn hit(&self, class: &'static str, spec: String) -> Hit<'_> {
        Hit { cgroup: &self.cgroup, class, spec, next: None }
    }

    /// The last part of its path.
    fn last(&self) -> Untrusted {
        Untrusted::new(self.cgroup.path.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default())
    }

    fn path(&self) -> Option<Hit<'_>> {
        Some(self.hit("cgroup", format!("path:{}", self.cgroup.path.terminal())))
    }

    fn unit(&self, pattern: &str) -> Option<Hit<'_>> {
        let unit = self.identity.unit.as_ref().filter(|unit| **unit == self.last())?;
        is_unit(pattern, unit).then(|| self.hit("unit", format!("unit:{}", unit.terminal())))
    }

    fn container(&self, pattern: &str, runtimes: &[Runtime]) -> Option<Hit<'_>> {
        let container = self.identity.container.as_ref().filter(|container| !container.is_infrastructure)?;
        let is_of =
            runtimes.is_empty() || container.runtime.is_some_and(|runtime| runtimes.contains(&runtime));
        let is_called = container.name.as_ref().is_some_and(|name| matches(pattern, name));
        let id = container.id.as_bytes();
        let is_id = pattern.len() >= ID_DIGITS_MIN && id.starts_with(pattern.as_bytes());
        if !is_of || !(is_called || is_id) {
            return None;
        }
        let named = |name: &dyn Display| format!("{}:{name}", container.prefix());
        let next = container.name.as_ref().filter(|_| is_called).map(|name| named(&name.terminal()));
        Some(Hit { next, ..self.hit("container", named(&container.short_id())) })
    }

    /// `NAMESPACE/POD` or `NAMESPACE/POD/CONTAINER`; `bare`: without the namespace.
    fn pod(&self, pattern: &str, bare: bool) -> Option<Hit<'_>> {
        let pod = self.identity.pod.as_ref()?;
        let (name, namespace) = (pod.name.as_ref()?, pod.namespace.as_ref()?);
        let is_infrastructure =
            |container: &super::Container| container.is_infrastructure || container.name.is_none();
        let container = self.identity.container.as_ref();
        let mut parts: Vec<&Untrusted> = if bare { vec![name] } else { vec![namespace, name] };
        if let Some(container) = container.filter(|container| !is_infrastructure(container)) {
            parts.push(container.name.as_ref()?);
        } else if container.is_some() {
            return None;
        }
        let patterns: Vec<&str> = pattern.split('/').collect();
        let all = patterns.len() == parts.len()
            && patterns.iter().zip(&parts).all(|(pattern, name)| matches(pattern, name));
        if !all {
            return None;
        }
        let class = if container.is_some() { "container" } else { "pod" };
        let tail = container.and_then(|container| container.name.as_ref());
        let tail = tail.map_or_else(String::new, |name| format!("/{}", name.terminal()));
        let spec = format!("k8s:{}/{}{tail}", namespace.terminal(), name.terminal());
        Some(Hit { next: Some(spec.clone()), ..self.hit(class, spec) })
    }

    /// `JOB` or `JOB.STEP`.
    fn job(&self, pattern: &str) -> Option<Hit<'_>> {
        let name = self.identity.job_name()?;
        glob(pattern.as_bytes(), name.as_bytes()).then(|| self.hit("job", format!("slurm:{name}")))
    }
}

pub(super) fn typed_hit<'a>(one: &'a Candidate, kind: Kind, name: &str) -> Option<Hit<'a>> {
    match kind {
        Kind::Path => matches(&absolute(name), &one.cgroup.path).then(|| one.path()).flatten(),
        Kind::Unit => one.unit(name),
        Kind::Container(runtimes) => one.container(name, runtimes),
        Kind::Pod => one.pod(name, false),
        Kind::Job => one.job(name),
        Kind::Process => None,
    }
}

/// What a bare name means: it is nobody's pattern.
fn bare_hit<'a>(one: &'a Candidate, name: &str) -> Option<Hit<'a>> {
    if has_pattern(name) {
        return None;
    }
    let is_last = || (one.last().as_bytes() == name.as_bytes()).then(|| one.path()).flatten();
    one.unit(name)
        .or_else(|| one.container(name, &[]))
        .or_else(|| one.pod(name, true))
        .or_else(|| one.pod(name, false))
        .or_else(is_last)
}

/// The cgroup of a process.
fn of_process(root: &Path, pid: &str, layout: &Layout, spec: &str) -> Result<Cgroup, ResolveError> {
    let unknown = || ResolveError::Unknown(spec.to_owned(), Vec::new());
    let id = if pid == "self" { std::process::id() } else { pid.parse().map_err(|_| unknown())? };
    let list = fs::read(root.join("proc").join(pid).join("cgroup")).map_err(|_| unknown())?;
    let path = list.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"0::"));
    layout.of_process(id, &Untrusted::new(path.ok_or(ResolveError::NoV2)?)).ok_or_else(unknown)
}

/// What is nearest to a name that means nothing, and what could not be asked.
fn unknown(spec: &str, all: &[Candidate], containers: &Containers) -> ResolveError {
    let wanted = spec.rsplit([':', '/']).next().unwrap_or(spec);
    let names = all.iter().flat_map(|one| {
        let container = one.identity.container.as_ref().filter(|container| !container.is_infrastructure);
        let names = [
            container.and_then(|container| container.name.clone()),
            one.identity.pod.as_ref().and_then(|pod| pod.name.clone()),
        ];
        let path = one.cgroup.path.terminal().into_owned();
        names
            .into_iter()
            .flatten()
            .map(|name| name.terminal().into_owned())
            .chain((path != "/").then_some(path))
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    let near = nearest_of(names.into_iter(), wanted);
    let unread: Vec<&str> = containers.unread().collect();
    if unread.is_empty() {
        ResolveError::Unknown(spec.to_owned(), near)
    } else {
        ResolveError::Unread(spec.to_owned(), near, unread.join("; "))
    }
}
