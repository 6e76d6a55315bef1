//! `pmbpf top` on this kernel, in a terminal: its display of a run, and that keys and signals leave nothing
//! behind.

#[expect(dead_code, reason = "the tests on recordings press more keys")]
#[path = "../top/terminal.rs"]
mod terminal;

use rustix::process::Signal;

use self::terminal::Terminal;
use crate::{
    support::{Cgroup, pmbpf},
    workloads::workload,
};

const SIZE: (u16, u16) = (24, 120);

fn top(group: &Cgroup) -> Terminal {
    Terminal::start(pmbpf().get_program(), SIZE, &["top", "--cgroup", &group.path, "-I", "500ms"])
}

/// Returns the displayed CPU time of a cgroup, in per cent.
fn cpu(screen: &str, group: &Cgroup) -> Option<f64> {
    let line = screen.lines().find(|line| line.trim_start().starts_with(&format!("{} ", group.path)))?;
    line.split_whitespace().nth(1)?.trim_start_matches('~').trim_end_matches('%').parse().ok()
}

/// Returns the displayed interval: `3` of `3/7`.
fn interval(screen: &str) -> Option<u32> {
    screen.lines().nth(1)?.split_whitespace().last()?.split_once('/')?.0.parse().ok()
}

#[test]
fn the_screen_shows_who_is_busy_until_somebody_leaves() {
    let group = Cgroup::new("busy");
    let spin = group.spawn(&format!("{} 60", workload("spin", &["-g"])));
    let mut terminal = top(&group);
    // A spinning task has the CPU except for the time of others.
    terminal.until("busy", |screen| {
        cpu(&screen.contents(), &group).is_some_and(|share| (60.0..101.0).contains(&share))
    });
    terminal.press(" ");
    let paused = interval(&terminal.shows("paused")).unwrap();
    terminal.press(" ");
    terminal.until("live", |screen| {
        let screen = screen.contents();
        screen.contains(" live ") && interval(&screen).is_some_and(|number| number > paused + 1)
    });
    terminal.press("\x1a");
    terminal.is_stopped();
    terminal.is_given_back();
    terminal.signal(Signal::CONT);
    terminal.until("taken again", |screen| screen.alternate_screen() && screen.contents().contains(" live "));
    terminal.resize(40, 100);
    terminal
        .until("redrawn", |screen| screen.rows(0, 100).last().is_some_and(|line| line.contains("q quit")));
    terminal.press("q");
    let (status, terminal) = terminal.ended();
    assert_eq!(status.code(), Some(0));
    terminal.is_given_back();
    drop(spin);
}

#[test]
fn signals_end_a_screen_as_they_end_a_run() {
    let group = Cgroup::new("signals");
    let sleep = group.spawn("sleep 60");
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 0)] {
        let terminal = top(&group);
        terminal.shows("q quit");
        terminal.signal(signal);
        let (status, terminal) = terminal.ended();
        assert_eq!(status.code(), Some(code), "{signal:?}");
        terminal.is_given_back();
    }
    drop(sleep);
}
