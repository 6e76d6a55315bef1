//! Code that takes the place of other code within a drain: programs that a process executes one after the other, libraries at one
//! address. A sample is named by what was there when it was taken.

use std::collections::BTreeMap;

use crate::{
    support::{Rows, in_guest, output, skipped, text},
    workloads::workload,
};

/// Why nothing is compared in an emulated guest.
const SLOW: &str = "there the time for names may be over before they are looked up";

const STAGES: [&str; 3] = ["stage_one", "stage_two", "stage_three"];

/// Names of programs of `stages.c`, one per function, built with these options.
fn stages(options: &[&str]) -> Vec<String> {
    let define = STAGES.map(|stage| format!("-DSTAGE={stage}"));
    let built = define.iter().map(|define| {
        let options: Vec<&str> = [define.as_str()].into_iter().chain(options.iter().copied()).collect();
        workload("stages", &options)
    });
    built.collect()
}

/// CPU time by function as the command printed it, and samples by function; samples in functions of user mode in all.
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
        // Beside what runs before the program does, and its own start.
        let why = row["reason"].as_str().unwrap_or_default();
        assert!(!why.contains("no executable mapping"), "{row}");
    }
    let mut by_name = BTreeMap::new();
    used.for_each(|(name, seconds)| *by_name.entry(name).or_default() += seconds);
    Shares { used: by_name, samples, all }
}

impl Shares {
    /// Every function has the share of samples that it has of the CPU time, as exactly as so many samples can say.
    fn agree(&self) {
        let seconds: f64 = self.used.values().sum();
        assert!(self.all > 100, "{} samples", self.all);
        for (name, used) in &self.used {
            let found = self.samples.get(name).copied().unwrap_or(0) as f64 / self.all as f64;
            let truth = used / seconds;
            // Four standard errors, and 3 % for what runs beside the function: the start of programs, and samples that come late.
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

/// Every program is executed by the one before it.
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
    // Three times: what is there again is what it was.
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
