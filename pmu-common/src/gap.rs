//! Classes of late timers, and estimates of masked time from late ticks.

use crate::wire;

/// Interrupts were masked (or an interrupt handler ran).
pub const MASKED: usize = 0;
/// The hypervisor ran something else.
pub const STOLEN: usize = 1;
/// The CPU was idle and woke late.
pub const IDLE: usize = 2;
/// Number of classes with a word in a CPU's row.
pub const CLASSES: usize = 3;
/// User code ran, which cannot mask interrupts. Another interrupt's handler ran long, or the hypervisor did
/// something that is not stolen time. The rate of such delays is the floor of a machine: kernel code is
/// delayed as often.
pub const DELAYED: usize = 3;
/// Another interrupt's handler had the CPU when the timer was due. Known only where handlers are timed.
pub const HANDLED: usize = 4;

/// The code that a timer interrupted is not known.
pub const CODE_UNKNOWN: u32 = 0;
/// The timer interrupted user code.
pub const CODE_USER: u32 = 1;
/// The timer interrupted the kernel.
pub const CODE_KERNEL: u32 = 2;

/// [`Late::timer`]: the kernel's periodic tick.
pub const TIMER_TICK: u32 = 0;
/// [`Late::timer`]: the sampling clock.
pub const TIMER_CLOCK: u32 = 1;

/// Kernel stack entries kept with a gap. The first dozen belong to the timer interrupt itself.
pub const STACK_FRAMES: usize = 40;

wire! {
    /// One late timer. Kept per CPU until the steal clock has caught up, then classified, and sent if long
    /// enough.
    pub struct Late {
        /// Record kind [`crate::ring::GAP`], so that the record can be sent as it is.
        pub kind: u32,
        /// Number of the CPU.
        pub cpu: u32,
        /// Time when the timer's handler started, in ns (CLOCK_MONOTONIC).
        pub at_ns: u64,
        /// Lateness of that start, in ns. The span itself was longer by up to one period.
        pub late_ns: u64,
        /// Before classification: the steal clock. After: ns stolen around the span.
        pub steal_ns: u64,
        /// Thread that was interrupted.
        pub tid: u32,
        /// Process of that thread.
        pub tgid: u32,
        /// Slot of its owner, or [`crate::count::SLOT_NONE`].
        pub slot: u32,
        /// [`TIMER_TICK`] or [`TIMER_CLOCK`].
        pub timer: u32,
        /// [`MASKED`], [`STOLEN`], [`IDLE`], [`DELAYED`] or [`HANDLED`].
        pub class: u32,
        /// Entries of `stack` in use.
        pub frames: u32,
        /// 1: the timer came right where the kernel enables interrupts.
        pub at_enable: u32,
        /// Place of the interrupt handler that had the CPU when the timer was due ([`crate::interrupt`]),
        /// plus 1; 0 if none is known.
        pub handler: u32,
        /// Value of `task_struct.comm`.
        pub comm: [u8; 16],
        /// Kernel stack at the late interrupt, innermost first.
        pub stack: [u64; STACK_FRAMES],
    }
}

/// Returns the class of a late timer before stolen time is known: an idle CPU, user code, or else a kernel
/// that may have masked it.
#[must_use]
#[inline(always)]
pub const fn found(idle: bool, code: u32) -> usize {
    if idle {
        IDLE
    } else if code == CODE_USER {
        DELAYED
    } else {
        MASKED
    }
}

/// Returns the class of a late timer with the preliminary class `found`. An idle CPU is not a gap. A delay is
/// the hypervisor's if stolen time explains at least half of it.
#[must_use]
#[inline(always)]
pub const fn class(found: usize, late_ns: u64, stolen_ns: u64) -> usize {
    if found != IDLE && stolen_ns >= late_ns - late_ns / 2 { STOLEN } else { found }
}

