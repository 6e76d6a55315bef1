//! Rights of pmbpf while it counts: the minimum, in every thread and in the process that reads foreign files.

use std::{collections::BTreeMap, fs, process::Stdio};

use crate::{
    support::{Rows, Running, Started, output, pmbpf, signal, text, wait_until},
    workloads::workload,
};

/// Returns a capability mask from numbers (include/uapi/linux/capability.h).
pub(crate) fn capabilities(numbers: &[u32]) -> u64 {
    numbers.iter().map(|number| 1 << number).sum()
}

pub(crate) const DAC_READ_SEARCH: u32 = 2;
pub(crate) const NET_ADMIN: u32 = 12;
pub(crate) const SYS_PTRACE: u32 = 19;
pub(crate) const SYSLOG: u32 = 34;
pub(crate) const PERFMON: u32 = 38;
pub(crate) const BPF: u32 = 39;
pub(crate) const CHECKPOINT_RESTORE: u32 = 40;

/// Returns the fields of a status file (proc_pid_status(5)).
fn status(path: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

pub(crate) fn held(status: &BTreeMap<String, String>) -> u64 {
    assert_eq!(status["CapEff"], status["CapPrm"]);
    u64::from_str_radix(&status["CapPrm"], 16).unwrap()
}

/// Returns the status fields of a process's threads.
pub(crate) fn threads_of(pid: u32) -> Vec<BTreeMap<String, String>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    tasks.map(|task| status(task.path().join("status").to_str().unwrap())).collect()
}

/// Returns the status fields of a process's children.
fn children_of(pid: u32) -> Vec<BTreeMap<String, String>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids: Vec<String> =
        lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    pids.iter()
        .map(|pid| status(&format!("/proc/{pid}/status")))
        .filter(|status| status.contains_key("Name"))
        .collect()
}

#[test]
fn while_it_counts_no_thread_holds_more_than_it_needs() {
    let _busy = Started::new(&format!("exec {} 60", workload("spin", &["-g"])));
    let running = Running::start(&["-F", "499"]);
    let threads = || threads_of(running.pid());
    let opener = || children_of(running.pid()).into_iter().find(|child| child["Name"] == "pmbpf-open");
    wait_until("files are opened", || opener().is_some());
    let open = [DAC_READ_SEARCH, SYS_PTRACE, CHECKPOINT_RESTORE];
    let names = [&open[..], &[SYSLOG, BPF, PERFMON]].concat();
    for thread in threads() {
        let (expected, filtered) = match thread["Name"].as_str() {
            "pmbpf" => (capabilities(&[BPF, PERFMON]), "2"),
            "pmbpf-names" => (capabilities(&names), "0"),
            "pmbpf-monitors" => (capabilities(&[SYS_PTRACE]), "0"),
            other => panic!("an unknown thread: {other}"),
        };
        assert_eq!(held(&thread), expected, "{thread:?}");
        assert_eq!(
            (thread["NoNewPrivs"].as_str(), thread["Seccomp"].as_str()),
            ("1", filtered),
            "{thread:?}"
        );
    }
    let opener = opener().unwrap();
    assert_eq!((held(&opener), opener["NoNewPrivs"].as_str()), (capabilities(&open), "1"), "{opener:?}");
    let rows = running.stop();
    assert!(rows.total("samples") > 0.0);
}

#[test]
fn io_holds_no_more_either() {
    let target = Started::new("exec sleep 60");
    let pid = target.pid().to_string();
    let mut child = pmbpf().args(["io", "--json", "--pid", &pid]).stdout(Stdio::null()).spawn().unwrap();
    let path = format!("/proc/{}/status", child.id());
    wait_until("it counts", || status(&path).get("Seccomp").is_some_and(|mode| mode == "2"));
    for thread in threads_of(child.id()) {
        let expected = match thread["Name"].as_str() {
            "pmbpf" => (capabilities(&[BPF, PERFMON]), "2"),
            "pmbpf-accounts" => (capabilities(&[SYS_PTRACE]), "2"),
            // The thread starts the process that reads conmon's command lines.
            "pmbpf-monitors" => (capabilities(&[SYS_PTRACE]), "0"),
            other => panic!("an unknown thread: {other}"),
        };
        assert_eq!((held(&thread), thread["Seccomp"].as_str()), expected, "{thread:?}");
    }
    signal(child.id(), "INT");
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_process_that_reads_files_has_no_right_at_all() {
    let _busy = Started::new(&format!("exec {} 60", workload("spin", &["-g"])));
    let running = Running::start(&["-F", "499"]);
    let children = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap().flatten();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let pids = lists.collect::<String>().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let reads = |pid: &String| {
            status(&format!("/proc/{pid}/status")).get("Name").is_some_and(|name| name == "pmbpf-symbols")
        };
        pids.into_iter().filter(reads).collect::<Vec<_>>()
    };
    wait_until("it has begun", || {
        children()
            .iter()
            .any(|pid| status(&format!("/proc/{pid}/status")).get("Seccomp").is_some_and(|mode| mode == "2"))
    });
    for pid in children() {
        let status = status(&format!("/proc/{pid}/status"));
        assert_eq!((held(&status), status["NoNewPrivs"].as_str()), (0, "1"), "{status:?}");
        assert!(
            status["CapInh"].trim_start_matches('0').is_empty()
                && status["CapAmb"].trim_start_matches('0').is_empty()
        );
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let data = limits.lines().find(|line| line.starts_with("Max data size")).unwrap();
        assert!(data.contains(&(160_u64 << 20).to_string()), "{data}");
    }
    drop(running);
}

#[test]
fn a_command_keeps_every_right() {
    let script = "grep -E 'CapEff|NoNewPrivs|^Seccomp:' /proc/self/status";
    let ours = std::process::Command::new("sh").args(["-c", script]).output().unwrap();
    let command = output(&["--", "sh", "-c", script]);
    assert_eq!(text(&command.stdout), text(&ours.stdout));
    assert!(!Rows::parse(&command.stderr).0.is_empty());
}
