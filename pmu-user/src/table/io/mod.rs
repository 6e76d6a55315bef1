//! Tables of the I/O events of a platform's uncore PMUs, and of the metrics computed from them.
//!
//! A table is a [`Model`] like a core's, with encodings and formulas. It also has the facts of uncore PMUs:
//! the models that it serves, the parts of a stack, the counters of each kind of uncore PMU, the free-running
//! counters, and what cannot be measured at all. `cargo xtask tables io` generates the tables of Intel's
//! servers. Those of AMD and Arm are written by hand. So are those of IOMMUs that count for one device, which
//! are not chosen by CPU model.

pub mod import;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod text;

pub use self::text::{FindError, IOMMUS, KNOWN, for_machine, load, of_iommu, read, write};
use super::{
    formula::Expr,
    model::{Model, TableFault},
    unit::Unit,
};
use crate::named::named;

/// Constant of every table, the only one: length of the interval, in seconds.
pub const SECONDS: &str = "SECONDS";

/// Facts about the I/O of some platforms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IoTable {
    /// Models to which the facts apply: `graniterapids`, `sierraforest`. The first names the table.
    pub models: Vec<String>,
    /// Parts of a stack that events distinguish: a part is a root port, or a few of them. 0 where no event
    /// does.
    pub parts: u32,
    /// Kinds of uncore PMUs, by name.
    pub kinds: Vec<PmuKind>,
    /// Counters that always run.
    pub free_running: Vec<FreeRunning>,
    /// Metrics that cannot be measured on these platforms, with the reason.
    pub absent: Vec<Absent>,
    /// Filters by which uncore PMUs count for one device only.
    pub requesters: Vec<Requester>,
    /// Events and metrics. A metric's domain is its [`ScopeKind`]. Its groups name the origin of its
    /// definition: `cookbook`, `perfmon`.
    pub model: Model,
}

/// A kind of uncore PMU that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmuKind {
    /// Name in events, and in the kernel's PMU names between `uncore_` and the number: `iio`.
    pub unit: String,
    /// Counters of one uncore PMU.
    pub counters: u32,
    /// Term that all events counting at a time must share, because the uncore PMU has one register for it:
    /// `config1`.
    pub shared: Option<String>,
}

/// Counter that is always on, in addition to the programmable ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeRunning {
    /// Name of its PMU, without `uncore_` and the number: `iio_free_running`.
    pub unit: String,
    /// Name of the counter there: `bw_in_port0`.
    pub name: String,
    /// Terms in perf's event syntax, without a PMU.
    pub terms: String,
    /// Bytes that one count stands for; 0 for a clock. The kernel's own `.scale` was wrong by a factor of 8
    /// for Ice Lake and Sapphire Rapids until 2025 (commits 32c7f1150225 and 506f981ab40f).
    pub unit_bytes: u32,
    /// Number of bits, after which it wraps to 0.
    pub width_bits: u32,
}

/// Filter that makes a kind of uncore PMU count for one requester: a PCI function, by the 16 bits that its
/// requests carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Kind of the uncore PMU.
    pub unit: String,
    /// Terms added to those of an event, in perf's event syntax; `@` is the requester.
    pub terms: String,
}

impl Requester {
    /// Returns the terms for this requester.
    pub fn terms_of(&self, id: u16) -> String {
        self.terms.replace('@', &format!("{id:#x}"))
    }

    /// Returns the names of the terms. The PMU of an IOMMU that cannot distinguish requesters does not have
    /// them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.terms.split(',').map(|term| term.split_once('=').map_or(term, |(name, _)| name))
    }
}

/// A metric that these platforms cannot provide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// Name on other platforms.
    pub name: String,
    /// Unit on other platforms.
    pub unit: Unit,
    /// Reason why it is missing.
    pub why: String,
}

named! {
    /// Smallest scope for which a metric can be computed. Larger ones follow by adding up counts
    /// ([`IoTable::is_averaged`]).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum ScopeKind {
        Part = "part", "Part of a stack: a root port with what is behind it.";
        Stack = "stack", "An I/O stack: an uncore PMU each of several kinds, with the same number.";
        Channel = "channel", "A channel of memory.";
        Link = "link", "A link between sockets.";
        Socket = "socket", "A socket: uncore PMUs of different kinds that do not belong together one by one.";
        Device = "device", "A PCI function.";
    }
}

impl ScopeKind {
    fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == word)
    }
}

/// Scope for which a metric is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Everything that the counts cover: a stack, a socket, the whole machine.
    All,
    /// One part of each stack that the counts cover.
    Part(u32),
}

impl Of {
    /// Returns whether a request for it needs this event.
    pub fn needs(self, event: &str) -> bool {
        self.needs_part(part_of(event))
    }

    /// Returns whether a request for it needs an event that counts for this part, or for none in particular.
    pub const fn needs_part(self, part: Option<u32>) -> bool {
        match (self, part) {
            (Self::Part(wanted), Some(part)) => wanted == part,
            _ => true,
        }
    }
}

