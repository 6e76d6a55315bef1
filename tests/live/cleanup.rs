//! Cleanup: however pmbpf ends, it leaves no program, map or link, and no changed setting.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::{Child, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use aya::{
    maps::loaded_maps,
    programs::{loaded_links, loaded_programs},
};
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};

use crate::{
    support::{Scratch, pmbpf, signal, text, wait_until},
    workloads::workload,
};

/// Programs, maps and links of one run: their kinds and ids. Other objects on the machine belong to other
/// programs.
pub(crate) type Objects = BTreeSet<(&'static str, u32)>;

/// Returns the BPF objects of a process's descriptors (proc_pid_fdinfo(5)), or nothing if the process is
/// gone.
pub(crate) fn held_by(pid: u32) -> Objects {
    let mut objects = Objects::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten() {
        let info = fs::read_to_string(entry.path()).unwrap_or_default();
        for kind in ["prog_id", "map_id", "link_id"] {
            let id =
                info.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(':')?.trim().parse().ok());
            objects.extend(id.map(|id| (kind, id)));
        }
    }
    objects
}

/// Returns the objects that the kernel still has.
pub(crate) fn left(objects: &Objects) -> Objects {
    let programs = loaded_programs().filter_map(Result::ok).map(|info| ("prog_id", info.id()));
    let maps = loaded_maps().filter_map(Result::ok).map(|info| ("map_id", info.id()));
    let links = loaded_links().filter_map(Result::ok).map(|info| ("link_id", info.id()));
    programs.chain(maps).chain(links).filter(|object| objects.contains(object)).collect()
}

/// Stops a process, so that it loads nothing more, and returns its objects.
fn stopped(pid: u32) -> Objects {
    signal(pid, "STOP");
    wait_until("it is stopped or gone", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
        state.is_none_or(|state| ["T", "t", "Z", "X"].contains(&state))
    });
    held_by(pid)
}

/// Returns whether a program of this name is among them.
fn has_program(objects: &Objects, name: &str) -> bool {
    loaded_programs()
        .filter_map(Result::ok)
        .any(|info| info.name_as_str() == Some(name) && objects.contains(&("prog_id", info.id())))
}

/// Returns settings that a collector could be tempted to change. The kernel itself lowers
/// `perf_event_max_sample_rate`.
fn settings() -> BTreeMap<String, String> {
    let names = [
        "kernel/bpf_stats_enabled",
        "kernel/nmi_watchdog",
        "kernel/perf_event_paranoid",
        "kernel/perf_cpu_time_max_percent",
        "kernel/kptr_restrict",
        "kernel/unprivileged_bpf_disabled",
        "net/core/bpf_jit_enable",
    ];
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    names.iter().map(|name| ((*name).to_owned(), read(name))).collect()
}

/// Kills pmbpf at times from before its first map to well into counting, and checks that nothing stays.
fn killed_it_leaves_nothing(arguments: &[&str]) {
    let settings_before = settings();
    let start = || {
        let mut command = pmbpf();
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let end = |mut child: Child| {
        let held = stopped(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        // The kernel frees maps and programs after a grace period.
        wait_until("everything is freed", || left(&held).is_empty());
        held
    };
    let (begun, child) = (Instant::now(), start());
    wait_until("something of ours is loaded", || !held_by(child.id()).is_empty());
    let loading = begun.elapsed();
    assert!(!end(child).is_empty());
    let most = (0..24).map(|twelfths| {
        let child = start();
        sleep(loading * twelfths / 12);
        end(child).len()
    });
    assert!(most.max() > Some(10), "some were killed while they counted");
    assert_eq!(settings(), settings_before);
}

#[test]
fn killed_at_any_point_it_leaves_nothing() {
    killed_it_leaves_nothing(&["run", "--stacks", "--all-cgroups"]);
}

#[test]
fn a_server_that_is_killed_at_any_point_leaves_nothing() {
    // No collector listens at that address.
    killed_it_leaves_nothing(&["serve", "--listen", "127.0.0.1:0", "--otlp-profiles", "http://127.0.0.1:1"]);
}

#[test]
fn an_ordinary_end_leaves_nothing_either() {
    let settings_before = settings();
    let mut child =
        pmbpf().args(["run", "-d", "1s"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut held = Objects::new();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        held.extend(held_by(child.id()));
        sleep(Duration::from_millis(20));
    };
    assert!(status.success() && held.iter().any(|(kind, _)| *kind == "prog_id"), "{held:?}");
    wait_until("everything is freed", || left(&held).is_empty());
    assert_eq!(settings(), settings_before);
}

#[test]
fn a_command_that_waits_dies_with_pmbpf() {
    let marker = Scratch::new("never");
    // Killed before the command is released: it must never run.
    for milliseconds in [5, 20, 40, 60] {
        let mut child = pmbpf()
            .args(["run", "--", "sh", "-c", &format!("sleep 0.3; touch {}", marker.as_str())])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        sleep(Duration::from_millis(milliseconds));
        let counting = has_program(&stopped(child.id()), "seed");
        child.kill().unwrap();
        child.wait().unwrap();
        sleep(Duration::from_millis(400));
        assert!(counting || !marker.0.exists(), "the command ran although pmbpf died before it counted");
        let _ = fs::remove_file(&marker.0);
    }
}

/// Subreaper: adopts the children that other processes leave behind.
struct Adopting;

impl Adopting {
    fn begin() -> Self {
        set_child_subreaper(Some(getpid())).unwrap();
        Self
    }

    /// Returns this process's children by id and name, and reaps them.
    fn children() -> Vec<(u32, String)> {
        let lists = fs::read_dir("/proc/self/task").unwrap().flatten();
        let lists = lists.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let ids: Vec<u32> = lists
            .flat_map(|list| list.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>())
            .collect();
        let of = |id: u32| {
            let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            let _ = waitpid(i32::try_from(id).ok().and_then(Pid::from_raw), WaitOptions::empty());
            (id, name)
        };
        ids.into_iter().map(of).collect()
    }
}

impl Drop for Adopting {
    fn drop(&mut self) {
        let _ = set_child_subreaper(None);
    }
}

/// Tests that a run reaps its children. In a container the first process may not reap orphans, and they would
/// stay zombies as long as it lives.
#[test]
fn no_process_is_left_behind() {
    let (_adopting, spin) = (Adopting::begin(), workload("spin", &["-g"]));
    let ways = [
        &["-F", "999", "--stacks"][..],
        &["-F", "999", "--unwind", "dwarf", "--stacks"],
        &["-I", "100ms", "-F", "999"],
    ];
    // The process that ends first differed from run to run.
    for arguments in std::iter::repeat_n(ways, 3).flatten() {
        let ended = pmbpf().arg("run").args(arguments).args(["--", &spin, "0.3"]).output().unwrap();
        let said = text(&ended.stderr);
        assert!(ended.status.success() && said.contains("hot_leaf"), "{said}");
        assert_eq!(Adopting::children(), [], "after {arguments:?}");
    }
}