/// Returns the number of tick instants in the span that ended `late_ns` after the first of them. A tick
/// counts as late from `least_ns` on.
///
/// The kernel skips the ticks that it missed, so a span of several periods shows as one late tick. An instant
/// less than `least_ns` before the span's end does not count. A tick that is late by less than twice as much
/// stands for it, too: every span of that length is as likely to contain an instant.
#[must_use]
#[inline(always)]
pub const fn tick_instants(late_ns: u64, least_ns: u64, period_ns: u64) -> u64 {
    let unseen = if late_ns < 2 * least_ns { 1 } else { 0 };
    match late_ns.checked_div(period_ns) {
        Some(skipped) => 1 + unseen + skipped,
        None => 1 + unseen,
    }
}

/// Unit of [`lateness`], in ns.
pub const LATENESS_NS: u64 = 1 << LATENESS_SHIFT;
const LATENESS_SHIFT: u32 = 10;
/// Largest number of instants that counts. A machine that stood still for minutes has more, and the sum must
/// keep to its 32 bits.
const LATENESS_INSTANTS: u64 = 1 << 16;

/// Returns the term of a late tick in the sum that estimates the variance of the tick instants, in units of
/// [`LATENESS_NS`]: the lateness beyond whole periods, times [`tick_instants`].
///
/// The instants of a span that is r longer than whole periods T differ by one with probability r/T, so their
/// variance is r(T - r) in units of T^2. The length of the span is not known, but `late_ns` is uniform in it.
/// So n instants that came m beyond whole periods late give an unbiased estimate n(T^2 - 2Tm) of that
/// variance. A tick that stands for one that was not late enough to count stands for 4T^2 - 4T `least_ns`.
#[must_use]
#[inline(always)]
pub const fn lateness(late_ns: u64, least_ns: u64, period_ns: u64) -> i32 {
    let beyond_ns = if late_ns < 2 * least_ns {
        least_ns as i64 - (period_ns / 2) as i64
    } else {
        match late_ns.checked_rem(period_ns) {
            Some(beyond_ns) => beyond_ns as i64,
            None => 0,
        }
    };
    let instants = tick_instants(late_ns, least_ns, period_ns);
    let instants = if instants < LATENESS_INSTANTS { instants } else { LATENESS_INSTANTS };
    ((instants as i64 * beyond_ns) >> LATENESS_SHIFT) as i32
}

/// Classifies a silence of `silent_ns` between two samples: evidence of a late timer, or a number of missing
/// samples.
///
/// The timer keeps its grid: a sample that was not delivered leaves a whole number of periods, a late one
/// does not.
#[must_use]
#[inline(always)]
pub const fn silence(silent_ns: u64, period_ns: u64, tolerance_ns: u64) -> Silence {
    if period_ns == 0 || silent_ns <= period_ns + tolerance_ns {
        return Silence::None;
    }
    let beyond_grid_ns = silent_ns % period_ns;
    if beyond_grid_ns <= tolerance_ns || beyond_grid_ns >= period_ns - tolerance_ns {
        return Silence::Withheld((silent_ns + tolerance_ns) / period_ns - 1);
    }
    Silence::Late(silent_ns - period_ns)
}

/// Meaning of a silence between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// No meaning: it is not longer than a period.
    None,
    /// The timer came late by this many ns.
    Late(u64),
    /// This many samples were not delivered, although the timer was on time.
    Withheld(u64),
}

#[cfg(test)]
mod tests {
    use super::{
        CODE_KERNEL, CODE_UNKNOWN, CODE_USER, DELAYED, IDLE, LATENESS_NS, MASKED, STOLEN, Silence, class,
        found, lateness, silence, tick_instants,
    };

    const PERIOD: u64 = 1_000_000;
    const TOLERANCE: u64 = 50_000;

    #[test]
    fn a_span_is_stolen_if_steal_explains_half_of_it() {
        assert_eq!(class(MASKED, 800_000, 400_000), STOLEN);
        assert_eq!(class(MASKED, 800_000, 399_999), MASKED);
        assert_eq!(class(MASKED, 800_001, 400_000), MASKED);
        assert_eq!(class(DELAYED, 800_000, 400_000), STOLEN);
        assert_eq!(class(DELAYED, 800_000, 0), DELAYED);
        assert_eq!(class(IDLE, 800_000, 800_000), IDLE);
    }

