//! Options that say which metrics to measure.

use std::path::PathBuf;

use crate::plan::{
    metrics::{Depth, Multiplex, Request},
    request::WantedMetrics,
};

/// Options of `run`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct MetricArgs {
    /// Measure the Top-Down tree to this level everywhere [default: 2, and below what is flagged]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=9), help_heading = "Metrics")]
    level: Option<u32>,
    /// Measure these metrics, or groups of them, too; `pmbpf list metrics` names them
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Metrics")]
    metrics: Vec<String>,
    /// Measure no metrics of the CPU model
    #[arg(long, conflicts_with_all = ["level", "metrics"], help_heading = "Metrics")]
    no_metrics: bool,
    /// Leave out what does not fit the counters at once, so that nothing is scaled
    #[arg(long, help_heading = "Metrics")]
    no_multiplex: bool,
    /// Use the events and formulas of this CPU model, as icelakex
    #[arg(long, value_name = "MODEL", help_heading = "Metrics")]
    cpu_model: Option<String>,
    /// Use the events and formulas of this perfmon directory
    #[arg(long, value_name = "DIR", help_heading = "Metrics")]
    pub(super) perfmon_dir: Option<PathBuf>,
}

impl MetricArgs {
    /// What is wanted. What was asked for in so many words must be had.
    pub(super) fn wanted(&self) -> WantedMetrics {
        if self.no_metrics {
            return WantedMetrics::None;
        }
        let request = Request {
            model: self.cpu_model.clone(),
            folder: self.perfmon_dir.clone(),
            depth: self.level.map_or(Depth::DrillDown, Depth::Level),
            names: self.metrics.clone(),
            multiplex: if self.no_multiplex { Multiplex::No } else { Multiplex::Yes },
        };
        if request == Request::default() {
            WantedMetrics::IfPossible(request)
        } else {
            WantedMetrics::Required(request)
        }
    }
}
