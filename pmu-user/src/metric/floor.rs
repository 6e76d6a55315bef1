//! The floor of lateness: how often ticks come late that no kernel code can have masked, because they found user code.
//!
//! What delays those, other interrupts' handlers and exits to a hypervisor, delays as many of the ticks that find the kernel.
//! Masked time is what the kernel's late ticks have above that.

use pmu_common::gap::MASKED;

use super::value::poisson_interval;
use crate::model::CpuCounts;

/// Ticks that found user code, and how many of them came late. Of all CPUs that were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// Ticks that found user code.
    pub user_ticks: u64,
    /// Those that came late.
    pub late_ticks: u64,
    /// Tick instants in their spans.
    pub instants: u64,
    /// Ticks on time that found the kernel, but not where it lets interrupts in: what is masked does not come there.
    pub(super) elsewhere_on_time: u64,
    /// Late ones there.
    pub(super) elsewhere_late: u64,
}

/// A number of tick instants with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Instants {
    pub(super) estimate: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Late ticks of a kind, and the tick instants in their spans.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Late {
    pub(super) ticks: u64,
    pub(super) instants: u64,
    /// Sum of [`lateness`](pmu_common::gap::lateness) in periods; 0 where it is not known.
    pub(super) lateness: f64,
    /// Those that came right where the kernel lets interrupts in, as all do that were masked.
    pub(super) sure: u64,
    /// Ticks on time that came there.
    pub(super) sure_on_time: u64,
}

impl Late {
    fn instants_each(self) -> f64 {
        if self.ticks == 0 { 1.0 } else { self.instants as f64 / self.ticks as f64 }
    }

    /// Variance of the number of tick instants, in units of what a Poisson number of late ticks would have. The longer a span, the
    /// less chance is in whether a tick falls into it.
    fn dispersion(self) -> f64 {
        if self.ticks == 0 || self.lateness == 0.0 {
            return 1.0;
        }
        let (ticks, instants) = (self.ticks as f64, self.instants as f64);
        let estimate = (instants - 2.0 * self.lateness) * ticks / instants.powi(2);
        // Of few ticks it is known badly; with half of its standard error more the interval covers what it says.
        (estimate.max(0.0) + 0.3 * ticks.sqrt() / instants).min(estimate.max(1.0))
    }

    /// 95 % interval of the mean that `ticks` of these late ticks are a sample of, in tick instants.
    fn bounds(self, ticks: u64) -> (f64, f64) {
        let ((low, high), ticks) = (poisson_interval(ticks), ticks as f64);
        let (each, wide) = (self.instants_each(), self.dispersion().sqrt());
        let (low, high) = if wide == 1.0 {
            (low, high)
        } else {
            (ticks - (ticks - low) * wide, ticks + (high - ticks) * wide)
        };
        (low.max(0.0) * each, high * each)
    }

    /// Mean number of tick instants that such a number of late ticks is a sample of.
    pub(super) fn mean(self) -> Instants {
        let (low, high) = self.bounds(self.ticks);
        Instants { estimate: self.instants as f64, low, high }
    }

    /// Least number of tick instants that surely were masked, with 97.5 %.
    ///
    /// What delays ticks that nothing masked also delays as large a share of those that come where the kernel lets interrupts in.
    fn least_sure(self, floor: Option<&Floor>) -> f64 {
        let sure = self.sure.min(self.ticks);
        let (low, _) = self.bounds(sure);
        let Some(delayed) = floor.map(|floor| floor.of_on_time(self.sure_on_time)) else { return low };
        let (sure, each) = (sure as f64 * self.instants_each(), self.instants_each());
        let down = (sure - low).hypot((delayed.high - delayed.estimate) * each);
        (sure - delayed.estimate * each - down).max(0.0)
    }
}

impl Floor {
    /// The floor by what ticks found; `None` where they found no user code, or do not tell.
    pub(super) fn of(cpus: &CpuCounts) -> Option<Self> {
        let floor = Self {
            user_ticks: cpus.user_ticks,
            late_ticks: cpus.delayed_ticks,
            instants: cpus.delayed_instants,
            elsewhere_on_time: cpus
                .kernel_ticks
                .saturating_sub(cpus.late_ticks[MASKED])
                .saturating_sub(cpus.enable_ticks_on_time),
            elsewhere_late: cpus.late_ticks[MASKED].saturating_sub(cpus.enable_ticks),
        };
        (floor.user_ticks > 0).then_some(floor)
    }

