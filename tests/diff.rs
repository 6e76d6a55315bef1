//! `pmbpf diff` on checked-in recordings: its output in every format, and its errors. Needs no privilege.

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

mod schema;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use schema::rows;
use unicode_width::UnicodeWidthStr as _;

fn recording(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings").join(name);
    path.display().to_string()
}

/// Runs `pmbpf diff`. Words that end in `.pmbpf` are checked-in recordings, several of them separated by
/// commas.
fn diff(arguments: &[&str]) -> Output {
    let files = |word: &str| word.split(',').map(recording).collect::<Vec<_>>().join(",");
    let fitted = arguments.iter().map(|word| {
        if word.ends_with(".pmbpf") && !word.contains('/') { files(word) } else { (*word).to_owned() }
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmbpf"));
    command.arg("diff").args(fitted).env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8").output().unwrap()
}

#[track_caller]
fn text(output: &Output, code: i32) -> String {
    let [out, error] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8(bytes.clone()).unwrap());
    assert_eq!(output.status.code(), Some(code), "{error}");
    if code == 0 { out } else { error }
}

#[test]
fn a_recording_does_not_differ_from_itself() {
    for name in ["masked", "cgroups", "events", "topdown", "io", "boxes", "resctrl", "counts", "culprits"] {
        let file = format!("{name}.pmbpf");
        let rows = rows(&text(&diff(&[&file, &file, "--json"]), 0));
        let (first, last) = (&rows[0], rows.last().unwrap());
        assert_eq!(
            (first["kind"].as_str(), last["kind"].as_str()),
            (Some("diff_header"), Some("diff_summary"))
        );
        assert_eq!(first["conditions"].as_array().map(Vec::len), Some(0), "{name}");
        let differences: Vec<_> = rows.iter().filter(|row| row["kind"] == "difference").collect();
        assert!(!differences.is_empty(), "{name}");
        for row in differences {
            assert_eq!(row["a"], row["b"], "{name}: {row}");
            if row["status"] == "tested" {
                assert_eq!(
                    (row["p"].as_f64(), row["significant"].as_bool()),
                    (Some(1.0), Some(false)),
                    "{row}"
                );
            }
        }
        assert!(rows.iter().all(|row| row["kind"] != "only"), "{name}");
        assert_eq!(last["significant"], 0);
    }
}

#[test]
fn counts_become_rates_by_the_recording_s_own_length() {
    let rows = rows(&text(&diff(&["cgroups.pmbpf", "cgroups.pmbpf", "--json"]), 0));
    let seconds = rows[0]["sides"][0]["recordings"][0]["duration_ns"].as_f64().unwrap() / 1e9;
    let report = fs::read_to_string(recording("cgroups.json")).unwrap();
    // The report has a row for each interval.
    let of_target = schema::rows(&report);
    let of_target =
        of_target.iter().filter(|row| row["metric"] == "cpu_time" && row["owner"]["kind"] == "target");
    let cpu_time: f64 = of_target.map(|row| row["value"].as_f64().unwrap()).sum();
    let is_it = |row: &&serde_json::Value| {
        row["kind"] == "difference" && row["metric"] == "cpu_time" && row["owner"]["kind"] == "target"
    };
    let row = rows.iter().find(is_it).unwrap();
    assert_eq!((row["unit"].as_str(), row["basis"].as_str()), (Some("ns/s"), Some("per_second")));
    let rate = row["a"]["value"].as_f64().unwrap();
    assert!(
        cpu_time > 0.0 && (rate * seconds / cpu_time - 1.0).abs() < 1e-6,
        "{rate} · {seconds} ≠ {cpu_time}"
    );
}

#[test]
fn what_is_not_alike_comes_first_and_limits_what_is_compared() {
    let rows = rows(&text(&diff(&["cgroups.pmbpf", "masked.pmbpf", "--json"]), 0));
    let conditions: Vec<_> =
        rows[0]["conditions"].as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap()).collect();
    for what in ["target", "owners", "sampling"] {
        assert!(conditions.contains(&what), "{conditions:?}");
    }
    let differences = || rows.iter().filter(|row| row["kind"] == "difference");
    assert!(differences().all(|row| row["owner"]["kind"] == "target"));
    let samples = differences().find(|row| row["metric"] == "samples").unwrap();
    assert_eq!(samples["reason"], "samples are not as frequent in both");
    let only: Vec<_> = rows.iter().filter(|row| row["kind"] == "only").collect();
    assert!(
        only.iter().any(|row| row["side"] == "a") && only.iter().any(|row| row["side"] == "b"),
        "{only:?}"
    );
}

#[test]
fn waits_are_compared_by_who_had_the_cpu() {
    let rows = rows(&text(&diff(&["culprits.pmbpf", "culprits.pmbpf", "--json"]), 0));
    let of_batch = rows.iter().filter(|row| row["culprit"]["path"] == "/shop.slice/batch");
    let victims: Vec<&str> = of_batch.map(|row| row["owner"]["name"].as_str().unwrap()).collect();
    assert_eq!(victims, ["api", "total"]);
    // Time of another owner is not a number of the gate, nor are numbers that only one side has.
    let csv = text(&diff(&["culprits.pmbpf", "culprits.pmbpf", "--csv"]), 0);
    assert!(csv.contains(",culprit,/shop.slice/batch,cgroup,runqueue_latency.culprit,"), "{csv}");
}

