//! `pmbpf report`: a recording in any format.

use std::path::PathBuf;

use super::{
    failure::Quality,
    gate::{self, Gate},
    output::{self, Stream},
    pipeline::{self, Pipeline},
};
use crate::{
    drain::{Ending, Stopped, recording::Recording},
    symbol::name_recorded,
};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The recording, from `pmbpf run -o FILE`
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
    let mut recording = Recording::read(&args.file)?;
    if !args.symfs.is_empty() {
        for drain in &mut recording.drains {
            name_recorded(&mut drain.places, &args.symfs);
        }
    }
    let header = recording.header;
    let into = args.output.open(Stream::Stdout);
    let prepared = pipeline::prepare(&header.plan, args.perfmon_dir.as_deref())?;
    let mut pipeline = Pipeline::new(&header, prepared, args.output.format(), args.output.style(), into);
    for drain in &recording.drains {
        pipeline.drain(drain)?;
    }
    let truncated = recording.ending.is_none();
    let ending = recording.ending.unwrap_or_else(|| Ending {
        stopped: Stopped::Truncated,
        workload: None,
        duration: std::time::Duration::from_nanos(recording.drains.last().map_or(0, |drain| drain.at_ns)),
    });
    let report = pipeline.finish(&ending)?;
    gate::check(&args.fail_on, &header, &report)?;
    if truncated {
        let (drains, lost) = (recording.drains.len(), recording.lost_bytes);
        let why = format!(
            "the recording breaks off: {drains} drains were complete, {lost} bytes after them were not"
        );
        return Err(Quality(why).into());
    }
    Ok(0)
}