    /// Share of the ticks in user code that came late (0 to 1).
    pub fn share(&self) -> f64 {
        self.late_ticks as f64 / self.user_ticks.max(1) as f64
    }

    /// Ticks on time that found user code, or the kernel where it does not let interrupts in, as a divisor.
    pub(super) fn on_time(&self) -> f64 {
        let of_users = self.user_ticks.saturating_sub(self.late_ticks);
        of_users.saturating_add(self.elsewhere_on_time).max(1) as f64
    }

    /// Late ones there.
    pub(super) const fn late(&self) -> u64 {
        self.late_ticks.saturating_add(self.elsewhere_late)
    }

    /// Late ticks to expect beside so many on time, of those that nothing masked.
    pub(super) fn of_on_time(&self, on_time: u64) -> Instants {
        if on_time == 0 {
            return Instants { estimate: 0.0, low: 0.0, high: 0.0 };
        }
        let late = self.late();
        let ((_, late_high), (_, on_time_high)) = (poisson_interval(late), poisson_interval(on_time));
        let (late, on_time, others) = (late as f64, on_time as f64, self.on_time());
        let estimate = late * on_time / others;
        let up = ((late_high - late) * on_time).hypot((on_time_high - on_time) * late) / others;
        Instants { estimate, low: 0.0, high: estimate + up }
    }

    /// Tick instants in spans that delayed so many ticks of the kernel as they did those of users.
    pub(super) fn of_kernel(&self, kernel_ticks: u64) -> Instants {
        let mean = Late { ticks: self.late_ticks, instants: self.instants, ..Late::default() }.mean();
        let scale = kernel_ticks as f64 / self.user_ticks.max(1) as f64;
        Instants { estimate: mean.estimate * scale, low: mean.low * scale, high: mean.high * scale }
    }
}

/// What `late` ticks in the kernel have above the floor of `kernel_ticks`.
///
/// A hypervisor may delay the kernel more than users (`guest`), so the interval begins there with those that came where the kernel lets
/// interrupts in, of which as many are the hypervisor's as it delays where ticks come on time; if it is not known how many came there on time, or
/// where there is no floor, no higher than with those. The interval of a difference of two numbers with intervals of their own is Zou and
/// Donner's (Stat. Med. 27, 2008).
pub(super) fn above(floor: Option<&Floor>, guest: bool, kernel_ticks: u64, late: Late) -> Instants {
    let all = late.mean();
    let sure = late.least_sure(floor);
    let Some(floor) = floor else { return Instants { low: sure, ..all } };
    let of_floor = floor.of_kernel(kernel_ticks);
    let difference = all.estimate - of_floor.estimate;
    let down = (all.estimate - all.low).hypot(of_floor.high - of_floor.estimate);
    let up = (all.high - all.estimate).hypot(of_floor.estimate - of_floor.low);
    // What no late tick at all still allows.
    let least = poisson_interval(0).1 * late.instants_each();
    let (estimate, by_floor) = (difference.max(0.0), difference - down);
    let low = match (guest, late.sure_on_time) {
        (true, 0) => by_floor.min(sure),
        (true, _) => sure,
        (false, 0) => by_floor,
        (false, _) => by_floor.max(sure),
    };
    Instants { estimate, low: low.clamp(0.0, estimate), high: (difference + up).max(least) }
}

#[cfg(test)]
mod tests {
    use super::{Floor, Instants, Late, above};
    use crate::metric::testing::Random;
    use pmu_common::gap::{self, LATENESS_NS, tick_instants};

    fn late(ticks: u64) -> Late {
        Late { ticks, instants: ticks, sure: ticks, ..Late::default() }
    }

    fn floor(user_ticks: u64, late_ticks: u64) -> Floor {
        Floor { user_ticks, late_ticks, instants: late_ticks, ..Floor::default() }
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
        let one = above(Some(&floor(1_187, 0)), true, 12, Late { ticks: 1, instants: 3, ..Late::default() });
        assert!(one.low == 0.0 && one.estimate == 3.0, "{one:?}");
    }

    #[test]
    fn a_floor_of_few_ticks_is_known_badly() {
        let Instants { low, high, .. } = above(Some(&floor(20, 0)), false, 400, late(30));
        assert!(low == 0.0 && high > 30.0, "{low} to {high}");
    }

