//! `pmbpf eval`: metrics from counts that were made elsewhere.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::de::DeserializeOwned;

use super::{
    failure::Usage,
    output::{self, Stream},
};
use crate::{
    file::read_regular,
    metric::{io, offline},
    table::{io as io_table, model},
    untrusted::json,
    view::evaluation::Evaluation,
};

/// Arguments of `pmbpf eval`.
#[derive(Debug, clap::Args)]
#[command(after_help = super::examples::EVAL)]
pub(super) struct Args {
    /// Use the formulas of this CPU model, e.g. icelakex
    #[arg(long, value_name = "MODEL")]
    cpu: String,
    /// Read counts and constants from FILE: {"constants": {"NAME": number, …}, "counts": {"EVENT": number,
    /// …}}; with --io: {"seconds": number, "link": {"speed": "16.0 GT/s PCIe", "width": 16}, "counts": {…}}
    #[arg(long, value_name = "FILE")]
    counts: PathBuf,
    /// Compute I/O metrics (PCIe, L3 misses of devices, VT-d, DRAM, UPI), and those of the link if given
    #[arg(long)]
    io: bool,
    /// Treat the counts as those of a task or cgroup, counted only while it ran, not of whole CPUs
    #[arg(long, conflicts_with = "io")]
    task: bool,
    /// Use the formulas of this perfmon directory instead of the built-in ones
    #[arg(long, value_name = "DIR", conflicts_with = "io")]
    perfmon_dir: Option<PathBuf>,
    #[command(flatten)]
    output: output::Output,
}

/// Computes the metrics and prints them.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    let unknown = if args.io { of_uncore(args)? } else { of_cores(args)? };
    if !unknown.is_empty() {
        let names = unknown.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
        output::talk(&format!("no formula of {} uses {} of the counts: {names}", args.cpu, unknown.len()));
    }
    Ok(0)
}

/// Writes the metrics of a CPU model, and returns the counts that no formula uses.
fn of_cores(args: &Args) -> anyhow::Result<Vec<String>> {
    let model = model::load(&args.cpu, args.perfmon_dir.as_deref()).map_err(|error| match error {
        model::FindError::NoModel { .. } => anyhow::Error::from(Usage(error.to_string())),
        other => other.into(),
    })?;
    let counted: offline::TaskCounts = read(&args.counts)?;
    let (model, evaluated) = if args.task {
        offline::evaluate_task(model, &counted)
    } else {
        let evaluated = offline::evaluate(&model, &counted);
        (model, evaluated)
    };
    let into = &mut *args.output.open(Stream::Stdout);
    Evaluation::of_cores(&model, &evaluated).write(into, args.output.format())?;
    Ok(evaluated.unknown)
}

/// Writes the I/O metrics of a platform, and returns the counts that no formula uses.
fn of_uncore(args: &Args) -> anyhow::Result<Vec<String>> {
    let table = io_table::load(&args.cpu).map_err(|error| match error {
        io_table::FindError::NoModel { .. } => anyhow::Error::from(Usage(error.to_string())),
        other => other.into(),
    })?;
    let counted: io::offline::IoCounts = read(&args.counts)?;
    let wrong = |error: io::offline::IoCountsError| Usage(format!("{}: {error}", args.counts.display()));
    let evaluated = io::offline::evaluate(&table, &counted).map_err(wrong)?;
    let name = args.cpu.to_ascii_lowercase();
    let into = &mut *args.output.open(Stream::Stdout);
    Evaluation::of_io(&name, &table, &counted, &evaluated).write(into, args.output.format())?;
    Ok(evaluated.unknown)
}

/// Size limit of a counts file, in bytes. Every event of every known CPU fits.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Memory limit of a parsed counts file, in bytes.
const MEMORY_BYTES_MAX: usize = 64 << 20;

fn read<T: DeserializeOwned>(counts: &Path) -> anyhow::Result<T> {
    let path = counts.display();
    let bytes = read_regular(counts, FILE_BYTES_MAX).with_context(|| format!("cannot read {path}"))?;
    let value = json::from_slice(&bytes, MEMORY_BYTES_MAX);
    value.map_err(|error| Usage(format!("{path} is not JSON of counts: {error}")).into())
}
