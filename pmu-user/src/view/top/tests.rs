//! Tests of the screen without a terminal: what is kept, what keys do, and that no name and no size breaks
//! it.

use std::path::Path;

use pmu_common::histogram::RUNQUEUE;
use ratatui_core::{backend::TestBackend, terminal::Terminal};

use super::{Action, History, Key, Looks, Mode, Snapshot, State, draw, row::OwnerRow};
use crate::{
    drain::{Absent, Header, Owner, recording::Recording},
    metric::{
        OwnerOrTarget, OwnerReport, Report, TasksReport,
        culprit::{Charge, Culprit, Waited},
        io::{IoReport, Label, Row, Scope, Subject},
        testing::{machine, with_late_ticks},
        value::{Distribution, How, Known, Value},
    },
    model::histogram::Histogram,
    plan::Target,
    table::{metric, unit::Unit},
    untrusted::Untrusted,
};

const LOOKS: Looks = Looks { colours: true, blocks: true };

fn header() -> Header {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings/masked.pmbpf");
    Recording::read(&file).unwrap().header
}

fn process(pid: u32, name: &[u8]) -> Owner {
    Owner::Process { pid, born_ns: 7, name: Untrusted::new(name) }
}

/// Returns a report of processes, each with its CPU time in an interval of 2 s.
fn report(owners: &[(Owner, Value)]) -> Report {
    let (header, ledger, interval) = with_late_ticks(Target::System, 1, 0);
    let mut tasks = TasksReport::new(&machine(), &header, &ledger, &interval, &[]);
    tasks.total.who = OwnerOrTarget::Target;
    let row = |(owner, cpu): &(Owner, Value)| {
        let mut row = OwnerReport { who: OwnerOrTarget::Owner(owner.clone()), ..tasks.total.clone() };
        let cpu_time = row.metrics.iter_mut().find(|(metric, _)| *metric == metric::CPU_TIME);
        cpu_time.unwrap().1 = cpu.clone();
        row
    };
    tasks.owners = owners.iter().map(row).collect();
    Report { tasks: Some(tasks), ..Report::default() }
}

fn history(intervals: &[&[(Owner, Value)]]) -> History {
    let header = header();
    let mut history = History::new(&header);
    intervals.iter().for_each(|owners| history.push(Snapshot::of(&header, &report(owners))));
    history
}

fn shown(history: &History, state: &State, (columns, rows): (u16, u16)) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(frame, history, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let cell = |at: (u16, u16)| buffer[at].symbol();
    (0..rows).map(|y| (0..columns).map(|x| cell((x, y))).collect()).collect()
}

fn line(lines: &[String], with: &str) -> String {
    lines.iter().find(|line| line.contains(with)).unwrap_or_else(|| panic!("{with}: {lines:#?}")).clone()
}

const SECOND: f64 = 1e9;

fn cgroup(path: &str) -> Owner {
    Owner::cgroup(0, Untrusted::from(path))
}

