//! Text fits the terminal: at every width, each line that a command writes takes one row of a terminal's screen.

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

#[path = "unpack.rs"]
mod unpack;

use std::{
    fs,
    io::Write as _,
    num::NonZero,
    path::{Path, PathBuf},
    process::Command,
};

use pmbpf::{
    machine::{Machine, io::Platform, pmu::catalog::Catalog},
    untrusted::Untrusted,
    view::{
        Format,
        io::summary::{self, Summary},
        list::{Cell, Listing, Look},
        text::{Folding, Style},
    },
};

/// Usual terminal widths, and one that is narrower than any table.
const WIDTHS: [u16; 4] = [40, 80, 120, 200];

fn terminal(rows: u16, columns: u16) -> vt100::Parser {
    let size = |size| NonZero::new(size).unwrap();
    vt100::Parser::new(size(rows), size(columns), 0)
}

/// Returns the lines of `text` that take more than one row in a terminal of this width.
fn wrapped(text: &str, width: u16) -> Vec<String> {
    let rows = u16::try_from(text.lines().count() + 1).unwrap();
    let is_wrapped = |line: &&str| {
        let mut screen = terminal(8, width);
        screen.process(line.as_bytes());
        let (row, _) = screen.screen().cursor_position();
        row > 0 || screen.screen().row_wrapped(0)
    };
    let wrapped: Vec<String> = text.lines().filter(is_wrapped).map(str::to_owned).collect();
    // The same check for the whole text on one screen.
    let mut screen = terminal(rows, width);
    screen.process(text.replace('\n', "\r\n").as_bytes());
    let anywhere = (0..rows).any(|row| screen.screen().row_wrapped(row));
    assert_eq!(anywhere, !wrapped.is_empty(), "lines alone and together are shown alike");
    wrapped
}

/// Returns a command's coloured output in a terminal of this width.
fn written(arguments: &[&str], width: u16) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_pmbpf"))
        .args(arguments)
        .args(["--color", "always", "--width", &width.to_string()])
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.is_empty(), "{arguments:?}: {}", String::from_utf8(output.stderr).unwrap());
    text
}

fn fits(what: &str, text: &str, width: u16) {
    let wrapped = wrapped(text, width);
    assert!(wrapped.is_empty(), "{what} at {width} columns:\n{}", wrapped.join("\n"));
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests").join(name)
}

fn recordings() -> Vec<String> {
    let files = fs::read_dir(folder("recordings")).unwrap().map(|entry| entry.unwrap().path());
    let recordings: Vec<String> = files
        .filter(|file| file.extension().is_some_and(|extension| extension == "pmbpf"))
        .map(|file| file.into_os_string().into_string().unwrap())
        .collect();
    assert!(recordings.len() >= 7, "there are recordings");
    recordings
}

#[test]
fn the_terminal_sees_what_does_not_fit() {
    let texts = recordings().into_iter().map(|recording| written(&["report", &recording], 0));
    let too_wide = texts.filter(|text| !wrapped(text, 80).is_empty()).count();
    assert!(too_wide >= 7, "every report is wider than 80 columns where it may be: {too_wide}");
}

#[test]
fn every_report_fits() {
    for recording in recordings() {
        for width in WIDTHS {
            fits(&recording, &written(&["report", &recording], width), width);
        }
    }
}

#[test]
fn a_row_of_a_table_stays_one_row() {
    // Owners, up to the section's end or its note about missing room.
    let owners = |recording: &str, width| {
        let text = anstream::adapter::strip_str(&written(&["report", recording], width)).to_string();
        let lines = text.lines().skip_while(|line| !line.starts_with("OWNERS  ")).skip(2);
        let rows = lines.take_while(|line| !line.is_empty() && !line.contains("no room for "));
        rows.map(|row| row.split("  ").find(|cell| !cell.is_empty()).unwrap().trim().to_owned()).collect()
    };
    for recording in recordings() {
        let full: Vec<String> = owners(&recording, 0);
        for width in [80, 120, 200] {
            assert_eq!(owners(&recording, width), full, "{recording} at {width} columns");
        }
    }
    let of_cgroups = folder("recordings/cgroups.pmbpf").into_os_string().into_string().unwrap();
    assert!(owners(&of_cgroups, 80).len() > 3);
}

#[test]
fn what_needs_no_privilege_fits() {
    let long = format!("/{}/服务", "x".repeat(300));
    let perfmon = folder("perfmon").into_os_string().into_string().unwrap();
    let counts = folder("golden/eval.in/counts.json").into_os_string().into_string().unwrap();
    let commands: [&[&str]; 9] = [
        &["list", "events"],
        &["list", "pmus"],
        &["list", "metrics"],
        &["list", "profiles"],
        &["doctor"],
        &["eval", "--cpu", "testmodel", "--perfmon-dir", &perfmon, "--counts", &counts],
        &["run", "--dry-run", "-C", "0", "-e", "cpu-clock,page-faults/period=7/"],
        &["stat", "--dry-run", "-e", "page-faults,{task-clock,cs}"],
        &["io", "--dry-run"],
    ];
    for arguments in commands {
        for width in WIDTHS {
            fits(arguments[0], &written(arguments, width), width);
        }
    }
    for width in WIDTHS {
        // The command comes after every option.
        let output = Command::new(env!("CARGO_BIN_EXE_pmbpf"))
            .args(["run", "--dry-run", "-e", "cpu-clock", "--width", &width.to_string(), "--", "true", &long])
            .env("LC_ALL", "C.UTF-8")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("服"), "{text}");
        fits("a long command", &text, width);
    }
}

/// Returns the output of `write` in a terminal of this width.
fn shown(width: u16, write: impl Fn(&mut dyn std::io::Write, &Style) -> std::io::Result<()>) -> String {
    let style = Style { width: Some(width.into()), ..Style::default() };
    let mut bytes = Vec::new();
    let mut into = Folding::new(&mut bytes, width.into());
    write(&mut into, &style).unwrap();
    into.flush().unwrap();
    drop(into);
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_summary_of_every_made_machine_fits() {
    for entry in fs::read_dir(folder("machines")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "made") {
            continue;
        }
        let made = unpack::machine("width", &fs::read_to_string(&path).unwrap());
        let machine = Machine::read(&made.root).unwrap();
        let platform = Platform::read(&made.root, &Catalog::read(&made.root).unwrap());
        let summary = Summary { machine: &machine, platform: &platform };
        for width in WIDTHS {
            let text = shown(width, |into, style| summary::text(into, style, &summary));
            fits(&path.display().to_string(), &text, width);
        }
    }
}

#[test]
fn names_wider_than_the_terminal_fit_in_any_script() {
    let names = [
        "服务".repeat(200),
        format!("/{}/web.service", "x".repeat(300)),
        "e\u{301}".repeat(300),
        "👩‍👩‍👧‍👦".repeat(90),
    ];
    let text = |text: &str| Cell::Text(Untrusted::from(text));
    let rows = names.iter().enumerate().map(|(number, name)| {
        vec![
            text(name),
            Cell::Number(number as u64),
            text(name),
            text(&format!("why {name} and {name} are here")),
        ]
    });
    let list = Listing {
        kind: "cgroup",
        columns: &["path", "id", "parent", "reason"],
        hidden: &[],
        look: Look::Table,
        rows: rows.collect(),
        notes: names.iter().map(|name| format!("{name} is long")).collect(),
    };
    for width in WIDTHS {
        fits("a list", &shown(width, |into, style| list.write(into, style, Format::Text)), width);
    }
}
