//! What the path of a cgroup says of its container, pod, unit and job, by what runtimes call their cgroups. Nothing is read.
//!
//! Components are looked at from the right, so that a container in a container is itself, and what a container makes below its cgroup
//! belongs to it.

#[cfg(test)]
mod tests;

use super::Runtime;
use crate::untrusted::Untrusted;

/// Digits of the id of an OCI container.
const ID_DIGITS: usize = 64;

/// What a path says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The innermost container that it is of.
    pub(crate) container: Option<ById>,
    /// What Kubernetes calls its pod: the uid, with `-`.
    pub(crate) pod_uid: Option<String>,
    /// The innermost service or scope of systemd, or the slice that it is itself.
    pub(crate) unit: Option<Untrusted>,
    /// Slurm's job, and the step if it is of one.
    pub(crate) job: Option<(String, Option<String>)>,
}

/// A container, by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ById {
    /// Who runs it; `None` if the path does not tell.
    pub(crate) runtime: Option<Runtime>,
    /// Its id, as the runtime gives it; of some its name.
    pub(crate) id: String,
    /// Its name, where the path has it.
    pub(crate) name: Option<Untrusted>,
    /// Does it watch a container, and is none itself?
    pub(crate) watches: bool,
    /// Where the container's own path ends in the path, in bytes.
    pub(crate) end: usize,
}

impl Place {
    /// What the path of a cgroup says.
    pub(crate) fn of(path: &Untrusted) -> Self {
        let bytes = path.as_bytes();
        let components = components(bytes);
        let container = components.iter().enumerate().rev().find_map(|(at, &(end, component))| {
            let above = at.checked_sub(1).map_or("", |above| components[above].1);
            container(component, above).map(|found| ById { end, ..found })
        });
        let of_units = components.iter().enumerate().rev();
        let unit = of_units.clone().find_map(|(at, &(end, component))| {
            let is_last = at + 1 == components.len();
            // A container's own first process has a scope of this name.
            let is_inside = container.as_ref().is_some_and(|container| end > container.end);
            is_unit(component, is_last)
                .then_some(component)
                .filter(|name| !(is_inside && *name == "init.scope"))
        });
        Self {
            container,
            pod_uid: components.iter().rev().find_map(|(_, component)| pod_uid(component)),
            unit: unit.map(Untrusted::from),
            job: job(&components),
        }
    }
}

/// The unit of the system's manager that a path is of, and where the unit's own path ends in it: the first service or scope below slices alone,
/// or the slice that it is itself. Whoever has a cgroup of its own may call those below as units are called, a user's manager among
/// them, so what is below is none.
pub(crate) fn system_unit(path: &Untrusted) -> Option<(&str, usize)> {
    let components = components(path.as_bytes());
    let is_slice = |component: &str| component.ends_with(".slice");
    let at = components.iter().position(|(_, component)| !is_slice(component));
    let at = at.unwrap_or(components.len().checked_sub(1)?);
    let (end, component) = components[at];
    let is_last = at + 1 == components.len();
    let is_whole = is_last || !component.starts_with("user@");
    (is_unit(component, is_last) && is_whole).then_some((component, end))
}

/// The cgroup that a path is of as a part of a host that its owner has for itself, and whether that is a container, a pod or a user's slice, all of
/// which is one owner's; else it is a unit of the system's manager. The outermost one: what is below it, its owner made.
pub(crate) fn tenant(path: &str) -> Option<(&str, bool)> {
    let components = components(path.as_bytes());
    let own = components.iter().enumerate().find_map(|(at, &(end, component))| {
        let above = at.checked_sub(1).map_or("", |above| components[above].1);
        let is_user =
            above == "user.slice" && component.starts_with("user-") && component.ends_with(".slice");
        let is_container = || container(component, above).is_some_and(|container| !container.watches);
        (is_user || is_container() || pod_uid(component).is_some()).then_some(end)
    });
    if let Some(end) = own {
        return path.get(..end).map(|own| (own, true));
    }
    let (_, end) = system_unit(&Untrusted::from(path)).map(|(name, end)| (name.len(), end))?;
    path.get(..end).map(|own| (own, false))
}

/// Components of a path, each with where it ends; those that are no UTF-8 are no runtime's.
fn components(path: &[u8]) -> Vec<(usize, &str)> {
    let mut end = 0;
    let each = path.split(|&byte| byte == b'/').map(|component| {
        end += component.len() + 1;
        (end - 1, str::from_utf8(component).unwrap_or_default())
    });
    each.filter(|(_, component)| !component.is_empty()).collect()
}

