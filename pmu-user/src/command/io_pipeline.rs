//! Drain → interval → report → bytes for `pmbpf io`.

use std::io::Write;

use crate::{
    drain::{
        Ending,
        io::{IoDrain, IoHeader},
    },
    metric::io::{IoMetrics, IoReport, Level, LevelReport, Levels, Place, maxima, places},
    model::io::boxes::IoInterval,
    table::io::{FindError, load},
    view::{Format, io::IoView, text::Style},
};

/// Turns drains into reports.
pub(super) struct IoPipeline<'a> {
    header: &'a IoHeader,
    metrics: Option<IoMetrics>,
    places: Vec<Place>,
    levels: Levels,
    view: IoView<'a>,
    /// Since the last report.
    open: IoInterval,
    total: IoInterval,
    last: IoDrain,
}

impl<'a> IoPipeline<'a> {
    /// A pipeline for the run that `header` describes.
    pub(super) fn new(
        header: &'a IoHeader,
        format: Format,
        style: Style,
        into: Box<dyn Write + 'a>,
    ) -> Result<Self, FindError> {
        let table = header.plan.table.as_deref().map(load).transpose()?;
        Ok(Self {
            metrics: table.map(|table| IoMetrics::new(table, &header.plan)),
            places: places(&header.plan),
            view: IoView::new(header, format, style, into),
            levels: Levels::default(),
            open: IoInterval::default(),
            total: IoInterval::default(),
            last: IoDrain::default(),
            header,
        })
    }

    /// Takes a drain; writes a report if an interval is complete.
    pub(super) fn drain(&mut self, drain: &IoDrain) -> std::io::Result<()> {
        let interval = IoInterval::of(drain, self.total.to_ns);
        self.total.extend(&interval);
        if let Some(metrics) = &self.metrics {
            self.levels.add(metrics, &self.header.plan, drain);
        }
        self.last = drain.clone();
        let Some(length) = self.header.plan.interval else { return Ok(()) };
        self.open.extend(&interval);
        // Ticks are as far apart as the kernel lets them: one that is a little early ends its interval, too.
        let due = self.open.from_ns + (length - self.header.plan.tick / 2).as_nanos() as u64;
        if drain.at_ns >= due { self.report_interval() } else { Ok(()) }
    }

    fn report_interval(&mut self) -> std::io::Result<()> {
        let next = IoInterval { from_ns: self.open.to_ns, to_ns: self.open.to_ns, ..IoInterval::default() };
        let open = std::mem::replace(&mut self.open, next);
        let report = self.report(&open);
        self.view.interval(&report)
    }

    /// Writes the interval that is still open, and the whole run's report.
    pub(super) fn finish(&mut self, ending: &Ending) -> std::io::Result<()> {
        if self.header.plan.interval.is_some() && self.open.to_ns > self.open.from_ns {
            self.report_interval()?;
        }
        let report = IoReport { levels: self.levels(), ..self.report(&self.total) };
        self.view.whole(&report, ending)
    }

    fn levels(&self) -> Vec<Level> {
        let Some(metrics) = &self.metrics else { return Vec::new() };
        let header = self.header;
        let level = |seen: LevelReport| {
            let limits = header.plan.report.limits.iter().find(|limits| limits.name == seen.name);
            let limits = limits.map(|limits| [limits.low, limits.high]);
            let known = maxima(header, seen.name);
            Level::new(seen, &known, limits)
        };
        self.levels.report(metrics).into_iter().map(level).collect()
    }

    fn report(&self, interval: &IoInterval) -> IoReport {
        let plan = &self.header.plan;
        let platform = &self.header.platform;
        let rows = self.metrics.iter().flat_map(|metrics| {
            let places = self.places.iter().flat_map(move |&place| metrics.rows(plan, interval, place));
            let ports = platform.ports.iter();
            ports.flat_map(move |port| metrics.of_port(plan, interval, platform, port)).chain(places)
        });
        IoReport {
            from_ns: interval.from_ns,
            length_ns: interval.to_ns - interval.from_ns,
            rows: rows.collect(),
            levels: Vec::new(),
            missing: self.header.missing.clone(),
            losses: self.last.losses.clone(),
            cost: self.last.cost,
            programs_ns: self.last.programs.iter().map(|program| program.measured_ns).sum(),
        }
    }
}
