//! Callers that the frame pointer chain skips where a task blocks. Functions of libc that make system calls
//! keep no frame pointer, so their caller is not in the chain. Their call frame information leads from the
//! task's entry to the kernel to the first frame of the chain.

use std::collections::BTreeMap;

use super::Tracker;
use crate::symbol::{
    OffCpuStack, Snapshot,
    child::{End, STACKS_MAX, Unwound},
};

/// User addresses of a stack, innermost first, and the number of them after which a caller may be missing.
pub(super) type Joined = (Vec<u64>, Option<usize>);

impl Tracker {
    /// Returns the user stacks of waits, in their order, with the callers that the frame pointer chain
    /// skipped.
    pub(super) fn joined(&mut self, waits: &[OffCpuStack]) -> Vec<Joined> {
        let mut joined: Vec<Joined> = waits.iter().map(|wait| (wait.user.clone(), Some(1))).collect();
        let mut by_program: BTreeMap<(u32, u64), Vec<(usize, Snapshot)>> = BTreeMap::new();
        for (index, wait) in waits.iter().enumerate() {
            let at_ns = wait.waits.first().map_or(0, |&(since_ns, _)| since_ns);
            if let (Some(entered), false) = (&wait.entered, wait.user.is_empty()) {
                let snapshot = Snapshot {
                    slot: wait.slot,
                    tgid: wait.tgid,
                    event: 0,
                    at_ns,
                    kernel: Vec::new(),
                    user: wait.user.clone(),
                    registers: entered.registers,
                    stack: entered.stack.clone(),
                };
                let program = (wait.tgid, self.processes.era(wait.tgid, at_ns));
                by_program.entry(program).or_default().push((index, snapshot));
            }
        }
        for (program, of_program) in by_program {
            for some in of_program.chunks(STACKS_MAX) {
                let snapshots: Vec<Snapshot> = some.iter().map(|(_, snapshot)| snapshot.clone()).collect();
                let found = self.frames_of(program, &snapshots);
                for ((index, snapshot), unwound) in some.iter().zip(found) {
                    if let Ok(unwound) = unwound {
                        joined[*index] = join(&snapshot.user, unwound);
                    }
                }
            }
        }
        joined
    }
}

/// Joins a frame pointer chain with the unwound frames before it. The two meet in the first return address of
/// the chain.
fn join(by_pointers: &[u64], unwound: Unwound) -> Joined {
    let Unwound { mut frames, end } = unwound;
    if end == End::First && frames.len() >= by_pointers.len() {
        return (frames, None);
    }
    let chain = by_pointers.get(1..).unwrap_or_default();
    let meet = chain.first().and_then(|next| frames.iter().skip(1).position(|frame| frame == next));
    let skipped = match meet {
        Some(before) => {
            frames.truncate(before + 1);
            None
        }
        None => Some(frames.len()),
    };
    frames.extend_from_slice(chain);
    (frames, skipped)
}

#[cfg(test)]
mod tests {
    use super::join;
    use crate::symbol::child::{End, Unwound};

    fn unwound(frames: &[u64], end: End) -> Unwound {
        Unwound { frames: frames.to_vec(), end }
    }

    #[test]
    fn callers_that_were_passed_over_come_before_the_first_of_the_chain() {
        // futex_wait, pthread_mutex_lock, update (which keeps a frame pointer), worker, start_thread.
        let whole = (vec![10, 20, 30, 40, 50], None);
        assert_eq!(join(&[10, 40, 50], unwound(&[10, 20, 30, 40], End::Lost)), whole);
        assert_eq!(join(&[10, 40, 50], unwound(&[10, 20, 30, 40, 50, 60], End::Lost)), whole);
        assert_eq!(join(&[10, 20], unwound(&[10, 20], End::Lost)), (vec![10, 20], None), "none was");
    }

    #[test]
    fn where_the_two_do_not_meet_a_caller_may_be_missing() {
        assert_eq!(join(&[10, 40, 50], unwound(&[10, 20], End::Lost)), (vec![10, 20, 40, 50], Some(2)));
        assert_eq!(join(&[10, 40], unwound(&[10], End::Lost)), (vec![10, 40], Some(1)));
        assert_eq!(join(&[10], unwound(&[10, 20], End::Lost)), (vec![10, 20], Some(2)));
    }

    #[test]
    fn a_stack_that_is_unwound_to_its_end_needs_no_chain() {
        assert_eq!(join(&[10, 7], unwound(&[10, 20, 30], End::First)), (vec![10, 20, 30], None));
    }
}
