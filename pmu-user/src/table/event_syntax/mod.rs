//! perf's event syntax: `cycles:u`, `uncore_iio/event=0x83,umask=0x4/`, `sched:sched_switch`, `{slots,topdown-retiring}`.
//!
//! [`parse`](List::parse) turns text into plain data, independent of a machine. [`resolve`](resolve::resolve)
//! turns that into the arguments of `perf_event_open` on one machine. perf's notation about sampling
//! (`period=`, `p`, `S`) is kept, so that the same text serves counting and sampling.

mod encode;
pub mod kernel;
mod parse;
mod resolve;
mod selected;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::{
    encode::family,
    parse::{NotationError, SyntaxFault},
    resolve::{resolve, resolve_with},
    selected::{Instance, Meaning, ResolveError, Selected, SelectedGroup, Why},
};

/// A list of events and groups, in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// Groups; a single event is a group of one.
    pub groups: Vec<ParsedGroup>,
}

/// Events that are on the counters together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedGroup {
    /// Whether it is written in braces.
    pub braces: bool,
    /// Events of the group, at least one.
    pub members: Vec<ParsedEvent>,
    /// Modifiers after the braces: they apply to every member.
    pub modifiers: Modifiers,
}

/// One event of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedEvent {
    /// Event to count.
    pub what: What,
    /// Modifiers of the event.
    pub modifiers: Modifiers,
    /// Text as typed.
    pub typed: String,
    /// Start of the event in the text, in bytes.
    pub at: usize,
}

/// Event to count, by its notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An event of the kernel, or one that a PMU names.
    Named(String),
    /// An event of the cores by its code: `r01c4`.
    Raw(u64),
    /// A tracepoint of the kernel.
    Tracepoint {
        /// Name of its subsystem.
        system: String,
        /// Name of the tracepoint.
        name: String,
        /// Terms for its name in results and its period, if given.
        settings: Vec<Term>,
    },
    /// Accesses to an address: `mem:0x1000/4:rw`.
    Breakpoint {
        /// First address that is watched.
        address: u64,
        /// Number of bytes that are watched, if given.
        bytes: Option<u64>,
        /// `HW_BREAKPOINT_R`, `_W` and `_X`, added up (include/uapi/linux/hw_breakpoint.h).
        access: u8,
    },
    /// Terms of a PMU.
    Pmu {
        /// Name of the PMU, beginning of a name, or pattern.
        pmu: String,
        /// Terms in the order given.
        terms: Vec<Term>,
    },
}

/// A part of a PMU's event: `umask=0x4`, `inv`, or the name of an event in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Name of the term.
    pub name: String,
    /// Value of the term, if it has one.
    pub value: Option<TermValue>,
}

/// Value of a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermValue {
    /// A number, decimal or `0x…`.
    Number(u64),
    /// Any other text.
    Text(String),
}

/// Requested precision with which a sample hits the instruction that caused it. It has no effect on a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precise {
    /// `perf_event_attr.precise_ip`, 0 to 3.
    Level(u8),
    /// Highest precision of the machine: `P`.
    Max,
}

impl Default for Precise {
    fn default() -> Self {
        Self::Level(0)
    }
}

/// Modifiers after an event's colon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modifiers {
    /// `u`: in user mode. With `k` or `h`, those too; without all three, everywhere.
    pub user: bool,
    /// `k`: in the kernel.
    pub kernel: bool,
    /// `h`: in the hypervisor.
    pub hypervisor: bool,
    /// `G`: in guests only, unless `H` is given too.
    pub guest: bool,
    /// `H`: on the host only, unless `G` is given too.
    pub host: bool,
    /// `I`: not while idle.
    pub not_idle: bool,
    /// `p`, `pp`, `ppp`, `P`.
    pub precise: Precise,
    /// `S`: a sample carries the counts of its group.
    pub sample_read: bool,
    /// `D`: always on a counter, or not at all.
    pub pinned: bool,
    /// `e`: alone on the PMU.
    pub exclusive: bool,
    /// `W`: a group that may be broken up if it does not fit.
    pub weak: bool,
}