    /// Share of runs of `spans` masked spans, of which `shortest` to `longest` periods of the tick last, whose interval holds what they
    /// were.
    fn coverage(random: &mut Random, spans: u32, shortest: f64, longest: f64) -> f64 {
        let (runs, least_ns, period_ns) = (4_000, 50_000, 4_000_000);
        let covered = (0..runs).filter(|_| {
            let (mut truth, mut late, mut lateness) = (0.0, Late::default(), 0);
            for _ in 0..spans {
                let length = random.between(shortest, longest);
                truth += length;
                let late_ns = ((length - random.uniform()) * period_ns as f64) as u64;
                if late_ns >= least_ns {
                    late.ticks += 1;
                    late.instants += tick_instants(late_ns, least_ns, period_ns);
                    lateness += i64::from(gap::lateness(late_ns, least_ns, period_ns));
                }
            }
            late.lateness = lateness as f64 * LATENESS_NS as f64 / period_ns as f64;
            let mean = late.mean();
            (mean.low..=mean.high).contains(&truth)
        });
        covered.count() as f64 / f64::from(runs)
    }

    #[test]
    fn the_interval_is_as_wide_as_spans_of_any_length_make_it() {
        let mut random = Random(29);
        for (spans, shortest, longest) in [
            (2_000, 0.025, 0.025),
            (300, 0.1, 0.1),
            (150, 0.3, 0.45),
            (60, 0.9, 0.99),
            (60, 1.2, 1.2),
            (40, 3.6, 3.6),
            (200, 0.03, 0.99),
            (100, 0.1, 5.0),
            (30, 0.4, 0.7),
        ] {
            let covered = coverage(&mut random, spans, shortest, longest);
            assert!((0.92..0.975).contains(&covered), "{spans} of {shortest} to {longest}: {covered}");
        }
        // Where few ticks are late, it is wider than it need be.
        for (spans, shortest, longest) in [(10, 0.3, 0.6), (10, 0.9, 0.95), (4, 0.5, 0.5)] {
            let covered = coverage(&mut random, spans, shortest, longest);
            assert!(covered > 0.96, "{spans} of {shortest} to {longest}: {covered}");
        }
    }

    #[test]
    fn without_a_hypervisor_the_higher_of_two_lower_bounds_holds() {
        let mut random = Random(37);
        for (masked, share, user_ticks, at_enable, elsewhere) in [
            (30.0, 0.03, 400, 100, 500),
            (4.0, 0.001, 900, 30, 70),
            (0.0, 0.02, 1_000, 60, 500),
            (10.0, 0.1, 500, 50, 150),
        ] {
            let runs = 4_000;
            let held = (0..runs).filter(|_| {
                let mut delayed = |ticks: u64| random.poisson(share * ticks as f64).min(ticks);
                let (of_users, there, others) = (delayed(user_ticks), delayed(at_enable), delayed(elsewhere));
                let floor = Floor {
                    elsewhere_on_time: elsewhere - others,
                    elsewhere_late: others,
                    ..floor(user_ticks, of_users)
                };
                let sure = random.poisson(masked) + there;
                let late = Late { sure, sure_on_time: at_enable - there, ..late(sure + others) };
                let found = above(Some(&floor), false, at_enable - there + elsewhere + sure, late);
                (found.low..=found.high).contains(&masked)
            });
            let held = f64::from(u32::try_from(held.count()).unwrap()) / f64::from(runs);
            assert!((0.935..0.985).contains(&held), "{masked} beside {share} of {at_enable}: {held}");
        }
    }

    #[test]
    fn what_a_hypervisor_delays_where_the_kernel_unmasks_is_not_sure() {
        let mut random = Random(31);
        for (masked, share, user_ticks, at_enable) in [
            (0.0, 0.02, 1_000, 60),
            (0.0, 0.05, 500, 1_500),
            (20.0, 0.03, 2_000, 300),
            (0.0, 0.001, 200, 2_000),
        ] {
            let runs = 4_000;
            let held = (0..runs).filter(|_| {
                let floor = floor(user_ticks, random.poisson(share * user_ticks as f64));
                let delayed = random.poisson(share * at_enable as f64);
                let sure = random.poisson(masked) + delayed;
                // As many again came late elsewhere in the kernel.
                let late = Late { sure, sure_on_time: at_enable - delayed, ..late(2 * sure) };
                above(Some(&floor), true, 10 * at_enable, late).low <= masked
            });
            let held = f64::from(u32::try_from(held.count()).unwrap()) / f64::from(runs);
            assert!(held > 0.965, "{masked} beside {share} of {at_enable}: {held}");
        }
        // What is masked is sure all the same.
        let late = Late { sure: 60, sure_on_time: 300, ..late(60) };
        let masked = above(Some(&floor(2_000, 20)), true, 400, late);
        assert!((35.0..57.0).contains(&masked.low), "{masked:?}");
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
