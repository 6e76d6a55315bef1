//! Resolution of names on a host with a unit, containers of docker and podman, and a pod.

use std::fs;

use super::resolve;
use crate::{
    machine::{
        cgroup::{Cgroup, CgroupId, Layout, ResolveError},
        container::tests::Tree,
    },
    untrusted::Untrusted,
};

const WEB: &str = "3a2533d5a3153bff08b9e63172bdab655578091176a41dd27fdadfc7176073d4";
const API: &str = "d218cc2b1f97c1fc3f44cfced19f00894a1cceaf012201f3623bf415ce56ef50";
const NGINX: &str = "1bb470e1b11f0c4a62223c12f5a82d165332aa8ad8125f8835ed4fba963a70e5";
const PAUSE: &str = "4ac3410e729cc8ddc83d2fd685bed096776636c17407c2f7449ff973e04be2ee";
const UID: &str = "4f1e2c33-8a7b-4c6d-9e10-0123456789ab";

fn host(name: &str) -> (Tree, Layout) {
    let cri = |name: &str, kind: &str| {
        format!(
            r#"{{"annotations":{{"io.kubernetes.cri.container-name":"{name}","io.kubernetes.cri.container-type":"{kind}","io.kubernetes.cri.sandbox-name":"web-7f9c","io.kubernetes.cri.sandbox-namespace":"shop","io.kubernetes.cri.sandbox-uid":"{UID}"}}}}"#
        )
    };
    let podman = format!(r#"[{{"id":"{API}","names":["api"]}}]"#);
    let bundle = |id: &str| format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/config.json");
    let tree = Tree::new(
        name,
        &[
            (&format!("var/lib/docker/containers/{WEB}/config.v2.json"), r#"{"Name":"/web"}"#),
            ("var/lib/containers/storage/overlay-containers/containers.json", &podman),
            (&bundle(NGINX), &cri("nginx", "container")),
            (&bundle(PAUSE), &cri("POD", "sandbox")),
            ("proc/77/cgroup", "1:name=systemd:/x\n0::/system.slice/db.service\n"),
        ],
    );
    let cgroups = [
        format!("docker/{WEB}"),
        format!("libpod_parent/libpod-{API}/container"),
        format!("kubepods/burstable/pod{UID}/{NGINX}"),
        format!("kubepods/burstable/pod{UID}/{PAUSE}"),
        "system.slice/db.service/worker".to_owned(),
        "system.slice/web@1.service".to_owned(),
        "system.slice/slurmstepd.scope/job_7/step_0".to_owned(),
        "plain/inner".to_owned(),
    ];
    for cgroup in cgroups {
        fs::create_dir_all(tree.0.join("cgroups").join(cgroup)).unwrap();
    }
    let layout = Layout { v2: Some(tree.0.join("cgroups")), ..Layout::default() };
    (tree, layout)
}

/// Returns the paths that a name matches, or the error.
fn meant(host: &(Tree, Layout), spec: &str) -> Result<Vec<String>, ResolveError> {
    let (tree, layout) = host;
    let found = resolve(spec, layout, &&tree.read(), &tree.0)?;
    Ok(found.cgroups.into_iter().map(|cgroup| cgroup.path.terminal().into_owned()).collect())
}

#[test]
fn a_name_means_a_path_a_unit_a_container_or_a_pod() {
    let host = host("means");
    let (docker, podman) = (format!("/docker/{WEB}"), format!("/libpod_parent/libpod-{API}"));
    let (pod, nginx) =
        (format!("/kubepods/burstable/pod{UID}"), format!("/kubepods/burstable/pod{UID}/{NGINX}"));
    for (spec, path) in [
        ("web", docker.as_str()),
        ("docker:web", &docker),
        ("docker:3a2533d5a315", &docker),
        ("3a2533d5a315", &docker),
        ("container:web", &docker),
        ("api", &podman),
        ("podman:api", &podman),
        ("nginx", &nginx),
        ("cri:nginx", &nginx),
        ("web-7f9c", &pod),
        ("web-7f9c/nginx", &nginx),
        ("k8s:shop/web-7f9c", &pod),
        ("k8s:shop/web-7f9c/nginx", &nginx),
        ("db", "/system.slice/db.service"),
        ("unit:db", "/system.slice/db.service"),
        ("unit:db.service", "/system.slice/db.service"),
        ("pid:77", "/system.slice/db.service"),
        ("slurm:7", "/system.slice/slurmstepd.scope/job_7"),
        ("slurm:7.0", "/system.slice/slurmstepd.scope/job_7/step_0"),
        ("plain", "/plain"),
        ("inner", "/plain/inner"),
        ("plain/inner", "/plain/inner"),
        ("path:/plain/inner", "/plain/inner"),
        ("path:plain", "/plain"),
    ] {
        assert_eq!(meant(&host, spec).unwrap(), [path], "{spec}");
    }
}

#[test]
fn a_pattern_means_many_and_has_to_say_of_what() {
    let host = host("pattern");
    let found = meant(&host, "path:/system.slice/*").unwrap();
    assert_eq!(found.len(), 3, "what is inside another one is not counted twice: {found:?}");
    assert_eq!(meant(&host, "k8s:shop/*").unwrap(), [format!("/kubepods/burstable/pod{UID}")]);
    assert_eq!(meant(&host, "k8s:shop/*/*").unwrap(), [format!("/kubepods/burstable/pod{UID}/{NGINX}")]);
    assert!(matches!(meant(&host, "w*b"), Err(ResolveError::Unknown(..))));
}

#[test]
fn several_meanings_are_an_error_that_tells_how_to_name_each() {
    let host = host("several");
    fs::create_dir_all(host.0.0.join("cgroups/system.slice/web.service")).unwrap();
    let error = meant(&host, "web").unwrap_err().to_string();
    for part in ["container", "(docker:web)", "unit:web.service", "2 cgroups"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(meant(&host, "unit:web").unwrap(), ["/system.slice/web.service"]);
    assert_eq!(meant(&host, "docker:web").unwrap(), [format!("/docker/{WEB}")]);
    // A cgroup at the top is matched by its path.
    fs::create_dir(host.0.0.join("cgroups/web")).unwrap();
    assert_eq!(meant(&host, "web").unwrap(), ["/web"]);
}

#[test]
fn a_name_that_means_nothing_is_told_with_what_is_near() {
    let host = host("near");
    for (spec, near) in [
        ("wbe", "the nearest are docker:web"),
        ("docker:wep", "the nearest are docker:web"),
        ("unit:bd", "the nearest are unit:db.service"),
        ("ngnix", "k8s:shop/web-7f9c/nginx"),
        ("podman:web", "the nearest are docker:web"),
        ("docker:nosuch-thing", "the nearest are docker:web"),
        ("3a2533", "the nearest are docker:web"),
        ("docker:3a2533", "the nearest are docker:web"),
        ("path:/plian", "the nearest are /plain"),
    ] {
        let error = meant(&host, spec).unwrap_err();
        assert!(matches!(error, ResolveError::Unknown(..)), "{error}");
        assert!(error.to_string().contains(near), "{spec}: {error}");
    }
    for spec in ["podman:web", "k8s:other/web-7f9c", "pid:78", "pid:../1", "POD", "path:/../x", "3a2533"] {
        assert!(meant(&host, spec).is_err(), "{spec}");
    }
}

#[test]
fn a_container_that_does_not_run_is_said_to_be_one() {
    let host = host("stopped");
    fs::remove_dir(host.0.0.join(format!("cgroups/docker/{WEB}"))).unwrap();
    for spec in ["web", "docker:web", "container:web", &WEB[..12]] {
        let error = meant(&host, spec).unwrap_err().to_string();
        assert!(error.contains("the container docker:web is not running"), "{spec}: {error}");
    }
    for spec in ["podman:web", "unit:web"] {
        assert!(matches!(meant(&host, spec), Err(ResolveError::Unknown(..))), "{spec}");
    }
}

#[test]
fn cgroups_have_the_names_that_mean_them() {
    let host = host("named");
    let (tree, layout) = &host;
    let all = super::named(layout, &tree.read()).unwrap();
    let found: Vec<(String, String)> = all
        .iter()
        .filter_map(|(cgroup, name)| Some((cgroup.path.terminal().into_owned(), name.clone()?)))
        .collect();
    let names: Vec<&str> = found.iter().map(|(_, name)| name.as_str()).collect();
    for name in ["docker:web", "unit:db.service", "k8s:shop/web-7f9c", "k8s:shop/web-7f9c/nginx", "slurm:7.0"]
    {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    for (path, name) in &found {
        assert_eq!(meant(&host, name).unwrap(), std::slice::from_ref(path), "{name}");
    }
}

#[test]
fn a_path_of_a_v1_hierarchy_says_that_it_is_one() {
    let (tree, layout) = host("v1");
    let layout = Layout { v1: vec!["cpu".to_owned()], ..layout };
    let spec = tree.0.join("cpu/web");
    let error = resolve(spec.to_str().unwrap(), &layout, &&tree.read(), &tree.0).unwrap_err();
    assert!(matches!(error, ResolveError::V1(..)), "{error}");
}

/// A container of an old runtime, where both versions are mounted. A systemd unit is in both, and is not a
/// container.
#[test]
fn a_container_in_v1_hierarchies_alone_is_told_with_its_processes() {
    let (tree, layout) = host("only_v1");
    let layout = Layout { v1: vec!["cpu,cpuacct".to_owned()], ..layout };
    let id = WEB.replace('3', "4");
    for (path, text) in [
        (format!("var/lib/docker/containers/{id}/config.v2.json"), r#"{"Name":"/old"}"#.to_owned()),
        (
            "proc/78/cgroup".to_owned(),
            format!("4:cpu,cpuacct:/docker/{id}\n1:name=systemd:/docker/{id}\n0::/\n"),
        ),
        ("proc/9/cgroup".to_owned(), format!("4:cpu,cpuacct:/docker/{id}/x\n0::/\n")),
    ] {
        let path = tree.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for spec in ["old", "docker:old", &id[..12], "container:old"] {
        let error = resolve(spec, &layout, &&tree.read(), &tree.0).unwrap_err();
        let ResolveError::OnlyV1(_, path, pids) = &error else { panic!("{spec}: {error}") };
        assert!(path.starts_with(&format!("cpu,cpuacct:/docker/{id}")), "{error}");
        assert_eq!(pids, "9,78");
    }
    for spec in ["podman:old", "older", "unit:x", "path:/docker/old"] {
        let error = resolve(spec, &layout, &&tree.read(), &tree.0).unwrap_err();
        assert!(matches!(error, ResolveError::Unknown(..)), "{spec}: {error}");
    }
    assert_eq!(meant(&(tree, layout), "web").unwrap(), [format!("/docker/{WEB}")], "it has one of v2");
}

/// Matching of later cgroups by name, and of two cgroups that are made then: a container's with another id,
/// and one below.
#[test]
fn what_comes_later_is_meant_by_its_name() {
    let (tree, layout) = host("later");
    let next = |spec: &str| {
        resolve(spec, &layout, &&tree.read(), &tree.0).unwrap().next.map(|next| next.name().to_owned())
    };
    for (spec, expected) in [
        ("web", Some("docker:web")),
        ("docker:web", Some("docker:web")),
        ("container:web", Some("docker:web")),
        ("web-7f9c", Some("k8s:shop/web-7f9c")),
        ("web-7f9c/nginx", Some("k8s:shop/web-7f9c/nginx")),
        ("k8s:shop/*", Some("k8s:shop/*")),
        ("k8s:*/*/nginx", Some("k8s:*/*/nginx")),
        ("path:/docker/*", Some("path:/docker/*")),
        ("unit:web@*", Some("unit:web@*")),
        // These are the same cgroup whenever it is made again, or can never match another one.
        ("unit:db", None),
        ("db", None),
        ("/plain", None),
        ("path:/plain", None),
        ("pid:77", None),
        ("docker:3a2533d5a315", None),
        ("slurm:7", None),
    ] {
        assert_eq!(next(spec).as_deref(), expected, "{spec}");
    }
    let again = API.replace('d', "e");
    let file = tree.0.join("var/lib/containers/storage/overlay-containers/containers.json");
    fs::write(file, format!(r#"[{{"id":"{again}","names":["api"]}}]"#)).unwrap();
    let means = |spec: &str, path: String| {
        let next = resolve(spec, &layout, &&tree.read(), &tree.0).ok().and_then(|meant| meant.next);
        let cgroup = Cgroup { path: Untrusted::from(path), id: CgroupId(7) };
        next.is_some_and(|next| next.means(&cgroup, &tree.read().identity(&cgroup.path)))
    };
    fs::create_dir_all(tree.0.join(format!("cgroups/libpod_parent/libpod-{again}"))).unwrap();
    assert!(means("podman:api", format!("/libpod_parent/libpod-{again}")));
    assert!(!means("podman:api", format!("/libpod_parent/libpod-conmon-{again}")));
    assert!(!means("podman:api", format!("/docker/{again}")));
    assert!(means("unit:web@*", "/system.slice/web@2.service".to_owned()));
    assert!(!means("unit:web@*", "/system.slice/db.service".to_owned()));
}
