//! The floor of lateness: how often ticks come late that no kernel code can have masked, because they found user code.
//!
//! What delays those, other interrupts' handlers and exits to a hypervisor, delays as many of the ticks that find the kernel.
//! Masked time is what the kernel's late ticks have above that.

use super::value::poisson_interval;
use crate::model::CpuCounts;

/// Ticks that found user code, and how many of them came late. Of all CPUs that were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Ticks that found user code.
    pub user_ticks: u64,
    /// Those that came late.
    pub late_ticks: u64,
    /// Tick instants in their spans.
    pub instants: u64,
}

/// A number of tick instants with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Instants {
    pub(super) estimate: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Late ticks of a kind, and the tick instants in their spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Late {
    pub(super) ticks: u64,
    pub(super) instants: u64,
    /// Those that surely were masked: they came right where the kernel lets interrupts in.
    pub(super) sure: u64,
}

impl Late {
    fn instants_each(self) -> f64 {
        if self.ticks == 0 { 1.0 } else { self.instants as f64 / self.ticks as f64 }
    }

    /// Mean number of tick instants that such a number of late ticks is a sample of.
    pub(super) fn mean(self) -> Instants {
        let (low, high) = poisson_interval(self.ticks);
        let each = self.instants_each();
        Instants { estimate: self.instants as f64, low: low * each, high: high * each }
    }
}

impl Floor {
    /// The floor by what ticks found; `None` where they found no user code, or do not tell.
    pub(super) fn of(cpus: &CpuCounts) -> Option<Self> {
        let floor = Self {
            user_ticks: cpus.user_ticks,
            late_ticks: cpus.delayed_ticks,
            instants: cpus.delayed_instants,
        };
        (floor.user_ticks > 0).then_some(floor)
    }

    /// Share of the ticks in user code that came late (0 to 1).
    pub fn share(&self) -> f64 {
        self.late_ticks as f64 / self.user_ticks.max(1) as f64
    }

    /// Tick instants in spans that delayed so many ticks of the kernel as they did those of users.
    pub(super) fn of_kernel(&self, kernel_ticks: u64) -> Instants {
        let mean = Late { ticks: self.late_ticks, instants: self.instants, sure: 0 }.mean();
        let scale = kernel_ticks as f64 / self.user_ticks.max(1) as f64;
        Instants { estimate: mean.estimate * scale, low: mean.low * scale, high: mean.high * scale }
    }
}

/// What `late` ticks in the kernel have above the floor of `kernel_ticks`.
///
/// The interval begins no higher than with those that surely were masked if there is no floor, or if a hypervisor may delay
/// the kernel more than users (`guest`): the others cannot be told from what it does. The interval of a difference of two
/// numbers with intervals of their own is Zou and Donner's (Stat. Med. 27, 2008).
pub(super) fn above(floor: Option<&Floor>, guest: bool, kernel_ticks: u64, late: Late) -> Instants {
    let all = late.mean();
    let sure = poisson_interval(late.sure.min(late.ticks)).0 * late.instants_each();
    let Some(floor) = floor else { return Instants { low: sure, ..all } };
    let of_floor = floor.of_kernel(kernel_ticks);
    let difference = all.estimate - of_floor.estimate;
    let down = (all.estimate - all.low).hypot(of_floor.high - of_floor.estimate);
    let up = (all.high - all.estimate).hypot(of_floor.estimate - of_floor.low);
    // What no late tick at all still allows.
    let least = poisson_interval(0).1 * late.instants_each();
    Instants {
        estimate: difference.max(0.0),
        low: (difference - down).clamp(0.0, if guest { sure } else { f64::INFINITY }),
        high: (difference + up).max(least),
    }
}

#[cfg(test)]
mod tests {
    use super::{Floor, Instants, Late, above};
    use crate::metric::testing::Random;

    fn late(ticks: u64) -> Late {
        Late { ticks, instants: ticks, sure: ticks }
    }

    fn floor(user_ticks: u64, late_ticks: u64) -> Floor {
        Floor { user_ticks, late_ticks, instants: late_ticks }
    }

    #[test]
    fn user_code_that_is_delayed_masks_nothing() {
        let nothing = above(Some(&floor(750, 40)), false, 2, late(0));
        assert!(nothing.estimate == 0.0 && nothing.low == 0.0 && nothing.high > 3.0, "{nothing:?}");
    }

    #[test]
    fn what_delays_users_as_much_is_no_masked_time() {
        let same = above(Some(&floor(1_000, 50)), false, 1_000, late(52));
        assert!(same.low == 0.0 && same.estimate == 2.0 && same.high > 15.0, "{same:?}");
    }

    #[test]
    fn what_is_above_the_floor_is_masked() {
        let masked = above(Some(&floor(1_000, 10)), false, 500, late(105));
        assert!(masked.estimate == 100.0 && masked.low > 70.0 && masked.high < 130.0, "{masked:?}");
    }

    #[test]
    fn an_unknown_floor_may_be_all_of_it() {
        let masked = above(None, false, 0, Late { sure: 0, ..late(30) });
        assert!(masked.low == 0.0 && masked.estimate == 30.0 && masked.high > 40.0, "{masked:?}");
    }

    #[test]
    fn in_a_guest_only_what_is_sure_is_told_from_the_hypervisor() {
        let of_guest = |sure| above(Some(&floor(1_000, 0)), true, 500, Late { sure, ..late(100) });
        assert!(of_guest(0).low == 0.0 && of_guest(0).estimate == 100.0, "{:?}", of_guest(0));
        assert!((30.0..40.0).contains(&of_guest(50).low), "{:?}", of_guest(50));
        let bare = above(Some(&floor(1_000, 0)), false, 500, Late { sure: 0, ..late(100) });
        assert!(bare.low > 75.0, "{bare:?}");
        // One tick that came very late, of the few that found the kernel at all.
        let one = above(Some(&floor(1_187, 0)), true, 12, Late { ticks: 1, instants: 3, sure: 0 });
        assert!(one.low == 0.0 && one.estimate == 3.0, "{one:?}");
    }

    #[test]
    fn a_floor_of_few_ticks_is_known_badly() {
        let Instants { low, high, .. } = above(Some(&floor(20, 0)), false, 400, late(30));
        assert!(low == 0.0 && high > 30.0, "{low} to {high}");
    }

    #[test]
    fn the_interval_covers_what_was_masked() {
        let mut random = Random(23);
        for (masked, share, user_ticks, kernel_ticks) in
            [(0.0, 0.05, 700, 50), (0.0, 0.02, 500, 500), (30.0, 0.03, 400, 600), (4.0, 0.001, 900, 100)]
        {
            let runs = 4_000;
            let covered = (0..runs).filter(|_| {
                let floor = floor(user_ticks, random.poisson(share * user_ticks as f64));
                let seen = random.poisson(masked + share * kernel_ticks as f64);
                let masked_by_estimate = above(Some(&floor), false, kernel_ticks, late(seen));
                (masked_by_estimate.low..=masked_by_estimate.high).contains(&masked)
            });
            let covered = covered.count() as f64 / f64::from(runs);
            assert!(covered > 0.94, "{masked} of {kernel_ticks} at {share}: {covered}");
        }
    }
}
