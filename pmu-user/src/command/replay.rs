//! Replay of a recording through a pipeline, and how the recording ended.

use std::{path::PathBuf, time::Duration};

use super::{failure::Incomplete, pipeline::Pipeline, redaction::Redacting};
use crate::{
    drain::{
        Absent, Drain, Ending, Names, Stopped,
        recording::{Entries, Entry},
    },
    metric::Report,
    symbol::Unfound,
};

/// Sends a recording through a pipeline to its end, every drain through `thin` first. Returns the report of
/// the whole run, and how the recording ended.
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
    let unfound = if symfs.is_empty() { Vec::new() } else { pipeline.name_from(symfs) };
    pipeline.miss(missing(&unfound));
    Ok((pipeline.finish(&end.ending())?, end))
}

/// Maximum number of files listed in a message.
const UNFOUND_LISTED: usize = 8;

/// Returns the names that are missing because no folder of --symfs has their files.
fn missing(unfound: &[Unfound]) -> Vec<Absent> {
    let (stripped, others): (Vec<&Unfound>, Vec<&Unfound>) =
        unfound.iter().partition(|file| file.is_stripped);
    let kinds = [
        ("no folder of --symfs has a file with the build id of", others),
        ("no folder of --symfs has a debug file, by build id, of the stripped", stripped),
    ];
    let absent = |(why, files): (&str, Vec<&Unfound>)| {
        let listed = files.iter().take(UNFOUND_LISTED);
        let listed: Vec<String> =
            listed.map(|file| format!("{} ({})", file.path.terminal(), file.build_id)).collect();
        let more = files.len().saturating_sub(UNFOUND_LISTED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Absent { what: "names".to_owned(), why: format!("{why} {}{more}", listed.join(", ")) }
    };
    kinds.into_iter().filter(|(_, files)| !files.is_empty()).map(absent).collect()
}

/// Returns the names that a recording ends with, for reports of intervals that are written before its end is
/// read.
pub(super) fn names(entries: Entries) -> anyhow::Result<Option<Names>> {
    Ok(replay(entries, |_| Ok(()))?.names)
}

/// End of a recording, and how much of it there was.
#[derive(Default)]
pub(super) struct End {
    ending: Option<Ending>,
    names: Option<Names>,
    drains: u64,
    pub(super) last_ns: u64,
    lost_bytes: u64,
}

/// Passes every drain of a recording to `keep`, one at a time.
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
    /// Returns how the recording ended. Without an ending, it was truncated.
    fn ending(&self) -> Ending {
        self.ending.clone().unwrap_or_else(|| Ending {
            stopped: Stopped::Truncated,
            workload: None,
            duration: Duration::from_nanos(self.last_ns),
            usage: None,
        })
    }

    /// Returns code 0 if the recording is complete.
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
        Err(Incomplete(why).into())
    }
}
