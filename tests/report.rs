//! `pmbpf report` with files that are not recordings, recordings that request too much memory, and readers
//! that close early. Also parts of recordings: spans, owners, sections, single functions.

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

mod schema;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use pmbpf::{
    drain::{CountRow, Owner, OwnerRow, SlotId, TasksDrain},
    machine::cpu::Cpu,
    untrusted::Untrusted,
};
use pmu_common::count::Count;

/// Address space limit of a report, in KiB. It exceeds memory use, because code and reserved memory count
/// too.
const MEMORY_KIB: u32 = 260 << 10;

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings").join(name)
}

/// Temporary path, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("pmbpf-report-{}-{number}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Runs `pmbpf report FILE` with at most [`MEMORY_KIB`] of memory.
fn limited(file: &Path) -> Output {
    let script = format!("ulimit -v {MEMORY_KIB}; exec \"$0\" report \"$1\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_pmbpf")]).arg(file);
    command.env("LC_ALL", "C.UTF-8").output().unwrap()
}

/// Returns a frame in the format of a recording.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    let mut frame = [&length[..], &[kind, 0, 0, 0]].concat();
    let sum = crc32c::crc32c_append(crc32c::crc32c(&frame), payload);
    frame.extend(sum.to_le_bytes());
    frame.extend(payload);
    frame
}

/// Writes a recording: the beginning and the header of a real one, then a drain.
fn with_drain(drain: &[u8]) -> Scratch {
    with_drains(&[drain])
}

fn with_drains(drains: &[&[u8]]) -> Scratch {
    let whole = fs::read(recording("cgroups.pmbpf")).unwrap();
    let header_bytes = 8 + 12 + u32::from_le_bytes(whole[8..12].try_into().unwrap()) as usize;
    let drains: Vec<_> = drains.iter().map(|drain| frame(b'D', drain)).collect();
    let scratch = Scratch::new();
    fs::write(&scratch.0, [&whole[..header_bytes], &drains.concat()].concat()).unwrap();
    scratch
}

#[test]
fn a_reader_that_goes_away_is_success_without_a_word_in_every_format() {
    for name in ["masked.pmbpf", "io.pmbpf"] {
        for format in ["--color=never", "--color=always", "--json", "--csv"] {
            let (reader, writer) = io::pipe().unwrap();
            drop(reader);
            let mut command = Command::new(env!("CARGO_BIN_EXE_pmbpf"));
            command.arg("report").arg(recording(name)).arg(format).stdout(writer).stderr(Stdio::piped());
            let output = command.spawn().unwrap().wait_with_output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{name} {format}");
        }
    }
}

#[test]
fn what_is_no_regular_file_is_named_and_never_waited_for() {
    let pipe = Scratch::new();
    assert!(Command::new("mkfifo").arg(&pipe.0).status().unwrap().success());
    for (path, what) in [
        (pipe.0.as_path(), "it is a pipe, not a regular file"),
        (Path::new("/dev/zero"), "it is a device, not a regular file"),
        (Path::new("/"), "it is a folder, not a regular file"),
    ] {
        let output = limited(path);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said, format!("pmbpf: cannot read {}: {what}\n", path.display()));
    }
}

#[test]
fn standard_input_is_read_by_its_name() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmbpf"));
    command
        .args(["report", "-", "--top", "20"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .env("LC_ALL", "C.UTF-8");
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(&fs::read(recording("masked.pmbpf")).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, fs::read(recording("masked.txt")).unwrap());
}

#[test]
fn a_file_of_somebody_else_is_told_by_its_first_bytes() {
    let (large, newer) = (Scratch::new(), Scratch::new());
    File::create(&large.0).unwrap().set_len(1 << 32).unwrap();
    fs::write(&newer.0, b"pmbpf\x7f\r\nanything").unwrap();
    for (file, says) in [
        (&large, "is not a pmbpf recording"),
        (&newer, "is a recording in format 127, which this version of pmbpf does not know"),
    ] {
        let output = limited(&file.0);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(says) && output.status.code() == Some(1), "{said}");
    }
}

