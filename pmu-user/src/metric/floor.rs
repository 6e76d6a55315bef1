//! Floor of lateness: late ticks that kernel code cannot have masked, because they found user code.
//!
//! Handlers of other interrupts and exits to a hypervisor delay those, and as many of the ticks that find the
//! kernel. Masked time is the excess of the kernel's late ticks over that. In a virtual machine only late
//! ticks that arrive right where the kernel enables interrupts count, because a masked tick arrives nowhere
//! else.

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use pmu_common::gap::MASKED;

use super::value::poisson_interval;
use crate::model::CpuCounts;

/// Largest share of late ticks in user code at which anything is stated about a virtual machine's kernel,
/// unless ticks report where it enables interrupts. That the hypervisor stops the kernel as often as user
/// code holds to a few percent of that share.
const FLOOR_MAX: f64 = 0.06;

/// Half-width of the central 95 % of a normal distribution, in standard deviations.
const NORMAL_95: f64 = 1.96;

/// Ticks that found user code, and the late ones among them, on all CPUs that were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// Ticks that found user code.
    pub user_ticks: u64,
    /// Late ticks among them.
    pub late_ticks: u64,
    /// Tick instants in the spans of those.
    pub instants: u64,
    /// Ticks on time that found the kernel, but not where it enables interrupts: masked ticks do not arrive
    /// there.
    pub(super) elsewhere_on_time: u64,
    /// Late ticks in the same places.
    pub(super) elsewhere_late: u64,
    /// Tick instants in the spans of those.
    pub(super) elsewhere_instants: u64,
    /// Ticks on time where the kernel enables interrupts. If there are none at all, ticks do not report where
    /// it does.
    pub(super) enable_on_time: u64,
}

/// Number of tick instants with its 95 % interval.
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
}

/// Ticks that found the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct InKernel {
    /// All such ticks, late or not.
    pub(super) ticks: u64,
    /// Late ticks among them.
    pub(super) late: Late,
    /// Late ticks that arrived right where the kernel enables interrupts, as all masked ones do.
    pub(super) sure: Late,
    /// Ticks on time that arrived there.
    pub(super) sure_on_time: u64,
}

impl Late {
    pub(super) fn instants_each(self) -> f64 {
        if self.ticks == 0 { 1.0 } else { self.instants as f64 / self.ticks as f64 }
    }

    /// Returns the variance of the number of tick instants, relative to that of a Poisson number of late
    /// ticks. The longer a span, the less it depends on chance whether a tick falls into it.
    fn dispersion(self) -> f64 {
        if self.ticks == 0 || self.lateness == 0.0 {
            return 1.0;
        }
        let (ticks, instants) = (self.ticks as f64, self.instants as f64);
        let estimate = (instants - 2.0 * self.lateness) * ticks / instants.powi(2);
        // The estimate is poor for few ticks. With half of its standard error added, the interval reaches its
        // nominal coverage.
        (estimate.max(0.0) + 0.3 * ticks.sqrt() / instants).min(estimate.max(1.0))
    }

    /// Returns the mean number of tick instants of which this number of late ticks is a sample.
    pub(super) fn mean(self) -> Instants {
        let ((low, high), ticks) = (poisson_interval(self.ticks), self.ticks as f64);
        let (each, wide) = (self.instants_each(), self.dispersion().sqrt());
        let (low, high) = if wide == 1.0 {
            (low, high)
        } else {
            (ticks - (ticks - low) * wide, ticks + (high - ticks) * wide)
        };
        Instants { estimate: self.instants as f64, low: low.max(0.0) * each, high: high * each }
    }
}

impl Instants {
    /// Returns the excess of these over others. The interval of a difference of two numbers with separate
    /// intervals is Zou and Donner's (Stat. Med. 27, 2008).
    fn above(self, other: Self) -> Self {
        let difference = self.estimate - other.estimate;
        Self {
            estimate: difference,
            low: difference - (self.estimate - self.low).hypot(other.high - other.estimate),
            high: difference + (self.high - self.estimate).hypot(other.estimate - other.low),
        }
    }
}

impl Floor {
    /// Returns the floor by the code that ticks found; `None` where they found no user code, or do not report
    /// the code.
    pub(super) fn of(cpus: &CpuCounts) -> Option<Self> {
        let elsewhere_late = cpus.late_ticks[MASKED].saturating_sub(cpus.enable_ticks);
        let floor = Self {
            user_ticks: cpus.user_ticks,
            late_ticks: cpus.delayed_ticks,
            instants: cpus.delayed_instants,
            elsewhere_on_time: cpus
                .kernel_ticks
                .saturating_sub(cpus.late_ticks[MASKED])
                .saturating_sub(cpus.enable_ticks_on_time),
            elsewhere_late,
            elsewhere_instants: match cpus.enable_ticks > 0 && cpus.enable_instants == 0 {
                // An older recording.
                true => elsewhere_late,
                false => cpus.blind_ticks[MASKED].saturating_sub(cpus.enable_instants),
            },
            enable_on_time: cpus.enable_ticks_on_time,
        };
        (floor.user_ticks > 0).then_some(floor)
    }

