//! `pmbpf report`: a recording in any format.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anstream::ColorChoice;

use super::{
    failure::Usage,
    gate::{self, Gate},
    output::{self, Output, ReportOutput, Stream},
    page::{self, Made, PageArgs},
    pipeline::{Pipeline, check_counts},
    recorder::HdrLogArgs,
    redaction::{Naming, Redaction},
    replay::finish,
};
use crate::{
    drain::{Header, recording::Opened},
    view::Format,
};

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = super::examples::REPORT)]
pub(super) struct Args {
    /// The recording, which `run`, `io` or `stat` made with -o FILE: a regular file, or `-` for standard input
    file: PathBuf,
    /// Folder with the files that were running, or their debug versions; names missing from the recording are looked up
    /// there by build id
    #[arg(long, value_name = "DIR", conflicts_with = "redact")]
    symfs: Vec<PathBuf>,
    /// Use the formulas of this perfmon directory instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    perfmon_dir: Option<PathBuf>,
    /// Exit with 3 if the result is not good enough: lost, unsupported, blind>N%, samples<N%
    #[arg(long, value_name = "CONDITION")]
    fail_on: Vec<Gate>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    hdr_log: HdrLogArgs,
    #[command(flatten)]
    redaction: Redaction,
    #[command(flatten)]
    report: ReportOutput,
}

/// Reports from the recording alone.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    if args.page.is_given() {
        return as_page(args);
    }
    of(args, Opened::open(&args.file)?, args.report.output().open(Stream::Stdout))
}

/// Writes what `pmbpf report` writes of a recording, without colours; the exit code.
///
/// # Errors
///
/// The recording cannot be read to its end or breaks off, or `into` cannot be written.
pub fn write_report(
    recording: Opened,
    naming: Naming,
    format: Format,
    into: Box<dyn Write>,
) -> anyhow::Result<u8> {
    let output = Output::plain(format);
    let into = output.dress(into, ColorChoice::Never, None);
    let args = Args {
        file: PathBuf::new(),
        symfs: Vec::new(),
        perfmon_dir: None,
        fail_on: Vec::new(),
        page: PageArgs::default(),
        hdr_log: HdrLogArgs::default(),
        redaction: Redaction::of(naming),
        report: output.into(),
    };
    of(&args, recording, into)
}

fn of(args: &Args, recording: Opened, into: Box<dyn Write>) -> anyhow::Result<u8> {
    let redacting = args.redaction.begin();
    let header = &redacting.of(recording.header)?;
    check(args, header)?;
    let output = args.report.output();
    let looks = (output.report_format(), output.style(Stream::Stdout));
    let mut pipeline = Pipeline::new(header, args.perfmon_dir.as_deref(), looks, into)?;
    pipeline.log_to(args.hdr_log.begin(header.started_unix_ns)?);
    let (report, end) = finish(&mut pipeline, recording.entries, &redacting, &args.symfs, Ok)?;
    pipeline.left_out().iter().for_each(|text| output::talk(text));
    gate::check(&args.fail_on, &report)?;
    end.whole()
}

/// Writes the page.
fn as_page(args: &Args) -> anyhow::Result<u8> {
    if args.file.as_os_str() == "-" {
        let why = "--html reads the recording twice: name a file, standard input is read once";
        return Err(Usage(why.to_owned()).into());
    }
    if args.report.names_format() || args.hdr_log.is_given() {
        return Err(Usage("--html cannot be used with --format or --hdr-log".to_owned()).into());
    }
    args.page.check()?;
    let redacting = args.redaction.begin();
    let header = redacting.of(Opened::open(&args.file)?.header)?;
    check(args, &header)?;
    let source = page::Source {
        open: &|| Opened::open(&args.file),
        symfs: &args.symfs,
        perfmon_dir: args.perfmon_dir.as_deref(),
        redacting: &redacting,
    };
    let Made { page, left_out, report, end } = source.page(&header)?;
    args.page.deliver(&page, &args.report.output())?;
    left_out.iter().for_each(|text| output::talk(text));
    gate::check(&args.fail_on, &report)?;
    end.whole()
}

/// Refuses what this recording cannot answer.
fn check(args: &Args, header: &Header) -> anyhow::Result<()> {
    check_names(&args.file, header, &args.symfs, args.perfmon_dir.is_some())?;
    if header.tasks.is_none() {
        gate::check_without_tasks(&args.fail_on)?;
    }
    Ok(header.counts.iter().try_for_each(|counts| check_counts(&counts.plan))?)
}

/// Refuses names and formulas for a recording without tasks, where they mean nothing.
pub(super) fn check_names(
    file: &Path,
    header: &Header,
    symfs: &[PathBuf],
    formulas: bool,
) -> Result<(), Usage> {
    let wrong = [
        (!symfs.is_empty(), "--symfs", "it has no code to name"),
        (formulas, "--perfmon-dir", "its metrics have tables of their own"),
    ];
    let wrong = wrong.iter().find(|(given, ..)| *given && header.tasks.is_none());
    let Some((_, flag, why)) = wrong else { return Ok(()) };
    let what = if header.io.is_some() { "I/O" } else { "counts" };
    Err(Usage(format!("{} is a recording of {what} alone: leave out {flag}, {why}", file.display())))
}
