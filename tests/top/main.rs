//! `pmbpf top` in a real terminal, on recordings: its display, its keys, and that it restores the terminal.
//!
//! `SNAPSHOTS=overwrite cargo test --test top` rewrites the screens.

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

mod terminal;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::Signal;
use snapbox::{Assert, Data};

use self::terminal::Terminal;

const USUAL: (u16, u16) = (24, 80);
const UP: &str = "\x1b[A";
const RIGHT: &str = "\x1b[C";
const LEFT: &str = "\x1b[D";
const DOWN: &str = "\x1b[B";
const CTRL_Z: &str = "\x1a";
const CTRL_C: &str = "\x03";

fn recording(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings");
    folder.join(name).with_extension("pmbpf").display().to_string()
}

fn start(size: (u16, u16), arguments: &[&str]) -> Terminal {
    Terminal::start(env!("CARGO_BIN_EXE_pmbpf"), size, arguments)
}

fn top(size: (u16, u16), name: &str) -> Terminal {
    let terminal = start(size, &["top", &recording(name)]);
    terminal.shows("recording ");
    terminal
}

fn snapshot(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/top").join(name).with_extension("txt")
}

/// Compares a screen with a file.
fn hold(screen: String, name: &str) {
    let expected = Data::read_from(&snapshot(name), None).raw();
    Assert::new().action_env("SNAPSHOTS").eq(screen, expected);
}

fn quit(mut terminal: Terminal) {
    terminal.press("q");
    let (status, terminal) = terminal.ended();
    assert_eq!(status.code(), Some(0));
    terminal.is_given_back();
}

#[test]
fn every_screen_is_as_it_was() {
    for (size, suffix) in [((24, 80), "80x24"), ((40, 120), "120x40"), ((20, 60), "60x20")] {
        for (name, keys, pane) in [
            ("cgroups", "", "latency"),
            ("topdown", "2", "top-down"),
            ("io", "3", "i-o"),
            ("masked", "4", "blind"),
            ("cgroups", "\r", "detail"),
        ] {
            let mut terminal = top(size, name);
            terminal.press(keys);
            let screen = terminal.settled();
            hold(screen, &format!("{name}-{pane}-{suffix}"));
            quit(terminal);
        }
    }
}

#[test]
fn the_screen_says_what_the_report_says() {
    let mut terminal = top(USUAL, "cgroups");
    let screen = terminal.settled();
    let report = Command::new(env!("CARGO_BIN_EXE_pmbpf"))
        .args(["report", "--json", &recording("cgroups")])
        .output()
        .unwrap();
    let rows = String::from_utf8(report.stdout).unwrap();
    let rows: Vec<serde_json::Value> = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let mut seen = 0;
    for row in rows
        .iter()
        .filter(|row| row["t"] == 0 && row["metric"] == "cpu_time" && row["owner"]["kind"] == "cgroup")
    {
        let (path, ns) = (row["owner"]["path"].as_str().unwrap(), row["value"].as_f64().unwrap());
        let share = format!("{:.1}%", 100.0 * ns / row["dt"].as_f64().unwrap());
        let line = screen.lines().find(|line| line.trim_start().starts_with(&format!("{path} ")));
        assert!(line.unwrap().contains(&share), "{share} {row}\n{screen}");
        seen += 1;
    }
    assert!(seen > 1, "there are cgroups in the first interval");
    quit(terminal);
}

#[test]
fn arrows_go_through_the_intervals_and_space_plays_them() {
    let mut terminal = top(USUAL, "cgroups");
    let first = terminal.settled();
    terminal.press(RIGHT);
    let second = terminal.settled();
    assert!(first.contains(" 1/") && second.contains(" 2/"), "{first}{second}");
    terminal.press(LEFT);
    assert_eq!(terminal.settled(), first, "rewound, it is what it was");
    terminal.press(LEFT);
    assert_eq!(terminal.settled(), first, "there is nothing before the first");
    terminal.press(" ");
    let last = terminal.until("at the end", |screen| {
        let contents = screen.contents();
        let at = contents
            .lines()
            .nth(1)
            .and_then(|line| line.rsplit(' ').next())
            .and_then(|at| at.split_once('/'));
        contents.contains("recording") && at.is_some_and(|(at, of)| at == of && at != "1")
    });
    assert!(!last.contains(" 1/"), "{last}");
    quit(terminal);
}

#[test]
fn a_filter_leaves_whose_name_has_it_and_the_target() {
    let mut terminal = top(USUAL, "cgroups");
    terminal.shows("/web.slice/api");
    terminal.press("/WORKER\r");
    terminal.shows_no_more("/web.slice/api");
    let screen = terminal.shows("/WORKER");
    assert!(screen.contains("/web.slice/worker") && screen.contains(" all "), "{screen}");
    terminal.press("/-nobody");
    terminal.shows("no owner's name contains this");
    terminal.press("\x1b");
    terminal.shows("/web.slice/api");
    quit(terminal);
}

