//! Stacks that lack frames, marked with the reason: too deep, a return address in no mapping, or a caller
//! skipped by frame pointers.

use std::{fs, io::Read as _};

use flate2::read::MultiGzDecoder;
use serde_json::Value;

use crate::{
    support::{Rows, Scratch, linux, output, pmbpf, skipped, text},
    workloads::workload,
};

/// Returns the rows of a run of a program, which has standard output to itself.
fn run(arguments: &[&str], program: &[&str]) -> Rows {
    let output = output(&[arguments, &["--stacks", "-F", "199", "--"], program].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    Rows::parse(&output.stderr)
}

/// Returns the stacks of samples in a function.
fn stacks<'a>(rows: &'a Rows, function: &str) -> Vec<&'a Value> {
    let is_in =
        |row: &&Value| row["frames"].as_array().unwrap().iter().any(|frame| frame["function"] == function);
    rows.of_kind("stack").filter(is_in).collect()
}

fn outermost(stack: &Value) -> &Value {
    stack["frames"].as_array().unwrap().last().unwrap()
}

#[test]
fn a_stack_that_is_deeper_than_frames_are_taken_ends_with_a_mark() {
    let program = workload("deep", &["-fno-optimize-sibling-calls"]);
    let rows = run(&[], &[&program, "300", "1"]);
    let deep = stacks(&rows, "leaf");
    assert!(!deep.is_empty());
    for stack in deep {
        // Kernel frames are captured in addition to those.
        let of_program = |frame: &&Value| frame["module"] == program.as_str();
        let frames = stack["frames"].as_array().unwrap().iter().filter(of_program).count();
        assert_eq!((&outermost(stack)["cut"], frames), (&"deep".into(), 127), "{stack}");
    }
    let ends = &rows.summary()["user_stacks"];
    let (cut, samples) = (ends["cut"].as_u64().unwrap(), ends["samples"].as_u64().unwrap());
    assert!(cut * 100 >= samples * 90, "{ends}");
}

#[test]
fn call_frame_information_leads_through_more_frames() {
    let program = workload("deep", &["-fno-optimize-sibling-calls"]);
    let rows = run(&["--unwind", "dwarf"], &[&program, "300", "1"]);
    let whole = stacks(&rows, "leaf");
    let count = |stack: &Value, name: &str| {
        stack["frames"].as_array().unwrap().iter().filter(|frame| frame["function"] == name).count()
    };
    let leads = |stack: &&&Value| {
        count(stack, "down") == 301 && count(stack, "request") == 1 && count(stack, "main") == 1
    };
    assert!(
        !whole.is_empty() && whole.iter().filter(leads).count() * 10 >= whole.len() * 9,
        "{:?}",
        whole.first()
    );
    assert_eq!(rows.summary()["user_stacks"]["cut"], 0);
}

#[test]
fn a_return_address_in_no_mapping_is_not_a_frame_in_any_format() {
    let recording = Scratch::new("nowhere.pmbpf");
    let program = workload("nowhere", &[]);
    let rows = run(&["-o", recording.as_str()], &[&program, "1"]);
    let astray = stacks(&rows, "astray");
    assert!(!astray.is_empty());
    for stack in astray {
        let frames = stack["frames"].as_array().unwrap();
        assert_eq!(outermost(stack)["cut"], "broken", "{stack}");
        assert!(frames.iter().all(|frame| frame["address"].is_null()), "{stack}");
    }
    let ends = &rows.summary()["user_stacks"];
    assert!(ends["share"].as_f64() > Some(0.9), "{ends}");
    let report =
        |format: &[&str]| pmbpf().arg("report").args(format).arg(recording.as_str()).output().unwrap().stdout;
    // The page has its rows packed. tests/page.rs compares them with those of JSON.
    let mut all = vec![("text", report(&[]))];
    for format in ["folded", "pprof", "speedscope", "firefox"] {
        let file = Scratch::new(format);
        let export = ["export", "--to", format, "-o", file.as_str(), recording.as_str()];
        assert!(pmbpf().args(export).status().unwrap().success(), "{format}");
        let mut bytes = fs::read(&file.0).unwrap();
        if format == "pprof" {
            let mut unpacked = Vec::new();
            MultiGzDecoder::new(&bytes[..]).read_to_end(&mut unpacked).unwrap();
            bytes = unpacked;
        }
        all.push((format, bytes));
    }
    for (format, shown) in all {
        let has = |text: &[u8]| shown.windows(text.len()).any(|window| window == text);
        assert!(has(b"(callers not known)"), "{format} has no mark");
        assert!(!has(b"44030000000"), "{format} has an address that is not a frame");
    }
}

#[test]
fn where_a_caller_may_be_passed_over_off_cpu_stacks_say_so() {
    let program = workload("lockwait", &["-pthread"]);
    let output = pmbpf().args(["run", "--off-cpu", "--stacks", "--", &program, "1", "4"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stderr);
    let stacks: String = shown.lines().skip_while(|line| !line.starts_with("OFF-CPU STACKS")).collect();
    let named = stacks.contains("update_shared_table");
    assert!(named || stacks.contains("(a caller may be missing)"), "{shown}");
}

/// Tests functions of libc that take a lock and make the system call without a frame pointer: their caller is
/// in none of these frame-pointer chains.
#[test]
fn callers_of_a_lock_are_in_the_stacks_of_its_waiters() {
    let program = workload("lockwait", &["-pthread"]);
    let output = output(&["--off-cpu", "--stacks", "--", &program, "1", "4"]);
    let rows = Rows::parse(&output.stderr);
    let waits = rows.of_kind("metric").find(|row| row["metric"] == "lock_wait.time");
    if linux() < (5, 15) || waits.is_some_and(|row| row["value"].is_null()) {
        return skipped("this kernel does not say what a task entered it with");
    }
    let (mut all, mut whole) = (0.0, 0.0);
    for stack in rows.of_kind("off_cpu_stack") {
        let names: Vec<&str> = stack["frames"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|frame| frame["function"].as_str())
            .collect();
        if !names.iter().any(|name| name.contains("lll_lock_wait")) {
            continue;
        }
        let has = |part: &str| names.iter().any(|name| name.contains(part));
        let time = stack["time_ns"]["value"].as_f64().unwrap();
        all += time;
        if has("update_shared_table") && has("pthread_mutex_lock") {
            whole += time;
        }
    }
    assert!(all > 0.0, "no wait for the lock has a stack");
    assert!(whole > 0.95 * all, "{whole} of {all}");
}
