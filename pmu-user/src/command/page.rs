//! `--html`, and `-o` with a name that ends in `.html`: a recording as one page. The recording is read at
//! least twice. The first pass yields its length and its most important owners. Later passes yield intervals
//! that are short enough to look at and few enough for a page.

use std::{
    collections::BTreeSet,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    failure::Usage,
    output::{self, Output, Stream},
    pipeline::Pipeline,
    redaction::Redacting,
    replay::{End, finish},
    select::SelectArgs,
};
use crate::{
    drain::{
        Drain, Header, Owner,
        recording::{Opened, Overwrite, ReadError, write_new},
    },
    machine::duration_ns,
    metric::Report,
    view::{
        Format,
        html::{self, Extremes, Intervals, OWNERS_MAX, OWNERS_MIN, Packed, SPANS_MAX, Whole},
    },
};

/// Destination of a page.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct PageArgs {
    /// Write a self-contained HTML file instead of the text; the file is new and only you can read it; `-` is
    /// standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv"], help_heading = "Output")]
    html: Option<PathBuf>,
    /// Replace FILE if it exists, with a new file that only you can read
    #[arg(long, requires = "html", help_heading = "Output")]
    force: bool,
}

impl PageArgs {
    /// Returns whether a page is wanted.
    pub(super) const fn is_given(&self) -> bool {
        self.html.is_some()
    }

    /// Refuses an existing file, before anything is read.
    pub(super) fn check(&self) -> Result<(), Usage> {
        match self.html.as_deref().filter(|file| file.is_file() && !self.force) {
            Some(file) => Err(Usage(format!("{} exists; --force replaces it", file.display()))),
            None => Ok(()),
        }
    }

    /// Creates the file, complete or not at all, and reports it; or writes the page to standard output.
    pub(super) fn deliver(&self, page: &[u8], output: &Output) -> std::io::Result<()> {
        let Some(path) = self.html.as_deref() else { return Ok(()) };
        if path.as_os_str() == "-" {
            let mut into = output.open_bytes(Stream::Stdout);
            return into.write_all(page).and_then(|()| into.flush());
        }
        let overwrite = if self.force { Overwrite::Yes } else { Overwrite::No };
        output::say_if_pipe(path);
        write_new(path, overwrite, page)?;
        output::talk(&format!("wrote {} KB: {}", page.len().div_ceil(1000), path.display()));
        Ok(())
    }
}

/// Recording that can be opened repeatedly, and options of its report.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) open: &'a dyn Fn() -> Result<Opened, ReadError>,
    pub(super) symfs: &'a [PathBuf],
    pub(super) perfmon_dir: Option<&'a Path>,
    pub(super) redacting: &'a Redacting,
    pub(super) select: &'a SelectArgs,
}

/// Page, with the report and the end of its recording.
pub(super) struct Made {
    pub(super) page: Vec<u8>,
    pub(super) left_out: Option<String>,
    pub(super) report: Report,
    pub(super) end: End,
}

impl Source<'_> {
    /// Returns the page, from the rows of the whole and those of intervals.
    pub(super) fn page(self, header: &Header) -> anyhow::Result<Made> {
        let mut whole = Whole::new();
        let of_all = without_intervals(header);
        let mut pipeline = self.rows(&of_all, &mut whole)?;
        self.select.select(&mut pipeline);
        let entries = (self.open)()?.entries;
        let thin = |drain| Ok(self.select.of_drain(drain));
        let (report, end) = finish(&mut pipeline, entries, self.redacting, self.symfs, thin)?;
        let left_out = pipeline.left_out();
        drop(pipeline);
        let intervals = self.intervals(header, (&report, whole.numbers(), end.last_ns))?;
        Ok(Made { page: html::page(whole, intervals)?, left_out, report, end })
    }

    /// Returns the rows of intervals: the shortest of the recording, or so many of them merged that they fit
    /// into a page.
    fn intervals(
        self,
        header: &Header,
        (report, numbers, length_ns): (&Report, u64, u64),
    ) -> anyhow::Result<Packed> {
        let mut ticks = ticks_per_interval(header, length_ns);
        let owners = kept(report, numbers, intervals_of(header, length_ns, ticks));
        let pass = |into: &mut dyn Write, ticks: u32| -> anyhow::Result<()> {
            let header = with_intervals(header, ticks);
            let mut thinned = Thinned::new(ticks);
            let mut pipeline = self.rows(&header, into)?;
            pipeline.keep_only(&owners);
            self.select.select_span(&mut pipeline);
            let entries = (self.open)()?.entries;
            let thin = |drain| Ok(thinned.of(self.select.of_drain(drain)));
            finish(&mut pipeline, entries, self.redacting, self.symfs, thin)?;
            Ok(())
        };
        let mut extremes = Extremes::default();
        if ticks > 1 {
            pass(&mut extremes, 1)?;
        }
        loop {
            let mut intervals = Intervals::new(ticks, owners.len(), &extremes);
            pass(&mut intervals, ticks)?;
            // A single interval cannot be reduced further.
            if intervals.fits() || intervals_of(header, length_ns, ticks) == 1 {
                return Ok(intervals.packed());
            }
            if extremes.is_empty() {
                pass(&mut extremes, 1)?;
            }
            ticks = ticks.saturating_mul(2);
        }
    }

    /// Returns a pipeline that writes rows of JSON.
    fn rows<'b>(self, header: &'b Header, into: &'b mut dyn Write) -> anyhow::Result<Pipeline<'b>> {
        let output = Output::plain(Format::Json);
        let looks = (output.report_format(), output.style(Stream::Stdout));
        Pipeline::new(header, self.perfmon_dir, looks, Box::new(into))
    }
}

