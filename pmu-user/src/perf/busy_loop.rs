//! Busy loop of this thread that every counter counts, and its counts.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use super::{CountTarget, Counting};
use crate::{drain::reading::Reading, plan::request::Inherit, table::event_syntax::SelectedGroup};

/// Returns this thread as a target.
pub(super) fn this_thread() -> CountTarget {
    let id = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    CountTarget::Threads(vec![id], Inherit::No)
}

/// Returns the counts of `groups` while this thread is busy for `length`, and the steps of the loop in that
/// time. Returns `None` if the kernel refuses.
pub(super) fn count(groups: &[SelectedGroup], length: Duration) -> Option<(Vec<Reading>, u64)> {
    let counting = Counting::open(groups, &this_thread()).ok()?;
    counting.enable().ok()?;
    let steps = busy(length);
    counting.disable().ok()?;
    Some((counting.read().ok()?, steps))
}

/// Runs a loop and returns its steps. Each takes more than one instruction, and so at least about a cycle.
fn busy(length: Duration) -> u64 {
    let begun = Instant::now();
    let (mut steps, mut number) = (0, 1_u64);
    while begun.elapsed() < length {
        for _ in 0..1_000 {
            // Each step depends on the one before, so no processor is faster than one step per cycle.
            number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        steps += 1_000;
    }
    steps
}
