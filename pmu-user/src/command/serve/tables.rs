//! Hourly tables as Parquet files: `DIR/date=2026-11-25/hour=13/HOST-130000.parquet`, by the start of their
//! first period. A thread without privileges writes them, so that no disk delays counting. Each file appears
//! complete, or not at all.

mod files;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use anyhow::Context as _;

use self::files::Files;
use crate::{
    command::{failure::Usage, output, parse},
    drain::Header,
    machine::duration_ns,
    metric::{
        Report,
        exposed::{Account, Growth, Period},
    },
    session::confine::{Duty, confine},
    view::hourly::HourlyTable,
};

/// Maximum number of periods that wait to be written, before more are lost.
const WAITING_MAX: usize = 64;
/// Time limit for writing the last table once counting is over.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest period: a file covers an hour.
const EVERY_MAX: Duration = Duration::from_secs(3600);

/// Arguments for hourly tables.
#[derive(Debug, clap::Args)]
pub(super) struct TablesArgs {
    /// Also write counts to DIR: one Parquet file per hour, with rows by target, metric and minute
    #[arg(long, value_name = "DIR", help_heading = "Tables")]
    parquet: Option<PathBuf>,
    /// Set the period that a row covers; at least an interval
    #[arg(long, value_name = "TIME", value_parser = parse::interval, default_value = "1m", requires = "parquet", help_heading = "Tables")]
    parquet_every: Duration,
    /// Delete this host's files this long after the end of their hour [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse::duration, requires = "parquet", help_heading = "Tables")]
    parquet_keep: Option<Duration>,
}

impl TablesArgs {
    /// Refuses periods that are too short or too long.
    pub(super) fn check(&self, interval: Duration) -> Result<(), Usage> {
        let every = self.parquet_every;
        if self.parquet.is_some() && every < interval {
            return Err(Usage(format!(
                "--parquet-every {every:?} is shorter than an interval, {interval:?}: make it longer, or -I shorter"
            )));
        }
        if every > EVERY_MAX {
            return Err(Usage(format!(
                "--parquet-every {every:?} is longer than an hour, which a file is of"
            )));
        }
        Ok(())
    }

    /// Begins to write, if that is wanted. The calling thread has been confined.
    pub(super) fn begin(&self, header: &Header, targets_max: usize) -> anyhow::Result<Option<Tables>> {
        let Some(folder) = &self.parquet else { return Ok(None) };
        let files = Files::new(folder.clone(), &header.machine.host, self.parquet_keep);
        let growth = Growth::new(header, targets_max, duration_ns(self.parquet_every));
        Tables::begin(growth, Writer::new(files, header.clone())).map(Some)
    }
}

/// Rows since counting began.
#[derive(Debug, Default)]
struct Rows {
    written: AtomicU64,
    lost: AtomicU64,
}

impl Rows {
    fn lose(&self, rows: usize) {
        self.lost.fetch_add(rows as u64, Ordering::Relaxed);
    }
}

/// Periods of counts, on their way to the thread that writes them.
#[derive(Debug)]
pub(super) struct Tables {
    growth: Growth,
    periods: SyncSender<Period>,
    rows: Arc<Rows>,
    thread: JoinHandle<()>,
    is_over: Receiver<()>,
}

impl Tables {
    fn begin(growth: Growth, writer: Writer) -> anyhow::Result<Self> {
        let (periods, received) = mpsc::sync_channel(WAITING_MAX);
        let (began, has_begun) = mpsc::channel();
        let (over, is_over) = mpsc::channel();
        let rows = Arc::clone(&writer.rows);
        let thread = thread::Builder::new().name("tables".to_owned()).spawn(move || {
            confine(Duty::Write);
            let checked = writer.files.check();
            let is_good = checked.is_ok();
            let _ = began.send(checked);
            if is_good {
                writer.run(&received);
            }
            let _ = over.send(());
        })?;
        has_begun.recv().context("the thread that writes tables has ended")??;
        Ok(Self { growth, periods, rows, thread, is_over })
    }

    /// Sets how many targets have separate rows from now on.
    pub(super) const fn bound(&mut self, targets_max: usize) {
        self.growth.bound(targets_max);
    }

    /// Takes the report of an interval that is just over. Never waits.
    pub(super) fn add(&mut self, report: &Report, accounts: &[Account]) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if let Some(period) = self.growth.add(report, duration_ns(now)) {
            self.send(period);
        }
        self.growth.account(accounts);
    }

    fn send(&self, period: Period) {
        if let Err(TrySendError::Full(period) | TrySendError::Disconnected(period)) =
            self.periods.try_send(period)
        {
            self.rows.lose(period.rows.len());
        }
    }

    /// Returns the numbers of written and of lost rows.
    pub(super) fn rows(&self) -> (u64, u64) {
        (self.rows.written.load(Ordering::Relaxed), self.rows.lost.load(Ordering::Relaxed))
    }

    /// Writes the remaining rows.
    pub(super) fn end(mut self) {
        if let Some(period) = self.growth.end() {
            self.send(period);
        }
        let Self { periods, thread, is_over, .. } = self;
        drop(periods);
        match is_over.recv_timeout(PATIENCE) {
            Err(RecvTimeoutError::Timeout) => {
                output::talk("the last table is lost: its disk does not respond");
            }
            Ok(()) | Err(RecvTimeoutError::Disconnected) => drop(thread.join()),
        }
    }
}

/// Writer of tables, on a separate thread.
struct Writer {
    files: Files,
    header: Header,
    table: HourlyTable,
    /// Table that could not be written yet.
    waiting: Option<HourlyTable>,
    is_failing: bool,
    rows: Arc<Rows>,
}

impl Writer {
    fn new(files: Files, header: Header) -> Self {
        let table = HourlyTable::new(&header);
        Self { files, header, table, waiting: None, is_failing: false, rows: Arc::default() }
    }

    /// Writes periods as they come, until the channel is closed.
    fn run(mut self, periods: &Receiver<Period>) {
        while let Ok(period) = periods.recv() {
            let is_of_another = |began: u64| files::hour(began) != files::hour(period.from_unix_ns);
            if self.table.is_full() || self.table.from_unix_ns().is_some_and(is_of_another) {
                self.close();
            } else {
                self.try_again();
            }
            self.table.add(&period);
        }
        self.close();
        self.rows.lose(self.waiting.as_ref().map_or(0, HourlyTable::rows));
    }

    /// Writes the table, and begins another.
    fn close(&mut self) {
        self.try_again();
        let table = std::mem::replace(&mut self.table, HourlyTable::new(&self.header));
        // Only one table may wait: memory is bounded.
        if let Some(lost) = self.waiting.replace(table) {
            self.rows.lose(lost.rows());
        }
        self.try_again();
    }

    /// Writes the waiting table, if there is one. Reports when that begins to fail, and when it works again.
    fn try_again(&mut self) {
        let Some(mut table) = self.waiting.take() else { return };
        let folder = self.files.folder().display();
        match self.files.write(&mut table) {
            Ok(()) => {
                self.rows.written.fetch_add(table.rows() as u64, Ordering::Relaxed);
                if std::mem::take(&mut self.is_failing) {
                    output::talk(&format!("tables are written to {folder} again"));
                }
                self.files.remove_old(SystemTime::now());
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    output::talk(&format!(
                        "{error:#}; it is tried again until the next table is due, and counting goes on"
                    ));
                }
                self.waiting = Some(table);
            }
        }
    }
}

#[cfg(test)]
mod tests;
