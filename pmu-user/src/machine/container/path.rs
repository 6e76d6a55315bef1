//! Container, pod, unit and job of a cgroup, from its path alone, by the naming schemes of runtimes. No file
//! is read.
//!
//! Components are examined from the right. A container in a container is separate, and a cgroup that a
//! container makes below its own belongs to it.

#[cfg(test)]
mod tests;

use super::Runtime;
use crate::untrusted::Untrusted;

/// Digits of the id of an OCI container.
const ID_DIGITS: usize = 64;

/// Contents of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Innermost container that the cgroup belongs to.
    pub(crate) container: Option<ById>,
    /// Uid of its pod in Kubernetes, with `-`.
    pub(crate) pod_uid: Option<String>,
    /// Innermost systemd service or scope, or the slice itself.
    pub(crate) unit: Option<Untrusted>,
    /// Slurm job, and the step if the cgroup belongs to one.
    pub(crate) job: Option<(String, Option<String>)>,
}

/// A container, by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ById {
    /// Runtime of the container. `None` if the path does not contain it.
    pub(crate) runtime: Option<Runtime>,
    /// Id of the container, as the runtime gives it. Some runtimes give a name.
    pub(crate) id: String,
    /// Name of the container, where the path contains it.
    pub(crate) name: Option<Untrusted>,
    /// The cgroup only watches a container.
    pub(crate) watches: bool,
    /// End of the container's own path within the path, in bytes.
    pub(crate) end: usize,
}

impl Place {
    /// Parses the path of a cgroup.
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
            // A container's own init has a scope of this name.
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

/// Returns the unit of the system manager that a path belongs to, and the end of the unit's own path. It is
/// the first service or scope with only slices above, or the slice itself. A process with a delegated cgroup,
/// such as a user manager, may name cgroups below like units, so those do not count.
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

/// Returns the cgroup of the tenant that a path belongs to, and whether that has one owner, as a container, a
/// pod or a user's slice has. Otherwise it is a unit of the system manager. The outermost cgroup is taken:
/// everything below it was made by its owner.
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

/// Returns the components of a path, each with its end. A component that is not UTF-8 is not a runtime's.
fn components(path: &[u8]) -> Vec<(usize, &str)> {
    let mut end = 0;
    let each = path.split(|&byte| byte == b'/').map(|component| {
        end += component.len() + 1;
        (end - 1, str::from_utf8(component).unwrap_or_default())
    });
    each.filter(|(_, component)| !component.is_empty()).collect()
}

/// Returns the container of a component, which is below another one.
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
            // Podman's pods are named like containers of other runtimes.
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

/// Prefixes of container ids, each with the runtime, and whether the cgroup only watches a container. No
/// prefix is the beginning of another.
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

/// Returns a container that is identified by a name.
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
        // Virtual machines of libvirt are in this slice, too.
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

/// Returns whether the text is 64 hexadecimal digits.
fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(is_digit)
}

const fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Returns whether the text is 32 hexadecimal digits, `-` and a number.
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

/// Returns the uid of the pod of a component: `pod<uid>`, or a slice with that ending, in whose name `_`
/// stands for `-`. Static pods have a uid without them.
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

/// Returns whether a component is a systemd unit, and not that of a container or pod, or an intermediate
/// slice. A slice counts as the last component only.
fn is_unit(component: &str, is_last: bool) -> bool {
    let is = component.ends_with(".service")
        || component.ends_with(".scope")
        || is_last && component.ends_with(".slice");
    is && container(component, "machine.slice")
        .is_none_or(|container| container.runtime == Some(Runtime::Nspawn))
        && pod_uid(component).is_none()
}

/// Returns the Slurm job of the path: `job_7/step_0` below `slurmstepd.scope`, with the node's name in it
/// where several daemons run.
fn job(components: &[(usize, &str)]) -> Option<(String, Option<String>)> {
    let at = components.iter().position(|(_, name)| name.ends_with("slurmstepd.scope"))?;
    let below = &components[at + 1..];
    let part = |prefix: &str| below.iter().find_map(|(_, name)| name.strip_prefix(prefix)).map(str::to_owned);
    Some((part("job_")?, part("step_")))
}

/// Decodes a part of a unit's name, in which systemd writes other characters as `\x2d` (systemd.unit(5)).
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