#[test]
fn a_cgroup_that_moved_nothing_moved_0_where_that_is_counted() {
    let read = |path: &str, mb: f64| Row {
        subject: Subject::Owner(cgroup(path), Box::new(Subject::Scope(Scope::Platform))),
        metric: metric::BLOCK_READ_BW.name.to_owned(),
        unit: Unit::MegabytesPerSecond,
        value: Value::exact(mb),
        distribution: None,
        label: Label::Measured,
        note: None,
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings/io.pmbpf");
    let io = Recording::read(&file).unwrap().header.io.unwrap();
    let header = Header { io: Some(io), ..header() };
    let missing = |what: &str| Absent { what: what.to_owned(), why: "refused".to_owned() };
    let moved = |missing: Vec<Absent>| {
        let rows = vec![read("/a", 3.0), read("/a/b", 2.0), read("/c", 1.0)];
        let io = IoReport { rows, ..IoReport::default() };
        let owners = ["/a", "/idle"].map(|path| (cgroup(path), Value::exact(SECOND)));
        let snapshot = Snapshot::of(&header, &Report { io: Some(io), missing, ..report(&owners) });
        let of = |row: Option<&OwnerRow>| {
            row.map(|row| [row.block, row.net].map(|moved| moved.map(|moved| moved.estimate)))
        };
        let owner = |path: &str| of(snapshot.row_of(&OwnerOrTarget::Owner(cgroup(path)))).unwrap();
        [owner("/a"), owner("/a/b"), owner("/idle"), of(snapshot.total.as_ref()).unwrap()]
    };
    let [zero, none] = [Some(0.0), None];
    let mb = |number: f32| Some(number * 1e6);
    assert_eq!(moved(Vec::new()), [[mb(3.0), zero], [mb(2.0), zero], [zero, zero], [mb(4.0), zero]]);
    let all = vec![missing("block requests and packets")];
    assert_eq!(moved(all), [[mb(3.0), none], [mb(2.0), none], [none, none], [mb(4.0), none]]);
}

#[test]
fn what_is_missing_is_a_dash_and_what_is_uncertain_says_so() {
    let wide = Known { estimate: SECOND, low: 0.0, high: 2.0 * SECOND, coverage: 1.0, how: How::Counted };
    let half_seen = Known { low: SECOND, high: SECOND, coverage: 0.4, ..wide };
    let owners = [
        (process(1, b"sure"), Value::exact(SECOND)),
        (process(2, b"wide"), Value::Known(wide)),
        (process(3, b"half"), Value::Known(half_seen)),
        (process(4, b"none"), Value::Missing("unseen".to_owned())),
        (process(5, b"zero"), Value::exact(0.0)),
    ];
    let history = history(&[&owners]);
    let lines = shown(&history, &State::new(Mode::Live, LOOKS), (80, 24));
    let cpu = |name: &str| line(&lines, name).split_whitespace().nth(2).unwrap().to_owned();
    let all = ["sure (1)", "wide (2)", "half (3)", "none (4)", "zero (5)"].map(cpu);
    assert_eq!(all, ["50.0%", "~50.0%", "~50.0%", "-", "0.0%"]);
}

#[test]
fn no_name_steers_the_terminal_or_moves_a_column() {
    let hostile: [&[u8]; 5] = [
        b"\x1b[31mred",
        b"tab\tand\nline",
        "\u{202e}backwards".as_bytes(),
        "服务服务服务服务服务服务服务服务服务服务服务服务服务服务服务服务".as_bytes(),
        b"\xff\xfe broken",
    ];
    let owners: Vec<_> = hostile
        .iter()
        .enumerate()
        .map(|(at, name)| (process(at as u32 + 1, name), Value::exact(SECOND)))
        .collect();
    let history = history(&[&owners]);
    for width in [40, 60, 80, 120] {
        let lines = shown(&history, &State::new(Mode::Live, LOOKS), (width, 24));
        for line in &lines {
            assert!(!line.chars().any(crate::untrusted::is_unsafe), "{line:?}");
        }
        let rows = lines.iter().filter(|line| line.contains("50.0%")).count();
        assert_eq!(rows, hostile.len() + 1, "{width}: a row each, and the target's: {lines:#?}");
    }
}

#[test]
fn who_had_the_cpu_stands_in_the_latency_pane_and_in_the_detail() {
    let owners = [(process(1, b"victim"), Value::exact(SECOND))];
    let mut report = report(&owners);
    let tasks = report.tasks.as_mut().unwrap();
    let charge = |culprit, share| Charge { culprit, wait_ns: (share * 1e6) as u64, share };
    tasks.waited = vec![Waited {
        who: OwnerOrTarget::Owner(owners[0].0.clone()),
        wait_ns: 1_000_000,
        charges: vec![
            charge(Culprit::Owner(process(2, b"hog\x1b")), 0.75),
            charge(Culprit::Owner(process(1, b"victim")), 0.15),
            charge(Culprit::Idle, 0.07),
            charge(Culprit::Outside, 0.02),
            charge(Culprit::Unknown, 0.01),
        ],
    }];
    let histogram = Histogram::between(RUNQUEUE, &[], &[(40_u16, 1)]);
    let max = histogram.last().unwrap();
    tasks.owners[0].waits = Ok(Distribution { histogram, sum: 1_000_000, max, coverage: 1.0 });
    let header = header();
    let mut history = History::new(&header);
    history.push(Snapshot::of(&header, &report));
    let mut state = State::new(Mode::Live, LOOKS);
    state.key(Key::Down, &history);
    for (key, places) in [(Key::Char('1'), 1), (Key::Enter, 2)] {
        state.key(key, &history);
        let lines = shown(&history, &state, (100, 24));
        let says = r"CPU used by hog\x1b 2 75.0 %, itself 15.0 %, idle 7.0 %, others 2.0 %, 1 more";
        assert_eq!(lines.iter().filter(|line| line.contains(says)).count(), places, "{lines:#?}");
    }
}

#[test]
fn every_size_is_drawn_in_every_state() {
    let history = history(&[&[(process(1, b"one"), Value::exact(SECOND))], &[]]);
    for columns in [1, 2, 19, 39, 40, 41, 60, 109, 110, 250] {
        for rows in [1, 2, 5, 6, 7, 13, 14, 15, 60] {
            for keys in ["", "1\n", "2", "3\n", "4", "5", "?", "/x", "\n"] {
                let mut state = State::new(Mode::Recording, LOOKS);
                for letter in keys.chars() {
                    state.key(if letter == '\n' { Key::Enter } else { Key::Char(letter) }, &history);
                }
                shown(&history, &state, (columns, rows));
            }
        }
    }
    let nothing = History::new(&header());
    let lines = shown(&nothing, &State::new(Mode::Live, LOOKS), (80, 24));
    line(&lines, "the first interval is not over yet");
}

#[test]
fn without_utf_8_all_that_is_ours_is_ascii() {
    let owners = [(process(1, b"one"), Value::exact(SECOND))];
    let history = history(&[&owners, &owners, &owners]);
    for keys in ["1", "2", "3", "4", "5", "?", "r"] {
        let mut state = State::new(Mode::Recording, Looks { colours: false, blocks: false });
        state.key(Key::Char(keys.chars().next().unwrap()), &history);
        for line in shown(&history, &state, (120, 40)) {
            assert!(line.is_ascii(), "{line}");
        }
    }
}

#[test]
fn the_selection_stays_with_its_owner_and_begins_with_everybody() {
    let [a, b] = [process(1, b"a"), process(2, b"b")];
    let busy = |owner: &Owner, seconds: f64| (owner.clone(), Value::exact(seconds * SECOND));
    let history = history(&[&[busy(&a, 1.0), busy(&b, 0.5)], &[busy(&b, 1.0), busy(&a, 0.5)]]);
    let mut state = State::new(Mode::Recording, LOOKS);
    assert_eq!(state.selected, None);
    state.key(Key::Down, &history);
    assert_eq!(state.selected, Some(OwnerOrTarget::Owner(a.clone())));
    state.key(Key::Right, &history);
    assert_eq!(state.selected, Some(OwnerOrTarget::Owner(a)), "who is second now");
    state.key(Key::Up, &history);
    assert_eq!(state.selected, Some(OwnerOrTarget::Owner(b.clone())));
    state.key(Key::PageDown, &history);
    state.key(Key::PageUp, &history);
    assert_eq!(state.selected, None, "everybody stands above the first");
}

#[test]
fn a_run_that_is_paused_stays_where_it_is_while_it_goes_on() {
    let one = [(process(1, b"one"), Value::exact(SECOND))];
    let mut history = history(&[&one, &one]);
    let mut state = State::new(Mode::Live, LOOKS);
    assert_eq!(state.number(&history), Some(1));
    state.key(Key::Char(' '), &history);
    history.push(Snapshot::of(&header(), &report(&one)));
    assert_eq!(state.number(&history), Some(1));
    state.key(Key::Left, &history);
    assert_eq!((state.number(&history), state.follows()), (Some(0), false));
    state.key(Key::Right, &history);
    state.key(Key::Right, &history);
    assert_eq!((state.number(&history), state.follows()), (Some(2), false));
    state.key(Key::Right, &history);
    assert!(state.follows(), "behind the newest is what comes next");
}

#[test]
fn a_long_run_keeps_the_last_intervals_and_what_was_shown_moves_on() {
    let owners: Vec<_> = (1..=1500).map(|pid| (process(pid, b"many"), Value::exact(SECOND))).collect();
    let one = Snapshot::of(&header(), &report(&owners));
    let mut history = History::new(&header());
    let mut state = State::new(Mode::Live, LOOKS);
    history.push(one.clone());
    state.key(Key::Char(' '), &history);
    for _ in 0..100 {
        history.push(one.clone());
    }
    let numbers = history.numbers();
    assert_eq!(numbers.end, 101);
    assert!(numbers.start > 0 && (30..60).contains(&(numbers.end - numbers.start)), "{numbers:?}");
    assert_eq!(state.number(&history), Some(numbers.start), "the oldest that is left");
    // This part comes first, so that every screen has room for it.
    let lines = shown(&history, &state, (80, 24));
    line(&lines, &format!("kept from {}", numbers.start + 1));
    let all = history.series(&OwnerOrTarget::Target, 100, 1000, |row| row.cpu);
    assert_eq!(all.len() as u64, numbers.end - numbers.start);
}

#[test]
fn a_recording_is_played_to_its_end() {
    let one = [(process(1, b"one"), Value::exact(SECOND))];
    let history = history(&[&one, &one, &one]);
    let mut state = State::new(Mode::Recording, LOOKS);
    assert_eq!((state.number(&history), state.stays_ns(&history)), (Some(0), None));
    state.key(Key::Char(' '), &history);
    assert_eq!(state.stays_ns(&history), Some(2_000_000_000));
    state.advance(&history);
    state.advance(&history);
    assert_eq!((state.number(&history), state.stays_ns(&history)), (Some(2), None));
    state.key(Key::Char(' '), &history);
    assert_eq!((state.number(&history), state.stays_ns(&history).is_some()), (Some(0), true));
}

#[test]
fn keys_of_a_filter_are_letters_and_the_others_are_not() {
    let history = history(&[&[(process(1, b"one"), Value::exact(SECOND))]]);
    let mut state = State::new(Mode::Live, LOOKS);
    assert_eq!(state.key(Key::Char('q'), &history), Action::Quit);
    state.key(Key::Char('/'), &history);
    assert_eq!(state.key(Key::Char('q'), &history), Action::Draw);
    assert_eq!(state.filter, "q");
    assert_eq!(state.key(Key::Ctrl('c'), &history), Action::Quit);
    assert_eq!(state.key(Key::Ctrl('z'), &history), Action::Suspend);
    state.key(Key::Escape, &history);
    assert_eq!((state.filter.as_str(), state.is_typing), ("", false));
}

#[test]
fn what_is_not_known_comes_last_however_rows_are_sorted() {
    let owners = [
        (process(1, b"some"), Value::exact(SECOND)),
        (process(2, b"more"), Value::exact(2.0 * SECOND)),
        (process(3, b"none"), Value::Missing("unseen".to_owned())),
    ];
    let history = history(&[&owners]);
    let mut state = State::new(Mode::Live, LOOKS);
    state.sort = super::choice::Sort::Switches;
    let names = |state: &State| -> Vec<String> {
        let snapshot = history.at(0).unwrap();
        state.ordered(snapshot).iter().map(|row| super::state::name_of(&row.who)).collect()
    };
    state.sort = super::choice::Sort::Name;
    assert_eq!(names(&state), ["more (2)", "none (3)", "some (1)"]);
    state.is_reversed = true;
    assert_eq!(names(&state), ["some (1)", "none (3)", "more (2)"]);
    state.sort = super::choice::Sort::Cpu;
    assert_eq!(names(&state).last().map(String::as_str), Some("none (3)"));
}
