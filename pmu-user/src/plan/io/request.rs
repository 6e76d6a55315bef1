//! What `pmbpf io` was asked for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::plan::{
    TICK,
    request::{Descend, Inherit, Target},
};

/// What rows of numbers are about.
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

/// What to report, and how. Changes nothing about what is measured, but that IOMMUs count for the devices that are named here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reporting {
    /// Rows; all but events if none are named.
    pub by: Vec<Grouping>,
    /// Devices, disks and interfaces by address or name; all if none are named.
    pub devices: Vec<String>,
    /// The most that memory can carry, in GB/s, of all sockets together.
    pub dram_max_gb_s: Option<f64>,
    /// The same, measured before the run.
    pub dram_measured_gb_s: Option<f64>,
    /// Between which bandwidths it is neither low nor high: name, and two limits in its unit.
    pub limits: Vec<Limits>,
}

/// Where a bandwidth ends to be low, and where it begins to be high.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Which: `dram.bandwidth`.
    pub name: String,
    /// Below it is low.
    pub low: f64,
    /// From here on it is high.
    pub high: f64,
}

/// Everything `pmbpf io` was told.
#[derive(Clone, Debug)]
pub struct IoRequest {
    /// Whose bytes are told apart.
    pub target: Target,
    /// Children of processes.
    pub inherit: Inherit,
    /// Cgroups below.
    pub descend: Descend,
    /// The model whose table is used; this machine's if none is named.
    pub model: Option<String>,
    /// What to report, and how.
    pub report: Reporting,
    /// Time between reports.
    pub interval: Option<Duration>,
    /// The longest time between two drains.
    pub tick_max: Duration,
    /// Stop after.
    pub duration: Option<Duration>,
}

impl Default for IoRequest {
    /// Everything, until it is stopped.
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
