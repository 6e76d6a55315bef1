//! Options that say which metrics to measure.

use std::path::PathBuf;

use crate::plan::{
    metrics::{Depth, MetricsRequest, Multiplex},
    request::WantedMetrics,
};

/// How deep several runs measure unless told otherwise: below it a run more costs the user a run of the command.
const LEVEL_OF_RUNS: u32 = 2;

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
    /// Run the command once for each group of counters, so that nothing takes turns and nothing is scaled; --level says how
    /// deep [default: 2], --dry-run how many runs that takes
    #[arg(long, conflicts_with_all = ["no_metrics", "no_multiplex", "count", "interval"], help_heading = "Metrics")]
    pub(super) runs: bool,
    /// Use the events and formulas of this CPU model, as icelakex
    #[arg(long, value_name = "MODEL", help_heading = "Metrics")]
    pub(super) cpu_model: Option<String>,
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
        let request = MetricsRequest {
            model: self.cpu_model.clone(),
            folder: self.perfmon_dir.clone(),
            depth: match (self.level, self.runs) {
                (Some(level), _) => Depth::Level(level),
                // What a run finds comes too late for the other groups: each has had its run, or will have it.
                (None, true) => Depth::Level(LEVEL_OF_RUNS),
                (None, false) => Depth::DrillDown,
            },
            names: self.metrics.clone(),
            multiplex: match (self.runs, self.no_multiplex) {
                (true, _) => Multiplex::Runs,
                (_, true) => Multiplex::No,
                _ => Multiplex::Yes,
            },
        };
        if request == MetricsRequest::default() {
            WantedMetrics::IfPossible(request)
        } else {
            WantedMetrics::Required(request)
        }
    }
}
