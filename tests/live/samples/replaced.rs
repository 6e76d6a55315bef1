//! Code that replaces other code within a drain: programs that a process executes one after the other,
//! libraries at one address. A sample is named by the code that was mapped when it was taken.

use std::{collections::BTreeMap, path::Path};

use crate::{
    support::{Rows, in_guest, output, skipped, text},
    workloads::workload,
};

/// Reason for the skip in an emulated guest.
const SLOW: &str = "there the time for names may be over before they are looked up";

pub(super) const STAGES: [&str; 3] = ["stage_one", "stage_two", "stage_three"];

/// Returns the paths of programs of `stages.c`, one per function, built with these options.
pub(super) fn stages(options: &[&str]) -> Vec<String> {
    let define = STAGES.map(|stage| format!("-DSTAGE={stage}"));
    let built = define.iter().map(|define| {
        let options: Vec<&str> = [define.as_str()].into_iter().chain(options.iter().copied()).collect();
        workload("stages", &options)
    });
    built.collect()
}

/// CPU time by function as the command printed it, samples by function, and all samples in user-mode
/// functions.
struct Shares {
    used: BTreeMap<String, f64>,
    samples: BTreeMap<String, u64>,
    all: u64,
}

fn shares(command: &[&str], arguments: &[&str]) -> Shares {
    let mut line = vec!["-F", "1999", "--no-metrics"];
    line.extend(arguments);
    line.push("--");
    line.extend(command);
    let output = output(&line);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = Rows::parse(&output.stderr);
    let printed = text(&output.stdout);
    let used = printed.lines().filter_map(|line| {
        let (name, seconds) = line.split_once(' ')?;
        Some((name.to_owned(), seconds.parse::<f64>().ok()?))
    });
    let mut samples = BTreeMap::new();
    let mut all = 0;
    for row in rows.of_kind("hot").filter(|row| row["mode"] == "user") {
        let count = row["samples"].as_u64().unwrap();
        all += count;
        if let Some(function) = row["frame"]["function"].as_str() {
            *samples.entry(function.to_owned()).or_default() += count;
        }
        // Without code that runs before the program, and its own start.
        let why = row["reason"].as_str().unwrap_or_default();
        assert!(!why.contains("no executable mapping"), "{row}");
    }
    let mut by_name = BTreeMap::new();
    used.for_each(|(name, seconds)| *by_name.entry(name).or_default() += seconds);
    Shares { used: by_name, samples, all }
}

impl Shares {
    /// Asserts that every function's share of samples equals its share of CPU time, within the accuracy of
    /// the number of samples.
    fn agree(&self) {
        let seconds: f64 = self.used.values().sum();
        assert!(self.all > 100, "{} samples", self.all);
        for (name, used) in &self.used {
            let found = self.samples.get(name).copied().unwrap_or(0) as f64 / self.all as f64;
            let truth = used / seconds;
            // Four standard errors, and 3 % for code outside the function: the start of programs, and samples
            // that come late.
            let allowed = 4.0 * (truth * (1.0 - truth) / self.all as f64).sqrt() + 0.03;
            assert!(
                (found - truth).abs() < allowed,
                "{name}: {found:.3} of {}, not {truth:.3}: {:?}",
                self.all,
                self.samples
            );
        }
    }
}

/// Returns a command in which each program executes the next.
fn chain(programs: &[String]) -> Vec<&str> {
    let seconds = ["0.3", "0.5", "0.2"];
    programs.iter().zip(seconds).flat_map(|(program, seconds)| [program.as_str(), seconds]).collect()
}

#[test]
fn programs_that_lie_at_one_address_keep_their_own_samples() {
    if in_guest() {
        return skipped(SLOW);
    }
    shares(&chain(&stages(&["-static", "-no-pie"])), &[]).agree();
}

#[test]
fn programs_that_a_process_executes_one_after_the_other_keep_their_own_samples() {
    if in_guest() {
        return skipped(SLOW);
    }
    shares(&chain(&stages(&[])), &[]).agree();
    shares(&chain(&stages(&[])), &["--stacks"]).agree();
}

#[test]
fn libraries_that_are_loaded_at_one_address_keep_their_own_samples() {
    if in_guest() {
        return skipped(SLOW);
    }
    let (loads, libraries) = (workload("loads", &["-ldl"]), ["stage_one", "stage_two"]);
    let libraries =
        libraries.map(|stage| workload("stages", &[&format!("-DSTAGE={stage}"), "-shared", "-fPIC"]));
    // Three times: a library mapped again has the same names.
    let [one, two] = &libraries;
    shares(&[&loads, "0.2", one, two, one, two, two], &[]).agree();
}

