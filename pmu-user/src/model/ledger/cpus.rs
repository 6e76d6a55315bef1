//! Counts of CPUs, and the kernel's accounts of them.

use pmu_common::loss;

use super::Ledger;
use crate::{
    drain::{CpuRow, TasksDrain, ThrottlingRow},
    model::{difference, interval::Interval},
};

impl Ledger {
    pub(super) fn count_cpu(&mut self, row: &CpuRow, interval: &mut Interval) {
        let before = self.cpus.insert(row.cpu, row.clone());
        let is_first = before.is_none();
        let last = before.unwrap_or_else(|| row.clone());
        for reason in 0..loss::REASONS {
            let lost = |row: &CpuRow| {
                let samples = row.samples.iter().map(|event| event.losses[reason]);
                samples.fold(row.count.losses[reason], u64::wrapping_add)
            };
            let count = lost(row).wrapping_sub(lost(&last));
            if count > 0 {
                let sum = interval.losses.entry(loss::NAMES[reason].to_owned()).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        let mut counts = difference::of_cpu(&last, row);
        // A CPU that is offline is not flushed. The time until its next flush belongs to no interval.
        let flushed = row.count.flushed_ns != last.count.flushed_ns;
        let was_offline = self.offline.remove(&row.cpu);
        if !flushed && !is_first {
            self.offline.insert(row.cpu);
        }
        counts.time = counts.time.filter(|_| flushed && !was_offline);
        interval.cpus.insert(row.cpu, counts);
    }

    /// Adds the kernel's accounts of CPUs, and the time for which the programs did not see them.
    pub(super) fn account(&mut self, drain: &TasksDrain, interval: &mut Interval) {
        for &(cpu, times) in &drain.times {
            let before = self.times.insert(cpu, times);
            interval.cpus.entry(cpu).or_default().times = before.map(|before| times.since(&before));
        }
        for &(cpu, total) in &drain.uncovered {
            let before = self.uncovered.insert(cpu, total).unwrap_or(0);
            let counts = interval.cpus.entry(cpu).or_default();
            counts.uncovered_ns = total.saturating_sub(before);
            if let Some(time) = &mut counts.time {
                time.uncovered_ns = counts.uncovered_ns;
            }
        }
    }

    /// Adds the throttling by limits of CPU time since the first drain. A cgroup that was not there then
    /// starts from zero.
    pub(super) fn throttle(&mut self, drain: &TasksDrain, interval: &mut Interval) {
        let is_first = self.times.is_empty();
        for ThrottlingRow { owner, so_far } in &drain.throttling {
            let before = self.throttling.insert(owner.clone(), *so_far).unwrap_or_default();
            if !is_first {
                interval.throttling.insert(owner.clone(), so_far.since(&before));
            }
        }
    }
}
