//! `pmbpf export`: every format, read back by third-party code or by its fields, agrees with `pmbpf report
//! --json` on the same recording.

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

#[path = "export/intervals.rs"]
mod intervals;
#[path = "export/otlp.rs"]
mod otlp;
#[path = "export/protobuf.rs"]
mod protobuf;
mod schema;

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use flate2::read::MultiGzDecoder;
use serde_json::Value;

use crate::protobuf::Message;

/// Event name of off-CPU time.
const OFF_CPU: &str = "offcpu-time";

/// Recordings with stacks: one event, several events, and blocked tasks.
const STACKS: [&str; 3] = ["masked", "events", "off_cpu_stacks"];

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings").join(format!("{name}.pmbpf"))
}

fn pmbpf(arguments: &[&str], name: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmbpf"));
    command.arg(arguments[0]).arg(recording(name)).args(&arguments[1..]).env("LC_ALL", "C.UTF-8");
    command.output().unwrap()
}

fn export(name: &str, arguments: &[&str]) -> Vec<u8> {
    let output = pmbpf(&[&["export", "--to"], arguments].concat(), name);
    assert!(output.status.success(), "{name}: {}", String::from_utf8(output.stderr).unwrap());
    output.stdout
}

fn rows(name: &str, kind: &str) -> Vec<Value> {
    let output = pmbpf(&["report", "--json"], name);
    let rows = schema::rows(std::str::from_utf8(&output.stdout).unwrap());
    rows.into_iter().filter(|row| row["kind"] == kind).collect()
}

/// Returns the sampling events in order.
fn events(name: &str) -> Vec<String> {
    let header = &rows(name, "header")[0];
    let one = || vec![header["sampling"].clone()];
    let list = header["sampling_events"].as_array().cloned().unwrap_or_else(one);
    let mut names: Vec<String> =
        list.iter().filter_map(|event| Some(event["event"].as_str()?.to_owned())).collect();
    names.extend((!rows(name, "off_cpu_stack").is_empty()).then(|| OFF_CPU.to_owned()));
    names
}

/// Returns the samples with a stack by event and owner name, as the report has them, and the ns of blocked
/// tasks.
fn reported(name: &str) -> BTreeMap<(usize, String), u64> {
    let mut sums = BTreeMap::new();
    for row in rows(name, "stack") {
        let owner = row["owner"]["name"].as_str().unwrap().to_owned();
        let all = row["samples_by_event"].as_array().cloned().unwrap_or_else(|| vec![row["samples"].clone()]);
        for (event, samples) in all.iter().enumerate() {
            *sums.entry((event, owner.clone())).or_default() += samples.as_u64().unwrap();
        }
    }
    let off_cpu = events(name).iter().position(|event| event == OFF_CPU);
    for row in rows(name, "off_cpu_stack") {
        let owner = row["owner"]["name"].as_str().unwrap().to_owned();
        *sums.entry((off_cpu.unwrap(), owner)).or_default() += row["time_ns"]["value"].as_u64().unwrap();
    }
    sums.retain(|_, sum| *sum > 0);
    sums
}

/// Returns an owner's name without its process id.
fn name_of(owner: &str) -> String {
    owner.split(" (").next().unwrap().to_owned()
}

#[test]
fn folded_stacks_have_the_samples_of_the_report() {
    for name in STACKS {
        let mut sums = BTreeMap::new();
        for (event, called) in events(name).iter().enumerate() {
            let text = String::from_utf8(export(name, &["folded", "--event", called])).unwrap();
            for line in text.lines() {
                let (stack, samples) = line.rsplit_once(' ').unwrap();
                let (owner, frames) = stack.split_once(';').unwrap();
                assert!(!frames.is_empty());
                *sums.entry((event, name_of(owner))).or_default() += samples.parse::<u64>().unwrap();
            }
        }
        assert_eq!(sums, reported(name), "{name}");
    }
}

