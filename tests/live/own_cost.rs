//! What pmbpf says that it costs, beside what the kernel says of its programs and its process, asked by somebody else and all the time.

use std::{collections::BTreeMap, fs, time::Duration};

use aya::sys::{Stats, enable_stats};
use serde_json::Value;

use crate::{
    support::{Cgroup, Rows, Scratch, Started, pmbpf},
    workloads::workload,
};

/// Time in ns of the programs of a process by id, as its descriptors tell (kernel/bpf/syscall.c, `bpf_prog_show_fdinfo`).
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

/// What was told by a run, and what was seen of it from outside, in ns: the time of its programs, and of its process the CPU time of the
/// cgroup that it is alone in.
fn measured(arguments: &str) -> (Rows, f64, f64) {
    let (group, results) = (Cgroup::new("own-cost"), Scratch::new("own-cost"));
    let binary = pmbpf().get_program().to_owned().into_string().unwrap();
    let command = format!("{binary} run --json -o - -a -d 2s {arguments} >{}", results.as_str());
    let mut pmbpf = group.spawn(&command);
    let mut last = BTreeMap::new();
    // One that has ended and was not waited for yet has no program file any more.
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

/// What a run with these arguments says that it cost is within 10 % of what the kernel says; on a machine in use not in every run.
#[track_caller]
fn assert_told(arguments: &str) {
    // The first second is what is measured; on a machine in use the next ones may be others, but not three times.
    let mut said = Vec::new();
    let close = (0..3).any(|_| {
        let (rows, programs_ns, cpu_ns) = measured(arguments);
        let own = &rows.summary()["self"];
        // What an interrupt or another guest took in a run is told apart; the kernel's measuring has it.
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

/// Thousands of processes are megabytes of rows.
#[test]
fn what_it_costs_to_write_a_long_report_is_told() {
    let _stats = enable_stats(Stats::RunTime).unwrap();
    let forks = workload("forks", &[]);
    let _busy = Started::new(&format!("exec {forks} 1000000"));
    assert_told("--no-sampling");
}
