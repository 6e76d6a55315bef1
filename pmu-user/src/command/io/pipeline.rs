//! Drain → interval → report → bytes for `pmbpf io`: the same for a live run and for a recording.

#[cfg(test)]
mod tests;

use std::io::{self, Write};

use crate::{
    drain::{
        Ending,
        io::{IoDrain, IoHeader},
    },
    metric::io::{History, IoReport, Prepared},
    model::io::{IoInterval, IoLedger},
    table::io::FindError,
    view::{Format, IoView, hdr_log::HdrLog, text::Style},
};

/// Turns drains into reports.
pub(in crate::command) struct IoPipeline<'a> {
    prepared: Prepared<'a>,
    ledger: IoLedger,
    history: History,
    view: IoView<'a>,
    /// Since the last report.
    open: IoInterval,
    total: IoInterval,
}

impl<'a> IoPipeline<'a> {
    /// A pipeline for the run that `header` describes.
    pub(in crate::command) fn new(
        header: &'a IoHeader,
        format: Format,
        style: Style,
        into: Box<dyn Write + 'a>,
    ) -> Result<Self, FindError> {
        Ok(Self {
            prepared: Prepared::new(header)?,
            ledger: IoLedger::new(&header.plan),
            history: History::new(&header.plan),
            view: IoView::new(header, format, style, into),
            open: IoInterval::default(),
            total: IoInterval::default(),
        })
    }

    /// Writes the latencies of every interval to a log, too.
    pub(in crate::command) fn log_to(&mut self, log: Option<HdrLog<'a>>) {
        self.view.log_to(log);
    }

    /// Takes a drain; writes a report if an interval is complete.
    pub(in crate::command) fn drain(&mut self, drain: IoDrain) -> io::Result<()> {
        let tick = self.ledger.advance(drain);
        self.history.add(&self.prepared, &self.ledger, &tick);
        let plan = &self.prepared.header.plan;
        let Some(length) = plan.interval else {
            self.total.append(tick);
            self.ledger.fold(&mut self.total);
            return Ok(());
        };
        self.open.append(tick);
        self.ledger.fold(&mut self.open);
        // Ticks are as far apart as the kernel lets them: one that is a little early ends its interval, too.
        let early = length.saturating_sub(plan.tick / 2);
        let due = self.open.from_ns.saturating_add(early.as_nanos() as u64);
        if self.open.to_ns >= due { self.report_interval() } else { Ok(()) }
    }

    fn report_interval(&mut self) -> io::Result<()> {
        let open = std::mem::take(&mut self.open);
        let report = IoReport::new(&self.prepared, &self.ledger, &open);
        self.total.append(open);
        self.ledger.fold(&mut self.total);
        self.history.add_interval(&report);
        self.view.interval(&report)
    }

    /// Writes the interval that is still open, and the whole run's report.
    pub(in crate::command) fn finish(&mut self, ending: &Ending) -> io::Result<IoReport> {
        if self.open.to_ns > self.open.from_ns {
            self.report_interval()?;
        }
        let report = self.history.report(&self.prepared, &self.ledger, &self.total);
        self.view.whole(&report, ending)?;
        Ok(report)
    }
}
