//! Stacks of tasks that block, by the time that they are blocked. If there were too many waits, they were
//! taken at random, and every time has an interval that covers it (`pmu_common::off_cpu_stack`).

#[cfg(test)]
mod tests;

use super::{
    Frame, HotStack,
    hot::{add_up, sort},
    value::{How, Known, Z},
};
use crate::model::{Interval, Ledger, OFF_CPU, WeightedSamples};

/// Returns the stacks, those with most time first.
pub(super) fn stacks(ledger: &Ledger, interval: &Interval) -> Vec<HotStack> {
    let waits = interval.stacks.iter().filter(|(key, _)| key.event == OFF_CPU);
    let mut stacks = add_up(ledger, waits, of_scheduler, share);
    sort(&mut stacks, |stack| {
        // Times are positive, so their bits have the same order.
        let time = stack.tallies.first().map_or(0, |tally| tally.weighted.to_bits());
        (time, stack.frames.clone(), stack.owner.clone(), stack.kernel)
    });
    stacks
}

/// Returns the number of the kernel's innermost frames to leave out: the scheduler's, which every wait has,
/// and those of the program that took the stack.
fn of_scheduler(kernel: &[Frame]) -> usize {
    let is = |frame: &Frame, wanted: &str| match frame {
        // A compiler may have made a separate version of it.
        Frame::Function { name, .. } => {
            name.as_bytes().split(|&byte| byte == b'.').next() == Some(wanted.as_bytes())
        }
        _ => false,
    };
    let Some(inner) = kernel.iter().position(|frame| is(frame, "__schedule")) else { return 0 };
    let outer = kernel.get(inner + 1).is_some_and(|frame| is(frame, "schedule"));
    inner + 1 + usize::from(outer)
}

/// Returns the time of waits, in ns.
#[must_use]
pub fn time(tally: &WeightedSamples) -> Known {
    within(tally.weighted, tally.squares.sqrt(), f64::INFINITY)
}

/// Returns the share of `part` in the time `all`.
pub(super) fn share(part: &WeightedSamples, all: &WeightedSamples) -> Known {
    if all.weighted <= 0.0 {
        return within(0.0, 0.0, 1.0);
    }
    let share = part.weighted / all.weighted;
    // Waits outside the part were taken independently of it.
    let variance =
        (1.0 - share).powi(2) * part.squares + share.powi(2) * (all.squares - part.squares).max(0.0);
    within(share, variance.sqrt() / all.weighted, 1.0)
}

fn within(estimate: f64, deviation: f64, most: f64) -> Known {
    let (low, high) = (estimate - Z * deviation, estimate + Z * deviation);
    Known { estimate, low: low.max(0.0), high: high.min(most), coverage: 1.0, how: How::Sampled }
}
