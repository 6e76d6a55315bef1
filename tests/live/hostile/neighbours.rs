//! Processes that do not let others read what they are: their memory maps, or files on a mount that is not served.

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

/// How much longer a run may take beside processes that do not answer, on a busy host; one that waits for them takes a minute.
const MORE_MAX: Duration = Duration::from_secs(10);
/// How long a run or a server may take to end when it is asked to.
const END_MAX: Duration = Duration::from_secs(2);

/// /dev/fuse as distributions have it, for every user.
struct Fuse(u32);

impl Fuse {
    /// `None` where there is none.
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

/// Processes of root, each with a file of its own on a FUSE mount which every user may enter.
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
        // The server is a child, which ends with its parent; then everything that waits for it goes on.
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

/// A run of two seconds, and how long it took; it is killed where it takes too long.
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

/// Starts `pmbpf` with these arguments, signals it when it counts, and returns how long it took to end. Nothing of it stays loaded.
fn ends(arguments: &[&str], name: &str) -> Duration {
    let mut child = pmbpf().args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    assert!(child.try_wait().unwrap().is_none(), "{arguments:?}");
    let (begun, objects) = (Instant::now(), held_by(child.id()));
    assert!(!objects.is_empty(), "{arguments:?}: it has not begun");
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

/// Samples of a process in user mode that have its function's name, and all of them.
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
    let calm = run(&["--all-cgroups", "--no-sampling"]).1;
    let _holds = Nobody::start(&program, &["lock", "conmon", "60", file.to_str().unwrap()]);
    let above = Cgroup::new("monitor");
    let container = above.below(&format!("libpod-{}.scope", "ab".repeat(32)));
    let _busy = container.spawn(&format!("{} 60", workload("spin", &["-g"])));
    for arguments in [&["--all-cgroups", "--no-sampling"][..], &["--no-sampling", "--cgroup", &above.path]] {
        let (rows, took) = run(arguments);
        assert!(took < calm + MORE_MAX, "{arguments:?}: {took:?}, {calm:?} without it");
        assert!(rows.of_kind("summary").next().is_some());
    }
    let serve = ["serve", "--listen", "127.0.0.1:0", "-I", "500ms", "--no-io"];
    for arguments in [&["run", "--all-cgroups", "--no-sampling", "-d", "60s"][..], &serve] {
        let took = ends(arguments, "TERM");
        assert!(took < END_MAX, "{arguments:?}: {took:?}");
    }
    assert!(ends(&["run", "--all-cgroups", "--no-sampling", "-d", "60s"], "KILL") < END_MAX);
}

#[test]
fn files_whose_server_does_not_answer_cost_their_own_names_alone() {
    let Some(_fuse) = Fuse::open().filter(|_| !in_guest()) else { return skipped("there is no FUSE") };
    let spin = workload("spin", &["-g"]);
    for (mode, count) in [("open", 8), ("read", 1), ("read", 3)] {
        let folder = Folder::new("served");
        let honest = Started::new(&format!("exec {spin} 60"));
        let calm = run(&["-F", "499", "-p", &honest.pid().to_string()]).1;
        let held = Held::start(&folder, mode, count);
        let pids = held.children.iter().map(Child::id).chain([honest.pid()]);
        let pids = pids.map(|pid| pid.to_string()).collect::<Vec<_>>().join(",");
        let (rows, took) = run(&["-F", "499", "-p", &pids]);
        assert!(took < calm + MORE_MAX, "{mode} {count}: {took:?}, {calm:?} without");
        let (named, all) = named(&rows, "sping");
        assert!(named > 50 && named * 10 >= all * 9, "{mode} {count}: {named} of {all}");
        assert!(ends(&["run", "-d", "60s", "-p", &pids], "KILL") < END_MAX, "{mode} {count}");
        drop(held);
    }
}

#[test]
fn files_that_crash_their_reader_cost_their_owner_s_names_alone() {
    if in_guest() {
        return skipped("there is no compiler to make the library with");
    }
    let folder = Folder::new("crashing");
    let (full, library) = (folder.0.join("full"), super::libraries::library(&folder.0, &[]));
    fs::create_dir(&full).unwrap();
    fs::set_permissions(&full, fs::Permissions::from_mode(0o777)).unwrap();
    let program = folder.program("crash");
    std::os::unix::fs::chown(&program, Some(65_534), None).unwrap();
    let arguments = ["70", "60", full.to_str().unwrap(), library.to_str().unwrap()];
    let _hostile = Nobody::start(&program, &arguments);
    let pid = pid_of("crash");
    let honest = Started::new(&format!("exec {} 60", workload("spin", &["-g"])));
    let (rows, _) = run(&["-F", "499", "-p", &format!("{pid},{}", honest.pid())]);
    let (named, all) = named(&rows, "sping");
    assert!(named > 50 && named * 10 >= all * 9, "{named} of {all}");
    let reasons = rows.of_kind("hot").filter(|row| row["owner"]["name"] == "crash");
    let reasons: Vec<&str> = reasons.filter_map(|row| row["reason"].as_str()).collect();
    let is_said = |why: &&str| why.contains("its owner's files") && why.contains("user 65534");
    assert!(reasons.iter().any(is_said), "{reasons:?}");
}

/// The process of this name.
fn pid_of(name: &str) -> u32 {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    let is =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    pids.find(is).unwrap()
}
