//! Trees of files as runtimes keep them. Those marked real were written by docker 20.10, podman 4.3 and
//! containerd 1.6 on a machine with hybrid cgroups, without the parts that are not read. The others are made
//! by a runtime's source.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use super::{Container, Containers, Identity, Known, Pod, Runtime, conmon};
use crate::untrusted::Untrusted;

const ID: &str = "3a2533d5a3153bff08b9e63172bdab655578091176a41dd27fdadfc7176073d4";
const OTHER: &str = "d218cc2b1f97c1fc3f44cfced19f00894a1cceaf012201f3623bf415ce56ef50";
const UID: &str = "4f1e2c33-8a7b-4c6d-9e10-0123456789ab";

/// A root folder with files, removed on drop.
pub(super) struct Tree(pub(super) PathBuf);

/// `/proc/PID/stat` of a process (proc(5)).
const STAT: &str = "7 (conmon) S 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5\n";

impl Tree {
    pub(super) fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let base = std::env::temp_dir().join(format!("pmbpf-container-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let tree = Self(base);
        fs::create_dir_all(&tree.0).unwrap();
        for (path, text) in files {
            tree.write(path, text.as_bytes());
            // A process has a user and a start time.
            if let Some(process) = path.strip_suffix("/comm") {
                tree.write(&format!("{process}/status"), b"Uid:\t0\t0\t0\t0\n");
                tree.write(&format!("{process}/stat"), STAT.as_bytes());
            }
        }
        tree
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(super) fn read(&self) -> Containers {
        Containers::read_with_processes(&self.0)
    }

    fn identity(&self, path: &str) -> Identity {
        self.read().identity(&Untrusted::from(path))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn container(runtime: Runtime, id: &str, name: &str, image: Option<&str>) -> Container {
    Container {
        runtime: Some(runtime),
        id: id.into(),
        name: Some(name.into()),
        image: image.map(Untrusted::from),
        is_infrastructure: false,
    }
}

fn pod(name: &str, namespace: &str, uid: Option<&str>) -> Pod {
    Pod { name: Some(name.into()), namespace: Some(namespace.into()), uid: uid.map(Untrusted::from) }
}

#[test]
fn docker_s_containers_have_their_names_and_nothing_of_their_environment() {
    // real
    let kept = format!(
        r#"{{"ID":"{ID}","State":{{"Running":true,"Pid":30686}},"Name":"/web","Config":{{"Image":"busybox:local","Env":["SECRET=hunter2"],"Labels":{{"app":"shop"}}}}}}"#
    );
    let tree = Tree::new("docker", &[(&format!("var/lib/docker/containers/{ID}/config.v2.json"), &kept)]);
    let expected = container(Runtime::Docker, ID, "web", Some("busybox:local"));
    for path in
        [format!("/docker/{ID}"), format!("/my/slice/{ID}"), format!("/system.slice/docker-{ID}.scope/init")]
    {
        let found = tree.identity(&path);
        assert_eq!(found.container.as_ref(), Some(&expected), "{path}");
        let inside = if path.ends_with("/init") { "web:/init" } else { "web" };
        assert_eq!(found.in_words().as_deref(), Some(inside));
    }
    assert!(!format!("{:?}", tree.read()).contains("hunter2"));
}

#[test]
fn docker_s_folder_may_be_elsewhere() {
    let kept = r#"{"Name":"/db","Config":{"Image":"db"}}"#;
    let tree = Tree::new(
        "docker-root",
        &[
            ("etc/docker/daemon.json", r#"{"data-root":"/data/docker"}"#),
            (&format!("data/docker/containers/{ID}/config.v2.json"), kept),
        ],
    );
    assert_eq!(tree.identity(&format!("/docker/{ID}")).in_words().as_deref(), Some("db"));
}

#[test]
fn podman_s_list_and_conmon_s_command_line_name_its_containers() {
    // real
    let list = format!(
        r#"[{{"id":"{OTHER}","names":["web"],"image":"a3f6","layer":"7219","metadata":"{{\"image-name\":\"localhost/busybox:local\",\"name\":\"web\"}}","created":"2026-11-22T10:26:21Z"}}]"#
    );
    let path = format!("/libpod_parent/libpod-{OTHER}/container");
    let tree =
        Tree::new("podman", &[("var/lib/containers/storage/overlay-containers/containers.json", &list)]);
    let expected = container(Runtime::Podman, OTHER, "web", Some("localhost/busybox:local"));
    assert_eq!(tree.identity(&path).container, Some(expected));
    // Wherever podman keeps its files: those of a user, or with --root.
    let command =
        format!("/usr/bin/conmon\0--api-version\01\0-c\0{OTHER}\0-u\0{OTHER}\0-n\0api\0--exit-dir\0/x\0");
    let tree = Tree::new(
        "conmon",
        &[("proc/41/comm", "conmon\n"), ("proc/41/cmdline", &command), ("proc/42/comm", "sh\n")],
    );
    assert_eq!(tree.identity(&path).container, Some(container(Runtime::Podman, OTHER, "api", None)));
}

#[test]
fn a_container_that_was_renamed_has_its_name_of_now_wherever_root_keeps_podman_s_files() {
    let command = format!(
        "conmon\0-c\0{OTHER}\0-b\0/srv/pods/vfs-containers/{OTHER}/userdata\0-n\0web\0--exit-dir\0/x\0"
    );
    let list = format!(r#"[{{"id":"{ID}","names":["db"]}},{{"id":"{OTHER}","names":["web-old"]}}]"#);
    let tree = Tree::new(
        "renamed",
        &[
            ("proc/7/comm", "conmon\n"),
            ("proc/7/cmdline", &command),
            ("srv/pods/vfs-containers/containers.json", &list),
        ],
    );
    let path = format!("/libpod_parent/libpod-{OTHER}");
    assert_eq!(tree.identity(&path).container, Some(container(Runtime::Podman, OTHER, "web-old", None)));
}

#[test]
fn the_container_that_holds_a_pod_s_namespaces_is_infrastructure() {
    let command = format!("conmon\0-c\0{OTHER}\0-n\0{}-infra\0", &ID[..12]);
    let tree = Tree::new("infra", &[("proc/7/comm", "conmon\n"), ("proc/7/cmdline", &command)]);
    let found = tree.identity(&format!("/libpod_parent/{ID}/libpod-{OTHER}"));
    assert!(found.container.unwrap().is_infrastructure);
}

#[test]
fn containerd_s_annotations_name_pods_and_what_is_in_them() {
    // real
    let sandbox = format!(
        r#"{{"annotations":{{"io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-id":"{OTHER}","io.kubernetes.cri.sandbox-name":"web-7f9c","io.kubernetes.cri.sandbox-namespace":"shop","io.kubernetes.cri.sandbox-uid":"{UID}"}},"process":{{"env":["A=hunter2"]}},"linux":{{"cgroupsPath":"/kubepods/burstable/pod{UID}/{OTHER}"}}}}"#
    );
    let inside = format!(
        r#"{{"annotations":{{"io.kubernetes.cri.container-name":"nginx","io.kubernetes.cri.container-type":"container","io.kubernetes.cri.image-name":"localhost/busybox:local","io.kubernetes.cri.sandbox-id":"{OTHER}","io.kubernetes.cri.sandbox-name":"web-7f9c","io.kubernetes.cri.sandbox-namespace":"shop","io.kubernetes.cri.sandbox-uid":"{UID}"}},"linux":{{"cgroupsPath":"x"}}}}"#
    );
    for folder in ["run/containerd", "run/k3s/containerd"] {
        let path = |id: &str| format!("{folder}/io.containerd.runtime.v2.task/k8s.io/{id}/config.json");
        let tree = Tree::new("cri", &[(&path(OTHER), &sandbox), (&path(ID), &inside)]);
        let found = tree.identity(&format!("/kubepods/burstable/pod{UID}/{ID}"));
        assert_eq!(
            found.container,
            Some(container(Runtime::Containerd, ID, "nginx", Some("localhost/busybox:local")))
        );
        assert_eq!(found.pod, Some(pod("web-7f9c", "shop", Some(UID))));
        assert_eq!(found.in_words().as_deref(), Some("shop/web-7f9c/nginx"));
        let found = tree.identity(&format!("/kubepods/burstable/pod{UID}/{OTHER}"));
        assert!(found.container.unwrap().is_infrastructure);
        let of_pod = tree.identity(&format!("/kubepods.slice/kubepods-pod{}.slice", UID.replace('-', "_")));
        assert_eq!((of_pod.container.as_ref(), of_pod.in_words().as_deref()), (None, Some("shop/web-7f9c")));
        assert!(!format!("{:?}", tree.read()).contains("hunter2"));
    }
}

#[test]
fn what_ctr_starts_is_known_by_its_cgroup() {
    let bundle = r#"{"annotations":{},"linux":{"cgroupsPath":"/default/redis"}}"#;
    let tree = Tree::new(
        "ctr",
        &[("run/containerd/io.containerd.runtime.v2.task/default/redis/config.json", bundle)],
    );
    for path in ["/default/redis", "/default/redis/below"] {
        let found = tree.identity(path).container.unwrap();
        assert_eq!(found, container(Runtime::Containerd, "redis", "redis", None), "{path}");
    }
    assert_eq!(tree.identity("/default").container, None);
}

#[test]
fn kubelet_s_links_name_pods_without_any_rights() {
    // real names, made links
    let tree = Tree::new("kubelet", &[]);
    let logs = tree.0.join("var/log/containers");
    fs::create_dir_all(&logs).unwrap();
    symlink("/nowhere", logs.join(format!("web-7f9c_shop_nginx-{ID}.log"))).unwrap();
    symlink("/nowhere", logs.join("no-such-name.log")).unwrap();
    let found = tree.identity(&format!("/kubepods/besteffort/pod{UID}/{ID}"));
    assert_eq!(found.pod, Some(pod("web-7f9c", "shop", Some(UID))));
    assert_eq!(found.in_words().as_deref(), Some("shop/web-7f9c/nginx"));
}

#[test]
fn cri_o_s_annotations_are_told_from_podman_s() {
    // made
    let of = |manager: &str| {
        format!(
            r#"{{"annotations":{{"io.container.manager":"{manager}","io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.container.name":"app","io.kubernetes.cri-o.KubeName":"web-0","io.kubernetes.cri-o.Namespace":"shop","io.kubernetes.pod.uid":"{UID}"}}}}"#
        )
    };
    let path = format!("run/containers/storage/overlay-containers/{ID}/userdata/config.json");
    let cgroup = format!("/kubepods.slice/kubepods-pod{}.slice/crio-{ID}.scope", UID.replace('-', "_"));
    let tree = Tree::new("cri-o", &[(&path, &of("cri-o"))]);
    let found = tree.identity(&cgroup);
    assert_eq!(found.container, Some(container(Runtime::CriO, ID, "app", None)));
    assert_eq!(found.pod, Some(pod("web-0", "shop", Some(UID))));
    let tree = Tree::new("libpod", &[(&path, &of("libpod"))]);
    assert_eq!(tree.identity(&cgroup).container.unwrap().name, None);
}

#[test]
fn files_that_are_none_or_too_large_or_hostile_name_nobody() {
    let file = |id: &str| format!("var/lib/docker/containers/{id}/config.v2.json");
    let tree = Tree::new(
        "hostile",
        &[
            (&file(ID), "{\"Name\":"),
            ("var/lib/containers/storage/overlay-containers/containers.json", "[{\"id\":7}]"),
            ("run/containerd/io.containerd.runtime.v2.task/k8s.io/x/config.json", "[]"),
        ],
    );
    tree.write(&file(OTHER), &vec![b' '; 5 << 20]);
    assert!(tree.identity(&format!("/docker/{ID}")).lacks_a_name());
    assert!(tree.identity(&format!("/docker/{OTHER}")).lacks_a_name());
    // Links are not followed.
    let elsewhere = tree.0.join("elsewhere.json");
    fs::write(&elsewhere, r#"{"Name":"/stolen"}"#).unwrap();
    fs::remove_file(tree.0.join(file(ID))).unwrap();
    symlink(&elsewhere, tree.0.join(file(ID))).unwrap();
    assert!(tree.identity(&format!("/docker/{ID}")).lacks_a_name());
    // Names are untrusted text.
    tree.write(&file(OTHER), "{\"Name\":\"/a\\u001b[31m\"}".as_bytes());
    let words = tree.identity(&format!("/docker/{OTHER}")).in_words().unwrap();
    assert!(!words.contains('\u{1b}'), "{words:?}");
}

#[test]
fn names_have_a_length_whichever_file_they_are_of() {
    let long = |of: &str| of.to_owned() + &"\u{202e}".repeat(40_000);
    let json = |text: &str| serde_json::to_string(text).unwrap();
    let docker = format!(r#"{{"Name":{},"Config":{{"Image":{}}}}}"#, json(&long("/d")), json(&long("image")));
    let cri = "io.kubernetes.cri";
    let annotations =
        [("container-name", "c"), ("sandbox-name", "p"), ("sandbox-namespace", "n"), ("sandbox-uid", "u")]
            .map(|(key, value)| format!("{}:{}", json(&format!("{cri}.{key}")), json(&long(value))));
    let bundle = format!(r#"{{"annotations":{{{}}}}}"#, annotations.join(","));
    let conmon = format!("conmon\0-c\0{ID}\0-n\0{}\0", long("c"));
    let tree = Tree::new(
        "long",
        &[
            (&format!("var/lib/docker/containers/{OTHER}/config.v2.json"), &docker),
            (&format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{UID}/config.json"), &bundle),
            ("proc/7/comm", "conmon\n"),
            ("proc/7/cmdline", &conmon),
        ],
    );
    let containers = tree.read();
    let monitored = containers.by_monitor.values().flatten().map(conmon::Named::known);
    let all: Vec<Known> = containers.by_id.values().cloned().chain(monitored).collect();
    assert_eq!(all.len(), 3);
    for known in &all {
        let Known { name, image, pod, .. } = known;
        for name in [name, image, &pod.name, &pod.namespace, &pod.uid].into_iter().flatten() {
            assert!(name.as_bytes().len() <= 512 && name.terminal().contains("…#"), "{name:?}");
        }
        assert!(name.is_some());
    }
}

/// Makes a monitor of a container, started by a user, in a cgroup.
fn monitor(tree: &Tree, pid: u32, user: u32, (id, name, cgroup): (&str, &str, &str)) {
    tree.write(&format!("proc/{pid}/comm"), b"conmon\n");
    tree.write(&format!("proc/{pid}/status"), format!("Uid:\t{user}\t0\t0\t0\n").as_bytes());
    tree.write(&format!("proc/{pid}/stat"), STAT.as_bytes());
    tree.write(&format!("proc/{pid}/cgroup"), format!("0::{cgroup}\n").as_bytes());
    tree.write(&format!("proc/{pid}/cmdline"), format!("conmon\0-c\0{id}\0-n\0{name}\0").as_bytes());
}

#[test]
fn a_container_is_what_its_owner_says_and_no_other_user() {
    let docker = format!("var/lib/docker/containers/{ID}/config.v2.json");
    let pod = format!("kubepods-pod{}.slice", UID.replace('-', "_"));
    let scopes = [
        format!("sys/fs/cgroup/system.slice/docker-{ID}.scope"),
        format!("sys/fs/cgroup/delegated/docker-{ID}.scope"),
        format!("sys/fs/cgroup/delegated/own/libpod-{OTHER}.scope"),
        format!("sys/fs/cgroup/delegated/{pod}/x"),
    ];
    let tree = Tree::new("impostor", &[(&docker, r#"{"Name":"/web","Config":{"Image":"nginx"}}"#)]);
    for scope in &scopes {
        fs::create_dir_all(tree.0.join(scope)).unwrap();
    }
    // As for a user manager: the user owns the folder, root those above it.
    if std::os::unix::fs::chown(tree.0.join("sys/fs/cgroup/delegated"), Some(65_534), None).is_err() {
        return;
    }
    monitor(&tree, 7, 65_534, (ID, "x-infra", "/"));
    monitor(&tree, 8, 65_534, (OTHER, "mine", "/"));
    monitor(&tree, 9, 1000, (OTHER, "lie", "/"));
    let identity = |scope: &str| tree.identity(scope.strip_prefix("sys/fs/cgroup").unwrap());
    let real = identity(&scopes[0]).container.unwrap();
    assert_eq!(real, container(Runtime::Docker, ID, "web", Some("nginx")), "x-infra is another user's word");
    assert_eq!(identity(&scopes[1]).container, None, "its place is a user's, its id the system's");
    assert_eq!(identity(&scopes[2]).container.unwrap().name, Some("mine".into()));
    assert_eq!(identity(&scopes[3]).pod, None);
}

#[test]
fn a_monitor_in_a_container_names_those_in_that_container() {
    let outer = format!("/docker/{ID}");
    let tree = Tree::new("nested", &[]);
    monitor(&tree, 7, 0, (OTHER, "inner", &format!("{outer}/init")));
    let name = |path: &str| tree.identity(path).container.unwrap().name;
    assert_eq!(name(&format!("{outer}/libpod-{OTHER}.scope")), Some("inner".into()));
    assert_eq!(name(&format!("/machine.slice/libpod-{OTHER}.scope")), None, "that is another container");
    monitor(&tree, 8, 0, (OTHER, "outer", &format!("/machine.slice/libpod-conmon-{OTHER}.scope")));
    assert_eq!(name(&format!("/machine.slice/libpod-{OTHER}.scope")), Some("outer".into()));
}

#[test]
fn a_thousand_pods_are_read_at_once() {
    let tree = Tree::new("thousand", &[]);
    for number in 0..1_000 {
        let id = format!("{number:064x}");
        let bundle = format!(
            r#"{{"annotations":{{"io.kubernetes.cri.container-name":"c","io.kubernetes.cri.sandbox-name":"web-{number}","io.kubernetes.cri.sandbox-namespace":"shop"}}}}"#
        );
        tree.write(
            &format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/config.json"),
            bundle.as_bytes(),
        );
    }
    let containers = tree.read();
    let words =
        |number: u32| containers.identity(&Untrusted::from(format!("/kubepods/{number:064x}"))).in_words();
    assert!((0..1_000).all(|number| words(number) == Some(format!("shop/web-{number}/c"))));
}

#[test]
fn a_folder_that_is_not_there_is_no_reason() {
    assert_eq!(Containers::read(Path::new("/nonexistent")).unread().count(), 0);
}
