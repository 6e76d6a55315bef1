//! Host with systemd as the first program, and with cgroups of version 2 alone. Containers, containers of
//! pods and units are found and shown by their usual names, with their cgroups' accounts. Only in guests of
//! `-systemd`.

mod containers;
mod docker;
mod nspawn;
mod packages;

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

use crate::{
    support::{Rows, assert_close, pmbpf, skipped, text, usage_ns, wait_until},
    workloads::workload,
};

/// Returns whether systemd is the first program, and reports a skip otherwise.
fn is_first() -> bool {
    let is = Path::new("/run/systemd/system").is_dir();
    if !is {
        skipped("systemd is not this host's first program; that of 7.2-systemd is");
    }
    is
}

/// Runs a shell script to its end.
fn shell(script: &str) -> Output {
    Command::new("bash").args(["-c", script]).output().unwrap()
}

/// Runs a script that must succeed, and returns its output.
#[track_caller]
fn prints(script: &str) -> String {
    let output = shell(script);
    assert!(
        output.status.success(),
        "{script}: {}: {}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout).trim().to_owned()
}

/// Cgroup made by another program, by its path.
struct Theirs(String);

impl Theirs {
    /// Returns the accounted CPU time, in ns.
    fn usage_ns(&self) -> f64 {
        usage_ns(Path::new(&format!("/sys/fs/cgroup{}", self.0)))
    }

    fn is_busy(&self) {
        let before = self.usage_ns();
        wait_until("it runs", || self.usage_ns() > before + 300e6);
    }
}

/// Returns a predicate for owners with this name. A unit's name is in its path.
fn called(name: &str) -> impl Fn(&Value) -> bool {
    let name = name.to_owned();
    move |owner| owner["called"] == name.as_str() || owner["unit"] == name.as_str()
}

/// Asserts that a run with `--cgroup` of this name agrees with the cgroup's accounts, and returns the rows.
fn is_found(typed: &str, shown: &str, cgroup: &Theirs) -> Rows {
    let output = {
        let before = cgroup.usage_ns();
        let output =
            pmbpf().args(["run", "--json", "--quiet", "-d", "2s", "--cgroup", typed]).output().unwrap();
        assert!(output.status.success(), "{typed}: {}", text(&output.stderr));
        let most = cgroup.usage_ns() - before;
        let rows = Rows::parse(&output.stdout);
        let ours = rows.of_cgroup("cpu_time", &cgroup.0);
        // Under an emulator starting takes longer than the run.
        assert!(ours > 0.3e9 && ours < most + 20e6, "{typed}: {ours} of {most}");
        rows
    };
    assert_close(
        "by its name",
        output.sum("cpu_time", called(shown)),
        output.of_cgroup("cpu_time", &cgroup.0),
        0.0,
        0.0,
    );
    output
}

/// Asserts that no cgroup has this name any more.
#[track_caller]
fn is_gone(typed: &str) {
    let gone = pmbpf().args(["run", "-d", "300ms", "--cgroup", typed]).output().unwrap();
    assert_eq!(gone.status.code(), Some(2), "{typed}: {}", text(&gone.stderr));
}

#[test]
fn a_unit_is_found_and_shown_by_its_name() {
    if !is_first() {
        return;
    }
    prints(&format!("systemd-run --quiet --collect --unit=load {} 600", workload("spin", &["-g"])));
    let load = Theirs("/system.slice/load.service".to_owned());
    load.is_busy();
    for typed in ["load", "load.service", "unit:load.service", "unit:lo*"] {
        is_found(typed, "load.service", &load);
    }
    prints("systemctl stop load");
    is_gone("load");
}
