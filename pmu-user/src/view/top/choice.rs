//! Keys, and what they choose among: orders of the rows, and panes.

use super::row::{Bounded, OwnerRow};

/// Key, as a terminal reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Key of a character.
    Char(char),
    /// Letter typed with Ctrl.
    Ctrl(char),
    /// The Return key.
    Enter,
    /// The Escape key.
    Escape,
    /// The Backspace key.
    Backspace,
    /// The Tab key.
    Tab,
    /// Arrow key up.
    Up,
    /// Arrow key down.
    Down,
    /// Arrow key left.
    Left,
    /// Arrow key right.
    Right,
    /// Page up key.
    PageUp,
    /// Page down key.
    PageDown,
    /// The Home key.
    Home,
    /// The End key.
    End,
}

/// Action that a key requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Draw the screen again.
    Draw,
    /// Draw again completely: something else may have written to the terminal.
    Redraw,
    /// Restore the terminal, and stop until the process is continued.
    Suspend,
    /// End the screen.
    Quit,
}

/// Source of the intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Run that is still going on.
    Live,
    /// Recording that is shown.
    Recording,
}

/// Abilities of the terminal.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// Whether colours are shown.
    pub colours: bool,
    /// Whether blocks and other characters outside ASCII are shown.
    pub blocks: bool,
}

/// Sort key of the rows.
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

    /// Returns the number that rows are sorted by, if the key is a number.
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

/// Content of the area below the owners.
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
