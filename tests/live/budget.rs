//! What the kernel's verifier looks at when programs are loaded: most of a start. `tests/live/budget.tsv` says how many instructions that
//! are on one kernel, by way of attaching and program; what changes a program shows here before a user waits for it.
//!
//! `SNAPSHOTS=overwrite` writes the file anew, on that kernel.

use std::{fs, path::Path};

use pmbpf::{
    bpf::{Attach, Kernel, Object, Options},
    machine::Machine,
    plan::{Plan, request::Request},
};

use crate::support::{Scratch, Started, counts, pmbpf, signal, wait_until};

const BUDGET: &str = include_str!("budget.tsv");
/// Another kernel's verifier looks at no more than this many times as much: that of 6.1 nine times at what runs for every task.
const ELSEWHERE: u32 = 10;

/// Instructions by way and program, as the file has them.
fn verified() -> String {
    let root = Path::new("/");
    let machine = Machine::read(root).unwrap();
    let plan = Plan::new(&Request::default(), &machine, root).unwrap();
    let kernel = Kernel::new(root, Options::default());
    let each = Attach::ALL.into_iter().flat_map(|attach| {
        // A way that this kernel lacks has none; where the file is of this kernel, that is a difference.
        let programs = Object::verify(attach, &plan, &machine, &kernel).unwrap_or_default();
        // Programs of sampling events but the first are its copies.
        let own = programs.into_iter().filter(|(name, _)| !is_copy(name));
        own.map(move |(name, instructions)| format!("{}\t{name}\t{instructions}\n", attach.name()))
            .collect::<Vec<_>>()
    });
    each.collect()
}

/// Is it the program of a sampling event that is not the first?
fn is_copy(name: &str) -> bool {
    name.starts_with("sample_") || name.starts_with("hit_")
}

#[test]
fn the_verifier_looks_at_no_more_than_it_did() {
    let (kernel, budget) = BUDGET.split_once('\n').unwrap();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let verified = verified();
    assert!(!verified.is_empty(), "no way of attaching works on Linux {release}");
    if release.starts_with(kernel.trim_start_matches("# Linux ")) {
        let expected = snapbox::Data::read_from(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/live/budget.tsv"),
            None,
        );
        snapbox::Assert::new().action_env("SNAPSHOTS").eq(format!("{kernel}\n{verified}"), expected.raw());
        return;
    }
    let known = |line: &str| {
        let (program, instructions) = line.rsplit_once('\t').unwrap();
        (program.to_owned(), instructions.parse::<u32>().unwrap())
    };
    let budget: Vec<(String, u32)> = budget.lines().map(known).collect();
    for (program, instructions) in verified.lines().map(known) {
        let (_, most) = budget.iter().find(|(named, _)| *named == program).unwrap();
        assert!(instructions <= most * ELSEWHERE, "{program}: {instructions}, of {most} on {kernel}");
    }
}

/// Read calls of a process so far (proc_pid_io(5)).
fn reads(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap();
    line.parse().unwrap()
}

#[test]
fn a_drain_reads_a_handful_of_files_and_each_at_once() {
    let recording = Scratch::new("recording");
    let program = pmbpf();
    let mut running = Started::new(&format!(
        "exec {} run -I 100ms --no-sampling --quiet -o {} >/dev/null",
        program.get_program().display(),
        recording.as_str()
    ));
    wait_until("pmbpf counts", || counts(&recording));
    let before = reads(running.pid());
    std::thread::sleep(std::time::Duration::from_secs(3));
    let each = (reads(running.pid()) - before) as f64 / 30.0;
    signal(running.pid(), "INT");
    running.wait();
    // Pressure of four resources, the CPUs that run, this process, what wakes the loop; and what a new process takes.
    assert!(each <= 10.0, "{each} a drain");
}