/// The container that a component is of, below another one.
fn container(component: &str, above: &str) -> Option<ById> {
    let found = |runtime: Option<Runtime>, id: &str| ById {
        runtime,
        id: id.to_owned(),
        name: None,
        watches: false,
        end: 0,
    };
    let scope = component.strip_suffix(".scope").unwrap_or(component);
    for (prefix, runtime, watches) in PREFIXES {
        if let Some(id) = scope.strip_prefix(prefix).filter(|id| is_id(id)) {
            return Some(ById { watches, ..found(Some(runtime), id) });
        }
    }
    if let Some((_, rest)) = component.split_once(':')
        && let Some((prefix, id)) = rest.split_once(':').filter(|(_, id)| is_id(id))
    {
        let runtime = if prefix == "crio" { Runtime::CriO } else { Runtime::Containerd };
        return Some(found(Some(runtime), id));
    }
    if is_id(component) {
        return match above {
            // Podman's pods are called as containers are elsewhere.
            "libpod_parent" => None,
            "docker" => Some(found(Some(Runtime::Docker), component)),
            _ => Some(found(None, component)),
        };
    }
    if is_of_ecs(component) {
        return Some(found(Some(Runtime::Ecs), component));
    }
    named(component, above)
}

/// What stands before the id of a container, whose it is, and whether it only watches one. None is the begin of another.
const PREFIXES: [(&str, Runtime, bool); 8] = [
    ("docker-", Runtime::Docker, false),
    ("cri-containerd-", Runtime::Containerd, false),
    ("nerdctl-", Runtime::Containerd, false),
    ("crio-conmon-", Runtime::CriO, true),
    ("crio-", Runtime::CriO, false),
    ("libpod-conmon-", Runtime::Podman, true),
    ("libpod-payload-", Runtime::Podman, false),
    ("libpod-", Runtime::Podman, false),
];

/// A container that is known by a name.
fn named(component: &str, above: &str) -> Option<ById> {
    let found = |runtime: Runtime, id: &str, name: &str, watches: bool| {
        let name = (!name.is_empty()).then(|| Untrusted::from(name));
        Some(ById { runtime: Some(runtime), id: id.to_owned(), name, watches, end: 0 })
    };
    if let Some(name) =
        component.strip_prefix("systemd-nspawn@").and_then(|name| name.strip_suffix(".service"))
    {
        let name = unescaped(name);
        return found(Runtime::Nspawn, &name, &name, false);
    }
    if above == "machine.slice"
        && let Some(name) = component.strip_prefix("machine-").and_then(|name| name.strip_suffix(".scope"))
    {
        let name = unescaped(name);
        // Virtual machines of libvirt are there, too.
        return if name.starts_with("qemu-") { None } else { found(Runtime::Nspawn, &name, &name, false) };
    }
    for (prefix, watches) in [("lxc.payload.", false), ("lxc.monitor.", true)] {
        if let Some(name) = component.strip_prefix(prefix) {
            return found(Runtime::Lxc, name, name, watches);
        }
    }
    if above == "nomad.slice" || above == "share.slice" || above == "reserve.slice" {
        let (id, task) = component.strip_suffix(".scope")?.split_once('.')?;
        return if is_uuid(id) { found(Runtime::Nomad, id, task, false) } else { None };
    }
    None
}

/// 64 hexadecimal digits.
fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(is_digit)
}

const fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// 32 hexadecimal digits, `-` and a number.
fn is_of_ecs(component: &str) -> bool {
    let Some((task, number)) = component.split_once('-') else { return false };
    task.len() == 32
        && task.bytes().all(is_digit)
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|byte| byte == b'-' || is_digit(byte))
}

/// The uid of the pod that a component is of: `pod<uid>`, or a slice that ends so, in whose name `_` stands for `-`. Static pods have a uid
/// without them.
fn pod_uid(component: &str) -> Option<String> {
    let name = component.split(':').next().unwrap_or(component);
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let uid = match name.strip_prefix("pod") {
        Some(uid) => uid,
        None => name.rsplit_once("-pod").filter(|(before, _)| before.contains("kubepods"))?.1,
    };
    let uid = uid.replace('_', "-");
    let is_static = uid.len() == 32 && uid.bytes().all(is_digit);
    (is_static || is_uuid(&uid)).then_some(uid)
}

/// Is a component a unit of systemd's, and none of a container, of a pod or of what only orders them? Slices are, where they are all.
fn is_unit(component: &str, is_last: bool) -> bool {
    let is = component.ends_with(".service")
        || component.ends_with(".scope")
        || is_last && component.ends_with(".slice");
    is && container(component, "machine.slice")
        .is_none_or(|container| container.runtime == Some(Runtime::Nspawn))
        && pod_uid(component).is_none()
}

/// `job_7/step_0` below `slurmstepd.scope`, with the node's name in it where several daemons run.
fn job(components: &[(usize, &str)]) -> Option<(String, Option<String>)> {
    let at = components.iter().position(|(_, name)| name.ends_with("slurmstepd.scope"))?;
    let below = &components[at + 1..];
    let part = |prefix: &str| below.iter().find_map(|(_, name)| name.strip_prefix(prefix)).map(str::to_owned);
    Some((part("job_")?, part("step_")))
}

/// A part of a unit's name, in which systemd writes other characters as `\x2d` (systemd.unit(5)).
fn unescaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, after)) = rest.split_once("\\x") {
        text.push_str(before);
        match after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if byte.is_ascii() && !byte.is_ascii_control() => {
                text.push(char::from(byte));
                rest = &after[2..];
            }
            _ => {
                text.push_str("\\x");
                rest = after;
            }
        }
    }
    text + rest
}
