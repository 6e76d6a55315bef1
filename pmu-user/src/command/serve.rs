//! `pmbpf serve`: counts until it is stopped, and lets monitoring servers scrape the counts.

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

/// Default listen address: this host alone.
const ADDRESS: &str = "127.0.0.1:9477";

/// Arguments of `pmbpf serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples::SERVE, group = ArgGroup::new("pushes").args(["otlp", "otlp_profiles"]).multiple(true))]
pub(super) struct Args {
    /// Listen on this address (repeatable); every client that reaches it can read names and activity of
    /// containers. IPv6 addresses in brackets; :PORT is every address of the host
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse::listen, default_value = ADDRESS, help_heading = "Server")]
    listen: Vec<SocketAddr>,
    /// Configure TLS and authentication, in the format of node_exporter's --web.config.file; SIGHUP reloads
    /// the file
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    web_config: Option<PathBuf>,
    /// Read `max-targets`, `max-series`, `linger` and `when` from this YAML file instead of the options;
    /// SIGHUP reloads it, and counts are kept
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    config: Option<PathBuf>,
    /// Also push to an OpenTelemetry collector, by OTLP over HTTP: http://HOST:PORT, with or without a path
    #[arg(long, value_name = "URL", value_parser = push::metrics_url, help_heading = "Server")]
    otlp: Option<hyper::Uri>,
    /// Push at this interval
    #[arg(long, value_name = "TIME", value_parser = parse::interval, default_value = "60s", requires = "pushes", help_heading = "Server")]
    otlp_interval: Duration,
    #[command(flatten)]
    profiles: ProfilesArgs,
    #[cfg(feature = "parquet")]
    #[command(flatten)]
    tables: tables::TablesArgs,
    /// Count this cgroup and its descendants (repeatable): a path, or a name as for `run --cgroup` [default:
    /// everything]
    #[arg(long, value_name = "NAME", value_parser = parse::cgroup, help_heading = "Target")]
    cgroup: Vec<String>,
    /// Set the collection interval; scraped values are at most this old, and rules of the flight recorder are
    /// checked at each [default: 5s; 1s with --flight-recorder]
    #[arg(short = 'I', long, value_name = "TIME", value_parser = parse::interval, help_heading = "Time")]
    interval: Option<Duration>,
    /// Stop after this time, in seconds or with a unit, e.g. 500ms or 2m
    #[arg(short, long, value_name = "TIME", value_parser = parse::duration, help_heading = "Time")]
    duration: Option<Duration>,
    /// Do not measure block devices, networks and uncore PMUs
    #[arg(long, help_heading = "I/O")]
    no_io: bool,
    /// Count off-CPU time, by what tasks wait for
    #[arg(long, help_heading = "Events")]
    off_cpu: bool,
    /// Count interrupt handlers, their time on the CPUs, and the tasks that they interrupt
    #[arg(long, help_heading = "Events")]
    interrupts: bool,
    /// Count Top-Down slots to this level [default: 1, where the CPU can]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2), help_heading = "Metrics")]
    level: Option<u32>,
    /// Use the events and formulas of this CPU model, e.g. icelakex
    #[arg(long, value_name = "MODEL", conflicts_with = "no_metrics", help_heading = "Metrics")]
    cpu_model: Option<String>,
    /// Do not count cycles or anything else that uses the CPUs' counters
    #[arg(long, conflicts_with = "level", help_heading = "Metrics")]
    no_metrics: bool,
    /// Limit the containers, pods, units and other cgroups with separate series; the rest are summed in
    /// target="_other"
    #[arg(long, value_name = "N", default_value_t = 200, help_heading = "Limits", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_targets: u32,
    /// Limit the series of all targets and devices together, histogram buckets included
    #[arg(long, value_name = "N", default_value_t = 17_000, help_heading = "Limits", value_parser = clap::value_parser!(u32).range(500..=1_000_000))]
    max_series: u32,
    /// Keep exporting a target's series this long after it has ended
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
