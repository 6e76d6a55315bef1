//! User stacks of programs without frame pointers, unwound by DWARF's call frame information, whatever the
//! program consists of.

use std::{
    fs,
    path::{Path, PathBuf},
};

use object::{Object as _, ObjectSection as _};
use serde_json::Value;

use crate::{
    support::{Rows, Scratch, in_guest, output, pmbpf, text, unique},
    workloads::workload,
};

const OPTIONS: [&str; 2] = ["-O2", "-fomit-frame-pointer"];

/// Returns the sampling frequency, which is low where an emulator unwinds.
fn frequency() -> &'static str {
    if in_guest() { "99" } else { "199" }
}

/// Returns the minimum number of samples in a second of a program's time.
fn some() -> u64 {
    if in_guest() { 15 } else { 60 }
}

/// Runs a program and returns the rows.
fn run(arguments: &[&str], program: &str, seconds: &str, how: &str) -> Rows {
    let all = [arguments, &["--stacks", "-F", frequency(), "--", program, seconds, how]].concat();
    let output = output(&all);
    assert!(output.status.success(), "{}", text(&output.stderr));
    Rows::parse(&output.stderr)
}

/// Returns the number of samples with this function in the stack.
fn samples_in(rows: &Rows, function: &str) -> u64 {
    samples_of(rows, |names| names.contains(&function))
}

/// Returns the number of samples with matching stacks, by their named functions, innermost first.
fn samples_of(rows: &Rows, is: impl Fn(&[&str]) -> bool) -> u64 {
    let name = |frame: &'_ Value| frame["function"].as_str().map(str::to_owned);
    let of_row = |row: &Value| {
        let names: Vec<String> = row["frames"].as_array().unwrap().iter().filter_map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if is(&names) { row["samples"].as_u64().unwrap() } else { 0 }
    };
    rows.of_kind("stack").map(of_row).sum()
}

/// Calls that lead from main to the busy function.
const CALLS: [&str; 7] = ["third", "second", "second", "second", "second", "first", "main"];

fn leads_to_main(names: &[&str], from: &str) -> bool {
    let whole: Vec<&str> = [from].into_iter().chain(CALLS).collect();
    names.windows(whole.len()).any(|some| some == whole)
}

#[test]
fn without_frame_pointers_stacks_end_early_and_the_report_says_so() {
    let rows = run(&[], &workload("unwind", &OPTIONS), "1", "user");
    let ends = &rows.summary()["user_stacks"];
    assert!(ends["share"].as_f64() > Some(0.5) && ends["unwinding"].is_null(), "{ends}");
    assert_eq!(samples_of(&rows, |names| leads_to_main(names, "burn")), 0);
}

#[test]
fn call_frame_information_leads_to_main_without_frame_pointers() {
    let recording = Scratch::new("unwound");
    let program = workload("unwind", &OPTIONS);
    let rows = run(&["--unwind", "dwarf", "-o", recording.as_str()], &program, "2", "user");
    let (whole, all) = (samples_of(&rows, |names| leads_to_main(names, "burn")), samples_in(&rows, "burn"));
    assert!(all > some() && whole * 100 >= all * 95, "{whole} of {all} samples lead to main");
    let ends = &rows.summary()["user_stacks"];
    let (samples, early) = (ends["samples"].as_u64().unwrap(), ends["end_early"].as_u64().unwrap());
    // The loader and the kernel take a larger part of a short run, and a still larger one on a busy host.
    assert!(early * 20 <= samples + 20 * (samples - all), "{ends}");
    let unwound = ends["unwinding"]["unwound"].as_u64().unwrap();
    let kept = ends["unwinding"]["not_unwound"].as_object().unwrap().values();
    assert_eq!(
        unwound + kept.filter_map(Value::as_u64).sum::<u64>(),
        samples,
        "each is accounted for: {ends}"
    );
    assert!(unwound * 100 >= samples * 90, "{ends}");
    // The recording holds the unwound stacks.
    let replayed = pmbpf().args(["report", "--json", recording.as_str()]).output().unwrap();
    let replayed = Rows::parse(&replayed.stdout);
    assert_eq!(replayed.summary()["user_stacks"], *ends);
    assert_eq!(replayed.of_kind("stack").collect::<Vec<_>>(), rows.of_kind("stack").collect::<Vec<_>>());
}