#[test]
fn code_that_a_jit_puts_over_other_code_keeps_its_own_samples() {
    if in_guest() {
        return skipped(SLOW);
    }
    shares(&[&workload("jitdump", &[])], &[]).agree();
    shares(&[&workload("jitdump", &[])], &["--stacks"]).agree();
}

#[test]
fn programs_of_the_kernel_s_virtual_machine_at_one_address_keep_their_own_samples() {
    if in_guest() {
        return skipped(SLOW);
    }
    let stages = ["stage_one", "stage_two", "stage_three"];
    let command = ["0.3", stages[0], "0.5", stages[1], "0.2", stages[2]];
    for more in [&[][..], &["--stacks"]] {
        let mut line = vec!["-F", "1999", "--no-metrics"];
        line.extend(more);
        let bpfjit = workload("bpfjit", &[]);
        line.extend(["--", &bpfjit]);
        line.extend(command);
        let output = output(&line);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let rows = Rows::parse(&output.stderr);
        let all = |stage: &str| -> f64 {
            let is = |row: &&serde_json::Value| {
                row["frame"]["function"].as_str().is_some_and(|name| name.ends_with(stage))
            };
            rows.of_kind("hot").filter(is).map(|row| row["samples"].as_f64().unwrap()).sum()
        };
        let found = stages.map(all);
        let sum: f64 = found.iter().sum();
        assert!(sum > 800.0, "{found:?}");
        for (found, truth) in found.iter().zip([0.3, 0.5, 0.2]) {
            assert!((found / sum - truth).abs() < 0.06, "{found} of {sum}, not {truth}");
        }
    }
}

#[test]
fn code_over_other_code_in_a_map_without_times_is_never_called_by_the_other_s_name() {
    if in_guest() {
        return skipped(SLOW);
    }
    let jitmap = workload("jitmap", &[]);
    let seconds = ["0.3", "jit_first", "0.5", "jit_second", "0.2", "jit_third"];
    for more in [&[][..], &["--stacks"]] {
        let mut command = vec![jitmap.as_str()];
        command.extend(seconds);
        let Shares { used, samples, all } = shares(&command, more);
        // Samples between two readings of the map have no name if the second reading found another name: 100
        // ms after each of two.
        let unknown = 0.25;
        for (name, used) in &used {
            let found = samples.get(name).copied().unwrap_or(0) as f64 / all as f64;
            assert!(found < used + 0.05 && found > used - unknown, "{name}: {found} of {all}: {samples:?}");
        }
        let named: u64 = samples.values().sum();
        assert!(named as f64 > 0.7 * all as f64, "{named} of {all}: {samples:?}");
    }
}

#[test]
fn owners_by_executable_and_by_name_have_what_was_done_under_it() {
    if in_guest() {
        return skipped(SLOW);
    }
    let programs = stages(&[]);
    let command = format!("exec env A=1 {}", chain(&programs).join(" "));
    let name = |program: &str| Path::new(program).file_name().unwrap().to_str().unwrap().to_owned();
    for (by, programs) in
        [("exe", &programs), ("comm", &programs), ("comm", &stages(&["-static", "-no-pie"]))]
    {
        let command = command.replace(&stages(&[])[0], &programs[0]);
        let command = command.replace(&stages(&[])[1], &programs[1]).replace(&stages(&[])[2], &programs[2]);
        let output = output(&["--by", by, "-F", "1999", "--no-metrics", "--", "sh", "-c", &command]);
        let rows = Rows::parse(&output.stderr);
        let used: Vec<f64> =
            text(&output.stdout).lines().filter_map(|line| line.split_once(' ')?.1.parse().ok()).collect();
        assert_eq!(used.len(), 3, "{}", text(&output.stdout));
        for ((program, stage), used) in programs.iter().zip(STAGES).zip(used) {
            let name = name(program);
            // A tick at each end, and the loading of the program.
            let cpu_time = rows.of_name("cpu_time", &name) / 1e9;
            assert!((cpu_time - used).abs() < 0.015, "{by} {name}: {cpu_time} of {used}");
            let of_stage = |row: &&serde_json::Value| row["frame"]["function"] == stage;
            let owners: Vec<&str> = rows
                .of_kind("hot")
                .filter(of_stage)
                .map(|row| row["owner"]["name"].as_str().unwrap())
                .collect();
            assert_eq!(owners, [name.as_str()], "{by} {stage}");
        }
        let exits = rows.sum("exits", |_| true);
        assert!(exits <= 1.0, "{exits}: a process that goes on as another owner did not end");
    }
}