#[test]
fn a_folded_stack_begins_with_its_outermost_frame_and_marks_the_kernel() {
    let row = rows("masked", "stack").into_iter().find(|row| row["owner"]["name"] != "other").unwrap();
    let text = String::from_utf8(export("masked", &["folded"])).unwrap();
    let line = text.lines().next().unwrap();
    let frames: Vec<&str> = line.rsplit_once(' ').unwrap().0.split(';').skip(1).collect();
    let functions: Vec<&Value> = row["frames"].as_array().unwrap().iter().rev().collect();
    assert_eq!(frames.len(), functions.len());
    for (frame, function) in frames.iter().zip(functions) {
        let is_kernel = function["function"].is_string() && function["module"].is_null();
        if let Some(function) = function["function"].as_str() {
            assert_eq!(frame.trim_end_matches("_[k]").trim_end_matches("_[i]"), function);
            assert_eq!(frame.ends_with("_[k]"), is_kernel, "{frame}");
        }
    }
    assert!(text.contains("_[k]") && text.lines().any(|line| !line.contains("_[k]")), "both modes are there");
}

#[test]
fn pprof_has_the_samples_of_the_report_and_every_name_it_refers_to() {
    for name in STACKS {
        let mut bytes = Vec::new();
        MultiGzDecoder::new(&export(name, &["pprof"])[..]).read_to_end(&mut bytes).unwrap();
        let profile = Message::read(&bytes);
        let texts: Vec<String> = profile.texts(6);
        let text = |place: u64| texts[usize::try_from(place).unwrap()].clone();
        assert_eq!(texts[0], "");
        let types: Vec<String> = profile.messages(1).iter().map(|of| text(of.number(1))).collect();
        assert_eq!(types, events(name));
        for (of, called) in profile.messages(1).iter().zip(&types) {
            assert_eq!(text(of.number(2)), if called == OFF_CPU { "nanoseconds" } else { "samples" });
        }
        let ids =
            |field: u32| -> Vec<u64> { profile.messages(field).iter().map(|row| row.number(1)).collect() };
        let (mappings, locations, functions) = (ids(3), ids(4), ids(5));
        assert!(!mappings.is_empty() && !functions.is_empty());
        for location in profile.messages(4) {
            let mapping = location.number(2);
            assert!(mapping == 0 || mappings.contains(&mapping), "{mapping}");
            assert!(location.messages(4).iter().all(|line| functions.contains(&line.number(1))));
        }
        let mut sums = BTreeMap::new();
        for sample in profile.messages(2) {
            assert!(sample.numbers(1).iter().all(|id| locations.contains(id)));
            let labels = sample.messages(3);
            let owner = labels.iter().find(|label| text(label.number(1)) == "owner").unwrap();
            let owner = name_of(&text(owner.number(2)));
            let values = sample.numbers(2);
            assert_eq!(values.len(), types.len());
            for (event, value) in values.iter().enumerate().filter(|(_, value)| **value > 0) {
                *sums.entry((event, owner.clone())).or_default() += value;
            }
        }
        assert_eq!(sums, reported(name), "{name}");
        let summary = &rows(name, "summary")[0];
        assert_eq!(profile.number(10), summary["duration_ns"].as_u64().unwrap());
        assert!(profile.number(9) > 1_700_000_000_000_000_000 && profile.number(12) > 0);
        let comments: Vec<String> = profile.numbers(13).into_iter().map(text).collect();
        assert!(comments.iter().any(|comment| comment.starts_with("kernel ")), "{comments:?}");
    }
}

#[test]
fn speedscope_has_the_samples_of_the_report() {
    for name in STACKS {
        let file: Value = serde_json::from_slice(&export(name, &["speedscope"])).unwrap();
        let frames = file["shared"]["frames"].as_array().unwrap();
        let profiles = file["profiles"].as_array().unwrap();
        let names: Vec<&str> = profiles.iter().map(|of| of["name"].as_str().unwrap()).collect();
        assert_eq!(names, events(name));
        let mut sums = BTreeMap::new();
        for (event, profile) in profiles.iter().enumerate() {
            let (samples, weights) =
                (profile["samples"].as_array().unwrap(), profile["weights"].as_array().unwrap());
            assert_eq!(samples.len(), weights.len());
            for (stack, weight) in samples.iter().zip(weights) {
                let frame =
                    |index: &Value| frames[index.as_u64().unwrap() as usize]["name"].as_str().unwrap();
                let stack: Vec<&str> = stack.as_array().unwrap().iter().map(frame).collect();
                *sums.entry((event, name_of(stack[0]))).or_default() += weight.as_u64().unwrap();
            }
            let all: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
            assert_eq!(
                (profile["type"].as_str(), profile["endValue"].as_u64()),
                (Some("sampled"), Some(all))
            );
        }
        assert_eq!(sums, reported(name), "{name}");
    }
}

