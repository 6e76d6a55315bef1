//! However pmbpf ends, nothing of it stays: no program, map or link, no changed setting.

use std::{
    collections::BTreeMap,
    fs,
    process::{Child, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use aya::{
    maps::loaded_maps,
    programs::{loaded_links, loaded_programs},
};
use pmu_common::name::{map, program};

use crate::support::{pmbpf, wait_until};

/// Programs, maps and links in the kernel that could be ours.
fn ours() -> Vec<String> {
    // The kernel keeps 15 characters of a name.
    let ours =
        |name: &str, names: &[&str]| names.iter().any(|known| known.get(..15).unwrap_or(known) == name);
    let programs =
        loaded_programs().filter_map(Result::ok).filter_map(|info| info.name_as_str().map(str::to_owned));
    let maps = loaded_maps().filter_map(Result::ok).filter_map(|info| info.name_as_str().map(str::to_owned));
    let programs =
        programs.filter(|name| ours(name, &program::BOTH) || ours(name, &[program::PRIME, program::FREE]));
    let only_one = [map::TASKS, map::TASKS_BY_ADDRESS];
    programs.chain(maps.filter(|name| ours(name, &map::BOTH) || ours(name, &only_one))).collect()
}

fn links() -> usize {
    loaded_links().filter_map(Result::ok).count()
}

/// Settings that a collector could be tempted to change.
fn settings() -> BTreeMap<String, String> {
    let names = [
        "kernel/bpf_stats_enabled",
        "kernel/nmi_watchdog",
        "kernel/perf_event_paranoid",
        "kernel/perf_event_max_sample_rate",
        "kernel/perf_cpu_time_max_percent",
        "kernel/kptr_restrict",
        "kernel/unprivileged_bpf_disabled",
        "net/core/bpf_jit_enable",
    ];
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    names.iter().map(|name| ((*name).to_owned(), read(name))).collect()
}

#[test]
fn killed_at_any_point_it_leaves_nothing() {
    assert_eq!(ours(), Vec::<String>::new(), "something of ours is loaded already");
    let (settings_before, links_before) = (settings(), links());
    let start = || {
        let mut command = pmbpf();
        command.args(["run", "--stacks", "--all-cgroups"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let end = |mut child: Child| {
        child.kill().unwrap();
        child.wait().unwrap();
        // The kernel frees maps and programs after a grace period.
        wait_until("everything is freed", || ours().is_empty() && links() == links_before);
    };
    let (begun, child) = (Instant::now(), start());
    wait_until("something of ours is loaded", || !ours().is_empty());
    let loading = begun.elapsed();
    end(child);
    // From before the first map to well into counting.
    for twelfths in 0..24 {
        let child = start();
        sleep(loading * twelfths / 12);
        end(child);
    }
    assert_eq!(settings(), settings_before);
}

#[test]
fn an_ordinary_end_leaves_nothing_either() {
    let (settings_before, links_before) = (settings(), links());
    let output = pmbpf().args(["run", "-d", "300ms"]).output().unwrap();
    assert!(output.status.success());
    wait_until("everything is freed", || ours().is_empty() && links() == links_before);
    assert_eq!(settings(), settings_before);
}

#[test]
fn a_command_that_waits_dies_with_pmbpf() {
    let marker = crate::support::Scratch::new("never");
    // Killed before the command is let go: it must never run.
    for milliseconds in [5, 20, 40, 60] {
        let mut child = pmbpf()
            .args(["run", "--", "sh", "-c", &format!("sleep 0.3; touch {}", marker.as_str())])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        sleep(Duration::from_millis(milliseconds));
        let counting = ours().iter().any(|name| name == "prime");
        child.kill().unwrap();
        child.wait().unwrap();
        sleep(Duration::from_millis(400));
        assert!(counting || !marker.0.exists(), "the command ran although pmbpf died before it counted");
        let _ = fs::remove_file(&marker.0);
    }
}
