//! CPU time by the clock with which the scheduler accounts tasks.

use pmu_common::cpu::{CpuCount, UNKNOWN};

/// Breakdown of a CPU's time between two flushes, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Time between the flushes (CLOCK_MONOTONIC).
    pub wall_ns: u64,
    /// Time that the scheduler gave to tasks.
    pub owners_ns: u64,
    /// Time of the idle task.
    pub idle_ns: u64,
    /// Time of the scheduler between two tasks, in which it balanced load.
    pub between_ns: u64,
    /// Time of the task running at the end that was not accounted yet, less the same at the beginning.
    pub pending_ns: i64,
    /// Time that the kernel excludes from the time of tasks and of the idle task: interrupt handlers and
    /// steal time, if it excludes them. `None` if that cannot be read.
    pub excluded_ns: Option<u64>,
    /// Part of that time in interrupt handlers; `None` if the kernel does not exclude them.
    pub interrupts_ns: Option<u64>,
    /// Time for which the CPU was offline.
    pub uncovered_ns: u64,
}

impl CpuTime {
    /// Returns the breakdown between two flushes, or `None` if the programs did not record it.
    pub(super) fn between(before: &CpuCount, now: &CpuCount) -> Option<Self> {
        if before.flushed_ns == 0 || now.flushed_ns == 0 {
            return None;
        }
        let known =
            |now: u64, before: u64| (now != UNKNOWN && before != UNKNOWN).then(|| now.wrapping_sub(before));
        Some(Self {
            wall_ns: now.flushed_ns.wrapping_sub(before.flushed_ns),
            owners_ns: now.flushed_owners_ns.wrapping_sub(before.flushed_owners_ns),
            idle_ns: now.flushed_idle_ns.wrapping_sub(before.flushed_idle_ns),
            between_ns: now.flushed_between_ns.wrapping_sub(before.flushed_between_ns),
            pending_ns: now.flushed_pending_ns.wrapping_sub(before.flushed_pending_ns).cast_signed(),
            excluded_ns: known(now.flushed_excluded_ns, before.flushed_excluded_ns),
            interrupts_ns: known(now.flushed_interrupts_ns, before.flushed_interrupts_ns),
            uncovered_ns: 0,
        })
    }

    /// Returns the sum with that of another CPU, or of the same one in another interval.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let both = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?));
        Self {
            wall_ns: self.wall_ns.saturating_add(other.wall_ns),
            owners_ns: self.owners_ns.saturating_add(other.owners_ns),
            idle_ns: self.idle_ns.saturating_add(other.idle_ns),
            between_ns: self.between_ns.saturating_add(other.between_ns),
            pending_ns: self.pending_ns.saturating_add(other.pending_ns),
            excluded_ns: both(self.excluded_ns, other.excluded_ns),
            interrupts_ns: both(self.interrupts_ns, other.interrupts_ns),
            uncovered_ns: self.uncovered_ns.saturating_add(other.uncovered_ns),
        }
    }

    /// Returns the time that is in none of the parts. It is below 0 if the parts exceed the time.
    pub fn rest_ns(&self) -> i64 {
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        let left_out_ns = self.excluded_ns.unwrap_or(0).saturating_add(self.uncovered_ns);
        let parts = [self.owners_ns, self.idle_ns, self.between_ns, left_out_ns];
        let known = parts.into_iter().map(signed).fold(self.pending_ns, i64::saturating_add);
        signed(self.wall_ns).saturating_sub(known)
    }
}

#[cfg(test)]
mod tests {
    use pmu_common::cpu::{CpuCount, UNKNOWN};

    use super::CpuTime;

    fn flushed(words: [u64; 7]) -> CpuCount {
        let [
            flushed_ns,
            flushed_owners_ns,
            flushed_idle_ns,
            flushed_between_ns,
            flushed_pending_ns,
            excluded,
            interrupts,
        ] = words;
        CpuCount {
            flushed_ns,
            flushed_owners_ns,
            flushed_idle_ns,
            flushed_between_ns,
            flushed_pending_ns,
            flushed_excluded_ns: excluded,
            flushed_interrupts_ns: interrupts,
            ..CpuCount::ZERO
        }
    }

    #[test]
    fn the_parts_and_the_rest_are_the_time_between_two_flushes() {
        let before = flushed([1_000, 800, 300, 20, 50, 70, 40]);
        let now = flushed([2_000, 1_400, 700, 25, 10, 100, 60]);
        let time = CpuTime::between(&before, &now).unwrap();
        assert_eq!((time.wall_ns, time.idle_ns, time.between_ns, time.pending_ns), (1_000, 400, 5, -40));
        assert_eq!((time.excluded_ns, time.interrupts_ns), (Some(30), Some(20)));
        assert_eq!(time.rest_ns(), 1_000 - 600 - 400 - 5 + 40 - 30);
        assert_eq!(time.plus(&time).rest_ns(), 2 * time.rest_ns());
    }

    #[test]
    fn what_is_not_told_is_not_zero() {
        let (before, now) =
            (flushed([1_000, 0, 0, 0, 0, 5, UNKNOWN]), flushed([2_000, 0, 1_000, 0, 0, 9, UNKNOWN]));
        let time = CpuTime::between(&before, &now).unwrap();
        assert_eq!((time.excluded_ns, time.interrupts_ns), (Some(4), None));
        assert_eq!(CpuTime::between(&CpuCount::ZERO, &now), None, "an older recording, or no flush yet");
    }

    #[test]
    fn a_task_whose_clocks_were_read_the_wrong_way_round_has_less_than_nothing_pending() {
        let before = flushed([1_000, 0, 0, 0, 0, 0, 0]);
        let now = flushed([2_000, 0, 1_000, 0, 3_u64.wrapping_neg(), 0, 0]);
        assert_eq!(CpuTime::between(&before, &now).unwrap().pending_ns, -3);
    }
}
