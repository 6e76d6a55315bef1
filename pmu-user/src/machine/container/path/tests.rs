//! Paths as runtimes make them. `real`: seen on a machine. The others are made by a runtime's source or
//! documentation.

use super::{super::Runtime, Place};
use crate::untrusted::Untrusted;

const ID: &str = "3a2533d5a3153bff08b9e63172bdab655578091176a41dd27fdadfc7176073d4";
const UID: &str = "4f1e2c33-8a7b-4c6d-9e10-0123456789ab";
const SLICE: &str = "4f1e2c33_8a7b_4c6d_9e10_0123456789ab";

fn place(path: &str) -> Place {
    Place::of(&Untrusted::from(path))
}

/// Returns the container of a path: runtime and id.
fn container(path: &str) -> Option<(Option<Runtime>, String)> {
    let found = place(path).container?;
    assert!(!found.watches, "{path}");
    Some((found.runtime, found.id))
}

#[test]
fn every_runtime_s_path_has_its_container() {
    let paths = [
        // real: docker 20.10 and podman 4.3 with the cgroupfs driver, containerd 1.6 (CRI).
        (format!("/docker/{ID}"), Some(Runtime::Docker)),
        (format!("/libpod_parent/libpod-{ID}"), Some(Runtime::Podman)),
        (format!("/kubepods/burstable/pod{UID}/{ID}"), None),
        // made
        (format!("/my/slice/{ID}"), None),
        (format!("/system.slice/docker-{ID}.scope"), Some(Runtime::Docker)),
        (format!("/system.slice/docker-{ID}.scope/init.scope"), Some(Runtime::Docker)),
        (format!("/system.slice/docker-{ID}.scope/system.slice/a.service"), Some(Runtime::Docker)),
        (
            format!("/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope"),
            Some(Runtime::Docker),
        ),
        (format!("/machine.slice/libpod-{ID}.scope/container"), Some(Runtime::Podman)),
        (format!("/system.slice/web.service/libpod-payload-{ID}"), Some(Runtime::Podman)),
        (format!("/libpod_parent/{}/libpod-{ID}", "ab".repeat(32)), Some(Runtime::Podman)),
        (
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice/cri-containerd-{ID}.scope"
            ),
            Some(Runtime::Containerd),
        ),
        (format!("/kubepods.slice/kubepods-pod{SLICE}.slice/crio-{ID}.scope/container"), Some(Runtime::CriO)),
        (format!("/kubepods/besteffort/pod{UID}/crio-{ID}"), Some(Runtime::CriO)),
        (
            format!(
                "/system.slice/containerd.service/kubepods-besteffort-pod{SLICE}.slice:cri-containerd:{ID}"
            ),
            Some(Runtime::Containerd),
        ),
        (
            format!(
                "/docker/{}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICE}.slice/cri-containerd-{ID}.scope",
                "ab".repeat(32)
            ),
            Some(Runtime::Containerd),
        ),
    ];
    for (path, runtime) in paths {
        assert_eq!(container(&path), Some((runtime, ID.to_owned())), "{path}");
    }
    let ecs = format!("{}-1234567890", &ID[..32]);
    assert_eq!(container(&format!("/ecs/task/{ecs}")), Some((Some(Runtime::Ecs), ecs)));
}

#[test]
fn some_containers_are_known_by_their_names() {
    let named = [
        ("/machine.slice/systemd-nspawn@web\\x2d1.service/payload", Runtime::Nspawn, "web-1"),
        ("/machine.slice/machine-build.scope", Runtime::Nspawn, "build"),
        ("/lxc.payload.db/system.slice/postgresql.service", Runtime::Lxc, "db"),
    ];
    for (path, runtime, name) in named {
        let found = place(path).container.unwrap();
        assert_eq!((found.runtime, found.name), (Some(runtime), Some(Untrusted::from(name))), "{path}");
    }
    let nomad = place(&format!("/nomad.slice/{UID}.server.scope")).container.unwrap();
    assert_eq!(
        (nomad.runtime, nomad.id.as_str(), nomad.name),
        (Some(Runtime::Nomad), UID, Some("server".into()))
    );
    assert_eq!(place("/machine.slice/machine-qemu\\x2d1\\x2dweb.scope").container, None);
}