#[test]
fn the_stack_that_a_system_call_came_from_is_unwound_or_its_absence_said() {
    let rows = run(&["--unwind", "dwarf"], &workload("unwind", &OPTIONS), "2", "kernel");
    let summary = rows.summary();
    let missing = summary["missing"].as_array().unwrap();
    if missing.iter().any(|missing| missing["what"].as_str().unwrap().contains("unwound by DWARF")) {
        let kept = &summary["user_stacks"]["unwinding"]["not_unwound"]["no_registers"];
        assert!(kept.as_u64() > Some(10), "{summary}");
        return;
    }
    let (whole, all) = (samples_of(&rows, |names| leads_to_main(names, "call")), samples_in(&rows, "call"));
    assert!(all > some() && whole * 100 >= all * 95, "{whole} of {all} samples lead to main");
}

#[test]
fn without_stacks_there_is_nothing_to_unwind() {
    let output = pmbpf().args(["run", "--unwind", "dwarf", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("--stacks") && said.lines().count() <= 3, "{said}");
}

#[test]
fn a_stack_pointer_into_nowhere_costs_that_stack_alone() {
    let rows = run(&["--unwind", "dwarf"], &workload("unwind", &OPTIONS), "1", "lost");
    let unwinding = &rows.summary()["user_stacks"]["unwinding"];
    if cfg!(target_arch = "x86_64") {
        assert!(unwinding["not_unwound"]["unreadable"].as_u64() > Some(10), "{unwinding}");
        assert!(samples_in(&rows, "lose") > 10);
    }
}

#[test]
fn endless_call_frame_information_costs_only_its_own_program_s_stacks() {
    let program = workload("unwind", &OPTIONS);
    // The unwindable program runs on, so that it is sampled before and after the other is given up.
    let command = format!("{program} 1 endless & {program} 3 user; wait");
    let output = output(&["--unwind", "dwarf", "--stacks", "-F", frequency(), "--", "sh", "-c", &command]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = Rows::parse(&output.stderr);
    let (whole, all) = (samples_of(&rows, |names| leads_to_main(names, "burn")), samples_in(&rows, "burn"));
    assert!(all > some() && whole * 2 > all, "{whole} of {all} samples of the other program lead to main");
    let kept = &rows.summary()["user_stacks"]["unwinding"]["not_unwound"];
    assert!(kept["failed"].as_u64() > Some(0), "{kept}");
    assert!(samples_in(&rows, "endless") > 10, "it is named");
}

/// Copy of a program, with `change` applied to the bytes of its call frame information.
struct Broken(PathBuf);

impl Broken {
    fn new(program: &str, change: impl Fn(usize, &mut u8)) -> Self {
        let mut bytes = fs::read(program).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let section = |name| file.section_by_name(name).and_then(|section| section.file_range());
        let ranges: Vec<_> = [".eh_frame", ".eh_frame_hdr"].into_iter().filter_map(section).collect();
        assert_eq!(ranges.len(), 2);
        for (offset, size) in ranges {
            let range = offset as usize..(offset + size) as usize;
            bytes[range].iter_mut().enumerate().for_each(|(index, byte)| change(index, byte));
        }
        let path = std::env::temp_dir().join(unique("broken"));
        fs::copy(program, &path).unwrap();
        fs::write(&path, bytes).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        let _ = fs::remove_file(Path::new(&self.0));
    }
}

#[test]
fn broken_call_frame_information_costs_only_its_own_program_s_stacks() {
    let program = workload("unwind", &OPTIONS);
    let broken = [
        Broken::new(&program, |_, byte| *byte = 0xff),
        Broken::new(&program, |_, byte| *byte = 0),
        Broken::new(&program, |index, byte| {
            *byte = if index % 5 == 0 { byte.wrapping_mul(37) } else { *byte }
        }),
    ];
    let commands: Vec<String> =
        broken.iter().map(|broken| format!("{} 0.5 user & ", broken.path())).collect();
    let command = format!("{} {program} 1 user; wait", commands.concat());
    let output = output(&["--unwind", "dwarf", "--stacks", "-F", frequency(), "--", "sh", "-c", &command]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = Rows::parse(&output.stderr);
    let whole = samples_of(&rows, |names| leads_to_main(names, "burn"));
    let ends = &rows.summary()["user_stacks"];
    assert!(whole > some(), "the whole program's stacks are unwound beside the others': {whole}, {ends}");
    assert!(samples_in(&rows, "burn") > whole, "the others are named");
}
