//! Simulated PMUs of this guest.

use std::{fs, path::Path, process::Command};

use crate::support::text;
use pmbpf::{
    drain::reading::Reading,
    machine::{
        cpu::{Cpu, Processor},
        pmu::catalog::Catalog,
    },
    perf::{CountTarget, Counting},
    table::event_syntax::{List, SelectedGroup, resolve},
};

/// Simulator module and its files.
pub(crate) struct Simulated(());

const FILES: &str = "/sys/kernel/debug/pmusim";

impl Simulated {
    /// Loads the module. Its own test program lies next to it.
    pub(crate) fn load(parameters: &[&str]) -> Self {
        let loaded = Command::new("insmod").arg("/work/pmusim.ko").args(parameters).status().unwrap();
        assert!(loaded.success(), "pmusim {parameters:?}: {loaded}");
        Self(())
    }

    /// Loads the module with a stopped clock, so that counts are exact.
    pub(crate) fn stopped(parameters: &[&str]) -> Self {
        let simulated = Self::load(parameters);
        simulated.write("manual_clock", "1");
        simulated
    }

    pub(crate) fn write(&self, file: &str, line: &str) {
        let path = Path::new(FILES).join(file);
        fs::write(&path, format!("{line}\n"))
            .unwrap_or_else(|error| panic!("{} `{line}`: {error}", path.display()));
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(Path::new(FILES).join(file)).unwrap()
    }
}

/// Returns the events of `notation` on this guest.
pub(crate) fn events(notation: &str) -> Vec<SelectedGroup> {
    let catalog = Catalog::read(Path::new("/")).unwrap();
    resolve(&List::parse(notation).unwrap(), &catalog).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn online() -> Vec<Cpu> {
    Processor::read(Path::new("/")).unwrap().online
}

/// Returns all counts during `work`.
pub(crate) fn count(notation: &str, target: &CountTarget, work: impl FnOnce()) -> Vec<Reading> {
    let counting = Counting::open(&events(notation), target).unwrap_or_else(|error| panic!("{error}"));
    counting.enable().unwrap();
    work();
    counting.disable().unwrap();
    counting.read().unwrap()
}

/// Returns the counts of `perf stat -a` while a shell command runs: sums by event, with perf's names.
pub(crate) fn perf_stat(notation: &str, command: &str) -> Vec<(String, f64)> {
    let mut perf = Command::new("perf");
    perf.args(["stat", "-a", "-x;", "-e", notation, "--", "sh", "-c", command]);
    let output = perf.output().expect("guests have perf");
    let lines = text(&output.stderr);
    assert!(output.status.success(), "{lines}");
    let parse = |line: &str| {
        let mut fields = line.split(';');
        let (count, _, event) = (fields.next()?, fields.next()?, fields.next()?);
        Some((event.to_owned(), count.parse().unwrap_or_else(|_| panic!("perf counted nothing: {line}"))))
    };
    lines.lines().filter_map(parse).collect()
}