#[test]
fn what_watches_a_container_is_none() {
    for path in [
        format!("/machine.slice/libpod-conmon-{ID}.scope"),
        format!("/kubepods/crio-conmon-{ID}"),
        "/lxc.monitor.db".to_owned(),
    ] {
        assert!(place(&path).container.unwrap().watches, "{path}");
    }
}

#[test]
fn what_only_looks_like_a_container_is_none() {
    for path in [
        "/".to_owned(),
        "/docker".to_owned(),
        format!("/docker/{}", &ID[1..]),
        format!("/docker/{}", ID.to_uppercase()),
        format!("/libpod_parent/{ID}"),
        "/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-4f1e2c33-8a7b-4c6d-9e10-0123456789ab.scope".to_owned(),
        "[cgroup 7]".to_owned(),
    ] {
        assert_eq!(place(&path).container, None, "{path}");
    }
}

#[test]
fn a_pod_is_known_by_its_uid_however_it_is_written() {
    let uid = |path: String| place(&path).pod_uid;
    assert_eq!(uid(format!("/kubepods/burstable/pod{UID}")), Some(UID.to_owned()));
    assert_eq!(uid(format!("/kubepods.slice/kubepods-pod{SLICE}.slice")), Some(UID.to_owned()));
    assert_eq!(uid(format!("/kubepods.slice/kubepods-pod{}.slice", "0f".repeat(16))), Some("0f".repeat(16)));
    assert_eq!(uid("/kubepods/podcast".to_owned()), None);
    assert_eq!(uid(format!("/system.slice/my-pod{SLICE}.slice")), None);
}

#[test]
fn a_unit_is_the_innermost_service_or_scope() {
    let unit = |path: &str| place(path).unit.map(|unit| unit.terminal().into_owned());
    let is = |unit: &str| Some(unit.to_owned());
    assert_eq!(unit("/system.slice/web.service"), is("web.service"));
    assert_eq!(unit("/system.slice/system-foo.slice/foo@1.service/worker"), is("foo@1.service"));
    assert_eq!(unit("/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope"), is("a.scope"));
    assert_eq!(unit("/system.slice"), is("system.slice"));
    assert_eq!(unit("/system.slice/x"), None);
    assert_eq!(unit(&format!("/system.slice/web.service/libpod-payload-{ID}")), is("web.service"));
    assert_eq!(unit(&format!("/system.slice/docker-{ID}.scope")), None);
    assert_eq!(unit(&format!("/system.slice/docker-{ID}.scope/init.scope")), None);
    assert_eq!(unit(&format!("/system.slice/docker-{ID}.scope/system.slice/db.service")), is("db.service"));
    assert_eq!(unit(&format!("/kubepods.slice/kubepods-pod{SLICE}.slice")), None);
}

#[test]
fn slurm_s_jobs_and_steps_are_told() {
    let job = |path: &str| place(path).job;
    assert_eq!(
        job("/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"),
        Some(("7".to_owned(), Some("0".to_owned())))
    );
    assert_eq!(job("/system.slice/node1_slurmstepd.scope/job_7"), Some(("7".to_owned(), None)));
    assert_eq!(job("/system.slice/slurmstepd.scope/system"), None);
    assert_eq!(job("/job_7"), None);
}

#[test]
fn a_container_s_own_path_ends_where_it_does() {
    let path = format!("/docker/{ID}/system.slice/a.service");
    let found = place(&path).container.unwrap();
    assert_eq!(&path[..found.end], format!("/docker/{ID}"));
}
