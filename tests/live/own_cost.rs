//! Reported cost of pmbpf against the kernel's numbers for its programs and its process, measured
//! independently and all the time.

use std::{collections::BTreeMap, fs, time::Duration};

use aya::sys::{Stats, enable_stats};
use serde_json::Value;

use crate::{
    support::{Cgroup, Rows, Scratch, Started, pmbpf},
    workloads::workload,
};

/// Returns the time in ns of a process's programs by id, from its descriptors (kernel/bpf/syscall.c,
/// `bpf_prog_show_fdinfo`).
fn programs(pid: u32) -> Option<BTreeMap<u64, f64>> {
    let mut programs = BTreeMap::new();
    for file in fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()? {
        let Ok(text) = fs::read_to_string(file.ok()?.path()) else { continue };
        let field = |name: &str| -> Option<f64> {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
        };
        if let (Some(id), Some(time_ns)) = (field("prog_id"), field("run_time_ns")) {
            programs.insert(id as u64, time_ns);
        }
    }
    Some(programs)
}

/// Returns the rows of a run and its cost measured from outside, in ns: the time of its programs, and its CPU
/// time. The latter is that of a cgroup that contains only its process.
fn measured(arguments: &str) -> (Rows, f64, f64) {
    let (group, results) = (Cgroup::new("own-cost"), Scratch::new("own-cost"));
    let binary = pmbpf().get_program().to_owned().into_string().unwrap();
    let command = format!("{binary} run --json -o - -a -d 2s {arguments} >{}", results.as_str());
    let mut pmbpf = group.spawn(&command);
    let mut last = BTreeMap::new();
    // A process that has ended but has not been reaped has no program file.
    while fs::read_link(format!("/proc/{}/exe", pmbpf.pid())).is_ok() {
        // As it ends, its descriptors are closed one after the other.
        last.extend(programs(pmbpf.pid()).unwrap_or_default());
        std::thread::sleep(Duration::from_millis(5));
    }
    pmbpf.wait();
    let programs_ns = last.values().sum();
    (Rows::parse(&fs::read(&results.0).unwrap()), programs_ns, group.settled_usage_ns())
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"))
}

/// Asserts that the reported cost of a run is within 10 % of the kernel's numbers. On a machine in use not
/// every run is.
#[track_caller]
fn assert_told(arguments: &str) {
    // The first second is measured. On a machine in use the next ones may differ, but not three times.
    let mut said = Vec::new();
    let close = (0..3).any(|_| {
        let (rows, programs_ns, cpu_ns) = measured(arguments);
        let own = &rows.summary()["self"];
        // Interrupts and other guests' time in a program's run are reported separately. The kernel's
        // measurement includes them.
        let told_ns = number(&own["programs_ns"], "value") + number(own, "disturbed_ns");
        let (programs, process) = (told_ns / programs_ns, number(own, "cpu_ns") / cpu_ns);
        said.push(format!("programs {programs:.3} of {programs_ns} ns, process {process:.3} of {cpu_ns} ns"));
        [programs, process].iter().all(|ratio| (0.9..=1.1).contains(ratio))
    });
    assert!(close, "{arguments}: {said:?}");
}

#[test]
fn what_it_costs_is_what_the_kernel_says_from_outside() {
    let _stats = enable_stats(Stats::RunTime).unwrap();
    let pingpong = workload("pingpong", &[]);
    let _busy = Started::new(&format!("exec {pingpong} 2000000000 1"));
    for arguments in ["--no-sampling", "-F 999 --stacks"] {
        assert_told(arguments);
    }
}

/// Tests the cost of a long report: thousands of processes are megabytes of rows.
#[test]
fn what_it_costs_to_write_a_long_report_is_told() {
    let _stats = enable_stats(Stats::RunTime).unwrap();
    let forks = workload("forks", &[]);
    let _busy = Started::new(&format!("exec {forks} 1000000"));
    assert_told("--no-sampling");
}
