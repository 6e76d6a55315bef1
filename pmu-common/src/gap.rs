//! When is a late timer a gap, and what does a number of late ticks say about masked time?

use crate::wire;

/// Interrupts were masked (or an interrupt handler ran).
pub const MASKED: usize = 0;
/// The hypervisor ran something else.
pub const STOLEN: usize = 1;
/// The CPU was idle and woke late.
pub const IDLE: usize = 2;
/// Number of classes that a CPU's row has a word for each.
pub const CLASSES: usize = 3;
/// User code ran, which cannot mask interrupts: another interrupt's handler ran long, or the hypervisor did something that is
/// not stolen time. How often that happens is the floor of a machine: kernel code is delayed by the same.
pub const DELAYED: usize = 3;
/// Another interrupt's handler had the CPU when the timer was due; known where handlers are timed.
pub const HANDLED: usize = 4;

/// It is not known what code a timer interrupted.
pub const CODE_UNKNOWN: u32 = 0;
/// It interrupted user code.
pub const CODE_USER: u32 = 1;
/// It interrupted the kernel.
pub const CODE_KERNEL: u32 = 2;

/// [`Late::timer`]: the kernel's periodic tick.
pub const TIMER_TICK: u32 = 0;
/// [`Late::timer`]: the sampling clock.
pub const TIMER_CLOCK: u32 = 1;

/// Kernel stack entries kept with a gap. The first dozen belong to the timer interrupt itself.
pub const STACK_FRAMES: usize = 40;

wire! {
    /// One late timer. Kept per CPU until the steal clock has caught up, then classified; if long enough, sent.
    pub struct Late {
        /// [`crate::ring::GAP`], so that the record can be sent as it is.
        pub kind: u32,
        /// CPU.
        pub cpu: u32,
        /// When the timer's handler started, in ns (CLOCK_MONOTONIC).
        pub at_ns: u64,
        /// How late that was, in ns. The span itself was longer by up to one period.
        pub late_ns: u64,
        /// Before classification: the steal clock. After: ns stolen around the span.
        pub steal_ns: u64,
        /// Thread that was interrupted.
        pub tid: u32,
        /// Its process.
        pub tgid: u32,
        /// Its owner's slot, or [`crate::count::SLOT_NONE`].
        pub slot: u32,
        /// [`TIMER_TICK`] or [`TIMER_CLOCK`].
        pub timer: u32,
        /// [`MASKED`], [`STOLEN`], [`IDLE`], [`DELAYED`] or [`HANDLED`].
        pub class: u32,
        /// Entries of `stack` in use.
        pub frames: u32,
        /// 1: it came right where the kernel lets interrupts in.
        pub at_enable: u32,
        /// Place of the interrupt handler that had the CPU when it was due ([`crate::interrupt`]), plus 1; 0 if none is known.
        pub handler: u32,
        /// `task_struct.comm`.
        pub comm: [u8; 16],
        /// Kernel stack at the late interrupt, innermost first.
        pub stack: [u64; STACK_FRAMES],
    }
}

/// Class of a late timer by what it found, before stolen time is known: an idle CPU, user code, or else a kernel that may have
/// masked it.
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

/// Class of a late timer that found `found`: idle CPUs are no gaps, and stolen time is the hypervisor's if it explains half of
/// it.
#[must_use]
#[inline(always)]
pub const fn class(found: usize, late_ns: u64, stolen_ns: u64) -> usize {
    if found != IDLE && stolen_ns >= late_ns - late_ns / 2 { STOLEN } else { found }
}

/// Tick instants that fell into the span which ended `late_ns` after the first of them, where a tick counts as late from `least_ns` on.
///
/// The kernel skips the ticks that it missed, so a span of several periods shows as one late tick. One whose instant is less than
/// `least_ns` before the span's end does not count, and a tick that is late by less than twice as much stands for it, too: an instant is as
/// likely to be there in every span of that length.
#[must_use]
#[inline(always)]
pub const fn tick_instants(late_ns: u64, least_ns: u64, period_ns: u64) -> u64 {
    let unseen = if late_ns < 2 * least_ns { 1 } else { 0 };
    match late_ns.checked_div(period_ns) {
        Some(skipped) => 1 + unseen + skipped,
        None => 1 + unseen,
    }
}

/// A unit of [`lateness`], in ns.
pub const LATENESS_NS: u64 = 1 << LATENESS_SHIFT;
const LATENESS_SHIFT: u32 = 10;
/// More instants than that, of a machine that stood still for minutes, count as this many, so that the sum keeps to its 32 bits.
const LATENESS_INSTANTS: u64 = 1 << 16;

/// What a late tick adds to the sum that tells how far tick instants may be from their mean, in units of [`LATENESS_NS`]: the lateness
/// beyond whole periods, times [`tick_instants`].
///
/// The instants of a span that is r longer than whole periods T differ by one with the share r/T, so their variance is r(T - r) in units of
/// T^2. It is not known how long the span was, but `late_ns` is uniform in it: n instants that came m beyond whole periods late are an estimate
/// n(T^2 - 2Tm) of that variance, without bias. A tick that stands for one that was too little late to count stands for 4T^2 - 4T
/// `least_ns`.
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

/// Is a silence of `silent_ns` between two samples evidence of a late timer, and if not, how many samples are missing?
///
/// The timer keeps its grid: a sample that was not delivered leaves a whole number of periods, a late one does not.
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

/// What a silence between two samples says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Nothing: it is no longer than a period.
    None,
    /// The timer came late by this many ns.
    Late(u64),
    /// This many samples were not delivered, on time though the timer was.
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
            // Every instant of a period may be a tick's; the first in the span is the one that comes late.
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
