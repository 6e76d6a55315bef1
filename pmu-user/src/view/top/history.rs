//! History: snapshots of the last intervals, as many as there is room for.

use std::{collections::VecDeque, ops::Range};

use super::{
    row::{Bounded, OwnerRow},
    snapshot::Snapshot,
};
use crate::{drain::Header, metric::OwnerOrTarget, view::words};

/// Maximum number of intervals that are kept: an hour of seconds.
const INTERVALS_MAX: usize = 3600;
/// Maximum number of rows that are kept, of about 600 bytes each. A host with many owners has fewer
/// intervals.
const ROWS_MAX: usize = 60_000;

/// Snapshots, oldest first. Each keeps its number.
#[derive(Debug, Default)]
pub struct History {
    /// Title: version, host, target, CPUs and kernel.
    title: String,
    snapshots: VecDeque<Snapshot>,
    /// Number of the oldest snapshot.
    first: u64,
    rows: usize,
}

impl History {
    /// Returns an empty history of a run.
    pub fn new(header: &Header) -> Self {
        Self { title: title(header), ..Self::default() }
    }

    /// Adds the next interval. The oldest ones make room.
    pub fn push(&mut self, snapshot: Snapshot) {
        self.rows += snapshot.size();
        self.snapshots.push_back(snapshot);
        while self.snapshots.len() > 1 && (self.snapshots.len() > INTERVALS_MAX || self.rows > ROWS_MAX) {
            self.rows -= self.snapshots.pop_front().map_or(0, |oldest| oldest.size());
            self.first += 1;
        }
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Returns the numbers of the intervals that are kept.
    pub(super) fn numbers(&self) -> Range<u64> {
        self.first..self.first + self.snapshots.len() as u64
    }

    /// Returns the interval of a number, if it is kept.
    pub(super) fn at(&self, number: u64) -> Option<&Snapshot> {
        let index = number.checked_sub(self.first)?;
        self.snapshots.get(usize::try_from(index).ok()?)
    }

    /// Returns a number of an owner in the intervals up to `last`, `None` where it is missing. Returns
    /// `count` values, fewer at the beginning.
    pub(super) fn series(
        &self,
        who: &OwnerOrTarget,
        last: u64,
        count: usize,
        value: impl Fn(&OwnerRow) -> Option<Bounded>,
    ) -> Vec<Option<Bounded>> {
        self.back(last, count, |snapshot| snapshot.row_of(who).and_then(&value))
    }

    /// Returns such a series for a number that does not belong to an owner.
    pub(super) fn back(
        &self,
        last: u64,
        count: usize,
        value: impl Fn(&Snapshot) -> Option<Bounded>,
    ) -> Vec<Option<Bounded>> {
        let from = (last + 1).saturating_sub(count as u64).max(self.first);
        (from..=last).filter_map(|number| self.at(number)).map(value).collect()
    }

    /// Returns the share of a CPU that pmbpf itself took in an interval, or `None` for the first.
    pub(super) fn own_share(&self, number: u64) -> Option<f64> {
        let (now, before) = (self.at(number)?, self.at(number.checked_sub(1)?)?);
        let took = now.own?.cpu_ns.saturating_sub(before.own?.cpu_ns);
        Some(took as f64 / now.length_ns.max(1) as f64)
    }
}

/// Returns the title of a run, safe for a terminal.
fn title(header: &Header) -> String {
    let Header { version, machine, .. } = header;
    let target = header.tasks.as_ref().map_or_else(|| "I/O".to_owned(), |tasks| words::target(&tasks.plan));
    let (host, kernel) = (machine.host.terminal(), machine.kernel.terminal());
    let cpus = machine.cpu.online.len();
    format!("pmbpf {version}  {host}  {target}  {cpus} CPUs  Linux {kernel}")
}
