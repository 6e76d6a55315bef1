//! Docker's engine with systemd's driver, and containerd below it alone, from Debian's packages and with
//! separate folders.

use super::{Theirs, called, containers::BUSY, is_first, is_found, prints, shell};
use crate::support::{Running, assert_close, wait_until};

/// Starts containerd and dockerd, without their own network.
fn start_engines() {
    prints(
        "systemd-run --quiet --unit=engine-containerd --property=Delegate=yes --property=KillMode=process containerd",
    );
    wait_until("containerd answers", || shell("ctr version").status.success());
    prints(
        "systemd-run --quiet --unit=engine-docker --property=Delegate=yes --property=KillMode=process dockerd \
         --containerd /run/containerd/containerd.sock --iptables=false --ip6tables=false --bridge=none --storage-driver vfs",
    );
    wait_until("dockerd answers", || shell("docker version").status.success());
    prints(
        "mkdir -p /tmp/tree/bin && cp $(command -v busybox) /tmp/tree/bin/ && \
         tar --create --directory /tmp/tree . | docker import - box:1 && \
         docker save --output /tmp/box.tar box:1 && ctr images import /tmp/box.tar",
    );
}

/// Starts a docker container and returns its cgroup.
fn start(name: &str, script: &str) -> Theirs {
    let id = prints(&format!(
        "docker run --detach --network none --name {name} box:1 /bin/busybox sh -c '{script}'"
    ));
    Theirs(format!("/system.slice/docker-{id}.scope"))
}

#[test]
fn containers_of_docker_and_containerd_are_found_by_their_names() {
    if !is_first() {
        return;
    }
    start_engines();
    let web = start("web", BUSY);
    prints(&format!(
        "ctr run --detach --snapshotter native docker.io/library/box:1 batch /bin/busybox sh -c '{BUSY}'"
    ));
    let batch = Theirs("/default/batch".to_owned());
    for (name, typed, cgroup) in [("web", "docker:web", &web), ("batch", "ctr:batch", &batch)] {
        cgroup.is_busy();
        is_found(name, name, cgroup);
        is_found(typed, name, cgroup);
    }
    prints("docker rename web shop");
    is_found("docker:shop", "shop", &web);
    prints("docker rename shop web");
    // After a restart it has another id, and is followed by its name.
    let running = Running::start(&["--cgroup", "docker:web"]);
    let before = web.usage_ns();
    wait_until("it runs", || web.usage_ns() > before + 300e6);
    prints("docker rm --force web");
    let again = start("web", BUSY);
    again.is_busy();
    prints("docker pause web");
    let second = again.usage_ns();
    let rows = running.stop();
    assert_close("the second life", rows.of_cgroup("cpu_time", &again.0), second, 0.01, 100e6);
    assert!(
        rows.sum("cpu_time", called("web")) > rows.of_cgroup("cpu_time", &again.0) + 200e6,
        "and the first"
    );
    prints("docker rm --force web; ctr task kill --signal KILL batch");
}
