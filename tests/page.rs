//! `pmbpf report --html`: the page of every recording has every number of its rows. Its size is bounded
//! however long the run, and it is written as other files are. tests/browser opens pages in a browser.

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

mod made;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::channel,
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::read::ZlibDecoder;
use made::asked;
use serde_json::Value;

/// Maximum size of a page, in bytes.
const PAGE_MAX: usize = 5_000_000;

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings")
}

/// Temporary path, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("pmbpf-page-{}-{number}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn report(file: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmbpf"));
    command.arg("report").arg(file).args(arguments).env("LC_ALL", "C.UTF-8").output().unwrap()
}

/// Returns the report's standard output.
fn written(file: &Path, arguments: &[&str]) -> String {
    text_of(report(file, arguments))
}

fn text_of(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8(output.stderr).unwrap());
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the content of the element with this id.
fn element<'p>(page: &'p str, id: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("id=\"{id}\">")).unwrap();
    rest.split_once("</script>").unwrap().0
}

fn inflated(page: &str, id: &str) -> String {
    let mut text = String::new();
    ZlibDecoder::new(&*STANDARD.decode(element(page, id)).unwrap()).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn every_number_of_every_recording_is_in_its_page() {
    let mut compared = 0;
    for entry in fs::read_dir(recordings()).unwrap() {
        let recording = entry.unwrap().path();
        if recording.extension().is_none_or(|extension| extension != "pmbpf") {
            continue;
        }
        let (page, rows) = (written(&recording, &["--html", "-"]), written(&recording, &["--json"]));
        assert_eq!(page, written(&recording, &["--html", "-"]), "the same bytes again");
        let (whole, intervals) = (inflated(&page, "whole"), inflated(&page, "intervals"));
        let kept: BTreeSet<&str> = whole.lines().chain(intervals.lines()).collect();
        for line in rows.lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            // An interval leaves out missing numbers and its functions. The header of the whole has no
            // interval.
            let is_number = !row["value"].is_null() || !row["count"].is_null();
            let kind = row["kind"].as_str().unwrap();
            let is_whole = matches!(
                kind,
                "stack"
                    | "summary"
                    | "levels"
                    | "check"
                    | "map"
                    | "gap"
                    | "function"
                    | "module"
                    | "program_culprit"
            ) || kind == "hot" && row["t"].is_null();
            if is_number || is_whole {
                assert!(kept.contains(line), "{}: {line}", recording.display());
                compared += 1;
            }
        }
        assert!(page.len() < PAGE_MAX);
    }
    assert!(compared > 2000, "only {compared} rows were compared");
}

#[test]
fn a_recording_without_intervals_has_them_in_its_page() {
    let page = written(&recordings().join("masked.pmbpf"), &["--html", "-"]);
    let starts: BTreeSet<u64> = inflated(&page, "intervals")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["t"].as_u64().unwrap())
        .collect();
    assert!(starts.len() >= 2, "{starts:?}");
    let sum = |island: &str| -> f64 {
        let rows = inflated(&page, island);
        let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of_target = |row: &Value| row["owner"]["kind"] == "target" && row["metric"] == "context_switches";
        rows.filter(of_target).map(|row| row["value"].as_f64().unwrap()).sum()
    };
    assert!(sum("whole") > 0.0);
    assert_eq!(sum("whole"), sum("intervals"), "what is counted adds up");
}

#[test]
fn a_page_or_an_export_that_waits_for_the_reader_of_a_pipe_says_so() {
    let recording = recordings().join("masked.pmbpf");
    let recording = recording.to_str().unwrap();
    for arguments in [
        &["report", recording, "--html"][..],
        &["diff", recording, recording, "--html"],
        &["export", recording, "--to", "folded", "-o"],
    ] {
        let pipe = Scratch::new();
        assert!(Command::new("mkfifo").arg(&pipe.0).status().unwrap().success());
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmbpf"));
        let mut child = command
            .args(arguments)
            .arg(&pipe.0)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (lines, said) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        let first = said.recv_timeout(Duration::from_secs(60));
        if first.is_err() {
            child.kill().unwrap();
        }
        assert!(first.unwrap().ends_with("is a pipe: waiting until it is read"), "{arguments:?}");
        assert!(!fs::read(&pipe.0).unwrap().is_empty(), "{arguments:?}");
        assert!(child.wait().unwrap().success(), "{arguments:?}");
    }
}

