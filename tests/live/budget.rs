//! Instructions that the kernel's verifier processes when programs are loaded, which is most of a start, and
//! the size of their maps. `tests/live/budget.tsv` lists the instructions on one kernel, by attach method and
//! program. `tests/live/maps.tsv` lists the bytes, by method and map. A change of a program or a row shows
//! here before a user waits or pays for it.
//!
//! `SNAPSHOTS=overwrite` rewrites the files, on that kernel.

use std::{fmt::Display, fs, path::Path, sync::LazyLock};

use pmbpf::{
    bpf::{Attach, Kernel, Object, Options, Verified},
    machine::Machine,
    plan::{Plan, request::Request},
};

use crate::support::{Scratch, Started, counts, pmbpf, signal, wait_until};

const BUDGET: &str = include_str!("budget.tsv");
const MAPS: &str = include_str!("maps.tsv");
/// Number of CPUs to which the files apply.
const CPUS: u32 = 2;
/// Maximum factor for another kernel's verifier. That of 6.1 processes nine times as many instructions of the
/// program that runs for every task.
const ELSEWHERE: u64 = 10;

/// Verifier results of every attach method that this kernel has, for two CPUs and 1,023 owners.
static VERIFIED: LazyLock<Vec<(Attach, Verified)>> = LazyLock::new(|| {
    let root = Path::new("/");
    let mut machine = Machine::read(root).unwrap();
    // Rows are per CPU, and maps have the plan's size, whatever this machine has.
    machine.cpu.possible = CPUS;
    let request = Request { owners_max: Some(1023), ..Request::default() };
    let plan = Plan::new(&request, &machine, root).unwrap();
    let kernel = Kernel::new(root, Options::default());
    let of = |attach| Some((attach, Object::verify(attach, &plan, &machine, &kernel).ok()?));
    let all: Vec<_> = Attach::ALL.into_iter().filter_map(of).collect();
    assert!(!all.is_empty(), "no way of attaching works here");
    all
});

/// Returns one line per name and number, as in the files.
fn lines<'a, T: Display + 'a>(attach: Attach, numbers: impl IntoIterator<Item = &'a (String, T)>) -> String {
    let line = |(name, number): &(String, T)| format!("{}\t{name}\t{number}\n", attach.name());
    numbers.into_iter().map(line).collect()
}

/// Asserts that `ours` matches a file. On the kernel of the file's first line, with as many CPUs, every byte
/// is equal. Elsewhere no number is above `elsewhere` of the file's.
fn assert_as_in(file: &str, text: &str, ours: &str, elsewhere: fn(u64) -> u64) {
    let (kernel, lines) = text.split_once('\n').unwrap();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    // Some maps have an entry for every possible CPU.
    let cpus = Machine::read(Path::new("/")).unwrap().cpu.possible;
    if release.starts_with(kernel.trim_start_matches("# Linux ")) && cpus == CPUS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/live").join(file);
        let expected = snapbox::Data::read_from(&path, None);
        snapbox::Assert::new().action_env("SNAPSHOTS").eq(format!("{kernel}\n{ours}"), expected.raw());
        return;
    }
    let known = |line: &str| {
        let (what, number) = line.rsplit_once('\t').unwrap();
        (what.to_owned(), number.parse::<u64>().unwrap())
    };
    let budget: Vec<(String, u64)> = lines.lines().map(known).collect();
    for (what, number) in ours.lines().map(known) {
        // Programs that the file's kernel does not need: those that time limits of CPU time.
        let Some((_, most)) = budget.iter().find(|(named, _)| *named == what) else {
            assert!(what.ends_with("throttle"), "{what} is not in {file}");
            continue;
        };
        assert!(number <= elsewhere(*most), "{what}: {number}, of {most} on {kernel}");
    }
}

/// Returns whether this is the program of a sampling event other than the first.
fn is_copy(name: &str) -> bool {
    name.starts_with("sample_") || name.starts_with("hit_")
}

#[test]
fn the_verifier_looks_at_no_more_than_it_did() {
    // Programs of further sampling events are copies of the first one's.
    let own = |of: &'static Verified| of.instructions.iter().filter(|(name, _)| !is_copy(name));
    let ours: String = VERIFIED.iter().map(|(attach, of)| lines(*attach, own(of))).collect();
    assert_as_in("budget.tsv", BUDGET, &ours, |most| most * ELSEWHERE);
}

#[test]
fn maps_take_no_more_memory_than_they_did() {
    let ours: String = VERIFIED.iter().map(|(attach, of)| lines(*attach, &of.map_bytes)).collect();
    // Older kernels round up to pages.
    assert_as_in("maps.tsv", MAPS, &ours, |most| 2 * most + 8192);
}

/// Returns the read calls of a process so far (proc_pid_io(5)).
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
    // Pressure of four resources, the CPUs that run, this process, the loop's wake-ups, and the reads of a
    // new process.
    assert!(each <= 10.0, "{each} a drain");
}
