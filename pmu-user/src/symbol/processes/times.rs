//! Times of replaced mappings of processes, and the retention of earlier ones.

use super::Processes;

impl Processes {
    /// Registers that all samples of a drain that was done at a time have been located. Processes that ended
    /// before the previous drain was done, and mappings replaced before it, are no longer needed. Their last
    /// samples came with that drain, or with this one, if that was under way.
    pub(in crate::symbol) fn drained(&mut self, at_ns: u64) {
        let before_ns = std::mem::replace(&mut self.drained_ns, at_ns);
        while let Some(&(tgid, program, over_ns)) = self.over.front()
            && over_ns < before_ns
        {
            self.over.pop_front();
            if self.is(tgid, program) {
                self.of.remove(&tgid);
            }
        }
        let of = &mut self.of;
        self.changed.retain(|tgid| of.get_mut(tgid).is_some_and(|process| process.history.forget(before_ns)));
    }

    /// Returns when the era of a time began, within which no mapping of a process was replaced. Returns 0 for
    /// the first era.
    pub(in crate::symbol) fn era(&self, tgid: u32, at_ns: u64) -> u64 {
        self.of.get(&tgid).map_or(0, |process| process.history.era(at_ns))
    }

    /// Returns the times at which mappings of a process were replaced, after the first and up to the last.
    pub(in crate::symbol) fn changes(&self, tgid: u32, first_ns: u64, last_ns: u64) -> Vec<u64> {
        let history = self.of.get(&tgid).map(|process| &process.history);
        history.map_or_else(Vec::new, |history| history.changes(first_ns, last_ns).collect())
    }

    /// Returns when the program began that a process ran at a time.
    pub(in crate::symbol) fn begun(&self, tgid: u32, at_ns: u64) -> u64 {
        let Some(process) = self.of.get(&tgid) else { return 0 };
        if at_ns >= process.begun_ns { process.begun_ns } else { process.history.begun(at_ns).unwrap_or(0) }
    }

    /// Returns whether no mapping of a process has been replaced since a time.
    pub(super) fn is_present(&self, tgid: u32, at_ns: u64) -> bool {
        self.of.get(&tgid).is_none_or(|process| at_ns >= process.history.changed_ns())
    }
}
