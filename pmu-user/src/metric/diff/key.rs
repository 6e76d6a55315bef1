//! Keys that match numbers of two recordings: metric, subject, and owner by name. Process ids differ from run
//! to run, and ids of containers with every start. Processes, containers and pods are thus matched by name,
//! other cgroups by path.

use super::super::{Frame, culprit::Culprit, io::Subject, number::Attribution};
use crate::{drain::Owner, machine::container::Identity, untrusted::Untrusted};

/// Owner of a number in a form that matches across recordings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Whose {
    /// Kind of owner: `target`, `host`, `process`, `thread`, `comm`, `exe`, `container`, `pod`, `cgroup` or
    /// `other`.
    pub kind: &'static str,
    /// Name: `comm`, name of the executable, name of a container or pod as people use it, or path.
    pub name: Untrusted,
}

impl Whose {
    /// Returns the target itself.
    pub fn target() -> Self {
        Self { kind: "target", name: Untrusted::from("total") }
    }

    /// Returns one owner, by its name.
    pub fn owner(owner: &Owner) -> Self {
        let (kind, name) = match owner {
            Owner::Other => ("other", &Untrusted::from("other")),
            // An ended process counts under its name, as the others do.
            Owner::Process { name, .. } | Owner::Ended { name, .. } | Owner::Program { name, .. } => {
                ("process", name)
            }
            Owner::Thread { name, .. } => ("thread", name),
            Owner::Comm { name } => ("comm", name),
            Owner::Exe { name } => ("exe", name),
            Owner::Cgroup { path, identity, .. } => {
                let identity = identity.as_deref();
                if let Some(called) = identity.and_then(Identity::in_words) {
                    let is_container = identity.is_some_and(|identity| identity.container.is_some());
                    return Self {
                        kind: if is_container { "container" } else { "pod" },
                        name: called.into(),
                    };
                }
                ("cgroup", path)
            }
        };
        Self { kind, name: name.clone() }
    }

    /// Returns the key of a culprit. `idle`, `outside`, `migrated` and `unknown` are kinds as well.
    pub fn culprit(culprit: &Culprit) -> Self {
        let nobody = |kind: &'static str| Self { kind, name: Untrusted::from(kind) };
        match culprit {
            Culprit::Owner(owner) => Self::owner(owner),
            Culprit::Idle => nobody("idle"),
            Culprit::Outside => nobody("outside"),
            Culprit::Migrated => nobody("migrated"),
            Culprit::Unknown => nobody("unknown"),
        }
    }

    /// Returns the owner of a report's number.
    pub fn of(whose: Attribution<'_>) -> Self {
        match whose {
            Attribution::Host => Self { kind: "host", name: Untrusted::default() },
            Attribution::Target => Self::target(),
            Attribution::Owner(owner) => Self::owner(owner),
        }
    }

    /// Returns whether it has this name. The last part of a path, or of a name in a pod, matches as well.
    /// Containers and pods also match the form that `--cgroup` takes, regardless of their current runtime.
    pub fn is_called(&self, name: &str) -> bool {
        const TYPES: [&str; 5] = ["docker:", "podman:", "cri:", "container:", "k8s:"];
        let own = self.name.as_bytes();
        let last = own.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let is_container = matches!(self.kind, "container" | "pod");
        let typed = TYPES.iter().find_map(|kind| name.strip_prefix(kind)).filter(|_| is_container);
        let name = typed.unwrap_or(name).as_bytes();
        own == name || (is_container || self.kind == "cgroup") && last == name
    }
}

/// Number that is compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Metric, by its name.
    Metric(String),
    /// Wait of an owner while this culprit had the CPU.
    Culprit(Whose),
    /// Share of the samples that hit a function; in kernel mode, if the flag is true.
    Function(Frame, bool),
    /// Share of the samples that hit with a stack, innermost frame first.
    Stack(Vec<Frame>),
}

/// Key that matching numbers of two recordings share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Owner of the number.
    pub whose: Whose,
    /// Subject of the number other than CPUs.
    pub subject: Option<Subject>,
    /// Event of which it is a rate: rates of all events have one name.
    pub event: Option<String>,
    /// Number that is compared.
    pub what: What,
}

/// Returns the frame in a form that matches across recordings, if it has one. A function is matched by its
/// name and its file's name, regardless of folder and build.
pub(super) fn matched(frame: &Frame) -> Option<Frame> {
    let file = |module: &Untrusted| {
        let last = module.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        Untrusted::new(last)
    };
    Some(match frame {
        Frame::Function { name, module, .. } => Frame::Function {
            name: name.clone(),
            module: module.as_ref().map(file),
            build_id: None,
            inlined: false,
        },
        // An offset has the same meaning only in the same file.
        Frame::Offset { module, build_id: Some(id), offset } => {
            Frame::Offset { module: file(module), build_id: Some(id.clone()), offset: *offset }
        }
        Frame::Offset { .. } | Frame::Address(_) => return None,
        Frame::Rest | Frame::Cut(_) => frame.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::Whose;
    use crate::{
        drain::Owner,
        machine::container::{Container, Identity, Pod},
        untrusted::Untrusted,
    };

    fn whose(path: &str, identity: Option<Identity>) -> Whose {
        Whose::owner(&Owner::Cgroup { id: 7, path: path.into(), identity: identity.map(Box::new) })
    }

    fn called(id: &str) -> Option<Identity> {
        let container = Container { id: id.into(), name: Some("nginx".into()), ..Container::default() };
        let pod = Pod { name: Some("web-0".into()), namespace: Some("shop".into()), uid: None };
        Some(Identity { container: Some(container), pod: Some(pod), ..Identity::default() })
    }

    #[test]
    fn a_container_is_itself_whatever_its_id_is() {
        let (before, after) = (whose("/pods/1/0123", called("0123")), whose("/pods/2/4567", called("4567")));
        assert_eq!(before, after);
        assert_eq!((before.kind, before.name), ("container", Untrusted::from("shop/web-0/nginx")));
        assert!(after.is_called("shop/web-0/nginx") && after.is_called("nginx") && !after.is_called("web-0"));
        assert!(after.is_called("k8s:shop/web-0/nginx") && !after.is_called("unit:nginx"));
        assert!(!whose("/a/nginx", None).is_called("docker:nginx"), "a cgroup that no runtime named");
        let of_pod = Identity { container: None, ..called("").unwrap() };
        assert_eq!(whose("/pods/1", Some(of_pod)).kind, "pod");
        // The name of a unit is the last part of its path.
        let unit = Identity { unit: Some("a.service".into()), ..Identity::default() };
        assert_eq!(whose("/system.slice/a.service", Some(unit)), whose("/system.slice/a.service", None));
    }
}