#[test]
fn text_fits_80_columns_and_ends_with_how_many_were_compared() {
    for pair in
        [["cgroups.pmbpf", "masked.pmbpf"], ["counts.pmbpf", "io.pmbpf"], ["events.pmbpf", "events.pmbpf"]]
    {
        let text = text(&diff(&[pair[0], pair[1], "--width", "80"]), 0);
        assert!(text.lines().all(|line| line.width() <= 80), "{text}");
        assert!(text.contains("numbers compared") && text.contains("Benjamini–Hochberg"), "{text}");
        // Recording names contain escapes.
        assert!(!text.contains('\x1b'), "{text}");
    }
}

#[test]
fn before_and_after_are_there_though_nothing_can_be_tested() {
    let text = text(&diff(&["masked.pmbpf", "events.pmbpf"]), 0);
    let line = text.lines().find(|line| line.trim_start().starts_with("cpu_time ")).unwrap();
    assert!(text.contains("before") && text.contains("after"), "{text}");
    assert!(line.contains("untested") && line.contains(" CPU") && line.contains('%'), "{line}");
    assert!(text.contains("0 numbers compared"), "{text}");
}

#[test]
fn csv_has_a_row_of_the_same_columns_for_each_difference() {
    let count = |format: &str| text(&diff(&["topdown.pmbpf", "topdown.pmbpf", format]), 0);
    let mut reader = csv::Reader::from_reader(std::io::Cursor::new(count("--csv")));
    let columns = reader.headers().unwrap().clone();
    assert!(columns.iter().any(|name| name == "p_adjusted"));
    let records: Vec<_> = reader.records().map(Result::unwrap).collect();
    let json = rows(&count("--json"));
    assert_eq!(records.len(), json.iter().filter(|row| row["kind"] == "difference").count());
}

#[test]
fn groups_have_at_least_two_recordings_on_both_sides() {
    let file = "masked.pmbpf";
    let error = text(&diff(&[file, "masked.pmbpf,masked.pmbpf"]), 2);
    assert!(error.contains("at least two of each"), "{error}");
    let error = text(&diff(&["masked.pmbpf,masked.pmbpf", "masked.pmbpf,masked.pmbpf", "--json"]), 0);
    let header = &rows(&error)[0];
    assert_eq!(
        (header["variation"].as_str(), header["sides"][1]["recordings"].as_array().map(Vec::len)),
        (Some("between_runs"), Some(2))
    );
}

#[test]
fn a_gate_that_cannot_be_told_fails_and_one_that_is_about_nothing_is_an_error() {
    let gate = |condition: &str, more: &[&str]| {
        diff(&[&["masked.pmbpf", "masked.pmbpf", "--fail-on", condition], more].concat())
    };
    // Three ticks.
    let error = text(&gate("regress:cpu_time>5%", &[]), 3);
    assert!(error.contains("cannot determine") && error.contains("variation unknown"), "{error}");
    let error = text(&gate("regress:cpu_tim>5%", &[]), 2);
    assert!(error.contains("did you mean cpu_time?"), "{error}");
    let error = text(&gate("regress:cpu_time>5%", &["--owner", "nobody"]), 2);
    assert!(error.contains("owner `nobody` is not in both"), "{error}");
    let error = text(&gate("cpu_time>5%", &[]), 2);
    assert!(error.contains("regress:METRIC>N%"), "{error}");
    // Six ticks without a difference.
    text(&diff(&["cgroups.pmbpf", "cgroups.pmbpf", "--fail-on", "regress:cpu_time>5%"]), 0);
}

#[test]
fn rates_are_compared_by_their_events() {
    let rows = rows(&text(&diff(&["counts.pmbpf", "counts.pmbpf", "--json"]), 0));
    let rates = rows.iter().filter(|row| row["kind"] == "difference" && row["metric"] == "rate");
    let of =
        rates.filter(|row| row["owner"]["name"] == "web.slice").map(|row| row["parent"].as_str().unwrap());
    let mut of: Vec<&str> = of.collect();
    of.sort_unstable();
    assert_eq!(of, ["event.cycles", "event.page-faults", "event.uncore_imc/read/"]);
    let csv = text(&diff(&["counts.pmbpf", "counts.pmbpf", "--csv"]), 0);
    assert!(csv.lines().any(|line| line.contains("event,page-faults,,rate,")), "{csv}");
}

#[test]
fn a_metric_that_is_not_there_is_answered_with_those_that_are() {
    let gate = |metric: &str| {
        let condition = format!("regress:{metric}>5%");
        text(&diff(&["counts.pmbpf", "counts.pmbpf", "--owner", "web.slice", "--fail-on", &condition]), 2)
    };
    assert!(gate("page_faults").contains("did you mean event.page-faults?"));
    assert!(
        gate("cpu_time").contains("; there are event.cycles@cpu_atom, event.cycles@cpu_core"),
        "no clock was counted"
    );
}

#[test]
fn what_is_no_recording_is_named() {
    let error = text(&diff(&["masked.pmbpf", "/etc/passwd"]), 1);
    assert!(error.contains("/etc/passwd is not a pmbpf recording"), "{error}");
    let error = text(&diff(&["masked.pmbpf", "a,,b"]), 2);
    assert!(error.contains("empty name"), "{error}");
}
