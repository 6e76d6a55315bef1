//! Request of `pmbpf io`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::plan::{
    TICK,
    request::{Descend, Inherit, Target},
};

/// Subject of the rows of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Grouping {
    /// Sockets, and everything together.
    Package,
    /// I/O stacks with their parts, memory channels, links.
    Stack,
    /// PCI devices, disks, interfaces.
    Device,
    /// Events as they were counted, a row for each uncore PMU.
    Event,
}

/// Contents and form of a report. They do not change what is measured, except that IOMMUs count for the
/// devices named here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reporting {
    /// Kinds of rows; all but events if empty.
    pub by: Vec<Grouping>,
    /// Devices, disks and interfaces by address or name; all if empty.
    pub devices: Vec<String>,
    /// Maximum memory bandwidth of all sockets together, in GB/s.
    pub dram_max_gb_s: Option<f64>,
    /// Maximum memory bandwidth that was measured before the run, in GB/s.
    pub dram_measured_gb_s: Option<f64>,
    /// Limits between which a bandwidth is neither low nor high: the name, and two limits in its unit.
    pub limits: Vec<Limits>,
}

/// Limits below which a bandwidth is low and from which it is high.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Name of the bandwidth: `dram.bandwidth`.
    pub name: String,
    /// Limit below which it is low.
    pub low: f64,
    /// Limit from which it is high.
    pub high: f64,
}

/// Complete request of `pmbpf io`.
#[derive(Clone, Debug)]
pub struct IoRequest {
    /// Target to which bytes are attributed.
    pub target: Target,
    /// Inheritance by children of processes.
    pub inherit: Inherit,
    /// Treatment of cgroups below the target.
    pub descend: Descend,
    /// Model of the table to use; this machine's if `None`.
    pub model: Option<String>,
    /// Contents and form of the report.
    pub report: Reporting,
    /// Time between reports.
    pub interval: Option<Duration>,
    /// Maximum time between two drains.
    pub tick_max: Duration,
    /// Duration after which counting stops.
    pub duration: Option<Duration>,
}

impl Default for IoRequest {
    /// Returns a request to count everything until it is stopped.
    fn default() -> Self {
        Self {
            target: Target::System,
            inherit: Inherit::Yes,
            descend: Descend::Yes,
            model: None,
            report: Reporting::default(),
            interval: None,
            tick_max: TICK,
            duration: None,
        }
    }
}
