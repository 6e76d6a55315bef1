//! Damaged ELF files and perf maps, passed to symbolizer processes of the built binary as a run passes them:
//! descriptor, limits, seccomp, deadlines.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use object::{Object as _, ObjectSection as _};
use pmbpf::symbol::FileNamer;

use crate::{chance::Chance, corpus::folder, each};

/// Maximum excess of a request over its time limit (1.2 s at the most), since the process may wait for a CPU.
const HANG: Duration = Duration::from_secs(10);
/// Memory limit of a symbolizer process without file mappings: its own limit, and its memory before.
const PROCESS_KIB_MAX: u64 = 180 << 10;
/// Number of files per pair of processes, unless a file ends it.
const FILES_EACH: u32 = 16;
/// Size of an ELF header, and of an entry of its section header table (elf(5)).
const HEADER_BYTES: usize = 64;
/// A frame of a stack's copy holds addresses of the library.
const MAPPED: u64 = 0x7f00_0000_0000;

/// Libraries with DWARF, with call frame information in other places, and with a debug file. Then stripped
/// ones, with the symbols in `.gnu_debugdata` and in `.gopclntab`.
const LIBRARIES: [&str; 6] = ["dwarf5.so", "packed.so", "frames.so", "linked.so", "mini.so", "go.so"];

fn seed(name: &str) -> Vec<u8> {
    fs::read(folder("fuzz/files").join(name)).unwrap()
}

/// Makes a regular file with these bytes and without a name.
fn file(bytes: &[u8]) -> File {
    const O_TMPFILE: i32 = 0o20_200_000;
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).custom_flags(O_TMPFILE).open(std::env::temp_dir()).unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// Returns a damaged perf map: bytes, numbers that wrap around, lines without end.
fn perf_map(chance: &mut Chance) -> Vec<u8> {
    let mut bytes = seed("perf.map");
    match chance.below(4) {
        0 => bytes = bytes.repeat(1 + chance.below(20_000)),
        1 => {
            let line = *chance.one(&[
                &b"\nffffffffffffffff ffffffffffffffff wraps"[..],
                b"\n7f0000001000 ffffffffffffffff all",
                b"\n0 0 \0\n\n\n  \n0x 0x x\n-1 -1 y",
                b"\n7f0000001000\xff\xfe 40 \x1b]52;c;\x07",
                b"\n00000000000000000000000000000001 1 long",
            ]);
            let at = chance.below(bytes.len());
            bytes.splice(at..at, line.iter().copied());
        }
        2 => bytes.extend(vec![*chance.one(b"0 a\xff"); chance.below(1 << 22)]),
        _ => {}
    }
    for _ in 0..=chance.below(8) {
        chance.damage(&mut bytes);
    }
    bytes
}

/// Returns the ranges of a library's parts: its header and tables, and each of its sections.
fn ranges(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let parsed = object::File::parse(bytes).unwrap();
    let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    let program_headers = HEADER_BYTES..HEADER_BYTES + 6 * 56;
    let mut ranges = vec![0..HEADER_BYTES, program_headers, table..bytes.len()];
    for section in parsed.sections() {
        let (start, length) = section.file_range().unwrap_or_default();
        ranges.push(start as usize..(start + length) as usize);
    }
    ranges.retain(|range| !range.is_empty() && range.end <= bytes.len());
    ranges
}

/// Changes a few bytes or words within a part of a file, or damages a copy of it with [`Chance::damage`].
fn damage(bytes: &mut Vec<u8>, chance: &mut Chance) {
    let ranges = ranges(bytes);
    for _ in 0..=chance.below(3) {
        let range = chance.one(&ranges).clone();
        for _ in 0..=chance.below(6) {
            let at = range.start + chance.below(range.len());
            let room = bytes.len() - at;
            match chance.below(4) {
                0 => bytes[at] ^= 1 << chance.below(8),
                1 => bytes[at] = chance.next() as u8,
                2 if room >= 4 => {
                    let word: u32 = *chance.one(&[0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX, 0xffff, 1 << 20]);
                    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
                }
                _ if room >= 8 => {
                    let length = bytes.len() as u64;
                    let words = [0, 1, length, length - 1, 1 << 32, 1 << 60, i64::MAX as u64, u64::MAX];
                    bytes[at..at + 8].copy_from_slice(&chance.one(&words).to_le_bytes());
                }
                _ => {}
            }
        }
    }
    if chance.below(8) == 0 {
        chance.damage(bytes);
    }
}

/// Symbolizer processes, and the number of files requested from them.
struct Asked {
    namer: FileNamer,
    files: u32,
}

impl Asked {
    fn new() -> Self {
        Self { namer: FileNamer::new(Path::new(env!("CARGO_BIN_EXE_pmbpf"))), files: 0 }
    }
}

/// Figures over all files.
#[derive(Default)]
struct Figures {
    /// Longest time of a request.
    longest_ms: AtomicU64,
    /// Number of processes ended by a file, through a crash or a timeout.
    ended: AtomicU64,
    named: AtomicU64,
}

