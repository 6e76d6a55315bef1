//! Drain → interval → report → bytes: the pure half, the same for a live run and for a recording.

use std::io::{self, Write};

use super::output;
use crate::{
    drain::{Drain, Ending, Header},
    metric::Report,
    model::{Interval, Ledger},
    view::{Format, View, text::Style},
};

/// Turns drains into reports.
pub(super) struct Pipeline<'a> {
    header: &'a Header,
    /// Owners, places and totals so far.
    pub(super) ledger: Ledger,
    view: View<'a>,
    /// Regular ticks in an interval that is reported; `None` to report only the whole.
    ticks_per_interval: Option<u64>,
    open: Interval,
    reported_ticks: u64,
    total: Interval,
}

impl<'a> Pipeline<'a> {
    /// A pipeline for the run that `header` describes.
    pub(super) fn new(header: &'a Header, format: Format, style: Style, into: Box<dyn Write + 'a>) -> Self {
        let ticks = |interval: std::time::Duration| {
            (interval.as_secs_f64() / header.plan.tick.as_secs_f64()).round().max(1.0) as u64
        };
        Self {
            header,
            ledger: Ledger::new(),
            view: View::new(header, format, style, into),
            ticks_per_interval: header.plan.interval.map(ticks),
            open: Interval::default(),
            reported_ticks: 0,
            total: Interval::default(),
        }
    }

    /// Takes a drain; writes a report if an interval is complete.
    pub(super) fn drain(&mut self, drain: &Drain) -> io::Result<()> {
        let interval = self.ledger.advance(drain);
        self.total.extend(&interval);
        let Some(ticks) = self.ticks_per_interval else { return Ok(()) };
        self.open.extend(&interval);
        if drain.ticks >= self.reported_ticks + ticks {
            self.reported_ticks = drain.ticks;
            let open = std::mem::take(&mut self.open);
            self.view.interval(&Report::new(self.header, &self.ledger, &open))?;
        }
        Ok(())
    }

    /// Writes the interval that is still open, and the whole run's report.
    pub(super) fn finish(&mut self, ending: &Ending) -> io::Result<Report> {
        if self.ticks_per_interval.is_some() && self.open.length_ns() > 0 {
            let open = std::mem::take(&mut self.open);
            self.view.interval(&Report::new(self.header, &self.ledger, &open))?;
        }
        let report = Report::new(self.header, &self.ledger, &self.total);
        self.view.whole(&report, ending)?;
        Ok(report)
    }
}

/// Says on stderr, in one line, what was lost.
pub(super) fn closing_line(report: &Report) {
    let losses: Vec<String> =
        report.quality.losses.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    if !losses.is_empty() {
        output::talk(&format!("lost: {}", losses.join(", ")));
    }
}