/// Endings of event names before the number of a part.
const PARTS: [&str; 3] = [".PART", "_iom", "_io_"];

/// Returns the part for which an event counts: 3 of `UNC_IIO_DATA_REQ_OF_CPU.MEM_READ.PART3`.
pub fn part_of(event: &str) -> Option<u32> {
    let stem = event.trim_end_matches(|digit: char| digit.is_ascii_digit());
    PARTS.iter().any(|end| stem.ends_with(end)).then(|| event[stem.len()..].parse().ok())?
}

/// Clocks by kind of uncore PMU, which formulas use as a frequency.
const CLOCKS: [(&str, &str); 4] = [
    ("iio", "UNC_IIO_CLOCKTICKS"),
    ("irp", "UNC_I_CLOCKTICKS"),
    ("nvidia_pcie_pmu", "cycles"),
    ("dmar", "iommu_clocks"),
];

impl IoTable {
    /// Returns the table's name: that of the first model.
    pub fn name(&self) -> &str {
        self.models.first().map_or("?", String::as_str)
    }

    /// Returns the smallest scope for which a metric can be computed.
    pub fn scope(&self, metric: u32) -> Option<ScopeKind> {
        ScopeKind::read(&self.model.metrics.get(metric as usize)?.domain)
    }

    /// Returns the events that a metric needs for `of`, as indices of the model's operands.
    pub fn events_of(&self, metric: u32, of: Of) -> Vec<u32> {
        let mut events = self.model.operands_of(metric);
        events.retain(|&operand| self.operand(operand).is_some_and(|event| of.needs(event)));
        events
    }

    /// Returns the name of an operand.
    pub fn operand(&self, index: u32) -> Option<&str> {
        self.model.operands.get(index as usize).map(String::as_str)
    }

    /// Returns the kind of uncore PMU that counts an event.
    pub fn kind(&self, unit: &str) -> Option<&PmuKind> {
        self.kinds.iter().find(|kind| kind.unit == unit)
    }

    /// Sets the number of counters that the processor reports for uncore PMUs of this kind: models that share
    /// a table may differ in it.
    pub fn set_counters(&mut self, unit: &str, counters: u32) {
        if let Some(kind) = self.kinds.iter_mut().find(|kind| kind.unit == unit) {
            kind.counters = counters;
        }
    }

    /// Returns whether the count of several uncore PMUs is the mean of theirs, and not their sum.
    ///
    /// Clocks of I/O stacks are averaged: formulas use their cycles as a frequency, and two stacks are not
    /// one that is twice as fast.
    pub fn is_averaged(&self, operand: u32) -> bool {
        let event = self.operand(operand).and_then(|name| self.model.event(name));
        event.is_some_and(|event| CLOCKS.contains(&(event.unit.as_str(), event.name.as_str())))
    }

    /// Returns the counts by operand for `of`. Counts of other parts do not belong to it and are 0. Operands
    /// that `counts` does not reach are unknown.
    pub fn counts_of(&self, counts: &[f64], of: Of) -> Vec<f64> {
        let counts = counts.iter().copied().chain(std::iter::repeat(f64::NAN));
        let operands = self.model.operands.iter().zip(counts);
        operands.map(|(event, count)| if of.needs(event) { count } else { 0.0 }).collect()
    }

    /// Returns all faults in the table, or none if it is sound.
    pub fn faults(&self) -> Vec<IoFault> {
        let mut faults: Vec<IoFault> = self.model.faults().into_iter().map(IoFault::Model).collect();
        for event in &self.model.events {
            if self.kind(&event.unit).is_none() {
                faults.push(IoFault::NoBox(event.name.clone(), event.unit.clone()));
            }
            if part_of(&event.name).is_some_and(|part| part >= self.parts) {
                faults.push(IoFault::NoPart(event.name.clone()));
            }
        }
        for metric in &self.model.metrics {
            if ScopeKind::read(&metric.domain).is_none() {
                faults.push(IoFault::NoScope(metric.name.clone()));
            }
            metric.formula.visit(&mut |part| {
                if let Expr::Metric(_) = part {
                    faults.push(IoFault::Nested(metric.name.clone()));
                }
            });
        }
        faults
    }
}

/// Fault in a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoFault {
    /// Fault in its events or metrics.
    #[error(transparent)]
    Model(TableFault),
    /// No kind of uncore PMU counts an event.
    #[error("`{0}` is counted by `{1}`, which is not a kind of uncore PMU there")]
    NoBox(String, String),
    /// An event is of a part that a stack does not have.
    #[error("`{0}` names a part that does not exist")]
    NoPart(String),
    /// A metric does not have a scope.
    #[error("`{0}` has no scope")]
    NoScope(String),
    /// A metric is computed from another one. Events of a metric must be in its own formula, for the sake of
    /// parts.
    #[error("`{0}` names a metric in its formula")]
    Nested(String),
}
