//! Pages of `pmbpf report --html` in a headless browser: checked-in recordings, one with hostile names, and
//! one with 10,000 owners. tests/browser holds the script that drives them. Pictures of every page at three
//! widths and in both themes are left in `target/browser`. `cargo xtask test --ring browser` runs this where
//! a browser is installed.

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

mod made;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use made::{Made, asked, pod};

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests")
}

fn recording(name: &str) -> PathBuf {
    tests().join("recordings").join(name).with_extension("pmbpf")
}

/// Creates an empty folder for a test's pages and their pictures.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../browser").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns the binary as users get it: `cargo xtask test` builds it in release mode.
fn pmbpf() -> Command {
    let release = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/pmbpf");
    Command::new(std::env::var_os("PMBPF_BIN").map_or(release, PathBuf::from))
}

/// Runs a command that writes a page.
fn written(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", str::from_utf8(&output.stderr).unwrap_or_default());
}

/// Writes the page of a recording and returns its path.
fn page(recording: &Path, folder: &Path, name: &str) -> PathBuf {
    let page = folder.join(name).with_extension("html");
    written(pmbpf().arg("report").arg(recording).arg("--html").arg(&page));
    page
}

/// Opens pages, operates them, and returns the script's output.
fn check(pages: &[PathBuf], arguments: &[&str], shots: &Path) -> String {
    let mut node = Command::new("node");
    node.arg(tests().join("browser/check.mjs")).args(pages).args(arguments).arg("--shots").arg(shots);
    // `cargo xtask nightly` checks every width in both themes.
    node.args(std::env::var_os("PMBPF_ROUNDS").map(|_| "--all"));
    let output = node.output().unwrap();
    let [seen, errors] =
        [&output.stdout, &output.stderr].map(|said| str::from_utf8(said).unwrap_or_default());
    assert!(output.status.success(), "{seen}{errors}");
    seen.to_owned()
}

fn made(made: &Made, folder: &Path) -> PathBuf {
    let path = folder.join(format!("made-{}.pmbpf", made.percent));
    made.write(&path, &fs::read(recording("cgroups")).unwrap());
    path
}

#[test]
fn pages_ask_for_nothing_and_say_what_the_rows_say() {
    let folder = folder("recordings");
    let pages = ["masked", "topdown", "events", "io", "boxes", "counts", "off_cpu_stacks"];
    let pages = pages.map(|name| page(&recording(name), &folder, name));
    print!("{}", check(&pages, &[], &folder));
}

#[test]
fn a_comparison_says_what_its_rows_say() {
    let folder = folder("diff");
    let [a, b] =
        [100, 1000].map(|percent| made(&Made { cgroups: 12, ticks: 60, path: pod, percent }, &folder));
    let compared = |a: &Path, b: &Path, name: &str| {
        let page = folder.join(name).with_extension("html");
        written(pmbpf().arg("diff").args([a, b]).arg("--html").arg(&page));
        page
    };
    let pages = [compared(&a, &b, "made"), compared(&recording("masked"), &recording("events"), "code")];
    assert!(fs::read_to_string(&pages[0]).unwrap().contains("More than chance, b against a"));
    print!("{}", check(&pages, &[], &folder));
}

/// Returns a hostile name: markup, script, a terminal escape, right-to-left text, or a very long name.
fn hostile(slot: u64) -> String {
    let names = [
        "</script><img src=x onerror=alert(1)>",
        "<svg onload=alert(2)>\" onfocus=\"alert(3)",
        "&lt;b&gt;{{7*7}}${7*7}javascript:alert(4)",
        "a\u{202e}b\u{1b}[31m\u{200b}c",
        "<!--{script}--><style>*{display:none}</style>",
    ];
    let long = "long ".repeat(300) + "name";
    format!("/{}", names.get(slot as usize - 1).unwrap_or(&&*long))
}

#[test]
fn hostile_names_are_text() {
    let folder = folder("hostile");
    let recording = made(&Made { cgroups: 6, ticks: 20, path: hostile, percent: 100 }, &folder);
    print!("{}", check(&[page(&recording, &folder, "hostile")], &[], &folder));
}

#[test]
fn ten_thousand_owners_open() {
    let folder = folder("many");
    let recording = made(&Made { cgroups: 10_000, ticks: 5, path: pod, percent: 100 }, &folder);
    // The time is printed, not asserted. It cannot be long, because the number of elements is bounded however
    // many the owners.
    print!("{}", check(&[page(&recording, &folder, "many")], &["--elements", "12000", "--first"], &folder));
}

/// Opens a page of a run with more ticks than the page has intervals, or on request of an hour of 500
/// cgroups.
#[test]
fn a_long_run_opens() {
    let folder = folder("long");
    let recording = made(&asked(60, 600), &folder);
    print!("{}", check(&[page(&recording, &folder, "long")], &["--elements", "12000", "--first"], &folder));
}
