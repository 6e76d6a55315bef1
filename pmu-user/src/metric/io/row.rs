//! A number of I/O: what it is about, whose it is, and what is known. One kind of row for everything, so that every format shows the same.

use crate::{
    drain::Owner,
    metric::value::{Distribution, Value},
    table::{
        metric::{LATENCIES, PARTS},
        unit::Unit,
    },
    untrusted::Untrusted,
};

/// A number with what it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What it is about.
    pub subject: Subject,
    /// Its metric: `pcie.inbound_read_bw`.
    pub metric: String,
    /// Unit.
    pub unit: Unit,
    /// The number: of a distribution, its mean.
    pub value: Value,
    /// The distribution, if it is one and is known.
    pub distribution: Option<Box<Distribution>>,
    /// Whose it is.
    pub label: Label,
    /// What else a reader must know: of what maximum it is a share.
    pub note: Option<String>,
}

impl Row {
    /// Is it a distribution, known or not?
    pub fn is_distribution(&self) -> bool {
        LATENCIES.contains(&self.metric.as_str())
    }

    /// A row for each part of a distribution: mean, quantiles, maximum. Only itself, if it is none.
    pub fn parts(&self) -> Vec<Self> {
        if !self.is_distribution() {
            return vec![self.clone()];
        }
        let row = |(part, value): (&str, Value)| {
            let metric = format!("{}.{part}", self.metric);
            Self { metric, value, distribution: None, ..self.clone() }
        };
        let values = match &self.distribution {
            Some(found) => {
                let quantiles = found.quantiles().map(|(_, known)| Value::Known(known));
                [self.value.clone()].into_iter().chain(quantiles).collect()
            }
            None => vec![self.value.clone(); PARTS.len()],
        };
        PARTS.into_iter().zip(values).map(row).collect()
    }
}

/// What a number is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// Uncore PMUs.
    Scope(Scope),
    /// Devices behind one root port, by its address, with their names.
    Device(String, Untrusted),
    /// One PCI function that its IOMMU counts for alone, by its address, with its names.
    Function(String, Untrusted),
    /// A block device and an operation.
    Disk(Untrusted, &'static str),
    /// A network interface and a direction.
    Interface(Untrusted, &'static str),
    /// A group of threads that resctrl counts, by its path, and that is nobody's in particular.
    Group(Untrusted),
    /// An owner's share of what something else moved.
    Owner(Owner, Box<Self>),
}

/// Whose a number is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Label {
    /// Counted for this alone.
    Measured,
    /// This share of something that was counted for several together, of which so much could be told apart (0 to 1).
    Apportioned {
        /// Share of what could be told apart.
        share: f64,
        /// What could be told apart.
        coverage: f64,
    },
    /// Counted for everybody together.
    System,
}

impl Label {
    /// Its word in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Apportioned { .. } => "apportioned",
            Self::System => "system",
        }
    }
}

/// What uncore PMUs stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Everything.
    Platform,
    /// A die: a socket, or the part of one that has uncore PMUs of its own.
    Socket(u32),
    /// An I/O stack of a die, by its number there.
    Stack(u32, u32),
    /// A part of a stack: die, stack, part.
    Part(u32, u32, u32),
    /// A memory channel of a die, or the few that share an uncore PMU.
    Channel(u32, u32),
    /// A link of a die to other sockets.
    Link(u32, u32),
}
