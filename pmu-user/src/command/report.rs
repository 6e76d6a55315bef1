//! `pmbpf report`: a recording of a run, or of I/O, in any format.

use std::{path::PathBuf, time::Duration};

use super::{
    failure::{Quality, Usage},
    gate::{self, Gate},
    io::IoPipeline,
    output::{self, Stream},
    pipeline::{self, Pipeline},
};
use crate::drain::{
    Ending, Stopped,
    recording::{AnyRecording, IoRecording, Kind, Recorded, Recording, RecordingOf},
};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The recording, from `pmbpf run -o FILE` or `pmbpf io -o FILE`
    file: PathBuf,
    /// Folder with the files that were running, or their debug versions; names missing from the recording are looked up
    /// there by build id
    #[arg(long, value_name = "DIR")]
    symfs: Vec<PathBuf>,
    /// Use the formulas of this perfmon directory instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    perfmon_dir: Option<PathBuf>,
    /// Exit with 3 if the result is not good enough: lost, unsupported, blind>N%, samples<N%
    #[arg(long, value_name = "CONDITION")]
    fail_on: Vec<Gate>,
    #[command(flatten)]
    output: output::Output,
}

/// Reports from the recording alone.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    match AnyRecording::read(&args.file)? {
        AnyRecording::Run(recording) => of_run(args, &recording),
        AnyRecording::Io(recording) => of_io(args, &recording),
    }
}

fn of_run(args: &Args, recording: &Recording) -> anyhow::Result<u8> {
    let header = &recording.header;
    let into = args.output.open(Stream::Stdout);
    let prepared = pipeline::prepare(&header.plan, args.perfmon_dir.as_deref())?;
    let mut pipeline = Pipeline::new(header, prepared, args.output.format(), args.output.style(), into);
    for drain in &recording.drains {
        pipeline.drain(drain)?;
    }
    if let Some(names) = &recording.names {
        pipeline.name(names);
    }
    if !args.symfs.is_empty() {
        pipeline.name_from(&args.symfs);
    }
    let report = pipeline.finish(&ending(recording))?;
    gate::check(&args.fail_on, header, &report)?;
    whole(recording)
}

fn of_io(args: &Args, recording: &IoRecording) -> anyhow::Result<u8> {
    let wrong = [
        (!args.symfs.is_empty(), "--symfs", "it has no code to name"),
        (args.perfmon_dir.is_some(), "--perfmon-dir", "its metrics have tables of their own"),
    ];
    if let Some((_, flag, why)) = wrong.iter().find(|(given, ..)| *given) {
        let file = args.file.display();
        return Err(Usage(format!("{file} is a recording of {}: leave out {flag}, {why}", Kind::Io)).into());
    }
    gate::check_io_gates(&args.fail_on)?;
    let into = args.output.open(Stream::Stdout);
    let mut pipeline = IoPipeline::new(&recording.header, args.output.format(), args.output.style(), into)?;
    for drain in &recording.drains {
        pipeline.drain(drain.clone())?;
    }
    let report = pipeline.finish(&ending(recording))?;
    gate::check_io(&args.fail_on, &report)?;
    whole(recording)
}

/// How it ended; it broke off if it does not say.
fn ending<R: Recorded>(recording: &RecordingOf<R>) -> Ending {
    recording.ending.clone().unwrap_or_else(|| Ending {
        stopped: Stopped::Truncated,
        workload: None,
        duration: Duration::from_nanos(recording.drains.last().map_or(0, R::at_ns)),
    })
}

/// Code 0 if the recording is whole.
fn whole<R: Recorded>(recording: &RecordingOf<R>) -> anyhow::Result<u8> {
    if recording.ending.is_some() {
        return Ok(0);
    }
    let (drains, lost) = (recording.drains.len(), recording.lost_bytes);
    let why =
        format!("the recording breaks off: {drains} drains were complete, {lost} bytes after them were not");
    Err(Quality(why).into())
}
