//! Ends of user stacks: how many lead to the start of a thread.

use super::share;
use crate::{
    drain::{
        Cut,
        unwinding::{Unwinding, begins_a_thread},
    },
    metric::value::Known,
    model::{Interval, Ledger, WeightedSamples, is_kernel},
};

/// Maximum number of frames that the kernel follows (`kernel.perf_event_max_stack`, unless it was changed).
const FRAMES_MAX: usize = 127;

/// Ends of the first event's user stacks.
#[derive(Clone, Debug)]
pub struct StackEnds {
    /// Number of samples with a user stack.
    pub samples: u64,
    /// Samples with a stack that ends before a function with which threads begin.
    pub early: u64,
    /// Share of these samples (0 to 1).
    pub share: Known,
    /// Samples with a stack of more frames than were taken.
    pub deep: u64,
    /// Share of these samples (0 to 1).
    pub deep_share: Known,
    /// Largest number of frames that were taken of one of them; `None` if it is not known.
    pub frames_max: Option<u32>,
    /// Results for all events' samples that were to be unwound by DWARF; `None` where frame pointers were
    /// followed.
    pub unwinding: Option<Unwinding>,
}

/// Returns the ends of user stacks; `None` without any.
pub(in crate::metric) fn ends(ledger: &Ledger, interval: &Interval) -> Option<StackEnds> {
    let [mut all, mut early, mut deep] = [WeightedSamples::default(); 3];
    let mut frames_max = None;
    let mut keys: Vec<_> = interval.stacks.iter().filter(|(key, _)| key.event == 0).collect();
    // In sorted order, because the last digits of sums of weights depend on it.
    keys.sort_unstable_by_key(|(key, _)| *key);
    for (key, tally) in keys {
        let mut user = key.frames.iter().filter(|at| !is_kernel(**at));
        let (Some(&last), true) = (key.frames.last(), user.any(|at| Cut::of(*at).is_none())) else {
            continue;
        };
        all.merge(tally);
        let begins = ledger.is_first(last)
            || ledger.code(last).code.is_ok_and(|code| begins_a_thread(code.function.as_bytes()));
        match Cut::of(last) {
            Some(Cut::Deep(frames)) => {
                deep.merge(tally);
                frames_max = frames_max.max(Some(frames));
            }
            None if begins => {}
            // Recordings of earlier versions have no such mark.
            None if key.frames.len() >= FRAMES_MAX => deep.merge(tally),
            _ => early.merge(tally),
        }
    }
    let (deep_share, share) = (share(&deep, &all), share(&early, &all));
    let unwinding = Some(interval.unwinding.clone()).filter(|unwinding| !unwinding.is_empty());
    (all.samples > 0).then_some(StackEnds {
        samples: all.samples,
        early: early.samples,
        share,
        deep: deep.samples,
        deep_share,
        frames_max,
        unwinding,
    })
}
