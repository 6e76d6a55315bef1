//! Targets of series: a container, pod, unit or job, with all that is below its cgroup, or else a cgroup. A
//! target has the name that `--cgroup` takes, so that it can be copied from a query into a command. A
//! container that starts again keeps its series.

use crate::{
    drain::Owner,
    machine::container::{Container, Identity, Pod, system_unit},
    untrusted::{Untrusted, bounded},
};

/// Maximum length in bytes of a part of a target's name as it is shown, of all of the name, and of another
/// label. Each of a target's series has all of the name.
const PART_BYTES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 512;
const LABEL_BYTES_MAX: usize = 1024;

/// Name of all targets without their own series.
pub(super) const OTHER: &str = "_other";

/// Labels, in the order in which they are written.
pub type Labels = Vec<(&'static str, String)>;

/// Returns the name of an owner's target, escaped for a terminal, `None` for an owner that has none.
pub fn name(owner: &Owner) -> Option<String> {
    let Owner::Cgroup { path, identity, .. } = owner else { return None };
    let called = identity.as_ref().and_then(|identity| of_identity(identity));
    let of_unit = || Some(format!("unit:{}", Untrusted::from(system_unit(path)?.0).terminal()));
    let called = called.or_else(of_unit).unwrap_or_else(|| format!("path:{}", path.terminal()));
    Some(bounded(called, NAME_BYTES_MAX))
}

/// Returns the cgroup of the container that an owner is of or in, without what is inside. Returns `None`
/// outside of containers, and in one that holds a pod's namespaces.
pub(super) fn container_base(owner: &Owner) -> Option<Untrusted> {
    let Owner::Cgroup { path, identity: Some(identity), .. } = owner else { return None };
    identity.container.as_ref().filter(|container| !container.is_infrastructure)?;
    Some(Untrusted::new(outside(path, identity)))
}

/// Returns the name of a container by the beginning of its id.
pub(super) fn name_by_id(owner: &Owner) -> Option<String> {
    let Owner::Cgroup { identity: Some(identity), .. } = owner else { return None };
    let container = identity.container.as_ref()?;
    Some(bounded(format!("{}:{}", container.prefix(), container.short_id()), NAME_BYTES_MAX))
}

/// Returns the name of a cgroup by its path.
pub(super) fn name_by_path(path: &Untrusted) -> String {
    bounded(format!("path:{}", path.terminal()), NAME_BYTES_MAX)
}

fn of_identity(identity: &Identity) -> Option<String> {
    let pod = identity.pod.as_ref().and_then(of_pod);
    match &identity.container {
        // This container holds the pod's namespaces, and is not a target by itself.
        Some(container) if container.is_infrastructure => return pod,
        Some(container) => return Some(of_container(container, pod)),
        None => {}
    }
    let job = identity.job_name().map(|name| format!("slurm:{name}"));
    pod.or(job)
}

fn of_pod(pod: &Pod) -> Option<String> {
    Some(format!("k8s:{}/{}", part(pod.namespace.as_ref()?), part(pod.name.as_ref()?)))
}

fn of_container(container: &Container, pod: Option<String>) -> String {
    let name = container.name.as_ref().map(part);
    if let (Some(pod), Some(name)) = (pod, &name) {
        return format!("{pod}/{name}");
    }
    format!("{}:{}", container.prefix(), name.unwrap_or_else(|| container.short_id()))
}

fn part(name: &Untrusted) -> String {
    bounded(name.terminal().into_owned(), PART_BYTES_MAX)
}

/// Returns the path of the outermost cgroup of an owner's target, which includes all below it. Returns `None`
/// for an owner without a target.
pub(super) fn outermost(owner: &Owner) -> Option<Untrusted> {
    let Owner::Cgroup { path, identity, .. } = owner else { return None };
    let nothing = Identity::default();
    let identity = identity.as_deref().unwrap_or(&nothing);
    if of_identity(identity).is_none() {
        let end = system_unit(path).map_or(path.as_bytes().len(), |(_, end)| end);
        return Some(Untrusted::new(&path.as_bytes()[..end]));
    }
    Some(Untrusted::new(outside(path, identity)))
}

/// Returns a path without the part inside of a container.
fn outside<'p>(path: &'p Untrusted, identity: &Identity) -> &'p [u8] {
    let inside = identity.inside.as_ref().map_or(&b""[..], Untrusted::as_bytes);
    path.as_bytes().strip_suffix(inside).unwrap_or(path.as_bytes())
}

