//! Recordings give the reports they gave, in every format. A change of output shows as a difference to
//! review.
//!
//! `SNAPSHOTS=overwrite cargo test --test replay` rewrites the reports. A bug becomes a recording before it
//! becomes a fix. Made with the workloads of tests/workloads:
//! - `masked`: `run -F 499 --stacks -- sh -c './masked epoll 10000 20 1; ./masked signals 20000 5 1; ./spin
//!   0.3'`
//! - `io`: `io --cgroup web.slice -I 1s -d 2s`, with fio and a program that sends through `lo` in cgroups
//!   below
//! - `cgroups`: `run --cgroup web.slice -I 200ms -d 1s`, with `spin` and `forks` in two cgroups below
//! - `culprits`: `run --cgroup shop.slice --no-sampling -d 6s`, with `taskset -c 1 spin 0.8` in each of two
//!   cgroups below and other tasks on that CPU
//! - `off_cpu`: `run --off-cpu --no-sampling --cgroup shop.slice -d 3s`, with `waits sleep 20 20`, `waits
//!   lock 20 15`, `waits read 200 2000` in one cgroup below and two shells that spin on one CPU in another
//! - `off_cpu_stacks`: `run --off-cpu --stacks -F 199 -- sh -c './waits sleep 20 20; ./waits lock 3000 0;
//!   ./spin 0.3'`
//!
//! Made in guests with simulated PMUs:
//! - `boxes`: `io --cpu-model sapphirerapids -I 3s -d 9s` on two dies with the rates of tests/guest/io.rs
//! - `topdown`: `run --no-sampling --gap-min 20ms --cpu-model sapphirerapids --cgroup jobs -I 3s -d 6s` with
//!   two cgroups below, which have the shares of tests/guest/topdown.rs
//! - `events`: `run --stacks -e
//!   cpu-clock/period=10000000/,page-faults/period=100/,context-switches/period=20/,
//!   sched:sched_switch/period=20/ --gap-min 20ms -- sh -c 'forks 5; spin 0.5; names 0.5'`
//!
//! Made from `io`, for want of processors that have it:
//! - `counts`: `stat -I 1s -e '{cycles,instructions},page-faults,uncore_imc/read/,branch-misses'` of two
//!   cgroups on two kinds of cores
//! - `resctrl`: its drains with groups of threads: a control group with a monitoring group in it, one in the
//!   default group that empties, an unavailable count, and a target without its own group

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

mod schema;
mod values;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hdrhistogram::{
    Histogram,
    serialization::{
        Deserializer,
        interval_log::{IntervalLogIterator, LogEntry},
    },
};
use pmbpf::{
    drain::{
        GapRow,
        recording::{Overwrite, ReadError, Recording, Writer},
    },
    metric::value::QUANTILES,
};
use pmu_common::gap::IDLE;
use serde_json::Value;
use snapbox::{Assert, Data};

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings")
}

fn report_command(recording: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmbpf"));
    command.arg("report").arg(recording).env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8");
    command
}

fn report(recording: &Path, format: &[&str]) -> String {
    let output = report_command(recording).args(format).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8(output.stderr).unwrap());
    let text = String::from_utf8(output.stdout).unwrap();
    if format.contains(&"--json") {
        schema::rows(&text);
    }
    text
}

#[test]
fn every_value_is_to_the_bit_what_it_was_before_reports_became_one() {
    let mut compared = 0;
    for (recording, before) in values::before(&recordings().join("pmbpf-1.values.gz")) {
        let rows = schema::rows(&report(&recordings().join(format!("{recording}.pmbpf")), &["--json"]));
        let now = values::now(&rows);
        for (key, [value, low, high, coverage]) in before {
            // Nothing was measured: the distribution has no parts.
            let [t, dt, owner, subject, metric, _] = key.clone();
            let whole = [t, dt, owner, subject, metric, String::new()];
            let found = now
                .get(&key)
                .or_else(|| now.get(&whole))
                .unwrap_or_else(|| panic!("{recording}: {key:?} is gone"));
            // CPU time of tasks that began and ended in the interval became exact. It lies within the former
            // bounds.
            let is_cpu_time = matches!(&*key[4], "cpu_time" | "interrupts.without");
            let is_narrower = found[0] == value && found[1] >= low && found[2] <= high;
            assert!(
                found[..3] == [value, low, high] || is_cpu_time && is_narrower,
                "{recording}: {key:?}: {found:?}, was {value:?} [{low:?}, {high:?}]"
            );
            // A distribution had no coverage.
            if key[5].is_empty() {
                assert_eq!(found[3], coverage, "{recording}: {key:?}");
            }
            compared += 1;
        }
    }
    assert!(compared > 3000, "only {compared} values were compared");
}

