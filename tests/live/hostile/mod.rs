//! Attacks by an unprivileged process on root's pmbpf that samples it: it can lose its own names and nothing
//! else.

mod libraries;
mod neighbours;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use pmbpf::drain::recording::Recording;
use serde_json::Value;

use crate::{
    support::{Rows, Scratch, Started, in_guest, pmbpf, skipped, text, unique},
    workloads::workload,
};

/// Limits of a run's additional time and memory over a run next to a harmless process.
const SECONDS_MORE_MAX: f64 = 2.0;
const BYTES_MORE_MAX: u64 = 200 << 20;

/// Number of damaged files that a process has mapped at a time.
const DAMAGED: u64 = 100;

/// World-writable folder, removed on drop with its files.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(unique(name));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        Self(path)
    }

    /// Copies a workload to where every user can execute it, whatever the rights of the build folder.
    fn program(&self, name: &str) -> PathBuf {
        let program = self.0.join(name);
        fs::copy(workload(name, &[]), &program).unwrap();
        program
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Process of uid 65534.
struct Nobody(Child);

impl Nobody {
    /// Starts the process, and waits until it runs the code to be sampled. If another user has files for its
    /// id, it gets another id.
    fn start(program: &Path, arguments: &[&str]) -> Self {
        (0..4)
            .find_map(|_| Self::begin(program, arguments))
            .unwrap_or_else(|| panic!("{arguments:?} did not begin"))
    }

    fn begin(program: &Path, arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let one = Self(child);
        (line == "ready\n").then_some(one)
    }
}

impl Drop for Nobody {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let pid = self.0.id();
        let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
        let _ = fs::remove_file(format!("/tmp/pmbpf-test-pipe-{pid}"));
        let _ = fs::remove_dir_all(format!("/tmp/pmbpf-test-files-{pid}"));
    }
}

/// Run of everything, with its duration and memory.
struct Run {
    rows: Rows,
    seconds: f64,
    bytes_max: u64,
}

impl Run {
    fn of_everything() -> Self {
        let recording = Scratch::new("hostile");
        let begun = Instant::now();
        let mut command = pmbpf();
        command.args(["run", "--json", "-d", "2s", "-F", "199", "-o", recording.as_str()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let rows = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut stdout, &mut bytes).map(|_| bytes).unwrap()
        });
        let mut bytes_max = 0;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            bytes_max = bytes_max.max(resident_bytes(child.id()));
            if begun.elapsed() > Duration::from_secs(30) {
                child.kill().unwrap();
                panic!("pmbpf hangs");
            }
            sleep(Duration::from_millis(10));
        };
        let seconds = begun.elapsed().as_secs_f64();
        let mut errors = Vec::new();
        std::io::Read::read_to_end(&mut child.stderr.take().unwrap(), &mut errors).unwrap();
        assert!(status.success(), "{status}: {}", text(&errors));
        let recording = Recording::read(&recording.0).unwrap();
        assert!(recording.ending.is_some() && recording.lost_bytes == 0);
        Self { rows: Rows::parse(&rows.join().unwrap()), seconds, bytes_max }
    }

    /// Returns the rows of hot functions of the processes with this name.
    fn hot(&self, name: &str) -> Vec<&Value> {
        self.rows.of_kind("hot").filter(|row| row["owner"]["name"] == name).collect()
    }

    fn samples(&self, name: &str, is: impl Fn(&Value) -> bool) -> u64 {
        self.hot(name).into_iter().filter(|row| is(row)).filter_map(|row| row["samples"].as_u64()).sum()
    }
}

/// Returns the resident memory of a process and its children.
fn resident_bytes(pid: u32) -> u64 {
    let of = |pid: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or("0 kB").trim();
        line.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: u64 = children.map(|list| list.split_whitespace().map(of).sum::<u64>()).sum();
    of(&pid.to_string()) + children
}

/// Runs pmbpf with an unprivileged process and without one, and returns the first run. It has samples of that
/// process in user mode.
fn survives(program: &Path, arguments: &[&str]) -> Run {
    survives_where(program, arguments, |row| row["mode"] == "user")
}