#[test]
fn a_page_is_a_new_file_for_its_owner_only() {
    let (recording, scratch) = (recordings().join("masked.pmbpf"), Scratch::new());
    let path = scratch.0.to_str().unwrap();
    let output = report(&recording, &["--html", path]);
    assert!(output.status.success() && output.stdout.is_empty());
    assert!(String::from_utf8(output.stderr).unwrap().contains(path));
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    let page = fs::read_to_string(path).unwrap();
    assert_eq!(page, written(&recording, &["--html", "-"]));
    let again = report(&recording, &["--html", path]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8(again.stderr).unwrap().contains("--force replaces it"));
    assert!(report(&recording, &["--html", path, "--force"]).status.success());
    for (file, arguments, says) in [
        (&*recording, &["--html", path, "--json"][..], "cannot be used with"),
        (Path::new("-"), &["--html", "-"][..], "name a file"),
        (&*recording, &["--html", "/nowhere/x.html"][..], "/nowhere/x.html"),
    ] {
        let output = report(file, arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(says) && !output.status.success(), "{said}");
    }
}

#[test]
fn a_recording_that_breaks_off_has_a_page_that_says_so() {
    let (whole, cut) = (fs::read(recordings().join("masked.pmbpf")).unwrap(), Scratch::new());
    fs::write(&cut.0, &whole[..whole.len() * 3 / 4]).unwrap();
    let output = report(&cut.0, &["--html", "-"]);
    assert_eq!(output.status.code(), Some(3));
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(page.contains("<strong>Incomplete:</strong>") && page.ends_with("</html>\n"));
}

#[test]
fn pseudonyms_are_the_same_in_all_of_a_page() {
    let page = written(&recordings().join("masked.pmbpf"), &["--redact", "--html", "-"]);
    let names = |island: &str| -> BTreeSet<String> {
        let rows = inflated(&page, island);
        let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.filter_map(|row| Some(row["owner"]["name"].as_str()?.to_owned())).collect()
    };
    let (of_whole, of_intervals) = (names("whole"), names("intervals"));
    assert!(of_intervals.len() > 3 && of_intervals.is_subset(&of_whole), "{of_intervals:?}");
    assert!(of_whole.iter().all(|name| name == "total" || name.starts_with("name-")), "{of_whole:?}");
}

/// Returns the binary as users get it, where `cargo xtask test` names the one it has built. A page of 200 MB
/// of rows takes a debug build a minute.
fn optimized() -> Command {
    Command::new(std::env::var_os("PMBPF_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_pmbpf").into()))
}

#[test]
fn a_long_recording_of_many_cgroups_stays_within_the_bound() {
    let made = asked(200, 250);
    let (cgroups, ticks) = (made.cgroups, made.ticks);
    let (recording, model) = (Scratch::new(), fs::read(recordings().join("cgroups.pmbpf")).unwrap());
    made.write(&recording.0, &model);
    let page = text_of(optimized().arg("report").arg(&recording.0).args(["--html", "-"]).output().unwrap());
    assert!(page.len() < PAGE_MAX, "{} bytes", page.len());
    let about: Value = serde_json::from_str(element(&page, "about")).unwrap();
    let together = about["ticks"].as_u64().unwrap();
    assert!(together > 1 && about["owners"].as_u64().unwrap() < cgroups, "{about}");
    let rows = inflated(&page, "intervals");
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let times: BTreeSet<u64> = rows.iter().map(|row| row["t"].as_u64().unwrap()).collect();
    assert!(times.len() as u64 >= ticks / together, "{} intervals of {together} ticks", times.len());
    assert!(
        rows.iter()
            .filter(|row| row["kind"] == "metric")
            .all(|row| row["least"].is_number() && row["most"].is_number())
    );
    let whole = inflated(&page, "whole");
    let known = whole.lines().filter(|line| line.contains("\"metric\":\"cpu_time\"")).count() as u64;
    assert!(known > cgroups, "all of {cgroups} are in the whole's rows: {known}");
}
