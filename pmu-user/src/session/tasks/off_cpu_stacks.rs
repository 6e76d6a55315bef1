//! Stacks of tasks that block: joins the records that the programs send when a task blocks and when it is
//! able to run again.

use std::collections::HashMap;

use pmu_common::ring;

use crate::{
    drain::SlotId,
    symbol::{Entered, OffCpuStack, OffCpuSum},
};

/// Waits for which a stack was taken.
#[derive(Debug, Default)]
pub(super) struct OffCpuStacks {
    /// Lasting waits, by thread. A task waits for one thing at a time, so there are never more waits than
    /// tasks.
    lasting: HashMap<u32, Wait>,
    /// Waits that ended since the last drain.
    over: HashMap<Stack, Vec<(u64, OffCpuSum)>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Stack {
    slot: SlotId,
    tgid: u32,
    kernel: Vec<u64>,
    user: Vec<u64>,
    entered: Option<Entered>,
}

#[derive(Debug)]
struct Wait {
    stack: Stack,
    thinning: u32,
    since_ns: u64,
}

impl OffCpuStacks {
    /// Begins the wait of a task that blocks. If the end of its last wait was lost, so is that wait.
    pub(super) fn begin(
        &mut self,
        slot: SlotId,
        header: &ring::OffCpuStack,
        (kernel, user, entered): (Vec<u64>, Vec<u64>, Option<Entered>),
    ) {
        let &ring::OffCpuStack { tgid, tid, thinning, since_ns, .. } = header;
        let stack = Stack { slot, tgid, kernel, user, entered };
        self.lasting.insert(tid, Wait { stack, thinning, since_ns });
    }

    /// Ends the wait of a task that was blocked for this long.
    pub(super) fn end(&mut self, &ring::Unblocked { tid, blocked_ns, .. }: &ring::Unblocked) {
        if let Some(wait) = self.lasting.remove(&tid) {
            self.add(wait, blocked_ns);
        }
    }

    /// Ends all waits with the run, at `now_ns` (CLOCK_MONOTONIC): lasting waits count up to there.
    pub(super) fn end_all(&mut self, now_ns: u64) {
        for wait in std::mem::take(&mut self.lasting).into_values() {
            let blocked_ns = now_ns.saturating_sub(wait.since_ns);
            self.add(wait, blocked_ns);
        }
    }

    fn add(&mut self, Wait { stack, thinning, since_ns }: Wait, blocked_ns: u64) {
        // The wait stands for this many, and was taken by chance: the variance of one such estimate is n (n -
        // 1) times its square.
        let (number, ns) = (f64::from(thinning).exp2(), blocked_ns as f64);
        let sum = OffCpuSum { waits: 1, ns: number * ns, variance: number * (number - 1.0) * ns * ns };
        self.over.entry(stack).or_default().push((since_ns, sum));
    }

    /// Returns the waits that ended since the last call.
    pub(super) fn take(&mut self) -> Vec<OffCpuStack> {
        let over = self.over.drain();
        over.map(|(Stack { slot, tgid, kernel, user, entered }, waits)| OffCpuStack {
            slot,
            tgid,
            kernel,
            user,
            entered,
            waits,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use pmu_common::ring;

    use super::{OffCpuStacks, OffCpuSum, SlotId};
    use crate::drain::OffCpuTime;

    fn begin(stacks: &mut OffCpuStacks, tid: u32, thinning: u32, since_ns: u64) {
        let header = ring::OffCpuStack { tgid: 7, tid, thinning, since_ns, ..ring::OffCpuStack::ZERO };
        stacks.begin(SlotId::default(), &header, (vec![1], vec![2], None));
    }

    fn end(stacks: &mut OffCpuStacks, tid: u32, blocked_ns: u64) {
        stacks.end(&ring::Unblocked { tid, blocked_ns, ..ring::Unblocked::ZERO });
    }

    fn times(stacks: &mut OffCpuStacks) -> Vec<OffCpuTime> {
        let sum = |waits: Vec<(u64, OffCpuSum)>| {
            waits.into_iter().fold(OffCpuSum::default(), |mut sum, (_, wait)| {
                sum.add(&wait);
                sum
            })
        };
        stacks.take().into_iter().map(|row| sum(row.waits).time()).collect()
    }

    #[test]
    fn waits_with_one_stack_add_up_by_how_many_they_stand_for() {
        let mut stacks = OffCpuStacks::default();
        begin(&mut stacks, 70, 0, 100);
        begin(&mut stacks, 71, 2, 100);
        assert_eq!(times(&mut stacks), [], "both last");
        end(&mut stacks, 71, 1_000);
        end(&mut stacks, 70, 500);
        end(&mut stacks, 72, 999);
        let deviation_ns = 12_f64.sqrt().mul_add(1_000.0, 0.0) as u64;
        assert_eq!(times(&mut stacks), [OffCpuTime { waits: 2, ns: 4_500, deviation_ns }]);
        assert_eq!(times(&mut stacks), []);
    }

    #[test]
    fn a_wait_that_lasts_when_the_run_ends_counts_up_to_there() {
        let mut stacks = OffCpuStacks::default();
        begin(&mut stacks, 70, 0, 100);
        // The end of the first wait was lost.
        begin(&mut stacks, 70, 0, 300);
        stacks.end_all(1_000);
        assert_eq!(times(&mut stacks), [OffCpuTime { waits: 1, ns: 700, deviation_ns: 0 }]);
        end(&mut stacks, 70, 700);
        assert_eq!(times(&mut stacks), []);
    }
}
