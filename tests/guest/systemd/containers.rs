//! podman with systemd's driver and crun: each container has a scope, and its processes run in a cgroup
//! below.

use std::fs;

use super::{Theirs, called, is_first, is_found, is_gone, prints, text};
use crate::support::{Running, assert_close, pmbpf, wait_until};

/// Files that the podman package would have written, with storage that needs no separate file system.
const SETTINGS: [(&str, &str); 3] = [
    ("policy.json", r#"{"default": [{"type": "insecureAcceptAnything"}]}"#),
    (
        "storage.conf",
        "[storage]\ndriver = \"vfs\"\ngraphroot = \"/var/lib/containers/storage\"\nrunroot = \"/run/containers/storage\"\n",
    ),
    (
        "containers.conf",
        "[engine]\ncgroup_manager = \"systemd\"\nruntime = \"crun\"\nevents_logger = \"file\"\n",
    ),
];

/// Script that runs for ever. Its cgroup accounts for the CPU time.
pub(super) const BUSY: &str = "while :; do :; done";
/// Script that runs for a while.
const BOUNDED: &str = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";

/// Writes podman's settings, and makes an image of a static busybox.
fn image() {
    fs::create_dir_all("/etc/containers").unwrap();
    for (name, text) in SETTINGS {
        fs::write(format!("/etc/containers/{name}"), text).unwrap();
    }
    prints(
        "mkdir -p /tmp/tree/bin && cp $(command -v busybox) /tmp/tree/bin/ && \
         tar --create --directory /tmp/tree . | podman import --quiet - localhost/box",
    );
}

/// Starts a container with a script of busybox's shell, and returns its scope.
fn start(name: &str, options: &str, script: &str) -> Theirs {
    let id = prints(&format!(
        "podman run --detach --network none --name {name} {options} localhost/box /bin/busybox sh -c '{script}'"
    ));
    Theirs(prints(&format!("podman inspect --format '{{{{.State.CgroupPath}}}}' {id}")))
}

#[test]
fn containers_are_found_and_shown_by_their_names() {
    if !is_first() {
        return;
    }
    image();
    let web = start("web", "", BUSY);
    let batch = start("batch", "--cpus 0.5", BUSY);
    prints("podman pod create --name shop --infra=false --share none");
    let front = start("front", "--pod shop", BUSY);
    for (name, cgroup) in [("web", &web), ("batch", &batch), ("front", &front)] {
        cgroup.is_busy();
        for typed in [name.to_owned(), format!("podman:{name}")] {
            is_found(&typed, name, cgroup);
        }
    }
    // All of them at once, and podman's own number for comparison.
    let running = Running::start(&["--all-cgroups"]);
    let podman =
        || -> f64 { prints("podman stats --no-stream --format '{{.CPUNano}}' batch").parse().unwrap() };
    // podman reads its number between two of the kernel's.
    let read = || (batch.usage_ns(), podman(), batch.usage_ns());
    let first = read();
    wait_until("they have run", || batch.usage_ns() > first.2 + 2e9);
    let last = read();
    let rows = running.stop();
    for name in ["web", "batch", "front"] {
        assert!(rows.sum("cpu_time", called(name)) > 0.5e9, "{name}");
    }
    let possible = last.0 - first.2..=last.2 - first.0;
    assert!(
        possible.contains(&(last.1 - first.1)),
        "podman's: {} is not within {possible:?}",
        last.1 - first.1
    );
    // Two objects share a name.
    prints("systemd-run --quiet --collect --unit=web sleep 600");
    let two = pmbpf().args(["run", "-d", "300ms", "--cgroup", "web"]).output().unwrap();
    let said = text(&two.stderr);
    assert_eq!(two.status.code(), Some(2), "{said}");
    assert!(said.contains("unit:web.service") && said.contains("podman:web"), "{said}");
    prints("podman rm --force --time 0 web batch front && podman pod rm shop");
    is_gone("podman:web");
}

#[test]
fn a_container_that_restarts_is_counted_in_both_lives() {
    if !is_first() {
        return;
    }
    image();
    let web = start("web", "", "sleep 600");
    let running = Running::start(&["--cgroup", "web"]);
    let before = web.usage_ns();
    let work = || prints(&format!("podman exec web /bin/busybox sh -c '{BOUNDED}'"));
    work();
    let first = web.usage_ns();
    prints("podman restart --time 0 web");
    work();
    let second = web.usage_ns();
    let rows = running.stop();
    assert!(first > 100e6 && second > 100e6, "{first} and {second}");
    assert_close("both lives", rows.sum("cpu_time", called("web")), first - before + second, 0.01, 100e6);
}
