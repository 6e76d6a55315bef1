//! `pmbpf serve`: counts until it is told to end, and lets servers of metrics scrape what it has counted.

mod accounts;
mod answer;
mod config;
mod flight;
mod http;
mod live;
mod passwords;
mod places;
mod profiles;
mod published;
mod push;
mod readers;
mod reload;
#[cfg(feature = "parquet")]
mod tables;
mod tls;
mod web;
mod yaml;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::ArgGroup;

use self::{flight::FlightArgs, profiles::ProfilesArgs};
use super::{examples, live::KernelArgs, parse};

/// Where it listens unless told otherwise: on this host alone.
const ADDRESS: &str = "127.0.0.1:9477";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::SERVE, group = ArgGroup::new("pushes").args(["otlp", "otlp_profiles"]).multiple(true))]
pub(super) struct Args {
    /// Listen at this address (repeatable); all who reach it see names of containers and what they do. An IPv6 address stands in
    /// brackets; :PORT is every address of the host
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse::listen, default_value = ADDRESS, help_heading = "Server")]
    listen: Vec<SocketAddr>,
    /// Encrypt, and ask who is there, as this file says, which is one of node_exporter's; SIGHUP reads it again
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    web_config: Option<PathBuf>,
    /// Take `max-targets`, `max-series`, `linger` and `when` from this file (YAML), in place of the options; SIGHUP reads it again, and what
    /// was counted stays
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    config: Option<PathBuf>,
    /// Push to an OpenTelemetry collector as well, by OTLP over HTTP: http://HOST:PORT, or with a path
    #[arg(long, value_name = "URL", value_parser = push::metrics_url, help_heading = "Server")]
    otlp: Option<hyper::Uri>,
    /// How often to push
    #[arg(long, value_name = "TIME", value_parser = parse::interval, default_value = "60s", requires = "pushes", help_heading = "Server")]
    otlp_interval: Duration,
    #[command(flatten)]
    profiles: ProfilesArgs,
    #[cfg(feature = "parquet")]
    #[command(flatten)]
    tables: tables::TablesArgs,
    /// Count this cgroup and those below (repeatable); a path, or a name as `run --cgroup` takes it [default: everything]
    #[arg(long, value_name = "NAME", value_parser = parse::cgroup, help_heading = "Target")]
    cgroup: Vec<String>,
    /// Length of an interval: what is scraped is at most so old, and rules of the flight recorder are held against each
    /// [default: 5s; 1s with --flight-recorder]
    #[arg(short = 'I', long, value_name = "TIME", value_parser = parse::interval, help_heading = "Time")]
    interval: Option<Duration>,
    /// Stop after this time: seconds, or as 500ms or 2m
    #[arg(short, long, value_name = "TIME", value_parser = parse::duration, help_heading = "Time")]
    duration: Option<Duration>,
    /// Leave out block devices, networks and uncore PMUs
    #[arg(long, help_heading = "I/O")]
    no_io: bool,
    /// Count the time that tasks are off the CPU, by what they wait for
    #[arg(long, help_heading = "Events")]
    off_cpu: bool,
    /// Count interrupt handlers, how long each has the CPUs, and whom they interrupt
    #[arg(long, help_heading = "Events")]
    interrupts: bool,
    /// Count Top-Down to this level, as slots [default: 1, where the CPU can]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2), help_heading = "Metrics")]
    level: Option<u32>,
    /// Use the events and formulas of this CPU model, as icelakex
    #[arg(long, value_name = "MODEL", conflicts_with = "no_metrics", help_heading = "Metrics")]
    cpu_model: Option<String>,
    /// Count neither cycles nor anything else that takes the CPUs' counters
    #[arg(long, conflicts_with = "level", help_heading = "Metrics")]
    no_metrics: bool,
    /// Containers, pods, units and other cgroups with series of their own; what the others do is in target="_other"
    #[arg(long, value_name = "N", default_value_t = 200, help_heading = "Limits", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_targets: u32,
    /// Series of all targets and devices together, buckets of histograms included
    #[arg(long, value_name = "N", default_value_t = 17_000, help_heading = "Limits", value_parser = clap::value_parser!(u32).range(500..=1_000_000))]
    max_series: u32,
    /// For how long the series of a target stay that has ended
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "5m", help_heading = "Limits")]
    linger: Duration,
    #[command(flatten)]
    flight: FlightArgs,
    /// Print what would be opened, and open nothing
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
    #[command(flatten)]
    kernel: KernelArgs,
}

/// Serves, and returns the exit code.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    live::serve(args)
}
