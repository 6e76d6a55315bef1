//! `--html`: a recording as one page. It is read twice or more: once for the whole, which says who matters and how long it was, then
//! for intervals that are short enough to look at and few enough for a page.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use super::failure::Usage;
use crate::{
    drain::{
        Drain, Header, Owner,
        recording::{Overwrite, write_new},
    },
    machine::duration_ns,
    metric::Report,
    view::html::{Intervals, OWNERS_MIN, SPANS_MAX},
};

/// Where a page goes.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct PageArgs {
    /// Write one HTML file that needs nothing else, in place of the text: a new file for its owner only; `-` for standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv", "format", "hdr_log"], help_heading = "Output")]
    html: Option<PathBuf>,
    /// Replace FILE if it exists, by a new file that only you may read
    #[arg(long, requires = "html", help_heading = "Output")]
    force: bool,
}

impl PageArgs {
    /// Is a page wanted?
    pub(super) const fn is_given(&self) -> bool {
        self.html.is_some()
    }

    /// Does it go to standard output?
    pub(super) fn is_stdout(&self) -> bool {
        self.html.as_deref().is_some_and(|path| path.as_os_str() == "-")
    }

    /// Refuses a file that is there already, before anything is read.
    pub(super) fn check(&self) -> Result<(), Usage> {
        match self.html.as_deref().filter(|file| file.is_file() && !self.force) {
            Some(file) => Err(Usage(format!("{} exists; --force replaces it", file.display()))),
            None => Ok(()),
        }
    }

    /// Makes the file, which is there whole or not at all.
    pub(super) fn write(&self, page: &[u8]) -> std::io::Result<()> {
        let overwrite = if self.force { Overwrite::Yes } else { Overwrite::No };
        self.html.as_deref().map_or(Ok(()), |path| write_new(path, overwrite, page))
    }

    /// Its name, for a message.
    pub(super) fn name(&self) -> String {
        self.html.as_deref().map(|path| path.display().to_string()).unwrap_or_default()
    }
}

/// The same run without intervals: everything of it is told once.
pub(super) fn without_intervals(header: &Header) -> Header {
    every(header, |_| None)
}

/// The same run, reporting every `ticks` of its ticks.
pub(super) fn with_intervals(header: &Header, ticks: u32) -> Header {
    every(header, |tick| Some(tick.saturating_mul(ticks)))
}

fn every(header: &Header, interval: impl Fn(Duration) -> Option<Duration>) -> Header {
    let mut header = header.clone();
    if let Some(tasks) = &mut header.tasks {
        tasks.plan.interval = interval(tasks.plan.interval.unwrap_or(tasks.plan.tick));
    }
    if let Some(io) = &mut header.io {
        io.plan.interval = interval(io.plan.interval.unwrap_or(io.plan.tick));
    }
    // Counts are read at the ends of their intervals only: see `Thinned`.
    if let (Some(counts), None) = (&mut header.counts, interval(Duration::ZERO)) {
        counts.plan.interval = None;
    }
    header
}

/// The shortest interval that the recording can report, in ns; `None` where it has no intervals.
pub(super) fn tick_ns(header: &Header) -> Option<u64> {
    let tasks = header.tasks.as_ref().map(|tasks| tasks.plan.interval.unwrap_or(tasks.plan.tick));
    let io = header.io.as_ref().map(|io| io.plan.interval.unwrap_or(io.plan.tick));
    let counts = header.counts.as_ref().and_then(|counts| counts.plan.interval);
    tasks.or(io).or(counts).map(|tick| duration_ns(tick).max(1))
}

/// How many ticks an interval of the page has, so that there are few enough.
pub(super) fn ticks_per_interval(header: &Header, length_ns: u64) -> u32 {
    let ticks = tick_ns(header).map_or(1, |tick| length_ns / tick);
    u32::try_from(ticks.div_ceil(SPANS_MAX)).unwrap_or(u32::MAX).max(1)
}

/// How many intervals there are then.
pub(super) fn intervals_of(header: &Header, length_ns: u64, ticks: u32) -> u64 {
    tick_ns(header).map_or(1, |tick| length_ns / tick / u64::from(ticks)).max(1)
}

/// Drains of which those of counts are so many times fewer: their readings are sums, so that none is lost by leaving some out.
pub(super) struct Thinned {
    ticks: u32,
    seen: u32,
}

impl Thinned {
    pub(super) const fn new(ticks: u32) -> Self {
        Self { ticks, seen: 0 }
    }

    /// The drain, without counts that are to be left out.
    pub(super) fn of(&mut self, mut drain: Drain) -> Drain {
        self.seen += 1;
        let is_kept = self.seen.is_multiple_of(self.ticks);
        drain.counts = drain.counts.filter(|counts| is_kept || counts.ended.is_some());
        drain
    }
}

/// Of whom intervals are kept: those with most CPU time, as many as there is room for in so many intervals.
pub(super) fn kept(report: &Report, rows: u64, intervals: u64) -> BTreeSet<Owner> {
    let owners = owners(report);
    let rows_each = (rows / (owners.len() as u64 + 1)).max(1);
    let room = Intervals::ROWS / intervals.max(1) / rows_each;
    let room = usize::try_from(room).unwrap_or(usize::MAX).max(OWNERS_MIN);
    owners.into_iter().take(room).collect()
}

/// The owners of a report, each once, those of tasks first.
fn owners(report: &Report) -> Vec<Owner> {
    let mut seen = BTreeSet::new();
    report.owners().filter(|&owner| seen.insert(owner)).cloned().collect()
}
