//! How far user stacks lead.

use super::share;
use crate::{
    drain::{
        Cut,
        unwinding::{Unwinding, begins_a_thread},
    },
    metric::value::Known,
    model::{Interval, Ledger, WeightedSamples, is_kernel},
};

/// Frames that the kernel follows at most (`kernel.perf_event_max_stack`, unless it was changed).
const FRAMES_MAX: usize = 127;

/// How far the first event's user stacks lead.
#[derive(Clone, Debug)]
pub struct StackEnds {
    /// Samples with a user stack.
    pub samples: u64,
    /// Those whose stack ends before a function that threads begin with.
    pub early: u64,
    /// Their share (0 to 1).
    pub share: Known,
    /// Those whose stack has more frames than were taken.
    pub deep: u64,
    /// Their share (0 to 1).
    pub deep_share: Known,
    /// The most frames that were taken of one of them; `None` if it is not known.
    pub frames_max: Option<u32>,
    /// What became of all events' samples that were to be unwound by DWARF; none where frame pointers were followed.
    pub unwinding: Option<Unwinding>,
}

/// How far user stacks lead; `None` without any.
pub(in crate::metric) fn ends(ledger: &Ledger, interval: &Interval) -> Option<StackEnds> {
    let [mut all, mut early, mut deep] = [WeightedSamples::default(); 3];
    let mut frames_max = None;
    let mut keys: Vec<_> = interval.stacks.iter().filter(|(key, _)| key.event == 0).collect();
    // In order, because sums of weights depend on it in their last digits.
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
