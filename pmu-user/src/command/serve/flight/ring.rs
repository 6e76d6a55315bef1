//! Ring: the last minutes as recordings on disk, called segments, of which the oldest are removed. Each
//! begins with a checkpoint.

use std::{collections::VecDeque, io, path::PathBuf};

use jiff::Timestamp;

use super::{
    dump::{Dumped, remove},
    folder::Folder,
};
use crate::drain::{
    Drain, Header,
    recording::{Overwrite, Writer},
};

/// Parts of a ring: this number of segments holds what is to be kept, and one more is being written.
pub(super) const SEGMENTS: u64 = 10;

/// Limits of what is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Kept time in ns, at least; one segment more is kept.
    pub(super) time_ns: u64,
    /// Bytes of all segments.
    pub(super) bytes: u64,
}

/// Whether a segment continues where the one before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    Yes,
    /// Something is missing in between: earlier segments cannot be joined with this one.
    No,
}

#[derive(Debug)]
struct Segment {
    path: PathBuf,
    from_ns: u64,
    bytes: u64,
    /// Bytes of its header and checkpoint.
    begun_bytes: u64,
}

/// Ring of segments, the newest of which is being written.
#[derive(Debug)]
pub(super) struct Ring {
    folder: Folder,
    header: Header,
    bounds: Bounds,
    segments: VecDeque<Segment>,
    writer: Option<Writer>,
    /// Number of the next segment.
    number: u64,
    last_ns: u64,
}

impl Ring {
    /// Returns an empty ring for the run that `header` describes.
    pub(super) fn new(folder: Folder, header: Header, bounds: Bounds) -> Self {
        let mut header = Header { begins_midway: true, ..header };
        // Intervals are those of rules. A report covers all that is kept, and each interval where that is
        // requested.
        header.tasks.iter_mut().for_each(|tasks| tasks.plan.interval = None);
        header.io.iter_mut().for_each(|io| io.plan.interval = None);
        Self { folder, header, bounds, segments: VecDeque::new(), writer: None, number: 1, last_ns: 0 }
    }

    /// Begins a segment with a checkpoint.
    ///
    /// # Errors
    ///
    /// The segment cannot be written. Then nothing is written until another one begins.
    pub(super) fn begin(&mut self, base: &Drain, follows: Follows) -> anyhow::Result<()> {
        self.writer = None;
        if follows == Follows::No {
            self.clear()?;
        }
        let path = self.folder.segment(self.number);
        self.number += 1;
        let writer = Writer::create(&path, Overwrite::No, &self.header)?;
        self.segments.push_back(Segment { path, from_ns: base.at_ns(), bytes: 0, begun_bytes: 0 });
        self.writer = Some(writer);
        self.write(base)?;
        if let Some(open) = self.segments.back_mut() {
            open.begun_bytes = open.bytes;
        }
        Ok(())
    }

    /// Appends a drain; without an open segment it is dropped. Returns whether the open segment has reached
    /// its size.
    ///
    /// # Errors
    ///
    /// As for [`Ring::begin`].
    pub(super) fn drain(&mut self, drain: &Drain) -> anyhow::Result<bool> {
        self.write(drain)?;
        let open = self.segments.back().filter(|_| self.writer.is_some());
        Ok(open.is_some_and(|open| open.bytes - open.begun_bytes >= self.bounds.bytes / SEGMENTS))
    }

    fn write(&mut self, drain: &Drain) -> anyhow::Result<()> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let written: io::Result<()> = writer.drain(drain);
        if let Some(open) = self.segments.back_mut() {
            open.bytes = writer.bytes();
        }
        written?;
        self.writer = Some(writer);
        self.last_ns = drain.at_ns();
        self.keep_within()
    }

    /// Removes segments that are too old, or exceed the size, but never the one that is being written.
    fn keep_within(&mut self) -> anyhow::Result<()> {
        let begins_in_time =
            |segment: &Segment| segment.from_ns.saturating_add(self.bounds.time_ns) <= self.last_ns;
        while self.bytes() > self.bounds.bytes && self.segments.len() > 1
            || self.segments.get(1).is_some_and(begins_in_time)
        {
            if let Some(oldest) = self.segments.pop_front() {
                remove(&oldest.path)?;
            }
        }
        Ok(())
    }

    /// Returns the bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Returns the time that is kept, in ns.
    pub(super) fn span_ns(&self) -> u64 {
        self.segments.front().map_or(0, |oldest| self.last_ns.saturating_sub(oldest.from_ns))
    }

    /// Returns when the last drain was done, in ns since counting began.
    pub(super) const fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Makes a dump of all that is kept, for an event at a time.
    ///
    /// # Errors
    ///
    /// Nothing is kept, or the dump cannot be written.
    pub(super) fn dump(&self, at: Timestamp, why: &str) -> anyhow::Result<(PathBuf, Dumped)> {
        let segments: Vec<PathBuf> = self.segments.iter().map(|segment| segment.path.clone()).collect();
        self.folder.dump(&segments, at, why)
    }

    /// Removes all segments.
    pub(super) fn clear(&mut self) -> anyhow::Result<()> {
        self.writer = None;
        while let Some(oldest) = self.segments.pop_front() {
            remove(&oldest.path)?;
        }
        Ok(())
    }
}