#[test]
fn rows_are_sorted_selected_and_looked_into() {
    let mut terminal = top(USUAL, "cgroups");
    terminal.shows("CPU▼");
    terminal.press("s");
    let screen = terminal.settled();
    assert!(screen.contains("p99▼"), "{screen}");
    let order = |screen: &str| -> Vec<String> {
        let rows = screen.lines().filter(|line| line.starts_with(" /web"));
        rows.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    let by_wait = order(&screen);
    terminal.press("r");
    let screen = terminal.settled();
    assert!(screen.contains("p99▲"), "{screen}");
    assert_eq!(order(&screen), by_wait.iter().rev().cloned().collect::<Vec<_>>());
    terminal.press(&format!("r{DOWN}{DOWN}{DOWN}{UP}\r"));
    terminal.until(&by_wait[1], |screen| screen.rows(0, 80).any(|line| line.trim() == by_wait[1]));
    terminal.shows("a second: switches");
    quit(terminal);
}

#[test]
fn a_new_size_is_filled_and_a_tiny_one_survived() {
    let mut terminal = top(USUAL, "cgroups");
    for (rows, columns) in [(40, 120), (3, 20), (8, 40), (24, 80)] {
        terminal.resize(rows, columns);
        let is_small = (rows, columns) == (3, 20);
        terminal.until("redrawn", |screen| {
            let lines: Vec<String> = screen.rows(0, columns).collect();
            let last = &lines[usize::from(rows) - 1];
            if is_small { lines[0].contains("columns") } else { last.contains("q quit") }
        });
    }
    quit(terminal);
}

#[test]
fn signals_and_ctrl_c_give_the_terminal_back() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 0)] {
        let terminal = top(USUAL, "cgroups");
        terminal.until("full screen", |screen| screen.alternate_screen() && screen.hide_cursor());
        terminal.signal(signal);
        let (status, terminal) = terminal.ended();
        assert_eq!(status.code(), Some(code), "{signal:?}");
        terminal.is_given_back();
    }
    let mut terminal = top(USUAL, "cgroups");
    terminal.press(CTRL_C);
    let (status, terminal) = terminal.ended();
    assert_eq!(status.code(), Some(0));
    terminal.is_given_back();
}

#[test]
fn ctrl_z_gives_the_terminal_back_until_somebody_continues() {
    let mut terminal = top(USUAL, "cgroups");
    let screen = terminal.settled();
    terminal.press(CTRL_Z);
    terminal.is_stopped();
    terminal.is_given_back();
    terminal.signal(Signal::CONT);
    terminal.until("taken again", |screen| screen.alternate_screen() && screen.hide_cursor());
    terminal.shows("q quit");
    assert_eq!(terminal.settled(), screen);
    // The same with signals from outside.
    terminal.signal(Signal::TSTP);
    terminal.is_stopped();
    terminal.is_given_back();
    terminal.signal(Signal::CONT);
    terminal.until("taken again", vt100::Screen::alternate_screen);
    quit(terminal);
}

#[test]
fn without_a_terminal_it_says_what_to_do_instead() {
    for (arguments, instead) in
        [(vec!["top"], "`pmbpf run -I 1s`"), (vec!["top", "x.pmbpf"], "`pmbpf report FILE`")]
    {
        let output =
            Command::new(env!("CARGO_BIN_EXE_pmbpf")).args(arguments).stdin(Stdio::null()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(instead) && output.stdout.is_empty(), "{error}");
    }
}

#[test]
fn what_cannot_be_shown_is_refused_before_the_screen_is_taken() {
    for (name, options, says) in [
        ("counts", &[][..], "is a recording of counts"),
        ("cgroups", &["-I", "10ms"], "-I can only be longer"),
        ("nothing", &[], "No such file"),
    ] {
        let recording = recording(name);
        let arguments: Vec<&str> = ["top", &recording].into_iter().chain(options.iter().copied()).collect();
        let terminal = start((24, 200), &arguments);
        let (status, terminal) = terminal.ended();
        assert_ne!(status.code(), Some(0));
        terminal.shows(says);
        terminal.is_given_back();
    }
}

#[test]
fn a_recording_that_breaks_off_is_shown_and_then_told_of() {
    let whole = fs::read(recording("cgroups")).unwrap();
    let cut = std::env::temp_dir().join(format!("pmbpf-top-{}.pmbpf", std::process::id()));
    fs::write(&cut, &whole[..whole.len() * 2 / 3]).unwrap();
    let mut terminal = start((24, 120), &["top", cut.to_str().unwrap()]);
    terminal.shows("/web.slice/worker");
    terminal.press("q");
    let (status, terminal) = terminal.ended();
    fs::remove_file(&cut).unwrap();
    assert_eq!(status.code(), Some(3));
    terminal.shows("the recording breaks off");
    terminal.is_given_back();
}
