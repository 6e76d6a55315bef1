//! Pages of `pmbpf report --html` in a headless browser: recordings that are there, one of hostile names, and one of 10,000 owners.
//! tests/browser has what is done with them there; pictures of every page at three widths and in both themes are left in
//! `target/browser`. `cargo xtask test --ring browser` runs it where there is a browser.

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

/// A new folder for the pages of a test, and their pictures.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../browser").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The binary as users get it: `cargo xtask test` builds it in release mode.
fn pmbpf() -> Command {
    let release = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/pmbpf");
    Command::new(std::env::var_os("PMBPF_BIN").map_or(release, PathBuf::from))
}

/// Runs what writes a page.
fn written(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", str::from_utf8(&output.stderr).unwrap_or_default());
}

/// The page of a recording.
fn page(recording: &Path, folder: &Path, name: &str) -> PathBuf {
    let page = folder.join(name).with_extension("html");
    written(pmbpf().arg("report").arg(recording).arg("--html").arg(&page));
    page
}

/// Opens pages and uses them. Returns what was seen there.
fn check(pages: &[PathBuf], arguments: &[&str], shots: &Path) -> String {
    let mut node = Command::new("node");
    node.arg(tests().join("browser/check.mjs")).args(pages).args(arguments).arg("--shots").arg(shots);
    // `cargo xtask nightly` looks at every width in both themes.
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

/// Names that are markup, script, an escape for a terminal, text that runs backwards, and one that is very long.
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
    // The time is printed, not asserted; that it cannot be long is: there are few elements, however many the owners.
    print!("{}", check(&[page(&recording, &folder, "many")], &["--elements", "12000", "--first"], &folder));
}

/// Of more ticks than a page has intervals; an hour of 500 cgroups if that is asked for.
#[test]
fn a_long_run_opens() {
    let folder = folder("long");
    let recording = made(&asked(60, 600), &folder);
    print!("{}", check(&[page(&recording, &folder, "long")], &["--elements", "12000", "--first"], &folder));
}
