//! Machines of systemd-nspawn: one with a scope made by systemd-machined, and one that is a unit of its
//! template.

use std::path::Path;

use super::{Theirs, containers::BUSY, is_first, is_found, is_gone, prints};
use crate::support::wait_until;

/// Drop-in for the template's unit, which runs a test program: nothing boots here, and there is no network.
const UNIT: &str = "\
    [Service]\n\
    ExecStart=\n\
    ExecStart=systemd-nspawn --quiet --keep-unit --register=no --as-pid2 --machine=%I /work\n";

/// Makes a tree with a static busybox, in which `/work` never ends.
fn tree(name: &str) {
    let root = format!("/var/lib/machines/{name}");
    prints(&format!(
        "mkdir -p {root}/bin {root}/usr {root}/etc && cp $(command -v busybox) {root}/bin/ && \
         echo ID=box >{root}/etc/os-release && printf '#!/bin/busybox sh\\n{BUSY}\\n' >{root}/work && chmod +x {root}/work"
    ));
}

#[test]
fn machines_of_nspawn_are_found_and_shown_by_their_names() {
    if !is_first() {
        return;
    }
    tree("build");
    tree("web-1");
    prints("systemd-run --quiet --unit=starts-build systemd-nspawn --quiet --as-pid2 --machine=build /work");
    let scope = Theirs("/machine.slice/machine-build.scope".to_owned());
    wait_until("machined has made its scope", || Path::new("/sys/fs/cgroup").join(&scope.0[1..]).exists());
    prints(&format!(
        "mkdir -p /run/systemd/system/systemd-nspawn@.service.d && \
         printf '%s' '{UNIT}' >/run/systemd/system/systemd-nspawn@.service.d/work.conf && \
         systemctl daemon-reload && systemctl start \"systemd-nspawn@$(systemd-escape web-1)\""
    ));
    let unit = Theirs("/machine.slice/systemd-nspawn@web\\x2d1.service".to_owned());
    for (name, cgroup) in [("build", &scope), ("web-1", &unit)] {
        cgroup.is_busy();
        let rows = is_found(name, name, cgroup);
        let owners = rows.of_kind("metric").map(|row| &row["owner"]);
        let mut runtimes =
            owners.filter(|owner| owner["called"] == name).map(|owner| &owner["container"]["runtime"]);
        assert!(runtimes.all(|runtime| runtime == "nspawn"), "{name}");
    }
    is_found("unit:machine-build.scope", "build", &scope);
    prints("systemctl stop \"systemd-nspawn@$(systemd-escape web-1)\" && machinectl terminate build");
    wait_until("the scope is gone", || !Path::new("/sys/fs/cgroup").join(&scope.0[1..]).exists());
    is_gone("build");
    is_gone("web-1");
}
