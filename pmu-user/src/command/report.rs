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
    pipeline::{Pipeline, check_counts},
    recorder::{HdrLogArgs, Naming, Redacting, Redaction},
};
use crate::{
    drain::{
        Drain, Ending, Header, Names, Stopped,
        recording::{Entries, Entry, Opened},
    },
    metric::Report,
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
    hdr_log: HdrLogArgs,
    #[command(flatten)]
    redaction: Redaction,
    #[command(flatten)]
    report: ReportOutput,
}

/// Reports from the recording alone.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
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
        hdr_log: HdrLogArgs::default(),
        redaction: Redaction::of(naming),
        report: output.into(),
    };
    of(&args, recording, into)
}

fn of(args: &Args, recording: Opened, into: Box<dyn Write>) -> anyhow::Result<u8> {
    let redacting = args.redaction.begin();
    let header = &redacting.of(recording.header)?;
    check_names(&args.file, header, &args.symfs, args.perfmon_dir.is_some())?;
    if header.tasks.is_none() {
        gate::check_without_tasks(&args.fail_on)?;
    }
    header.counts.iter().try_for_each(|counts| check_counts(&counts.plan))?;
    let output = args.report.output();
    let looks = (output.report_format(), output.style(Stream::Stdout));
    let mut pipeline = Pipeline::new(header, args.perfmon_dir.as_deref(), looks, into)?;
    pipeline.log_to(args.hdr_log.begin(header.started_unix_ns())?);
    let (report, end) = finish(&mut pipeline, recording.entries, &redacting, &args.symfs)?;
    pipeline.left_out().iter().for_each(|text| output::talk(text));
    gate::check(&args.fail_on, header, &report)?;
    end.whole()
}

/// Sends a recording through a pipeline to its end; the whole run's report, and how the recording ended.
pub(super) fn finish(
    pipeline: &mut Pipeline<'_>,
    entries: Entries,
    redacting: &Redacting,
    symfs: &[PathBuf],
) -> anyhow::Result<(Report, End)> {
    let end = replay(entries, |drain| Ok(pipeline.drain(redacting.of(drain)?).map(drop)?))?;
    if let Some(names) = &end.names {
        pipeline.name(&redacting.of(names.clone())?);
    }
    if !symfs.is_empty() {
        pipeline.name_from(symfs);
    }
    Ok((pipeline.finish(&end.ending())?, end))
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
