//! `pmbpf report`: a recording in any format.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anstream::ColorChoice;

use super::{
    annotate::AnnotateArgs,
    failure::Usage,
    gate::{self, Gate},
    output::{self, Output, ReportOutput, Stream},
    page::{self, Made, PageArgs},
    parse,
    pipeline::{Pipeline, check_counts},
    recorder::HdrLogArgs,
    redaction::{Naming, Redaction},
    replay::{finish, names},
    select::SelectArgs,
};
use crate::{
    drain::{Header, Names, recording::Opened},
    machine::duration_ns,
    view::{Format, View, text::duration},
};

/// Arguments of `pmbpf report`.
#[derive(Debug, clap::Args)]
#[command(after_help = super::examples::REPORT)]
pub(super) struct Args {
    /// Recording, made by `run`, `io` or `stat` with -o FILE: a regular file, or `-` for standard input
    file: PathBuf,
    /// Look up names missing from the recording by build id in this folder of executed files or their debug
    /// files
    #[arg(long, value_name = "DIR", conflicts_with = "redact")]
    symfs: Vec<PathBuf>,
    /// Use the formulas of this perfmon directory instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    perfmon_dir: Option<PathBuf>,
    /// Exit with 3 on this defect of the result (repeatable): lost, unsupported, blind>N%, samples<N%,
    /// unattributed>N%
    #[arg(long, value_name = "CONDITION")]
    fail_on: Vec<Gate>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    hdr_log: HdrLogArgs,
    /// Report at this interval, whatever that of the run was; at least a tick of the recording
    #[arg(short = 'I', long, value_name = "TIME", value_parser = parse::interval, help_heading = "Rows", conflicts_with = "html")]
    interval: Option<Duration>,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    annotate: AnnotateArgs,
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

/// Writes what `pmbpf report` writes of a recording, without colours, and returns the exit code.
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
        interval: None,
        select: SelectArgs::default(),
        annotate: AnnotateArgs::default(),
        page: PageArgs::default(),
        hdr_log: HdrLogArgs::default(),
        redaction: Redaction::of(naming),
        report: output.into(),
    };
    of(&args, recording, into)
}

fn of(args: &Args, recording: Opened, into: Box<dyn Write>) -> anyhow::Result<u8> {
    let redacting = args.redaction.begin();
    let header = &reported(args, redacting.of(recording.header)?)?;
    check(args, header)?;
    let output = args.report.output();
    let style = output.style(Stream::Stdout);
    let mut into = Some(into);
    let view = match (args.annotate.function(), into.take_if(|_| args.annotate.function().is_none())) {
        (None, Some(into)) => View::new(header, output.report_format(), style, into),
        _ => View::watched(header, Box::new(|_| ())),
    };
    let mut pipeline = Pipeline::into_view(header, args.perfmon_dir.as_deref(), view)?;
    pipeline.log_to(args.hdr_log.begin(header.started_unix_ns)?);
    args.select.select(&mut pipeline);
    if let Some(names) = early_names(args, header)? {
        pipeline.learn(&redacting.of(names)?);
    }
    let thin = |drain| Ok(args.select.of_drain(drain));
    let (report, end) = finish(&mut pipeline, recording.entries, &redacting, &args.symfs, thin)?;
    pipeline.left_out().iter().for_each(|text| output::talk(text));
    SelectArgs::say_span(&report);
    if let Some(into) = &mut into {
        let (owners, about) = (args.select.owners(), (header, &pipeline));
        args.annotate.write(about, (&owners, &args.symfs), (&output, &style, into))?;
    }
    gate::check(&args.fail_on, &report)?;
    end.whole()
}

/// Returns the header of the run as it is reported: by which owners, in which intervals.
fn reported(args: &Args, mut header: Header) -> Result<Header, Usage> {
    args.select.of_header(&mut header)?;
    if args.interval.is_some() && header.tasks.is_none() && header.io.is_none() {
        let why = "counts are reported in the intervals that they were read in: leave out -I";
        return Err(Usage(why.to_owned()));
    }
    if let Some(wanted) = args.interval {
        let Some(own_ns) = page::tick_ns(&header) else {
            return Err(Usage("the recording was not read while it ran: it has no intervals".to_owned()));
        };
        let (wanted_ns, own) = (duration_ns(wanted), duration(own_ns as f64));
        if wanted_ns < own_ns {
            return Err(Usage(format!("the recording has ticks of {own}: -I can only be longer")));
        }
        let ticks = (wanted_ns as f64 / own_ns as f64).round() as u64;
        header = page::with_intervals(&header, u32::try_from(ticks).unwrap_or(u32::MAX));
    }
    Ok(header)
}

/// Returns the names at a recording's end, if intervals need them before it is read. Standard input is read
/// once, so its intervals show where code is instead.
fn early_names(args: &Args, header: &Header) -> anyhow::Result<Option<Names>> {
    let needs = header
        .tasks
        .as_ref()
        .is_some_and(|tasks| tasks.plan.interval.is_some() && !tasks.plan.sampling.is_empty());
    if !needs || !args.file.is_file() {
        return Ok(None);
    }
    names(Opened::open(&args.file)?.entries)
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
    let header = reported(args, redacting.of(Opened::open(&args.file)?.header)?)?;
    check(args, &header)?;
    let source = page::Source {
        open: &|| Opened::open(&args.file),
        symfs: &args.symfs,
        perfmon_dir: args.perfmon_dir.as_deref(),
        redacting: &redacting,
        select: &args.select,
    };
    let Made { page, left_out, report, end } = source.page(&header)?;
    args.page.deliver(&page, &args.report.output())?;
    left_out.iter().for_each(|text| output::talk(text));
    SelectArgs::say_span(&report);
    gate::check(&args.fail_on, &report)?;
    end.whole()
}

/// Refuses options that mean nothing for this recording.
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