impl Figures {
    fn timed<T>(&self, ask: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let answer = ask();
        let took = begun.elapsed();
        assert!(took < HANG, "it took {took:?}");
        self.longest_ms.fetch_max(took.as_millis() as u64, Ordering::Relaxed);
        answer
    }
}

thread_local! {
    static ASKED: std::cell::RefCell<Asked> = std::cell::RefCell::new(Asked::new());
}

/// Returns the memory of a process without file mappings, or `None` if it has ended.
fn process_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// Requests names at many places of one damaged file, and frames. Each place has a response, in time.
fn ask(number: u64, figures: &Figures) {
    let mut chance = Chance::of(number);
    ASKED.with_borrow_mut(|asked| {
        if asked.files == FILES_EACH {
            *asked = Asked::new();
        }
        asked.files += 1;
        let before = asked.namer.processes();
        let (offsets, names) = if chance.below(5) == 0 {
            let addresses: Vec<u64> = (0..64).map(|at| 0x7f00_0000_0000 + at * 0x123).collect();
            (
                addresses.len(),
                figures.timed(|| asked.namer.perf_map(file(&perf_map(&mut chance)), &addresses)),
            )
        } else {
            let name = *chance.one(&LIBRARIES);
            let mut library = seed(name);
            damage(&mut library, &mut chance);
            let debug = (name == "linked.so").then(|| {
                let mut debug = seed("linked.debug");
                damage(&mut debug, &mut chance);
                file(&debug)
            });
            let offsets: Vec<u64> = (0x340..0x440).step_by(3).collect();
            let library = file(&library);
            let stack: Vec<u8> =
                (0..64).flat_map(|_| (MAPPED + 0x380 + chance.next() % 0xb0).to_le_bytes()).collect();
            let offset = 0x380 + chance.next() % 0xb0;
            let _ = figures.timed(|| asked.namer.frames(&library, debug.as_ref(), offset, &stack));
            (offsets.len(), figures.timed(|| asked.namer.file(library, debug, &offsets)))
        };
        assert_eq!(names.len(), offsets, "each place has a name or a reason");
        let named = names.iter().filter(|name| name.code.is_ok()).count() as u64;
        figures.named.fetch_add(named, Ordering::Relaxed);
        let ended = before.iter().filter(|pid| !asked.namer.processes().contains(pid)).count();
        figures.ended.fetch_add(ended as u64, Ordering::Relaxed);
        for pid in asked.namer.processes() {
            let kib = process_kib(pid).unwrap_or(0);
            assert!(kib < PROCESS_KIB_MAX, "a process has {kib} KiB");
        }
    });
}

#[test]
fn every_elf_file_and_perf_map_has_names_or_reasons() {
    let figures = Figures::default();
    each(30, |number| ask(number, &figures));
    let [longest_ms, ended, named] =
        [&figures.longest_ms, &figures.ended, &figures.named].map(|figure| figure.load(Ordering::Relaxed));
    eprintln!("the longest question took {longest_ms} ms; {ended} processes were ended; {named} names");
    assert!(named > 0, "most damage leaves some names");
}

#[test]
fn the_files_that_are_damaged_are_sound_before() {
    let mut namer = FileNamer::new(Path::new(env!("CARGO_BIN_EXE_pmbpf")));
    for name in LIBRARIES {
        let debug = || (name == "linked.so").then(|| file(&seed("linked.debug")));
        let offsets: Vec<u64> = (0x340..0x440).collect();
        let found = namer.file(file(&seed(name)), debug(), &offsets);
        let is = |wanted: &str| {
            found.iter().any(|name| name.code.as_ref().is_ok_and(|code| *code.function.terminal() == *wanted))
        };
        assert!(is("acme::run(long)") && is("middle") && is("outer"), "{name}: {found:?}");
        let lines =
            found.iter().filter(|name| name.code.as_ref().is_ok_and(|code| code.line.is_some())).count();
        let has_lines = !matches!(name, "mini.so" | "go.so");
        assert_eq!(lines > 20, has_lines, "{name}: {lines} places have a line");
        let frames = namer.frames(&file(&seed(name)), debug().as_ref(), 0x380, &[0; 64]);
        assert!(frames.is_ok(), "{name}: {frames:?}");
    }
    let found = namer.perf_map(file(&seed("perf.map")), &[0x7f00_0000_1004, 0x7f00_0000_2000]);
    let named = found.iter().filter(|name| name.code.is_ok()).count();
    assert_eq!(named, 2, "{found:?}");
}

#[test]
fn a_list_is_read_from_its_beginning_for_each_request() {
    let mut namer = FileNamer::new(Path::new(env!("CARGO_BIN_EXE_pmbpf")));
    // More addresses than one request holds.
    let addresses: Vec<u64> = (0x7f00_0000_4000..0x7f00_0000_4fff).collect();
    let found = namer.perf_map(file(&seed("perf.map")), &addresses);
    let unnamed = found.iter().find(|name| name.code.is_err());
    assert_eq!(unnamed, None);
    assert_eq!(found.len(), addresses.len());
}
