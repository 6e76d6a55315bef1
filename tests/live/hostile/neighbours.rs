//! Processes that block reads of their memory maps, or that have files on an unserved mount.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::{Folder, Nobody, is_named};
use crate::{
    cleanup::{held_by, left},
    support::{Cgroup, Rows, Started, in_guest, pmbpf, signal, skipped, text, wait_until},
    workloads::workload,
};

/// Counting time of a run.
const COUNTS: Duration = Duration::from_secs(2);
/// Maximum additional time of a run next to any process.
const MORE_MAX: Duration = Duration::from_secs(2);
/// Maximum time that a run or a server takes to end on request.
const END_MAX: Duration = Duration::from_secs(1);

/// Guard that opens /dev/fuse to every user, as distributions do, with the original mode to restore.
struct Fuse(u32);

impl Fuse {
    /// Opens /dev/fuse to every user, or returns `None` where it is absent.
    fn open() -> Option<Self> {
        let mode = fs::metadata("/dev/fuse").ok()?.permissions().mode();
        fs::set_permissions("/dev/fuse", fs::Permissions::from_mode(0o666)).ok()?;
        Some(Self(mode))
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _ = fs::set_permissions("/dev/fuse", fs::Permissions::from_mode(self.0));
    }
}

/// Processes of root, each with its own file on a FUSE mount that every user may enter.
struct Held {
    children: Vec<Child>,
    mounts: Vec<PathBuf>,
}

