//! The ring: the last minutes as recordings on disk, segments, of which the oldest go. Each begins with a checkpoint.

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

/// Parts of a ring: so many segments hold what is to be kept, and one more is being written.
pub(super) const SEGMENTS: u64 = 10;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Time, in ns: at least so much, and one segment more.
    pub(super) time_ns: u64,
    /// Bytes of all segments.
    pub(super) bytes: u64,
}

/// Does a segment go on where the one before it ends?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    Yes,
    /// Something is missing in between: what came before cannot be joined with it.
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

/// Segments, the newest of which is being written.
#[derive(Debug)]
pub(super) struct Ring {
    folder: Folder,
    header: Header,
    bounds: Bounds,
    segments: VecDeque<Segment>,
    writer: Option<Writer>,
    /// Of the next segment.
    number: u64,
    last_ns: u64,
}

impl Ring {
    /// An empty ring for the run that `header` describes.
    pub(super) fn new(folder: Folder, header: Header, bounds: Bounds) -> Self {
        let mut header = Header { begins_midway: true, ..header };
        // Intervals are those of rules: a report is of all that is kept, and of each interval where that is asked for.
        header.tasks.iter_mut().for_each(|tasks| tasks.plan.interval = None);
        header.io.iter_mut().for_each(|io| io.plan.interval = None);
        Self { folder, header, bounds, segments: VecDeque::new(), writer: None, number: 1, last_ns: 0 }
    }

    /// Begins a segment with a checkpoint.
    ///
    /// # Errors
    ///
    /// It cannot be written: then nothing is until another one begins.
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

    /// Appends a drain; of one that comes while no segment is open nothing is kept. Is the open segment as large as it may be?
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

    /// Removes segments that are too old, or too many bytes; never the one that is being written.
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

    /// Bytes of all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// How much time is kept, in ns.
    pub(super) fn span_ns(&self) -> u64 {
        self.segments.front().map_or(0, |oldest| self.last_ns.saturating_sub(oldest.from_ns))
    }

    /// When the last drain was done, in ns since counting began.
    pub(super) const fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Makes a dump of all that is kept, for what happened at a time.
    ///
    /// # Errors
    ///
    /// There is nothing, or it cannot be written.
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