    #[test]
    fn user_code_masks_nothing() {
        assert_eq!(found(false, CODE_USER), DELAYED);
        assert_eq!(found(false, CODE_KERNEL), MASKED);
        assert_eq!(found(false, CODE_UNKNOWN), MASKED);
        assert_eq!(found(true, CODE_KERNEL), IDLE);
    }

    #[test]
    fn a_span_of_several_periods_holds_the_ticks_that_never_came() {
        assert_eq!(tick_instants(300_000, 50_000, 4_000_000), 1);
        assert_eq!(tick_instants(4_000_000, 50_000, 4_000_000), 2);
        assert_eq!(tick_instants(13_000_000, 50_000, 4_000_000), 4);
        assert_eq!(tick_instants(13_000_000, 50_000, 0), 1, "the period is not known yet");
    }

    #[test]
    fn tick_instants_times_the_period_are_the_length_of_spans() {
        let (least_ns, period_ns) = (50_000, 4_000_000);
        for length_ns in [100_000, 300_000, 1_500_000, 3_990_000, 9_000_000_u64] {
            // Every instant of a period may be a tick's. The first in the span is the one that comes late.
            let late = (0..period_ns).step_by(1_000).filter(|at| *at < length_ns).map(|at| length_ns - at);
            let late = late.filter(|late_ns| *late_ns >= least_ns);
            let instants: u64 = late.map(|late_ns| tick_instants(late_ns, least_ns, period_ns)).sum();
            let estimate_ns = instants * 1_000;
            assert!(estimate_ns.abs_diff(length_ns) <= 2_000, "{length_ns} by {estimate_ns}");
        }
    }

    #[test]
    fn lateness_tells_the_variance_of_tick_instants() {
        let (least_ns, period_ns) = (50_000, 4_000_000_u64);
        let period = period_ns as f64;
        for length_ns in
            [100_000, 300_000, 1_500_000, 3_990_000, 4_000_000, 5_000_000, 9_000_000, 21_300_000_u64]
        {
            let late = (0..period_ns).step_by(1_000).filter(|at| *at < length_ns).map(|at| length_ns - at);
            let late = late.filter(|late_ns| *late_ns >= least_ns);
            let mean = |of: &dyn Fn(f64, f64) -> f64| {
                let each = late.clone().map(|late_ns| {
                    let instants = tick_instants(late_ns, least_ns, period_ns) as f64;
                    of(instants, f64::from(lateness(late_ns, least_ns, period_ns)) * LATENESS_NS as f64)
                });
                each.sum::<f64>() / (period / 1_000.0)
            };
            let truth = mean(&|instants, _| instants * instants)
                - mean(&|instants, _| instants) * mean(&|instants, _| instants);
            let estimate = mean(&|instants, lateness_ns| instants - 2.0 * lateness_ns / period);
            assert!((truth - 0.003..truth + 0.003).contains(&estimate), "{length_ns}: {estimate} of {truth}");
        }
    }

    #[test]
    fn a_silence_shorter_than_the_period_is_not_a_gap() {
        assert_eq!(silence(PERIOD, PERIOD, TOLERANCE), Silence::None);
        assert_eq!(silence(PERIOD + TOLERANCE, PERIOD, TOLERANCE), Silence::None);
    }

    #[test]
    fn a_silence_off_the_grid_is_late() {
        assert_eq!(silence(PERIOD + 300_000, PERIOD, TOLERANCE), Silence::Late(300_000));
        assert_eq!(silence(3 * PERIOD + 300_000, PERIOD, TOLERANCE), Silence::Late(2 * PERIOD + 300_000));
    }

    #[test]
    fn a_silence_on_the_grid_is_withheld_samples() {
        assert_eq!(silence(2 * PERIOD, PERIOD, TOLERANCE), Silence::Withheld(1));
        assert_eq!(silence(5 * PERIOD + 40_000, PERIOD, TOLERANCE), Silence::Withheld(4));
        assert_eq!(silence(5 * PERIOD - 40_000, PERIOD, TOLERANCE), Silence::Withheld(4));
    }

    #[test]
    fn an_event_that_is_no_clock_has_no_silences() {
        assert_eq!(silence(u64::MAX, 0, TOLERANCE), Silence::None);
    }
}