    /// Returns the share of the ticks in user code that were late (0 to 1).
    pub fn share(&self) -> f64 {
        self.late_ticks as f64 / self.user_ticks.max(1) as f64
    }

    /// Returns the number of ticks on time that found user code.
    fn user_on_time(&self) -> u64 {
        self.user_ticks.saturating_sub(self.late_ticks)
    }

    /// Returns the number of ticks on time that found user code, or the kernel where it does not enable
    /// interrupts, as a divisor.
    pub(super) fn on_time(&self) -> f64 {
        self.user_on_time().saturating_add(self.elsewhere_on_time).max(1) as f64
    }

    /// Returns the number of late ticks in the same places.
    pub(super) const fn late(&self) -> u64 {
        self.late_ticks.saturating_add(self.elsewhere_late)
    }

    /// Returns the late ticks that found user code.
    const fn late_of_users(&self) -> Late {
        Late { ticks: self.late_ticks, instants: self.instants, lateness: 0.0 }
    }

    /// Returns the tick instants to expect in unmasked late spans for `on_time` ticks on time. The rate is
    /// that of `late` for `others` ticks on time. `known`: dispersion that the caller already accounts for,
    /// as [`Late::dispersion`].
    fn beside(on_time: u64, (late, others): (Late, f64), known: f64) -> Instants {
        let scale = on_time as f64 / others;
        let each = late.instants_each();
        // Spans that end by chance hold a geometric number of instants.
        let spread = (2.0 - 1.0 / each).max(1.0);
        let ((few, many), ticks) = (poisson_interval(late.ticks), late.ticks as f64);
        let (fewer, more) = poisson_interval(on_time);
        let estimate = late.instants as f64 * scale;
        let by_chance = NORMAL_95 * (estimate * each * (spread - known).max(0.0)).sqrt();
        let of_rate = |ticks: f64| ticks * spread.sqrt() * each * scale;
        let of_base = |ticks: f64| ticks * late.instants as f64 / others;
        let up = of_rate(many - ticks).hypot(of_base(more - on_time as f64)).hypot(by_chance);
        let down = of_rate(ticks - few).hypot(of_base(on_time as f64 - fewer)).hypot(by_chance);
        Instants { estimate, low: (estimate - down).max(0.0), high: estimate + up }
    }

    /// Returns the expected instants for the kernel's ticks.
    fn of_kernel(&self, found: &InKernel) -> Instants {
        let on_time = found.ticks.saturating_sub(found.late.ticks);
        let others = self.user_on_time().max(1) as f64;
        Self::beside(on_time, (self.late_of_users(), others), found.late.dispersion())
    }

    /// Returns the expected instants for ticks that arrive where the kernel enables interrupts.
    fn of_enabling(&self, found: &InKernel) -> Instants {
        let instants = self.instants.saturating_add(self.elsewhere_instants);
        let late = Late { ticks: self.late(), instants, lateness: 0.0 };
        Self::beside(found.sure_on_time, (late, self.on_time()), found.sure.dispersion())
    }
}

/// Returns the excess of late ticks in the kernel over the floor, or the reason why it is not known.
///
/// A hypervisor may delay the kernel more than user code (`guest`). Then the late ticks count that arrived
/// where the kernel enables interrupts, less the hypervisor's at the rate of delays elsewhere. The other late
/// ticks only bound the result from above. If ticks do not report where interrupts are enabled, the interval
/// begins at 0 unless the hypervisor delays hardly any. If it delays many, the excess is not known.
pub(super) fn above(floor: Option<&Floor>, guest: bool, found: &InKernel) -> Result<Instants, String> {
    let all = found.late.mean();
    let Some(floor) = floor else {
        return Ok(Instants { low: found.sure.mean().low.min(all.estimate), ..all });
    };
    let by_floor = all.above(floor.of_kernel(found));
    let sure = found.sure.mean().above(floor.of_enabling(found));
    let of = match (guest, floor.enable_on_time > 0) {
        (true, true) => Instants { high: sure.high.max(by_floor.high), ..sure },
        (true, false) if floor.share() > FLOOR_MAX => return Err(withheld(floor)),
        (true, false) => Instants { low: by_floor.low.min(found.sure.mean().low), ..by_floor },
        (false, true) => Instants { low: by_floor.low.max(sure.low), ..by_floor },
        (false, false) => by_floor,
    };
    // Upper bound that is still possible without any late tick.
    let least = poisson_interval(0).1 * found.late.instants_each();
    let estimate = of.estimate.max(0.0);
    Ok(Instants { estimate, low: of.low.clamp(0.0, estimate), high: of.high.max(least) })
}

fn withheld(floor: &Floor) -> String {
    format!(
        "{:.0} % of the ticks of user code were late: the hypervisor withholds the CPUs without reporting stolen time, and ticks do not show \
         where the kernel lets interrupts in",
        100.0 * floor.share()
    )
}
