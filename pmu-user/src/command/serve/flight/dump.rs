//! Joins segments of a ring into one recording that begins where the first of them does, as if a run had
//! begun then.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};

use crate::drain::{
    Drain, Ending, Stopped,
    origin::Origin,
    recording::{Entries, Entry, Opened, Overwrite, Writer},
};

/// Length and size of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dumped {
    /// Length of the recorded time.
    pub(super) length: Duration,
    pub(super) bytes: u64,
}

/// Joins segments, the oldest first, into a recording at `into`, and replaces what was there. A segment may
/// break off.
///
/// # Errors
///
/// The segments have no drain after the first; one is not a recording; or `into` cannot be written.
pub(super) fn join(segments: &[PathBuf], into: &Path) -> anyhow::Result<Dumped> {
    let mut writer: Option<(Writer, Origin)> = None;
    let (mut last_ns, mut drains) = (0, 0_u64);
    for path in segments {
        let Opened { header, mut entries } = match Opened::open(path) {
            Ok(opened) => opened,
            // The segment had not begun when the process ended.
            Err(_) if is_empty(path) => continue,
            Err(error) => return Err(error.into()),
        };
        let Some(base) = next(&mut entries)? else { continue };
        let (writer, origin) = match &mut writer {
            Some(begun) => begun,
            none => {
                let origin = Origin::of(&base);
                let mut begun = Writer::create(into, Overwrite::Yes, &origin.header(header))?;
                begun.drain(&origin.drain(base))?;
                none.insert((begun, origin))
            }
        };
        while let Some(drain) = next(&mut entries)? {
            let drain = origin.drain(drain);
            last_ns = drain.at_ns().max(last_ns);
            drains += 1;
            writer.drain(&drain)?;
        }
    }
    let Some((mut writer, _)) = writer.filter(|_| drains > 0) else {
        remove(into)?;
        bail!("nothing has been recorded yet");
    };
    let length = Duration::from_nanos(last_ns);
    writer.end(&Ending { stopped: Stopped::Duration, workload: None, duration: length, usage: None })?;
    Ok(Dumped { length, bytes: writer.bytes() })
}

/// Returns the next drain, if there is one.
fn next(entries: &mut Entries) -> anyhow::Result<Option<Drain>> {
    while let Some(entry) = entries.read()? {
        if let Entry::Drain(drain) = entry {
            return Ok(Some(*drain));
        }
    }
    Ok(None)
}

fn is_empty(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.len() == 0)
}

/// Removes a file, which need not exist.
pub(super) fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
