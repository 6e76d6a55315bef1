//! Names while the host is busy, and names while a run goes on.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command},
};

use object::{Object as _, ObjectSymbol as _};
use pmbpf::symbol::FileNamer;

use crate::{
    support::{Rows, Scratch, in_guest, output, pmbpf, skipped, text},
    workloads::workload,
};

/// Processes that keep the CPU busy.
struct Busy(Vec<Child>);

impl Busy {
    /// Starts this number of processes, each of these words and an endless shell loop.
    fn start(count: usize, words: &[&str]) -> Self {
        let all: Vec<&str> = words.iter().copied().chain(["sh", "-c", "while :; do :; done"]).collect();
        let one = |_| Command::new(all[0]).args(&all[1..]).spawn().unwrap();
        Self((0..count).map(one).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Returns a program with 300,000 symbols.
fn symbols() -> String {
    workload("symbols", &["-DSYMBOLS=300000"])
}

/// Tests that the process that reads files is limited by CPU time, not by time: it has a small share of one
/// CPU.
#[test]
fn a_process_that_waits_for_a_cpu_loses_no_name() {
    if in_guest() {
        skipped("guests have no taskset");
        return;
    }
    let wrapper = Scratch::new("starved");
    let program = pmbpf().get_program().to_str().unwrap().to_owned();
    fs::write(&wrapper.0, format!("#!/bin/sh\nexec taskset -c 0 nice -n 10 {program} \"$@\"\n")).unwrap();
    fs::set_permissions(&wrapper.0, fs::Permissions::from_mode(0o755)).unwrap();
    let (path, name) = (symbols(), "a_function_with_a_name_77777");
    let bytes = fs::read(&path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let address = file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap().address();
    let offset = file.section_by_name(".text").map(|text| {
        use object::ObjectSection as _;
        address - text.address() + text.file_range().unwrap().0
    });
    let _busy = Busy::start(4, &["taskset", "-c", "0"]);
    let mut namer = FileNamer::new(Path::new(wrapper.as_str()));
    let found = namer.file(File::open(&path).unwrap(), None, &[offset.unwrap()]);
    let function = found[0].code.as_ref().map(|code| code.function.terminal().into_owned());
    assert_eq!(function, Ok(name.to_owned()));
}

#[test]
fn beside_ten_busy_processes_a_cpu_tables_have_all_samples_and_their_names() {
    if in_guest() {
        skipped("an emulated CPU is busy enough");
        return;
    }
    let cpus = std::thread::available_parallelism().unwrap().get();
    let _busy = Busy::start(10 * cpus, &["env"]);
    let output = output(&["--stacks", "-F", "499", "--", &symbols(), "4"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = Rows::parse(&output.stderr);
    let seen = rows.summary()["quality"]["target"]["samples"][0]["seen"].as_u64();
    let hot: u64 = rows.of_kind("hot").map(|row| row["samples"].as_u64().unwrap()).sum();
    assert!(hot > 0 && Some(hot) == seen, "{hot} in the table: {}", rows.summary()["quality"]);
    let burns: u64 = rows
        .of_kind("hot")
        .filter(|row| row["frame"]["function"] == "burns")
        .map(|row| row["samples"].as_u64().unwrap())
        .sum();
    assert!(burns * 10 > hot * 8, "{burns} of {hot}");
}

#[test]
fn intervals_of_a_run_that_goes_on_have_functions() {
    let program = workload("clock", &[]);
    let run = ["run", "-I", "500ms", "-F", "499", "--", &program];
    let output = pmbpf().args(run).args(["2", "0"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stderr);
    let hot: Vec<&str> = shown.lines().filter(|line| line.starts_with("  hot: ")).collect();
    assert!(hot.len() >= 3, "{shown}");
    // The first line may come before the process that reads files exists.
    for line in &hot[1..] {
        assert!(!line.contains("+0x") && !line.contains(" 0x"), "{line}");
    }
    assert!(hot[1..].iter().any(|line| !line.contains("(no names)")), "{hot:?}");
}
