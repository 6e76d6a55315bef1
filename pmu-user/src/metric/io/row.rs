//! Row of I/O: subject, attribution and value. All values have one kind of row, so that every format shows
//! the same.

use crate::{
    drain::Owner,
    metric::value::{Distribution, Value},
    table::{
        metric::{LATENCIES, PARTS},
        unit::Unit,
    },
    untrusted::Untrusted,
};

/// Value of a metric, with its subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Subject of the value.
    pub subject: Subject,
    /// Name of the metric, such as `pcie.inbound_read_bw`.
    pub metric: String,
    /// Unit of the value.
    pub unit: Unit,
    /// Value of the metric: of a distribution, its mean.
    pub value: Value,
    /// Distribution of the values, if the metric is one and is known.
    pub distribution: Option<Box<Distribution>>,
    /// Attribution of the value.
    pub label: Label,
    /// Additional information, such as the maximum of which the value is a share.
    pub note: Option<String>,
}

impl Row {
    /// Returns whether the metric is a distribution, known or not.
    pub fn is_distribution(&self) -> bool {
        LATENCIES.contains(&self.metric.as_str())
    }

    /// Returns a row for each part of a distribution: mean, quantiles, maximum. Returns only the row itself
    /// if it is not one.
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

/// Subject of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// Scope of uncore PMUs.
    Scope(Scope),
    /// Devices behind one root port, by its address, with their names.
    Device(String, Untrusted),
    /// One PCI function that its IOMMU counts separately, by its address, with its names.
    Function(String, Untrusted),
    /// A block device and an operation.
    Disk(Untrusted, &'static str),
    /// A network interface and a direction.
    Interface(Untrusted, &'static str),
    /// A group of threads that resctrl counts, by its path, and that has no owner.
    Group(Untrusted),
    /// An owner's share of the traffic of another subject.
    Owner(Owner, Box<Self>),
}

/// Attribution of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Label {
    /// Counted for this subject alone.
    Measured,
    /// Attributed share of a value that was counted for several owners together. Both fields are from 0 to 1.
    Apportioned {
        /// Share of the attributable part.
        share: f64,
        /// Share of the value that is attributable.
        coverage: f64,
    },
    /// Counted for all owners together.
    System,
}

impl Label {
    /// Returns the word for the label in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Apportioned { .. } => "apportioned",
            Self::System => "system",
        }
    }
}

/// Scope for which uncore PMUs count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The whole platform.
    Platform,
    /// A die: a socket, or the part of one that has its own uncore PMUs.
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