/// Returns what is known of a target, as labels of its `pmbpf_target_info`.
pub fn info(owner: &Owner) -> Labels {
    let Owner::Cgroup { path, identity, .. } = owner else { return Labels::new() };
    let identity = identity.as_deref().cloned().unwrap_or_default();
    let job = identity.job_name();
    // Path of the container or unit, for an owner inside of it.
    let own = outermost(owner);
    let of_unit = system_unit(path).filter(|_| of_identity(&identity).is_none());
    let unit = of_unit.map(|(unit, _)| unit.into()).or(identity.unit);
    let container = identity.container.unwrap_or_default();
    let pod = identity.pod.unwrap_or_default();
    let text = |name: Option<Untrusted>| name.map(|name| name.terminal().into_owned());
    let id = Some(container.id).filter(|id| !id.is_empty());
    // Prometheus and its operator set job, namespace, pod and container of the scraped pod on every series.
    let all = [
        ("path", text(own)),
        ("runtime", container.runtime.map(|runtime| runtime.name().to_owned())),
        ("container_name", text(container.name)),
        ("container_id", text(id)),
        ("image", text(container.image)),
        ("k8s_namespace", text(pod.namespace)),
        ("k8s_pod", text(pod.name)),
        ("k8s_pod_uid", text(pod.uid)),
        ("unit", text(unit)),
        ("slurm_job", job),
    ];
    all.into_iter().filter_map(|(label, value)| Some((label, bounded(value?, LABEL_BYTES_MAX)))).collect()
}

#[cfg(test)]
mod tests {
    use super::{info, name};
    use crate::{
        drain::Owner,
        machine::container::{Container, Identity, Pod, Runtime},
        untrusted::Untrusted,
    };

    fn cgroup(path: &str, identity: Identity) -> Owner {
        Owner::Cgroup { id: 7, path: path.into(), identity: Some(Box::new(identity)) }
    }

    fn container(runtime: Runtime, called: Option<&str>) -> Option<Container> {
        Some(Container {
            runtime: Some(runtime),
            id: "0123456789abcdef".into(),
            name: called.map(Untrusted::from),
            ..Container::default()
        })
    }

    fn pod() -> Option<Pod> {
        Some(Pod { name: Some("web-7f9c".into()), namespace: Some("shop".into()), uid: Some("u".into()) })
    }

    #[test]
    fn names_and_labels_have_a_length() {
        let (mut path, mut long) = (String::new(), container(Runtime::Docker, Some(&"\u{202e}".repeat(80))));
        (0..15).for_each(|_| path += &format!("/{}", "\u{202e}".repeat(80)));
        for identity in [Identity::default(), Identity { container: long.take(), ..Identity::default() }] {
            let owner = cgroup(&path, identity);
            let called = name(&owner).unwrap();
            assert!(called.len() <= 512 && called.contains("…#"), "{called}");
            let labels = info(&owner);
            assert!(!labels.is_empty() && labels.iter().all(|(_, value)| value.len() <= 1024), "{labels:?}");
        }
        let other = cgroup(&(path.clone() + "x"), Identity::default());
        assert_ne!(name(&cgroup(&path, Identity::default())), name(&other), "two stay two");
    }

