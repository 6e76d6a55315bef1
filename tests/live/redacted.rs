//! Recordings and reports with `--redact`: they contain nothing of a program with secrets in every name.

use std::{fs, io::Read as _, process::Output};

use flate2::read::DeflateDecoder;

use crate::{
    support::{Cgroup, Rows, Scratch, pmbpf, text},
    workloads::workload,
};

/// Secret in the program's `comm`, its path, its functions and its source, its arguments, and its cgroup.
const SECRET: &str = "qzsecret";

/// Returns the content of a recording, as JSON.
fn unpacked(recording: &Scratch) -> String {
    let bytes = fs::read(&recording.0).unwrap();
    let (mut rest, mut json) = (&bytes[8..], String::new());
    while let Some((header, after)) = rest.split_at_checked(12) {
        let length = u32::from_le_bytes(header[..4].try_into().unwrap()) as usize;
        let (mut payload, after) = after.split_at(length);
        match header[5] {
            0 => payload.read_to_string(&mut json).unwrap(),
            _ => DeflateDecoder::new(payload).read_to_string(&mut json).unwrap(),
        };
        rest = after;
    }
    json
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout) + &text(&output.stderr)
}

/// Asserts that neither the secret nor the host's name is in the text, as a word.
#[track_caller]
fn is_clean(what: &str, written: &str) {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let line = written.lines().find(|line| {
        line.contains(SECRET) || line.contains(&format!("\"{}\"", host.trim())) || line.contains("0xffff")
    });
    assert_eq!(line, None, "{what}");
}

#[test]
fn a_redacted_run_records_and_reports_no_name_of_a_program() {
    let program = workload("secret", &["-g"]);
    let cgroup = Cgroup::new(SECRET);
    let _running = cgroup.spawn(&format!("{program} 60 {SECRET}-argument"));
    let ways: [&[&str]; 4] = [
        &["run", "--stacks", "-F", "499", "-d", "1s"],
        &["run", "--all-cgroups", "-d", "1s", "-I", "300ms"],
        &["run", "--stacks", "-F", "499", "--", &program, "0.5", "qzsecret-argument"],
        &["io", "--cgroup", &cgroup.path, "-d", "1s"],
    ];
    for way in ways {
        let recording = Scratch::new("redacted");
        let (verb, rest) = way.split_first().unwrap();
        let live = |options: &[&str]| pmbpf().arg(verb).args(options).args(rest).output().unwrap();
        let redacted = live(&["--redact", "-o", recording.as_str()]);
        is_clean("the text of the run", &said(&redacted));
        let json = unpacked(&recording);
        assert!(json.len() > 1000 && json.contains("name-"), "it holds something: {json}");
        is_clean("the recording", &json);
        for format in ["--color=never", "--json", "--csv"] {
            let report = pmbpf().args(["report", recording.as_str(), format]).output().unwrap();
            is_clean(format, &said(&report));
            is_clean(format, &said(&live(&["--redact", format])));
        }
    }
}

#[test]
fn a_recording_with_names_gives_a_report_without_them() {
    let program = workload("secret", &["-g"]);
    let recording = Scratch::new("names");
    let mut command = pmbpf();
    command.args([
        "run",
        "--stacks",
        "-F",
        "499",
        "-o",
        recording.as_str(),
        "--",
        &program,
        "0.5",
        "qzsecret-argument",
    ]);
    said(&command.output().unwrap());
    let json = unpacked(&recording);
    for named in ["qzsecret_hot", "qzsecret-argument", "/qzsecret\"", "\"name\":\"qzsecret\""] {
        assert!(json.contains(named), "{named}");
    }
    let report =
        |options: &[&str]| pmbpf().args(["report", recording.as_str()]).args(options).output().unwrap();
    for format in ["--color=never", "--json", "--csv"] {
        is_clean(format, &said(&report(&["--redact", format])));
    }
    // The function is one row as before, under another name.
    let [plain, redacted] = [&["--json"][..], &["--json", "--redact"]].map(|options| {
        let rows = Rows::parse(&report(options).stdout);
        rows.of_kind("hot").next().unwrap().clone()
    });
    assert_eq!(plain["frame"]["function"], "qzsecret_hot");
    assert_eq!(plain["samples"], redacted["samples"]);
    assert!(redacted["frame"]["function"].as_str().unwrap().starts_with("name-"), "{redacted}");
    let refused = report(&["--redact", "--symfs", "/tmp"]);
    assert_eq!(refused.status.code(), Some(2), "names are looked up by names: {}", text(&refused.stderr));
}
