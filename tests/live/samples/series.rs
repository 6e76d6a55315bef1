//! Repeated replacement of code by other code, under perf under pmbpf: no function has another's samples, and
//! shares are perf's. `PMBPF_ROUNDS` is the number of rounds. `cargo xtask nightly` requests more than one.

use std::collections::BTreeMap;

use super::replaced::{STAGES, stages};
use crate::{
    support::{Rows, Scratch, output, text},
    workloads::workload,
};

/// Returns the number of runs of each kind.
fn rounds() -> usize {
    std::env::var("PMBPF_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap())
}

/// Results of one run by function, in their order.
#[derive(Debug)]
struct Found<const N: usize> {
    /// CPU time that each function reported itself.
    seconds: [f64; N],
    ours: [f64; N],
    /// Samples by perf, or `None` where perf does not name the code.
    perfs: Option<[f64; N]>,
    /// Our user-mode samples in all, and those without a name.
    all: f64,
    unnamed: f64,
}

/// Whether perf names code of JITs without `perf inject`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Perf {
    Names,
    DoesNot,
}

fn find<const N: usize>(command: &[String], names: [&str; N], perf: Perf) -> Found<N> {
    let file = Scratch::new("series");
    let mut line = vec!["-F", "1999", "--no-metrics", "--", "perf", "record", "-q", "-e", "cpu-clock:u"];
    line.extend(["-F", "1999", "-o", file.as_str(), "--"]);
    line.extend(command.iter().map(String::as_str));
    let output = output(&line);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let mut seconds = BTreeMap::new();
    for line in printed.lines() {
        if let Some((name, used)) = line.split_once(' ')
            && let Ok(used) = used.parse::<f64>()
        {
            *seconds.entry(name.to_owned()).or_insert(0.0) += used;
        }
    }
    let rows = Rows::parse(&output.stderr);
    let hot: Vec<_> = rows
        .of_kind("hot")
        // Without perf itself.
        .filter(|row| row["mode"] == "user" && row["owner"]["name"].as_str() != Some("perf"))
        .collect();
    let samples = |of: &dyn Fn(Option<&str>) -> bool| -> f64 {
        let of = hot.iter().filter(|row| of(row["frame"]["function"].as_str()));
        of.map(|row| row["samples"].as_f64().unwrap()).sum()
    };
    Found {
        seconds: names.map(|name| seconds.get(name).copied().unwrap_or_else(|| panic!("{name}: {printed}"))),
        ours: names.map(|name| samples(&|function| function == Some(name))),
        perfs: (perf == Perf::Names).then(|| of_perf(&file, names)),
        all: samples(&|_| true),
        unnamed: samples(&|function| function.is_none()),
    }
}

fn of_perf<const N: usize>(file: &Scratch, names: [&str; N]) -> [f64; N] {
    let mut perf = std::process::Command::new("perf");
    perf.args(["report", "-f", "-i", file.as_str(), "--stdio", "-q", "--no-children", "-g", "none", "-n"]);
    let output = perf.args(["-t", "\t", "--sort", "sym"]).output().unwrap();
    let report = text(&output.stdout);
    let samples = |name: &str| {
        let of_name = |line: &str| {
            let cells: Vec<&str> = line.split('\t').map(str::trim).collect();
            let [_, samples, symbol] = cells[..] else { return None };
            (symbol.split_once(' ')?.1.trim() == name).then(|| samples.parse::<f64>().unwrap())
        };
        report.lines().filter_map(of_name).sum()
    };
    names.map(samples)
}

impl<const N: usize> Found<N> {
    /// Returns whether the 95 % intervals of both shares overlap for each function.
    fn is_perfs(&self) -> bool {
        let Some(perfs) = self.perfs else { return true };
        let (ours, theirs) = (self.ours.iter().sum::<f64>(), perfs.iter().sum::<f64>());
        self.ours.iter().zip(perfs).all(|(our, their)| {
            let (our, their) = (our / ours, their / theirs);
            let half = |share: f64, all: f64| 1.96 * (share * (1.0 - share) / all).sqrt();
            (our - their).abs() <= half(our, ours) + half(their, theirs)
        })
    }

    /// Asserts that each function has the samples that its CPU time explains, within five standard errors.
    /// Samples under another function's name would be hundreds.
    fn check(&self, kind: &str) {
        let (samples, seconds) = (self.ours.iter().sum::<f64>(), self.seconds.iter().sum::<f64>());
        for (found, used) in self.ours.iter().zip(self.seconds) {
            let truth = used / seconds;
            let allowed = 5.0 * (truth * (1.0 - truth) / samples).sqrt() + 0.02;
            assert!((found / samples - truth).abs() < allowed, "{kind}: {self:?}");
        }
        assert!(self.unnamed < 0.03 * self.all, "{kind}: {self:?}");
    }
}

/// Returns each program with its seconds, after `before`.
fn chain(programs: &[String], before: &[String]) -> Vec<String> {
    let with =
        |(program, seconds): (&String, &str)| [before, &[program.clone(), seconds.to_owned()]].concat();
    programs.iter().zip(["0.3", "0.5", "0.2"]).flat_map(with).collect()
}

#[expect(clippy::print_stdout, reason = "a series has figures")]
fn series<const N: usize>(kind: &str, command: &[String], names: [&str; N], perf: Perf) {
    let rounds = rounds();
    let mut equal = 0;
    for round in 0..rounds {
        let found = find(command, names, perf);
        println!("{kind} {round}: {found:?}");
        found.check(kind);
        equal += usize::from(found.is_perfs());
    }
    println!("{kind}: shares are perf's in {equal} of {rounds}");
    assert!(
        rounds - equal <= rounds.div_ceil(20),
        "{kind}: shares are perf's in {equal} of {rounds} runs only"
    );
}

mod nightly {
    use super::{Perf, STAGES, chain, series, stages, workload};

    #[test]
    fn programs_that_follow_each_other_keep_their_own_samples_every_time() {
        let kinds: [(&str, &[&str]); 3] =
            [("pie", &[]), ("dynamic", &["-no-pie"]), ("static", &["-static", "-no-pie"])];
        for (kind, options) in kinds {
            series(kind, &chain(&stages(options), &[]), STAGES, Perf::Names);
        }
        let forks = chain(&stages(&[]), &[]);
        let forks: Vec<String> = forks.chunks(2).map(|pair| pair.join(" ")).collect();
        let forks = ["sh", "-c", &format!("{}; true", forks.join(" && "))].map(str::to_owned);
        series("forks", &forks, STAGES, Perf::Names);
        // perf cannot open a file that existed only in memory.
        let memfd = chain(&stages(&[]), &[workload("memfdexec", &[])]);
        series("memfd", &memfd, STAGES, Perf::DoesNot);
    }

    #[test]
    fn libraries_at_one_address_keep_their_own_samples_every_time() {
        let library = |stage: &str| workload("stages", &[&format!("-DSTAGE={stage}"), "-shared", "-fPIC"]);
        let [one, two] = ["stage_one", "stage_two"].map(library);
        let loads = workload("loads", &["-ldl"]);
        let command = [loads.as_str(), "0.2", &one, &two, &two, &one, &two].map(str::to_owned);
        series("dlopen", &command, ["stage_one", "stage_two"], Perf::Names);
    }

    #[test]
    fn code_of_a_jit_over_other_code_keeps_its_own_samples_every_time() {
        let jit = [workload("jitdump", &[])];
        series("jitdump", &jit, ["jit_first", "jit_second", "jit_third"], Perf::DoesNot);
    }
}