#[test]
fn a_recording_that_wants_much_memory_is_refused_without_taking_it() {
    const BYTES: usize = 57 << 20;
    let list = |row: &str| vec![row; BYTES / (row.len() + 1)].join(",");
    for (drain, says) in [
        (
            format!(r#"{{"cpus":[{{"cpu":0,"count":[],"samples":[{}]}}]}}"#, list("[]")),
            "more rows than events",
        ),
        (format!(r#"{{"losses":[{}]}}"#, list(r#"["",0]"#)), "more than fits in memory"),
        (format!(r#"{{"stacks":[{{"kernel":[{}]}}]}}"#, list("0")), "more than fits in memory"),
        (format!(r#"{{"unknown":[{}]}}"#, list("[]")), "missing field"),
    ] {
        let output = limited(&with_drain(drain.as_bytes()).0);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn a_frame_that_claims_more_than_there_is_takes_no_memory() {
    let scratch = with_drain(b"{}");
    let mut bytes = fs::read(&scratch.0).unwrap();
    let at = bytes.len() - 14;
    bytes[at..at + 4].copy_from_slice(&(255_u32 << 20).to_le_bytes());
    fs::write(&scratch.0, bytes).unwrap();
    let output = limited(&scratch.0);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        String::from_utf8(output.stderr).unwrap().contains("0 drains were complete, 14 bytes after them")
    );
}

#[test]
fn a_path_of_a_megabyte_is_reported_and_so_is_what_is_below_it() {
    let path = "/a".repeat(1 << 19);
    let owners = [(1, path.clone()), (2, path + "/b")].map(|(slot, path)| OwnerRow {
        slot: SlotId { slot, generation: 0 },
        owner: Owner::cgroup(slot.into(), Untrusted::from(path)),
        ended_ns: Some(5),
    });
    let counts = [1, 2].map(|slot| {
        let count = Count { cpu_time_ns: 1_000_000_000, minor_faults: 1 << 30, ..Count::ZERO };
        let slot = SlotId { slot, generation: 0 };
        CountRow { slot, cpu: Cpu(0), count, samples: Vec::new(), latencies: Vec::new() }
    });
    let first = TasksDrain { owners: owners.to_vec(), counts: counts.to_vec(), ..TasksDrain::default() };
    let last = TasksDrain { at_ns: 10_000_000_000, ..TasksDrain::default() };
    let drains = [first, last].map(|drain| serde_json::to_vec(&drain).unwrap());
    let output = limited(&with_drains(&[&drains[0], &drains[1]]).0);
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1, "it breaks off");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("page faults") && text.contains("/a/a"), "{text}");
}

/// Runs `pmbpf report` on a recording with these arguments: exit code, results, messages.
fn said(name: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmbpf"));
    command.arg("report").arg(recording(name)).args(arguments).env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8");
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Returns the JSON rows of a report.
fn rows_of(name: &str, arguments: &[&str]) -> Vec<serde_json::Value> {
    let (code, rows, messages) = said(name, &[arguments, &["--json"]].concat());
    assert_eq!(code, Some(0), "{name} {arguments:?}: {messages}");
    schema::rows(&rows)
}

/// Returns the sums of additive values: CPU times and counts of lasting owners, counts of distributions,
/// samples of functions.
fn sums(rows: &[serde_json::Value]) -> BTreeMap<String, f64> {
    const ADD_UP: [&str; 5] =
        ["cpu_time", "voluntary_switches", "involuntary_switches", "minor_faults", "migrations"];
    let mut sums = BTreeMap::new();
    for row in rows {
        let value = match row["kind"].as_str().unwrap() {
            "metric" if ADD_UP.iter().any(|name| row["metric"] == *name) => &row["value"],
            "histogram" => &row["count"],
            // Rows of an interval are part of the whole's.
            "hot" if row.get("t").is_none() => &row["samples"],
            _ => continue,
        };
        let what = [&row["kind"], &row["metric"], &row["owner"]["name"], &row["subject"], &row["frame"]];
        let key = what.map(ToString::to_string).join(" ");
        *sums.entry(key).or_insert(0.0) += value.as_f64().unwrap_or(0.0);
    }
    sums.retain(|_, sum| *sum != 0.0);
    sums
}

#[test]
fn two_spans_of_a_recording_add_up_to_the_whole_wherever_it_is_cut() {
    for name in ["cgroups.pmbpf", "masked.pmbpf", "io.pmbpf", "events.pmbpf", "topdown.pmbpf"] {
        let whole = rows_of(name, &[]);
        let summary = whole.last().unwrap();
        let length_s = summary["duration_ns"].as_f64().unwrap() / 1e9;
        let (expected, mut in_two) = (sums(&whole), 0);
        assert!(expected.len() > 4, "{name}: {expected:?}");
        for share in [0.3, 0.5, 0.7] {
            let cut = format!("{:.6}", length_s * share);
            let first = said(name, &["--json", "--time", &format!("..{cut}")]);
            let second = said(name, &["--json", "--time", &format!("{cut}..")]);
            let mut both = Vec::new();
            let mut last_ns = None;
            for (code, rows, messages) in [&first, &second] {
                // A recording with a single drain lies entirely on one side.
                if *code == Some(1) && messages.contains("--time selects nothing") {
                    continue;
                }
                assert_eq!(*code, Some(0), "{name} at {cut}: {messages}");
                let rows = schema::rows(rows);
                let span = &rows.last().unwrap()["span"];
                if let Some(last_ns) = last_ns {
                    assert_eq!(span["from_ns"], last_ns, "{name} at {cut}: the spans touch");
                    in_two += 1;
                }
                last_ns = Some(span["to_ns"].clone());
                both.extend(rows);
            }
            assert_eq!(sums(&both), expected, "{name} at {cut}");
        }
        assert!(in_two > 0 || length_s < 2.0, "{name} was cut at least once");
    }
}

#[test]
fn a_filter_that_leaves_nothing_fails_with_the_nearest_names_and_writes_nothing() {
    let cases = [
        ("masked.pmbpf", &["--owner", "spim"][..], "no owner is spim; did you mean spin ("),
        ("masked.pmbpf", &["--owner", "postgres"], "no owner is postgres; there are "),
        ("masked.pmbpf", &["--time", "60s..70s"], "--time selects nothing"),
        (
            "masked.pmbpf",
            &["--min-share", "100%"],
            "no owner has 100 % of the target's CPU time: the largest has ",
        ),
        ("masked.pmbpf", &["--sort", "cpu_tim"], "no owner has a value of cpu_tim; did you mean cpu_time?"),
        (
            "masked.pmbpf",
            &["--annotate", "hot_lef"],
            "no sample hit a function called hot_lef; did you mean hot_leaf?",
        ),
        ("io.pmbpf", &["--owner", "/nobody"], "no owner is /nobody; there are "),
    ];
    for (name, arguments, says) in cases {
        for format in ["--color=never", "--json", "--csv"] {
            let (code, results, messages) = said(name, &[arguments, &[format]].concat());
            assert_eq!(code, Some(1), "{name} {arguments:?}: {messages}");
            assert!(messages.contains(says), "{name} {arguments:?}: {messages}");
            // Intervals are written before the whole is read.
            assert!(name == "io.pmbpf" || results.is_empty(), "{name} {arguments:?} {format}: {results}");
        }
    }
}

#[test]
fn owners_are_found_by_name_id_and_path_and_the_target_stays() {
    let owners = |name: &str, wanted: &str| {
        let rows = rows_of(name, &["--owner", wanted]);
        let owners = rows.iter().filter_map(|row| row["owner"]["name"].as_str().map(str::to_owned));
        let mut owners: Vec<String> = owners.collect();
        owners.sort();
        owners.dedup();
        owners
    };
    assert_eq!(owners("masked.pmbpf", "spin"), ["spin", "total"]);
    assert_eq!(owners("masked.pmbpf", "20377"), ["spin", "total"]);
    assert_eq!(owners("masked.pmbpf", "s*"), ["sh", "spin", "total"]);
    assert_eq!(owners("cgroups.pmbpf", "/web.slice/*"), ["api", "total", "worker"]);
    assert_eq!(owners("cgroups.pmbpf", "api"), ["api", "total"]);
}

#[test]
fn order_and_share_hold_for_rows_of_owners_and_code() {
    let rows = rows_of("masked.pmbpf", &["--sort", "minor_faults", "--min-share", "2"]);
    let faults: Vec<f64> = rows
        .iter()
        .filter(|row| {
            row["kind"] == "metric" && row["metric"] == "minor_faults" && row["owner"]["kind"] != "target"
        })
        .map(|row| row["value"].as_f64().unwrap())
        .collect();
    assert!(faults.len() > 1 && faults.is_sorted_by(|one, next| one >= next), "{faults:?}");
    let hot: Vec<f64> =
        rows.iter().filter(|row| row["kind"] == "hot").map(|row| row["share"].as_f64().unwrap()).collect();
    assert!(hot.len() > 2 && hot.iter().all(|share| *share >= 0.02), "{hot:?}");
}

#[test]
fn processes_of_a_program_are_one_row_that_adds_up_and_one_by_one_where_that_is_asked_for() {
    let rows = rows_of("masked.pmbpf", &[]);
    let sum = |kind: &str, metric: &str| -> f64 {
        let of_name = rows.iter().filter(|row| row["kind"] == kind && row["owner"]["name"] == "masked");
        of_name.filter(|row| row["metric"] == metric).map(|row| row["value"].as_f64().unwrap()).sum()
    };
    for metric in ["cpu_time", "context_switches", "minor_faults", "samples"] {
        assert!(sum("metric", metric) > 0.0, "{metric}");
        assert_eq!(sum("program_metric", metric), sum("metric", metric), "{metric}");
    }
    let samples = |kind: &str| -> u64 {
        let of_kind = rows.iter().filter(|row| row["kind"] == kind);
        of_kind.map(|row| row["samples"].as_u64().unwrap()).sum()
    };
    assert!(samples("function") == samples("hot") && samples("module") == samples("hot"));
    let shown = |arguments: &[&str]| {
        let (_, text, _) =
            said("masked.pmbpf", &[&["--sections", "owners", "--width", "0"], arguments].concat());
        let of_name = text.lines().filter_map(|line| line.trim().strip_prefix("masked"));
        of_name.map(|line| line.split("  ").next().unwrap().trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(shown(&[]), ["× 2 †"]);
    assert_eq!(shown(&["--per-process"]), ["†", "†"]);
    // A single owner's row shows that owner's end.
    assert_eq!(shown(&["--owner", "20376"]), ["†"]);
    assert_eq!(shown(&["--owner", "masked"]), ["× 2 †"]);
}

#[test]
fn cpu_time_of_what_began_and_ended_within_a_run_is_exact() {
    let rows = rows_of("masked.pmbpf", &[]);
    let times = rows.iter().filter(|row| row["kind"] == "metric" && row["metric"] == "cpu_time");
    let times: Vec<_> = times.filter(|row| row["owner"]["kind"] == "process").collect();
    assert!(times.len() > 2, "{times:?}");
    for row in times {
        assert!(row["low"] == row["value"] && row["high"] == row["value"], "{row}");
    }
    // For a part of the run, the share of earlier time that belongs to it is unknown.
    let cut = rows_of("cgroups.pmbpf", &["--time", "400ms..800ms"]);
    let is_time = |row: &&serde_json::Value| row["metric"] == "cpu_time" && row["owner"]["name"] == "api";
    let row = cut.iter().find(is_time).unwrap();
    assert!(row["low"].as_f64() < row["value"].as_f64(), "{row}");
}

#[test]
fn findings_do_not_depend_on_how_processes_are_shown() {
    let findings = |arguments: &[&str]| -> Vec<serde_json::Value> {
        rows_of("masked.pmbpf", arguments).into_iter().filter(|row| row["kind"] == "finding").collect()
    };
    assert!(!findings(&[]).is_empty());
    assert_eq!(findings(&[]), findings(&["--per-process"]));
}

#[test]
fn rows_are_by_what_was_counted_or_by_comm_and_anything_else_is_refused_with_the_reason() {
    let (code, rows, _) = said("masked.pmbpf", &["--by", "comm", "--json"]);
    assert_eq!(code, Some(0));
    let kinds: Vec<_> = schema::rows(&rows).iter().map(|row| row["owner"]["kind"].clone()).collect();
    assert!(kinds.iter().any(|kind| kind == "comm") && !kinds.iter().any(|kind| kind == "process"));
    let (code, _, messages) = said("masked.pmbpf", &["--by", "cgroup"]);
    assert_eq!(code, Some(2));
    assert!(
        messages.contains("does not say in which cgroup they were: record with `--by cgroup`"),
        "{messages}"
    );
    let (code, _, messages) = said("io.pmbpf", &["--by", "process"]);
    assert!(code == Some(2) && messages.contains("--by needs a recording of tasks"), "{messages}");
}

#[test]
fn sections_are_chosen_and_an_unknown_one_lists_them() {
    let titles = |arguments: &[&str]| -> Vec<String> {
        let (code, text, messages) = said("masked.pmbpf", arguments);
        assert_eq!(code, Some(0), "{messages}");
        let is_title = |line: &&str| {
            let first = line.split("  ").next().unwrap_or_default();
            !first.is_empty()
                && first.chars().all(|letter| letter.is_ascii_uppercase() || " -/".contains(letter))
        };
        text.lines().filter(is_title).map(|line| line.split("  ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(titles(&["--sections", "stacks,owners"]), ["OWNERS", "HOT STACKS"]);
    let all = titles(&[]);
    // The sections on which the two findings rest follow them, in order.
    assert_eq!(all[..4], ["FINDINGS", "BLIND TIME", "MODULES", "HOT FUNCTIONS"], "{all:?}");
    let (code, _, messages) = said("masked.pmbpf", &["--sections", "hot,stak"]);
    assert!(
        code == Some(2) && messages.contains("unknown section `stak`") && messages.contains("findings, "),
        "{messages}"
    );
}

#[test]
fn a_report_of_which_nothing_more_was_asked_is_short_and_says_what_shows_the_rest() {
    let lines = |arguments: &[&str]| -> Vec<String> {
        let (code, text, messages) = said("masked.pmbpf", arguments);
        assert_eq!(code, Some(0), "{messages}");
        text.lines().map(str::to_owned).collect()
    };
    let (short, all) = (lines(&[]), lines(&["--top", "20"]));
    assert!(short.len() <= 75 && all.len() > 120, "{} of {} lines", short.len(), all.len());
    let is_note = |line: &String| line.starts_with("shortened: `--top 20` shows ");
    assert!(short.last().is_some_and(is_note) && !all.iter().any(is_note), "{short:?}");
    let is_bar = |line: &String| line.contains('█');
    assert!(!short.iter().any(is_bar) && lines(&["--sections", "latency"]).iter().any(is_bar));
    // A report that fits is not shortened.
    let (_, text, _) = said("books.pmbpf", &[]);
    assert_eq!(said("books.pmbpf", &["--top", "20"]).1.lines().count() <= 60, !text.contains("shortened"));
}

#[test]
fn each_interval_names_its_hottest_functions() {
    let rows = rows_of("events.pmbpf", &["-I", "1s"]);
    let spans: Vec<_> = rows.iter().filter(|row| row["kind"] == "hot" && row.get("t").is_some()).collect();
    assert!(spans.iter().all(|row| row["dt"].as_u64().unwrap() > 0) && spans.len() > 1);
    // Names come at the end of a recording, but are read before.
    assert!(spans.iter().any(|row| row["frame"]["function"] == "hot_leaf"), "{spans:?}");
    let (_, text, _) = said("events.pmbpf", &["-I", "1s", "--width", "0"]);
    assert!(text.lines().any(|line| line.starts_with("  hot: ") && line.contains(" % ")), "{text}");
}

#[test]
fn a_function_is_shown_by_line_and_instruction_with_shares_that_add_up() {
    let rows = rows_of("masked.pmbpf", &["--annotate", "hot_leaf"]);
    let place = |place: &'static str| rows.iter().filter(move |row| row["place"] == place);
    let sum = |rows: &mut dyn Iterator<Item = &serde_json::Value>| -> (u64, f64) {
        let events = rows.filter_map(|row| row["events"].get(0));
        events.fold((0, 0.0), |(samples, share), event| {
            (samples + event["samples"].as_u64().unwrap(), share + event["share"].as_f64().unwrap())
        })
    };
    let (all, of_target) = sum(&mut place("function"));
    assert!(all > 100 && of_target > 0.3 && of_target < 0.45);
    let (samples, share) = sum(&mut place("instruction"));
    assert!(samples == all && (share - 1.0).abs() < 1e-9, "{samples} of {all}, {share}");
    let why = place("function").next().unwrap()["reason"].as_str().unwrap();
    assert!(why.contains("--symfs"), "{why}");
    let (_, text, _) = said("masked.pmbpf", &["--annotate", "hot_l*", "--width", "80"]);
    assert!(text.starts_with("hot_leaf in ") && text.contains("INSTRUCTIONS"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let (code, csv, _) = said("masked.pmbpf", &["--annotate", "__GI_getpid", "--csv"]);
    assert!(
        code == Some(0) && csv.starts_with("place,function,") && csv.contains("syscall-template.S,93,"),
        "{csv}"
    );
}