/// Runs pmbpf likewise, for a process with samples that match `is`.
fn survives_where(program: &Path, arguments: &[&str], is: impl Fn(&Value) -> bool) -> Run {
    let harmless = Run::of_everything();
    let nobody = Nobody::start(program, arguments);
    let run = Run::of_everything();
    drop(nobody);
    let (seconds, bytes) = (run.seconds - harmless.seconds, run.bytes_max.saturating_sub(harmless.bytes_max));
    assert!(seconds <= SECONDS_MORE_MAX, "{arguments:?}: {seconds} s more");
    assert!(bytes <= BYTES_MORE_MAX, "{arguments:?}: {bytes} bytes more");
    let name = program.file_name().unwrap().to_str().unwrap();
    assert!(run.samples(name, is) > 20, "{arguments:?}: it was not sampled");
    run
}

/// Runs a test of a library, which needs a C compiler.
fn survives_library(name: &str, make: impl FnOnce(&Folder) -> PathBuf) -> Option<Run> {
    if in_guest() {
        skipped("there is no compiler to make the library with");
        return None;
    }
    let folder = Folder::new(name);
    let library = make(&folder);
    Some(survives(&folder.program("hostile"), &["load", "20", library.to_str().unwrap()]))
}

fn is_named(name: &'static str) -> impl Fn(&Value) -> bool {
    move |row| row["frame"]["function"] == name
}

#[test]
fn a_perf_map_that_is_cut_off_while_it_is_in_use() {
    let folder = Folder::new("cut");
    survives(&folder.program("hostile"), &["map-truncate", "4"]);
}

#[test]
fn a_debug_file_that_is_cut_off_once_it_is_open() {
    if in_guest() {
        return skipped("there is no compiler to make the library with");
    }
    let folder = Folder::new("debug-cut");
    let library = libraries::linked(&folder.0, "big.debug");
    let debug = folder.0.join("big.debug");
    fs::copy(&library, &debug).unwrap();
    fs::set_permissions(&debug, fs::Permissions::from_mode(0o666)).unwrap();
    fs::OpenOptions::new().write(true).open(&debug).unwrap().set_len(200 << 20).unwrap();
    let argument = format!("{}:{}", library.display(), debug.display());
    survives(&folder.program("hostile"), &["load-cut", "20", &argument]);
}

#[test]
fn a_section_that_claims_to_be_larger_than_memory() {
    let run = survives_library("claim", |folder| libraries::claiming(&folder.0));
    // Names that do not need such a section are still found.
    assert!(run.is_none_or(|run| run.samples("hostile", is_named("hot")) > 20));
}

#[test]
fn a_line_of_a_file_that_does_not_exist() {
    let run = survives_library("line", |folder| libraries::misnumbered(&folder.0));
    assert!(run.is_none_or(|run| run.samples("hostile", is_named("hot")) > 20));
}

#[test]
fn more_files_than_are_kept_and_a_pipe_where_one_was() {
    let folder = Folder::new("files");
    survives(&folder.program("hostile"), &["files", "20", "3000"]);
}

fn a_storm_of_forks_and_mappings() {
    if in_guest() {
        return skipped("an emulated CPU has no time left beside the storm");
    }
    let folder = Folder::new("storm");
    let spin = workload("spin", &["-g"]);
    let _honest = Started::new(&format!("exec {spin} 60"));
    // The kernel copies the process's mappings most of the time.
    let run = survives_where(&folder.program("hostile"), &["storm", "30", "9000"], |_| true);
    let named = run.samples("sping", is_named("hot_leaf"));
    assert!(named > 20 && named * 10 >= run.samples("sping", |row| row["mode"] == "user") * 9, "{named}");
}