#[test]
fn what_cannot_be_exported_is_named_with_what_helps_and_leaves_no_file() {
    let file = std::env::temp_dir().join(format!("pmbpf-export-{}", std::process::id()));
    let path = file.to_str().unwrap();
    for (name, arguments, says) in [
        (
            "cgroups",
            vec!["--to", "folded"],
            "has no stacks, which folded is made of: record with `pmbpf run --stacks",
        ),
        (
            "io",
            vec!["--to", "pprof"],
            "has no stacks, which pprof is made of: record with `pmbpf run --stacks",
        ),
        ("counts", vec!["--to", "speedscope"], "has no stacks, which speedscope is made of"),
        (
            "masked",
            vec!["--to", "flame"],
            "possible values: folded, pprof, otlp, speedscope, firefox, perfetto",
        ),
        ("masked", vec!["--to", "folded", "--event", "x"], "no samples of x: it has those of cpu-clock"),
        ("masked", vec!["--to", "pprof", "--event", "cpu-clock"], "leave out --event"),
        ("masked", vec!["--to", "folded", "-I", "1s"], "leave out --interval"),
    ] {
        let output = pmbpf(&[&["export", "-o", path], &arguments[..]].concat(), name);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says) && !file.exists(), "{said}");
    }
}

#[test]
fn a_file_is_replaced_only_if_that_is_wanted() {
    let file = std::env::temp_dir().join(format!("pmbpf-export-there-{}", std::process::id()));
    fs::write(&file, "mine").unwrap();
    let path = file.to_str().unwrap();
    let refused = pmbpf(&["export", "--to", "folded", "-o", path], "masked");
    let kept = fs::read(&file).unwrap();
    let replaced = pmbpf(&["export", "--to", "folded", "-o", path, "--force"], "masked");
    let written = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!((refused.status.code(), &kept[..]), (Some(2), &b"mine"[..]));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("--force replaces it"));
    assert!(replaced.status.success() && replaced.stdout.is_empty());
    assert_eq!(written, export("masked", &["folded"]));
}

#[test]
fn a_recording_that_breaks_off_is_exported_as_far_as_it_goes() {
    let whole = fs::read(recording("masked")).unwrap();
    let file = std::env::temp_dir().join(format!("pmbpf-export-part-{}", std::process::id()));
    fs::write(&file, &whole[..whole.len() * 3 / 4]).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_pmbpf"))
        .arg("export")
        .arg(&file)
        .args(["--to", "folded"])
        .output()
        .unwrap();
    fs::remove_file(&file).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(3) && said.contains("breaks off"), "{said}");
    assert!(!output.stdout.is_empty());
}

#[test]
fn pseudonyms_stand_for_names_in_every_format() {
    for format in ["folded", "speedscope", "firefox", "perfetto", "pprof", "otlp"] {
        let mut bytes = export("masked", &[format, "--redact"]);
        if format == "pprof" {
            let zipped = std::mem::take(&mut bytes);
            MultiGzDecoder::new(&zipped[..]).read_to_end(&mut bytes).unwrap();
        }
        let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(holds("name-"), "{format}");
        assert!(holds("do_syscall_64") || format == "perfetto", "{format}: names of the kernel stay");
        let stacks = rows("masked", "stack");
        for owner in stacks.iter().map(|row| row["owner"]["name"].as_str().unwrap()) {
            assert!(!holds(&format!("{owner} (")), "{format}: {owner}");
        }
    }
}