#[test]
fn every_view_of_every_recording_is_as_it_was() {
    let mut seen = 0;
    for entry in std::fs::read_dir(recordings()).unwrap() {
        let recording = entry.unwrap().path();
        if recording.extension().is_none_or(|extension| extension != "pmbpf") {
            continue;
        }
        for (format, suffix) in [(&["--top", "20"][..], "txt"), (&["--json"], "json"), (&["--csv"], "csv")] {
            let expected = Data::read_from(&recording.with_extension(suffix), None).raw();
            Assert::new().action_env("SNAPSHOTS").eq(report(&recording, format), expected);
        }
        seen += 1;
    }
    assert!(seen >= 7, "there are recordings");
}

/// Temporary file, removed on drop.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_recording_that_is_written_again_as_recordings_are_now_says_the_same() {
    for name in ["masked", "io", "topdown", "boxes", "counts"] {
        let before = recordings().join(format!("{name}.pmbpf"));
        let read = Recording::read(&before).unwrap();
        let again =
            Scratch(std::env::temp_dir().join(format!("pmbpf-again-{}-{name}.pmbpf", std::process::id())));
        let mut writer = Writer::create(&again.0, Overwrite::Yes, &read.header).unwrap();
        read.drains.iter().for_each(|drain| writer.drain(drain).unwrap());
        read.ending.iter().for_each(|ending| writer.end(ending).unwrap());
        read.names.iter().for_each(|names| writer.names(names).unwrap());
        drop(writer);
        let header = serde_json::to_value(Recording::read(&again.0).unwrap().header).unwrap();
        let parts = ["tasks", "io", "counts"].map(|part| &header[part]["machine"]);
        assert!(header["machine"].is_object() && parts.iter().all(|part| part.is_null()), "{name}");
        assert_eq!(report(&again.0, &["--json"]), report(&before, &["--json"]), "{name}");
    }
}

#[test]
fn a_recording_cut_anywhere_is_read_or_refused_never_a_panic() {
    let whole = std::fs::read(recordings().join("cgroups.pmbpf")).unwrap();
    let complete = Recording::parse(Bytes::from(whole.clone()), "whole").unwrap();
    assert!(complete.ending.is_some() && complete.lost_bytes == 0);
    for length in 0..whole.len() {
        match Recording::parse(Bytes::copy_from_slice(&whole[..length]), "cut") {
            Ok(cut) => {
                assert!(cut.ending.is_none(), "{length} bytes have no ending");
                assert!(cut.drains.len() <= complete.drains.len());
            }
            Err(ReadError::Foreign(_) | ReadError::NoHeader(_)) => {}
            Err(error) => panic!("{length} bytes: {error}"),
        }
    }
}

#[test]
fn a_recording_of_io_cut_anywhere_is_read_or_refused_never_a_panic() {
    let whole = std::fs::read(recordings().join("io.pmbpf")).unwrap();
    let complete = Recording::parse(Bytes::from(whole.clone()), "whole").unwrap();
    assert!(complete.ending.is_some() && complete.lost_bytes == 0);
    for length in (0..whole.len()).step_by(3) {
        match Recording::parse(Bytes::copy_from_slice(&whole[..length]), "cut") {
            Ok(cut) => {
                assert!(cut.ending.is_none(), "{length} bytes have no ending");
                assert!(cut.io().eq(complete.io().take(cut.drains.len())), "{length} bytes");
            }
            Err(ReadError::Foreign(_) | ReadError::NoHeader(_)) => {}
            Err(error) => panic!("{length} bytes: {error}"),
        }
    }
}

#[test]
fn a_report_of_io_that_breaks_off_says_so_and_exits_with_3() {
    let whole = std::fs::read(recordings().join("io.pmbpf")).unwrap();
    let cut = std::env::temp_dir().join(format!("pmbpf-cut-{}.pmbpf", std::process::id()));
    std::fs::write(&cut, &whole[..whole.len() - 200]).unwrap();
    let output = |format: &str| report_command(&cut).arg(format).output().unwrap();
    let [text, json] = [output("--color=never"), output("--json")];
    std::fs::remove_file(&cut).unwrap();
    assert_eq!((text.status.code(), json.status.code()), (Some(3), Some(3)));
    assert!(String::from_utf8(text.stderr).unwrap().contains("the recording breaks off: 2 drains"));
    assert!(String::from_utf8(text.stdout).unwrap().contains("incomplete: the recording breaks off"));
    let summary = String::from_utf8(json.stdout).unwrap().lines().next_back().unwrap().to_owned();
    assert!(summary.contains(r#""complete":false"#), "{summary}");
}

#[test]
fn options_that_mean_nothing_for_io_are_usage_errors_that_say_so() {
    for (options, says) in [
        (["--symfs", "/tmp"], "is a recording of I/O alone: leave out --symfs"),
        (["--perfmon-dir", "/tmp"], "is a recording of I/O alone: leave out --perfmon-dir"),
        (["--fail-on", "blind>1%"], "without tasks --fail-on takes two conditions: lost and unsupported"),
    ] {
        let output = report_command(&recordings().join("io.pmbpf")).args(options).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says) && output.stdout.is_empty(), "{error}");
    }
    report(&recordings().join("io.pmbpf"), &["--fail-on", "lost"]);
}