fn a_debug_file_that_is_a_pipe() {
    for beside in [false, true] {
        survives_library("pipe", |folder| {
            let pipe = folder.0.join("pipe");
            assert!(Command::new("mkfifo").args(["-m", "666"]).arg(&pipe).status().unwrap().success());
            libraries::linked(&folder.0, if beside { "pipe" } else { pipe.to_str().unwrap() })
        });
    }
}

fn a_perf_map_that_is_a_pipe_now_and_then() {
    let folder = Folder::new("exchange");
    let program = folder.program("hostile");
    survives(&program, &["map-pipe", "20"]);
    for _ in 0..3 {
        survives(&program, &["map-exchange", "20"]);
    }
}

fn a_perf_map_without_end() {
    let folder = Folder::new("long");
    let program = folder.program("hostile");
    survives(&program, &["map-line", "20"]);
    let run = survives(&program, &["map-lines", "20"]);
    assert!(run.samples("hostile", is_named("jitted_first")) > 20, "the first of its lines is read");
}

fn debug_information_that_unpacks_without_end() {
    let run = survives_library("bomb", |folder| libraries::bomb(&folder.0));
    assert!(run.is_none_or(|run| run.samples("hostile", is_named("hot")) > 20));
}

#[test]
fn a_debug_file_that_is_larger_than_the_disk() {
    survives_library("sparse", |folder| {
        let library = libraries::linked(&folder.0, "sparse.debug");
        let debug = folder.0.join("sparse.debug");
        fs::copy(&library, &debug).unwrap();
        fs::OpenOptions::new().write(true).open(debug).unwrap().set_len(60 << 30).unwrap();
        library
    });
}

#[test]
fn files_that_are_damaged_anywhere_but_in_their_code() {
    if in_guest() {
        return skipped("there is no compiler to make the library with");
    }
    let folder = Folder::new("damaged");
    let (program, files) = (folder.program("hostile"), folder.0.join("files"));
    fs::create_dir(&files).unwrap();
    fs::set_permissions(&files, fs::Permissions::from_mode(0o755)).unwrap();
    let code = libraries::damaged(&folder.0, &files, DAMAGED);
    let run = survives(&program, &["mapped", "20", &format!("{}:{code}", files.display())]);
    let modules = run.hot("hostile").into_iter().filter_map(|row| row["frame"]["module"].as_str());
    let found: std::collections::BTreeSet<&str> =
        modules.filter(|module| module.starts_with(files.to_str().unwrap())).collect();
    assert!(found.len() as u64 > DAMAGED / 2, "samples hit {} of {DAMAGED} files", found.len());
}

fn who_poisons_his_own_files_costs_nobody_else_a_name() {
    if in_guest() {
        return skipped("there is no compiler to make the library with");
    }
    let folder = Folder::new("neighbour");
    let library = libraries::bomb(&folder.0);
    let _hostile = Nobody::start(&folder.program("hostile"), &["load", "20", library.to_str().unwrap()]);
    let spin = workload("spin", &["-g"]);
    let _honest = Started::new(&format!("exec {spin} 20"));
    let run = Run::of_everything();
    let named = run.samples("sping", is_named("hot_leaf"));
    assert!(named > 50 && named * 10 >= run.samples("sping", |row| row["mode"] == "user") * 9, "{named}");
}

#[test]
fn a_jit_s_later_functions_are_named_too() {
    let folder = Folder::new("append");
    let program = folder.program("hostile");
    for mode in ["map-append", "map-0x"] {
        let nobody = Nobody::start(&program, &[mode, "2"]);
        let run = Run::of_everything();
        drop(nobody);
        for function in ["jitted_first", "jitted_second"] {
            assert!(run.samples("hostile", is_named(function)) > 10, "{mode}: no {function}");
        }
    }
}

// Each is an attack of half a minute or more. Other attacks of their kind stay in the default ring.
nightly!(
    a_perf_map_without_end,
    debug_information_that_unpacks_without_end,
    who_poisons_his_own_files_costs_nobody_else_a_name,
    a_perf_map_that_is_a_pipe_now_and_then,
    a_debug_file_that_is_a_pipe,
    a_storm_of_forks_and_mappings
);