impl Modifiers {
    /// Returns the modifiers of both.
    pub fn and(self, other: Self) -> Self {
        Self {
            user: self.user || other.user,
            kernel: self.kernel || other.kernel,
            hypervisor: self.hypervisor || other.hypervisor,
            guest: self.guest || other.guest,
            host: self.host || other.host,
            not_idle: self.not_idle || other.not_idle,
            precise: if self.precise == Precise::default() { other.precise } else { self.precise },
            sample_read: self.sample_read || other.sample_read,
            pinned: self.pinned || other.pinned,
            exclusive: self.exclusive || other.exclusive,
            weak: self.weak || other.weak,
        }
    }

    /// Returns whether no modifier is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the name of an event with these modifiers and perf's `u` for user mode: `cycles:u`,
    /// `cpu/cycles/u`, `cycles:Iu`.
    pub fn in_user_mode(self, name: &str) -> String {
        let colon = if self.is_empty() && !name.ends_with('/') { ":" } else { "" };
        format!("{name}{colon}u")
    }
}

impl fmt::Display for Modifiers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precise = match self.precise {
            Precise::Max => "P",
            Precise::Level(level) => &"ppp"[..usize::from(level.min(3))],
        };
        let letters = [
            (self.user, "u"),
            (self.kernel, "k"),
            (self.hypervisor, "h"),
            (self.guest, "G"),
            (self.host, "H"),
            (self.not_idle, "I"),
            (true, precise),
            (self.sample_read, "S"),
            (self.pinned, "D"),
            (self.exclusive, "e"),
            (self.weak, "W"),
        ];
        letters.iter().filter(|(set, _)| *set).try_for_each(|(_, letter)| formatter.write_str(letter))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)?;
        match &self.value {
            None => Ok(()),
            Some(TermValue::Number(number)) => write!(formatter, "={number:#x}"),
            Some(TermValue::Text(text)) if text.bytes().all(parse::is_word) && !text.is_empty() => {
                write!(formatter, "={text}")
            }
            Some(TermValue::Text(text)) => write!(formatter, "='{text}'"),
        }
    }
}

/// Writes items with commas between them.
fn list<T: fmt::Display>(formatter: &mut fmt::Formatter<'_>, things: &[T]) -> fmt::Result {
    things.iter().enumerate().try_for_each(|(index, thing)| {
        let comma = if index == 0 { "" } else { "," };
        write!(formatter, "{comma}{thing}")
    })
}

impl fmt::Display for What {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => formatter.write_str(name),
            Self::Raw(code) => write!(formatter, "r{code:x}"),
            Self::Tracepoint { system, name, settings } => {
                write!(formatter, "{system}:{name}")?;
                if settings.is_empty() {
                    return Ok(());
                }
                formatter.write_str("/")?;
                list(formatter, settings)?;
                formatter.write_str("/")
            }
            Self::Breakpoint { address, bytes, access } => {
                write!(formatter, "mem:{address:#x}")?;
                bytes.map_or(Ok(()), |bytes| write!(formatter, "/{bytes}"))?;
                let letters = [(1, "r"), (2, "w"), (4, "x")];
                formatter.write_str(":")?;
                letters
                    .iter()
                    .filter(|(bit, _)| access & bit != 0)
                    .try_for_each(|(_, letter)| formatter.write_str(letter))
            }
            Self::Pmu { pmu, terms } => {
                write!(formatter, "{pmu}/")?;
                list(formatter, terms)?;
                formatter.write_str("/")
            }
        }
    }
}

impl fmt::Display for ParsedEvent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.modifiers.is_empty() { "" } else { ":" };
        write!(formatter, "{}{colon}{}", self.what, self.modifiers)
    }
}

impl fmt::Display for ParsedGroup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.braces {
            return list(formatter, &self.members);
        }
        formatter.write_str("{")?;
        list(formatter, &self.members)?;
        let colon = if self.modifiers.is_empty() { "" } else { ":" };
        write!(formatter, "}}{colon}{}", self.modifiers)
    }
}

impl fmt::Display for List {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(formatter, &self.groups)
    }
}