/// Returns the latency log and the JSON of one report.
fn logged(recording: &Path) -> (Vec<u8>, Vec<Value>) {
    let log = std::env::temp_dir().join(format!("pmbpf-log-{}.hlog", std::process::id()));
    let json = report(recording, &["--json", "--hdr-log", log.to_str().unwrap()]);
    let again = report_command(recording).arg("--hdr-log").arg(&log).output().unwrap();
    assert!(!again.status.success(), "a log is a new file");
    let bytes = std::fs::read(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    (bytes, schema::rows(&json))
}

#[test]
fn hdrhistogram_reads_from_a_log_what_json_says() {
    for name in ["cgroups", "events", "masked", "topdown", "io"] {
        let (log, json) = logged(&recordings().join(name).with_extension("pmbpf"));
        let entries = IntervalLogIterator::new(&log).map(Result::unwrap);
        let lines: Vec<_> = entries
            .filter_map(|entry| if let LogEntry::Interval(line) = entry { Some(line) } else { None })
            .collect();
        let rows: Vec<&Value> =
            json.iter().filter(|row| row["kind"] == "histogram" && row["status"] != "missing").collect();
        assert!(!rows.is_empty() && lines.len() == rows.len(), "{name}: {} {}", lines.len(), rows.len());
        for (line, row) in lines.iter().zip(rows) {
            let bytes = STANDARD.decode(line.encoded_histogram()).unwrap();
            let latencies: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
            assert_eq!(latencies.len(), row["count"].as_u64().unwrap());
            for (part, share) in QUANTILES {
                let (read, known) = (latencies.value_at_quantile(share), &row["quantiles"][part]["value"]);
                assert!(latencies.equivalent(read, known.as_u64().unwrap()), "{part}: {read} {row}");
            }
            let ns = [line.start_timestamp(), line.duration()].map(|time| time.as_nanos() as u64);
            let near = |ns: u64, field: &str| ns.abs_diff(row[field].as_u64().unwrap()) <= 500_001;
            assert!(near(ns[0], "t") && near(ns[1], "dt"), "{ns:?} {row}");
            let begins = |row: &Value| Some(format!(":{}", row["kind"].as_str()?));
            let [subject, owner] = ["subject", "owner"].map(|of| begins(&row[of]));
            let tag = line.tag().unwrap();
            assert!(
                tag.starts_with(&format!(
                    "{}{}",
                    row["metric"].as_str().unwrap(),
                    subject.or(owner).unwrap()
                )),
                "{row}"
            );
        }
    }
}

#[test]
fn gaps_beyond_the_most_that_are_kept_are_told() {
    let Recording { header, mut drains, ending, .. } =
        Recording::read(&recordings().join("masked.pmbpf")).unwrap();
    let mut tasks: Vec<_> = drains.iter_mut().filter_map(|drain| drain.tasks.as_mut()).collect();
    let with_gaps = tasks.iter_mut().find(|drain| !drain.gaps.is_empty()).unwrap();
    let model = with_gaps.gaps[0].clone();
    let more =
        (1..=5000).map(|index| GapRow { at_ns: index << 20, late_ns: 400_000 + index, ..model.clone() });
    with_gaps.gaps.extend(more);
    let timers = tasks.iter().flat_map(|drain| &drain.gaps).filter(|row| row.class as usize != IDLE).count();
    let path = std::env::temp_dir().join(format!("pmbpf-gaps-{}.pmbpf", std::process::id()));
    let mut writer = Writer::create(&path, Overwrite::No, &header).unwrap();
    drains.iter().for_each(|drain| writer.drain(drain).unwrap());
    writer.end(&ending.unwrap()).unwrap();
    let [text, json] = [&["--top", "20"][..], &["--json"]].map(|format| report(&path, format));
    std::fs::remove_file(&path).unwrap();
    let rows = schema::rows(&json);
    let of_kind = |kind: &'static str| rows.iter().filter(move |row| row["kind"] == kind);
    let left_out = of_kind("summary").next().unwrap()["blind"]["gaps_left_out"].as_u64().unwrap();
    let listed: u64 = of_kind("gap").map(|gap| gap["timers"].as_u64().unwrap()).sum();
    assert!(left_out > 0 && listed > 0);
    assert_eq!(listed + left_out, timers as u64);
    assert!(text.contains(&format!("{left_out} late timers that are in no gap here")), "{text}");
    let not_shown = of_kind("gap").count() - 10;
    assert!(text.contains(&format!("{not_shown} more gaps are not shown")), "{not_shown}: {text}");
}

#[test]
fn a_flipped_bit_is_noticed() {
    let whole = std::fs::read(recordings().join("cgroups.pmbpf")).unwrap();
    let complete = Recording::parse(Bytes::from(whole.clone()), "whole").unwrap();
    for at in (8..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        // A damaged frame ends the recording. Earlier frames are kept.
        if let Ok(damaged) = Recording::parse(Bytes::from(damaged), "damaged") {
            let lost = damaged.lost_bytes > 0 || damaged.drains.len() < complete.drains.len();
            assert!(lost || damaged.ending.is_none(), "byte {at}");
        }
    }
}