impl Held {
    fn start(folder: &Folder, mode: &str, count: usize) -> Self {
        let mut held = Self { children: Vec::new(), mounts: Vec::new() };
        for number in 0..count {
            let file = folder.0.join(format!("{mode}{number}"));
            fs::write(&file, "").unwrap();
            let name = format!("held{number}");
            let mut command = Command::new(workload("hold", &["-pthread"]));
            command.args([mode, &name, "60"]).arg(&file).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
            held.children.push(child);
            held.mounts.push(file);
            assert_eq!(line, "ready\n");
        }
        held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // The server is a child that ends with its parent. Then every process that waits for it goes on.
        for child in &mut self.children {
            let _ = child.kill();
        }
        for mount in &self.mounts {
            let _ = Command::new("umount").arg("-l").arg(mount).status();
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

/// Runs pmbpf for two seconds and returns the rows and the duration. A run that takes too long is killed.
fn run(arguments: &[&str]) -> (Rows, Duration) {
    let begun = Instant::now();
    let mut command = pmbpf();
    command.args(["run", "--json", "-d", "2s"]).args(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let rows = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).map(|_| bytes).unwrap()
    });
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
            panic!("{arguments:?}: pmbpf hangs");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let took = begun.elapsed();
    let mut errors = Vec::new();
    child.stderr.take().unwrap().read_to_end(&mut errors).unwrap();
    assert!(child.wait().unwrap().success(), "{}", text(&errors));
    (Rows::parse(&rows.join().unwrap()), took)
}

/// Starts `pmbpf` with these arguments, signals it when it counts, and returns how long it took to end. No
/// BPF object of it stays loaded.
fn ends(arguments: &[&str], name: &str) -> Duration {
    let mut child = pmbpf().args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("its programs are loaded", || !held_by(child.id()).is_empty());
    // By then it has counted and read the running processes.
    std::thread::sleep(COUNTS);
    assert!(child.try_wait().unwrap().is_none(), "{arguments:?}");
    let (begun, objects) = (Instant::now(), held_by(child.id()));
    signal(child.id(), name);
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(10) {
            child.kill().unwrap();
            panic!("{arguments:?}: {name} does not end it");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let took = begun.elapsed();
    wait_until("nothing of it is loaded", || left(&objects).is_empty());
    took
}

/// Time of a run beyond its counting time, and time of its end, without a hostile process. Other work on the
/// CPUs adds to both, so a bound is absolute or three times this value. With six busy loops on two CPUs it is
/// larger (0.75 s and 0.34 s; alone 0.1 to 0.35 s and 0.02 to 0.25 s).
struct Calm {
    more: Duration,
    end: Duration,
}

impl Calm {
    /// Measures both times.
    fn of(arguments: &[&str]) -> Self {
        let more = run(arguments).1.saturating_sub(COUNTS);
        Self { more, end: ends(&[&["run", "-d", "60s"], arguments].concat(), "TERM") }
    }

    fn more_max(&self) -> Duration {
        MORE_MAX.max(self.more * 3)
    }

    fn end_max(&self) -> Duration {
        END_MAX.max(self.end * 3)
    }

    /// Asserts that a run next to a hostile process ends when its time is over, on SIGTERM and on SIGKILL,
    /// with nothing left loaded. Returns the rows.
    fn holds(&self, what: &str, arguments: &[&str]) -> Rows {
        let (rows, took) = run(arguments);
        assert!(took < COUNTS + self.more_max(), "{what}: {took:?}, {:?} more without", self.more);
        for name in ["TERM", "KILL"] {
            let took = ends(&[&["run", "-d", "60s"], arguments].concat(), name);
            assert!(took < self.end_max(), "{what} {name}: {took:?}, {:?} without", self.end);
        }
        rows
    }
}

/// Returns a process's user-mode samples with its function's name, and all of them.
fn named(rows: &Rows, name: &str) -> (u64, u64) {
    let hot = rows.of_kind("hot").filter(|row| row["owner"]["name"] == name && row["mode"] == "user");
    let (mut named, mut all) = (0, 0);
    for row in hot {
        let samples = row["samples"].as_u64().unwrap_or(0);
        all += samples;
        named += if is_named("hot_leaf")(row) || is_named("main")(row) { samples } else { 0 };
    }
    (named, all)
}

#[test]
fn a_monitor_that_does_not_answer_holds_neither_runs_nor_servers() {
    let Some(_fuse) = Fuse::open().filter(|_| !in_guest()) else { return skipped("there is no FUSE") };
    let folder = Folder::new("monitor");
    let file = folder.0.join("file");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let program = folder.0.join("hold");
    fs::copy(workload("hold", &["-pthread"]), &program).unwrap();
    let calm = Calm::of(&["--all-cgroups", "--no-sampling"]);
    let _holds = Nobody::start(&program, &["lock", "conmon", "60", file.to_str().unwrap()]);
    let above = Cgroup::new("monitor");
    let container = above.below(&format!("libpod-{}.scope", "ab".repeat(32)));
    let _busy = container.spawn(&format!("{} 60", workload("spin", &["-g"])));
    for arguments in [&["--all-cgroups", "--no-sampling"][..], &["--no-sampling", "--cgroup", &above.path]] {
        let rows = calm.holds("monitor", arguments);
        assert!(rows.of_kind("summary").next().is_some());
    }
    let serve = ["serve", "--listen", "127.0.0.1:0", "-I", "500ms", "--no-io"];
    for name in ["TERM", "KILL"] {
        let took = ends(&serve, name);
        assert!(took < calm.end_max(), "{name}: {took:?}, {:?} without", calm.end);
    }
}

#[test]
fn files_whose_server_does_not_answer_cost_their_own_names_alone() {
    let Some(_fuse) = Fuse::open().filter(|_| !in_guest()) else { return skipped("there is no FUSE") };
    let spin = workload("spin", &["-g"]);
    for (mode, count) in [("open", 8), ("read", 1), ("read", 3)] {
        let folder = Folder::new("served");
        let honest = Started::new(&format!("exec {spin} 60"));
        let calm = Calm::of(&["-F", "499", "-p", &honest.pid().to_string()]);
        let held = Held::start(&folder, mode, count);
        let pids = held.children.iter().map(Child::id).chain([honest.pid()]);
        let pids = pids.map(|pid| pid.to_string()).collect::<Vec<_>>().join(",");
        let rows = calm.holds(&format!("{mode} {count}"), &["-F", "499", "-p", &pids]);
        let (named, all) = named(&rows, "sping");
        assert!(named > 20 && named * 10 >= all * 9, "{mode} {count}: {named} of {all}");
        drop(held);
    }
}

#[test]
fn files_that_crash_their_reader_cost_their_owner_s_names_alone() {
    if in_guest() {
        return skipped("there is no compiler to make the library with");
    }
    let folder = Folder::new("crashing");
    let honest = Started::new(&format!("exec {} 60", workload("spin", &["-g"])));
    let calm = Calm::of(&["-F", "499", "-p", &honest.pid().to_string()]);
    let (full, library) = (folder.0.join("full"), super::libraries::library(&folder.0, &[]));
    fs::create_dir(&full).unwrap();
    fs::set_permissions(&full, fs::Permissions::from_mode(0o777)).unwrap();
    let program = folder.program("crash");
    std::os::unix::fs::chown(&program, Some(65_534), None).unwrap();
    let arguments = ["70", "60", full.to_str().unwrap(), library.to_str().unwrap()];
    let _hostile = Nobody::start(&program, &arguments);
    let pid = pid_of("crash");
    let rows = calm.holds("crash", &["-F", "499", "-p", &format!("{pid},{}", honest.pid())]);
    let (named, all) = named(&rows, "sping");
    assert!(named > 50 && named * 10 >= all * 9, "{named} of {all}");
    let reasons = rows.of_kind("hot").filter(|row| row["owner"]["name"] == "crash");
    let reasons: Vec<&str> = reasons.filter_map(|row| row["reason"].as_str()).collect();
    let is_said = |why: &&str| why.contains("its owner's files") && why.contains("user 65534");
    assert!(reasons.iter().any(is_said), "{reasons:?}");
}

#[test]
fn files_that_lead_nowhere_hold_no_run() {
    if in_guest() {
        return skipped("an emulated CPU keeps no time");
    }
    let folder = Folder::new("nowhere");
    let program = folder.program("hostile");
    let calm = Calm::of(&["-F", "199"]);
    for arguments in
        [&["map-pipe", "60"][..], &["map-lines", "60"], &["files", "60", "3000"], &["storm", "60", "3000"]]
    {
        let _hostile = Nobody::start(&program, arguments);
        calm.holds(arguments[0], &["-F", "199"]);
    }
}

/// Returns the pid of the process with this name.
fn pid_of(name: &str) -> u32 {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    let is =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    pids.find(is).unwrap()
}
