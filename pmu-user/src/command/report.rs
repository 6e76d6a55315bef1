//! `pmbpf report`: a recording in any format.

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anstream::ColorChoice;

use super::{
    failure::{Quality, Usage},
    gate::{self, Gate},
    output::{self, Output, ReportOutput, Stream},
    page::{self, PageArgs, Thinned},
    pipeline::{Pipeline, check_counts},
    recorder::{HdrLogArgs, Naming, Redacting, Redaction},
};
use crate::{
    drain::{
        Drain, Ending, Header, Names, Stopped,
        recording::{Entries, Entry, Opened},
    },
    metric::Report,
    view::{
        Format,
        html::{self, Extremes, Intervals, Packed, Whole},
    },
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
    pipeline.log_to(args.hdr_log.begin(header.started_unix_ns())?);
    let (report, end) = finish(&mut pipeline, recording.entries, &redacting, &args.symfs, Ok)?;
    pipeline.left_out().iter().for_each(|text| output::talk(text));
    gate::check(&args.fail_on, header, &report)?;
    end.whole()
}

/// Writes the page, out of the rows of the whole and those of intervals.
fn as_page(args: &Args) -> anyhow::Result<u8> {
    if args.file.as_os_str() == "-" {
        let why = "--html reads the recording twice: name a file, standard input is read once";
        return Err(Usage(why.to_owned()).into());
    }
    args.page.check()?;
    let redacting = args.redaction.begin();
    let recording = Opened::open(&args.file)?;
    let header = &redacting.of(recording.header)?;
    check(args, header)?;
    let mut whole = Whole::new();
    let of_all = page::without_intervals(header);
    let mut pipeline = rows(args, &of_all, &mut whole)?;
    let (report, end) = finish(&mut pipeline, recording.entries, &redacting, &args.symfs, Ok)?;
    let left_out = pipeline.left_out();
    drop(pipeline);
    let intervals = intervals(args, header, &redacting, (&report, whole.numbers(), end.last_ns))?;
    let page = html::page(whole, intervals)?;
    if args.page.is_stdout() {
        let mut into = args.report.output().open_bytes(Stream::Stdout);
        into.write_all(&page).and_then(|()| into.flush())?;
    } else {
        args.page.write(&page)?;
        output::talk(&format!("wrote {} KB: {}", page.len().div_ceil(1000), args.page.name()));
    }
    left_out.iter().for_each(|text| output::talk(text));
    gate::check(&args.fail_on, header, &report)?;
    end.whole()
}

/// The rows of intervals: of the shortest that the recording has, or of so many of them together that they fit into a page.
fn intervals(
    args: &Args,
    header: &Header,
    redacting: &Redacting,
    (report, numbers, length_ns): (&Report, u64, u64),
) -> anyhow::Result<Packed> {
    let mut ticks = page::ticks_per_interval(header, length_ns);
    let owners = page::kept(report, numbers, page::intervals_of(header, length_ns, ticks));
    let pass = |into: &mut dyn Write, ticks: u32| -> anyhow::Result<()> {
        let recording = Opened::open(&args.file)?;
        let header = page::with_intervals(header, ticks);
        let mut thinned = Thinned::new(ticks);
        let mut pipeline = rows(args, &header, into)?;
        pipeline.keep_only(&owners);
        finish(&mut pipeline, recording.entries, redacting, &args.symfs, |drain| Ok(thinned.of(drain)))?;
        Ok(())
    };
    let mut extremes = Extremes::default();
    if ticks > 1 {
        pass(&mut extremes, 1)?;
    }
    loop {
        let mut intervals = Intervals::new(ticks, owners.len(), &extremes);
        pass(&mut intervals, ticks)?;
        // A single interval cannot be made of less.
        if intervals.fits() || page::intervals_of(header, length_ns, ticks) == 1 {
            return Ok(intervals.packed());
        }
        if extremes.is_empty() {
            pass(&mut extremes, 1)?;
        }
        ticks = ticks.saturating_mul(2);
    }
}

/// A pipeline that writes rows of JSON.
fn rows<'a>(args: &'a Args, header: &'a Header, into: &'a mut dyn Write) -> anyhow::Result<Pipeline<'a>> {
    let output = Output::plain(Format::Json);
    let looks = (output.report_format(), output.style(Stream::Stdout));
    Pipeline::new(header, args.perfmon_dir.as_deref(), looks, Box::new(into))
}

/// Sends a recording through a pipeline to its end, every drain through `thin` first; the whole run's report, and how the recording
/// ended.
pub(super) fn finish(
    pipeline: &mut Pipeline<'_>,
    entries: Entries,
    redacting: &Redacting,
    symfs: &[PathBuf],
    mut thin: impl FnMut(Drain) -> anyhow::Result<Drain>,
) -> anyhow::Result<(Report, End)> {
    let end = replay(entries, |drain| Ok(pipeline.drain(thin(redacting.of(drain)?)?).map(drop)?))?;
    if let Some(names) = &end.names {
        pipeline.name(&redacting.of(names.clone())?);
    }
    if !symfs.is_empty() {
        pipeline.name_from(symfs);
    }
    Ok((pipeline.finish(&end.ending())?, end))
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

/// What a recording ends with, and how much of it there was.
#[derive(Default)]
pub(super) struct End {
    ending: Option<Ending>,
    names: Option<Names>,
    drains: u64,
    last_ns: u64,
    lost_bytes: u64,
}

/// Gives every drain of a recording to `keep`, one at a time.
fn replay(mut entries: Entries, mut keep: impl FnMut(Drain) -> anyhow::Result<()>) -> anyhow::Result<End> {
    let mut end = End::default();
    while let Some(entry) = entries.read()? {
        match entry {
            Entry::Drain(drain) => {
                end.drains += 1;
                end.last_ns = drain.at_ns();
                keep(*drain)?;
            }
            Entry::Ending(ending) => end.ending = Some(ending),
            Entry::Names(names) => end.names = Some(names),
        }
    }
    end.lost_bytes = entries.lost_bytes()?;
    Ok(end)
}

impl End {
    /// How it ended; it broke off if it does not say.
    fn ending(&self) -> Ending {
        self.ending.clone().unwrap_or_else(|| Ending {
            stopped: Stopped::Truncated,
            workload: None,
            duration: Duration::from_nanos(self.last_ns),
            usage: None,
        })
    }

    /// Code 0 if the recording is whole.
    pub(super) fn whole(&self) -> anyhow::Result<u8> {
        let Self { drains, lost_bytes, .. } = self;
        let why = match (&self.ending, lost_bytes) {
            (Some(_), 0) => return Ok(0),
            (Some(_), _) => {
                format!("{lost_bytes} bytes after the recording's ending are damaged: names may be missing")
            }
            (None, _) => format!(
                "the recording breaks off: {drains} drains were complete, {lost_bytes} bytes after them were not"
            ),
        };
        Err(Quality(why).into())
    }
}
