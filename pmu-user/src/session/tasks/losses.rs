//! Losses of user space.

use super::TasksSession;
use crate::drain::TARGET_UNSEEN;

/// Reasons for losses that only user space records, in addition to [`pmu_common::loss::NAMES`].
pub const USER_LOSSES: [&str; 10] = [
    "cpu_not_flushed",
    "record_unreadable",
    "counter_unreadable",
    "cpu_offline",
    "cpu_uncounted",
    TARGET_UNSEEN,
    "program_skipped",
    "mapping_lost",
    "waits_unread",
    "target_limit",
];

impl TasksSession {
    /// Reads the number of program runs that the kernel skipped so far: one system call per program.
    pub(super) fn read_missed_runs(&mut self) {
        self.missed_runs = self.object.loaded.missed_runs().iter().map(|(_, count)| count).sum();
    }

    /// Returns the losses so far, by reason.
    pub(super) fn user_losses(&self) -> Vec<(String, u64)> {
        let losses = [
            self.lost_flushes,
            self.ring_reader.unreadable,
            self.lost_readings,
            self.hotplug.went,
            self.hotplug.came,
            self.unseen,
            self.missed_runs,
            self.symbols.lost(),
            self.lost_waits,
            self.lost_targets,
        ];
        USER_LOSSES
            .into_iter()
            .zip(losses)
            .filter(|&(_, count)| count > 0)
            .map(|(reason, count)| (reason.to_owned(), count))
            .collect()
    }
}
