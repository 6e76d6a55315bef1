//! `pmbpf report` beside files that are no recordings, recordings that want too much, and readers that go away.

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

use std::{
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

/// Address space that a report may take, in KiB: more than memory, as its own code and room that is not filled count, too.
const MEMORY_KIB: u32 = 260 << 10;

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings").join(name)
}

/// A path of our own; what is there vanishes.
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

/// `pmbpf report FILE` with no more memory than [`MEMORY_KIB`].
fn limited(file: &Path) -> Output {
    let script = format!("ulimit -v {MEMORY_KIB}; exec \"$0\" report \"$1\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_pmbpf")]).arg(file);
    command.env("LC_ALL", "C.UTF-8").output().unwrap()
}

/// A frame as a recording has it.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    let mut frame = [&length[..], &[kind, 0, 0, 0]].concat();
    let sum = crc32c::crc32c_append(crc32c::crc32c(&frame), payload);
    frame.extend(sum.to_le_bytes());
    frame.extend(payload);
    frame
}

/// A recording: the beginning and the header of a true one, then a drain.
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
    command.args(["report", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).env("LC_ALL", "C.UTF-8");
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
        owner: Owner::Cgroup { id: slot.into(), path: Untrusted::from(path) },
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