    #[test]
    fn a_target_is_called_what_cgroup_takes() {
        let of = |identity| name(&cgroup("/a/b", identity)).unwrap();
        assert_eq!(of(Identity::default()), "path:/a/b");
        let web = Identity { container: container(Runtime::Podman, Some("web")), ..Identity::default() };
        assert_eq!(of(web.clone()), "podman:web");
        assert_eq!(
            of(Identity { inside: Some("/init.scope".into()), ..web }),
            "podman:web",
            "with what is in it"
        );
        let unnamed = Identity { container: container(Runtime::CriO, None), ..Identity::default() };
        assert_eq!(of(unnamed), "cri:0123456789ab");
        let nginx = container(Runtime::Containerd, Some("nginx"));
        let of_pod = Identity { container: nginx, pod: pod(), ..Identity::default() };
        assert_eq!(of(of_pod.clone()), "k8s:shop/web-7f9c/nginx");
        assert_eq!(of(Identity { container: None, ..of_pod.clone() }), "k8s:shop/web-7f9c");
        let mut pause = of_pod;
        pause.container.as_mut().unwrap().is_infrastructure = true;
        assert_eq!(of(pause), "k8s:shop/web-7f9c", "what holds its namespaces is the pod's");
        let job = Identity { job: Some(("12".into(), Some("0".into()))), ..Identity::default() };
        assert_eq!(of(job), "slurm:12.0");
        assert_eq!(name(&Owner::Other), None);
    }

    #[test]
    fn a_unit_is_one_of_the_systems_manager() {
        let of = |path: &str| {
            let unit = path.rsplit('/').next().map(Untrusted::from);
            let owner = cgroup(path, Identity { unit, ..Identity::default() });
            let at = info(&owner).into_iter().find(|(label, _)| *label == "path").unwrap().1;
            (name(&owner).unwrap(), at)
        };
        let is = |name: &str, path: &str| (name.to_owned(), path.to_owned());
        let nginx = "/system.slice/nginx.service";
        assert_eq!(of(nginx), is("unit:nginx.service", nginx));
        assert_eq!(
            of("/system.slice/nginx.service/worker"),
            is("unit:nginx.service", nginx),
            "with what is below"
        );
        // A cgroup with such a name inside of another unit belongs to that unit.
        let of_evil = is("unit:evil.service", "/system.slice/evil.service");
        assert_eq!(of("/system.slice/evil.service/nginx.service"), of_evil);
        assert_eq!(of("/mine/nginx.service").0, "path:/mine/nginx.service");
        let of_user = "/user.slice/user-1.slice/user@1.service/app.slice/nginx.service";
        assert_eq!(of(of_user).0, format!("path:{of_user}"), "every user may have one");
        assert_eq!(of("/user.slice/user-1.slice").0, "unit:user-1.slice");
        assert_eq!(of("/init.scope").0, "unit:init.scope");
        assert_eq!(of("/").0, "path:/");
    }

    #[test]
    fn a_hostile_name_is_escaped() {
        let evil = Identity {
            container: container(Runtime::Docker, Some("a\x1b]52;c\n\"b")),
            ..Identity::default()
        };
        let called = name(&cgroup("/x", evil)).unwrap();
        assert!(called.chars().all(|c| !c.is_control()), "{called:?}");
    }

    #[test]
    fn info_has_what_is_known_and_nothing_else() {
        let web = Identity {
            container: container(Runtime::Podman, Some("web")),
            inside: Some("/init.scope".into()),
            ..Identity::default()
        };
        let labels = info(&cgroup("/libpod-1/init.scope", web));
        let get = |label: &str| labels.iter().find(|(of, _)| *of == label).map(|(_, value)| value.as_str());
        assert_eq!(get("path"), Some("/libpod-1"), "its own, not that of what is in it");
        assert_eq!((get("container_name"), get("runtime")), (Some("web"), Some("podman")));
        let of_a_scrape = ["job", "instance", "namespace", "pod", "container", "endpoint", "service", "node"];
        let everything = Identity {
            container: container(Runtime::Containerd, Some("nginx")),
            pod: pod(),
            job: Some(("12".into(), None)),
            ..Identity::default()
        };
        let collides = |(label, _): &(&str, String)| of_a_scrape.contains(label);
        assert!(
            !info(&cgroup("/x", everything)).iter().any(collides),
            "labels that Prometheus' operator sets"
        );
        assert_eq!((get("image"), get("k8s_pod"), get("slurm_job")), (None, None, None));
    }
}
