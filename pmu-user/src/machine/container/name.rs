//! Names of cgroups: kinds of typed names, and the cgroups that match, with their identities.

use std::fmt::Display;

use super::{Identity, Runtime, SHORT_ID_DIGITS};
use crate::{
    machine::cgroup::{Cgroup, UNITS},
    suggest::glob,
    untrusted::Untrusted,
};

/// Least number of id digits in a bare name.
const ID_DIGITS_MIN: usize = SHORT_ID_DIGITS;
/// Kind of a typed name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Path,
    Unit,
    /// A container of one of these runtimes.
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

/// A cgroup with its identity.
pub(super) struct Candidate {
    pub(super) cgroup: Cgroup,
    pub(super) identity: Identity,
}

/// A match of a name.
pub(super) struct Hit<'a> {
    pub(super) cgroup: &'a Cgroup,
    /// Class of the match, and its unambiguous name.
    pub(super) class: &'static str,
    pub(super) spec: String,
    /// Name that also matches the next cgroup of its kind, with another path.
    pub(super) next: Option<String>,
}

/// Returns the kind of a name and the part after the prefix, if it has one.
pub(super) fn typed(spec: &str) -> Option<(Kind, &str)> {
    let (prefix, name) = spec.split_once(':')?;
    let (_, kind) = KINDS.iter().find(|(known, _)| *known == prefix)?;
    Some((*kind, name))
}

/// Returns whether a name contains a pattern.
pub(super) fn has_pattern(spec: &str) -> bool {
    spec.contains(['*', '?'])
}

pub(super) fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// Returns whether `name` matches the pattern, in which `*` and `?` are wildcards.
fn matches(pattern: &str, name: &Untrusted) -> bool {
    glob(pattern.as_bytes(), name.as_bytes())
}

/// Returns whether the pattern matches the name of a unit, with or without the suffix of its type.
fn is_unit(pattern: &str, unit: &Untrusted) -> bool {
    let name = unit.as_bytes();
    let without = UNITS.iter().find_map(|kind| name.strip_suffix(kind.as_bytes()));
    matches(pattern, unit) || without.is_some_and(|name| glob(pattern.as_bytes(), name))
}

impl Candidate {
    fn hit(&self, class: &'static str, spec: String) -> Hit<'_> {
        Hit { cgroup: &self.cgroup, class, spec, next: None }
    }

    /// Returns the last part of the cgroup's path.
    fn last(&self) -> Untrusted {
        Untrusted::new(self.cgroup.path.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default())
    }

    /// Returns the name that `--cgroup` takes as an alternative to its path: that of the container, pod, unit
    /// or job with this cgroup. For a container the second is its name by id.
    pub(super) fn name(&self) -> Option<(String, Option<String>)> {
        let identity = &self.identity;
        if identity.inside.is_some() {
            return None;
        }
        if let Some(container) = &identity.container {
            let name = container.name.as_ref().filter(|_| !container.is_infrastructure)?;
            let by_id = format!("{}:{}", container.prefix(), container.short_id());
            let hit = self.pod("*/*/*", false);
            let called =
                hit.map_or_else(|| format!("{}:{}", container.prefix(), name.terminal()), |hit| hit.spec);
            return Some((called, Some(by_id)));
        }
        let hit = self.pod("*/*", false).or_else(|| self.job("*")).or_else(|| self.unit("*"))?;
        Some((hit.spec, None))
    }

    /// Returns whether the id of its container begins with this.
    pub(super) fn has_id(&self, beginning: &str) -> bool {
        let container = self.identity.container.as_ref();
        container.is_some_and(|container| container.id.as_bytes().starts_with(beginning.as_bytes()))
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

    /// Matches `NAMESPACE/POD` or `NAMESPACE/POD/CONTAINER`. `bare`: without the namespace.
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

    /// Matches `JOB` or `JOB.STEP`.
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

/// Returns the match of a bare name, which must not be a pattern.
pub(super) fn bare_hit<'a>(one: &'a Candidate, name: &str) -> Option<Hit<'a>> {
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
