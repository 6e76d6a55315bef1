//! Keys, and what they choose among: orders of the rows, and panes.

use super::row::{Bounded, OwnerRow};

/// A key, as a terminal tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// A letter with Ctrl.
    Ctrl(char),
    /// Return.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// Tab.
    Tab,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Draw again.
    Draw,
    /// Draw again, all of it: something else may have written to the terminal.
    Redraw,
    /// Give the terminal back, and stop until somebody continues.
    Suspend,
    /// End.
    Quit,
}

/// Where intervals come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A run that goes on.
    Live,
    /// A recording.
    Recording,
}

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// Colours?
    pub colours: bool,
    /// Blocks and other characters that are not ASCII?
    pub blocks: bool,
}

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Cpu,
    Wait,
    Ipc,
    Block,
    Net,
    Switches,
    Name,
}

impl Sort {
    pub(super) const ALL: [Self; 7] =
        [Self::Cpu, Self::Wait, Self::Ipc, Self::Block, Self::Net, Self::Switches, Self::Name];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Wait => "wait",
            Self::Ipc => "ipc",
            Self::Block => "block",
            Self::Net => "net",
            Self::Switches => "switches",
            Self::Name => "name",
        }
    }

    /// The number that rows are sorted by, if it is one.
    pub(super) fn value(self, row: &OwnerRow) -> Option<Bounded> {
        match self {
            Self::Cpu => row.cpu,
            Self::Wait => row.waits.as_ref().map(|waits| waits.p99),
            Self::Ipc => row.ipc,
            Self::Block => row.block,
            Self::Net => row.net,
            Self::Switches => row.rates[0],
            Self::Name => None,
        }
    }
}

/// What stands below the owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Latency,
    TopDown,
    Io,
    Blind,
    Findings,
}

impl Pane {
    pub(super) const ALL: [(Self, &'static str); 5] = [
        (Self::Latency, "latency"),
        (Self::TopDown, "top-down"),
        (Self::Io, "i/o"),
        (Self::Blind, "blind time"),
        (Self::Findings, "findings"),
    ];
}