/// Returns the same run without intervals: everything in it is reported once.
fn without_intervals(header: &Header) -> Header {
    every(header, |_| None)
}

/// Returns the same run, reported every `ticks` of its ticks.
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
    // Counts are read only at the ends of their intervals: see `Thinned`.
    if let (Some(counts), None) = (&mut header.counts, interval(Duration::ZERO)) {
        counts.plan.interval = None;
    }
    header
}

/// Returns the shortest interval that the recording can report, in ns; `None` where it has no intervals.
pub(super) fn tick_ns(header: &Header) -> Option<u64> {
    let tasks = header.tasks.as_ref().map(|tasks| tasks.plan.interval.unwrap_or(tasks.plan.tick));
    let io = header.io.as_ref().map(|io| io.plan.interval.unwrap_or(io.plan.tick));
    let counts = header.counts.as_ref().and_then(|counts| counts.plan.interval);
    tasks.or(io).or(counts).map(|tick| duration_ns(tick).max(1))
}

/// Returns the ticks per interval of the page, such that intervals are few enough.
fn ticks_per_interval(header: &Header, length_ns: u64) -> u32 {
    let ticks = tick_ns(header).map_or(1, |tick| length_ns / tick);
    u32::try_from(ticks.div_ceil(SPANS_MAX)).unwrap_or(u32::MAX).max(1)
}

/// Returns the number of intervals of that length.
fn intervals_of(header: &Header, length_ns: u64, ticks: u32) -> u64 {
    tick_ns(header).map_or(1, |tick| length_ns / tick / u64::from(ticks)).max(1)
}

/// Drains with only every `ticks`-th of their counts. Readings are sums, so none is lost by leaving some out.
struct Thinned {
    ticks: u32,
    seen: u32,
}

impl Thinned {
    const fn new(ticks: u32) -> Self {
        Self { ticks, seen: 0 }
    }

    /// Returns the drain, without counts that are to be left out.
    fn of(&mut self, mut drain: Drain) -> Drain {
        self.seen += 1;
        let is_kept = self.seen.is_multiple_of(self.ticks);
        drain.counts = drain.counts.filter(|counts| is_kept || counts.ended.is_some());
        drain
    }
}

/// Returns the owners for which intervals are kept: those with most CPU time, as many as fit into so many
/// intervals.
fn kept(report: &Report, rows: u64, intervals: u64) -> BTreeSet<Owner> {
    let owners = owners(report);
    let rows_each = (rows / (owners.len() as u64 + 1)).max(1);
    let room = Intervals::ROWS / intervals.max(1) / rows_each;
    let room = usize::try_from(room).unwrap_or(usize::MAX).clamp(OWNERS_MIN, OWNERS_MAX);
    owners.into_iter().take(room).collect()
}

/// Returns the owners of a report, each once, those of tasks first.
fn owners(report: &Report) -> Vec<Owner> {
    let mut seen = BTreeSet::new();
    report.owners().filter(|&owner| seen.insert(owner)).cloned().collect()
}
