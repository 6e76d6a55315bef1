//! What an interval of `pmbpf io` says: one kind of row for everything, so that every format shows the same.

use super::{agreement::MapReport, check::Check, levels::Level, places::Place};
use crate::{
    drain::{Absent, Cost, Owner},
    metric::value::{Distribution, Value},
    table::{
        metric::{LATENCIES, PARTS},
        unit::Unit,
    },
    untrusted::Untrusted,
};

/// What an interval says. Plain data; views only choose words and columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IoReport {
    /// Start, in ns since counting started.
    pub from_ns: u64,
    /// Length in ns.
    pub length_ns: u64,
    /// Every number.
    pub rows: Vec<Row>,
    /// For how long bandwidths were at which level; only of the whole run.
    pub levels: Vec<Level>,
    /// Where each port is counted, and what its traffic says to that; only of the whole run.
    pub maps: Vec<MapReport>,
    /// Counters that always run, held against metrics.
    pub checks: Vec<Check>,
    /// What is not there, and why.
    pub missing: Vec<Absent>,
    /// What was lost since counting started, by reason.
    pub losses: Vec<(String, u64)>,
    /// What this process has cost since it started.
    pub cost: Cost,
    /// What the programs have cost since counting started, in ns.
    pub programs_ns: u64,
}

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
    #[must_use]
    pub fn is_distribution(&self) -> bool {
        LATENCIES.contains(&self.metric.as_str())
    }

    /// A row for each part of a distribution: mean, quantiles, maximum. Only itself, if it is none.
    #[must_use]
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
    /// Boxes outside the cores.
    Place(Place),
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
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Apportioned { .. } => "apportioned",
            Self::System => "system",
        }
    }
}
