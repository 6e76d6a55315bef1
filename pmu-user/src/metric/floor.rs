//! The floor of lateness: how often ticks come late that no kernel code can have masked, because they found user code.
//!
//! What delays those, other interrupts' handlers and exits to a hypervisor, delays as many of the ticks that find the kernel.
//! Masked time is what the kernel's late ticks have above that. In a virtual machine it is what those have that came right where the kernel
//! lets interrupts in, and nowhere else does a masked one come.

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use pmu_common::gap::MASKED;

use super::value::poisson_interval;
use crate::model::CpuCounts;

/// A larger share of late ticks in user code leaves nothing to be said of a virtual machine's kernel, unless ticks tell where it lets
/// interrupts in: that the hypervisor stops it as often as users is right to a few percent of that share.
const FLOOR_MAX: f64 = 0.06;

/// How far 95 % of a normal distribution reach, in standard deviations.
const NORMAL_95: f64 = 1.96;

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
    /// Tick instants in their spans.
    pub(super) elsewhere_instants: u64,
    /// Ticks on time where the kernel lets interrupts in: with none at all, ticks do not tell where it does.
    pub(super) enable_on_time: u64,
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
}

/// Ticks that found the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct InKernel {
    /// All, late or not.
    pub(super) ticks: u64,
    /// The late ones.
    pub(super) late: Late,
    /// Those of them that came right where the kernel lets interrupts in, as all do that were masked.
    pub(super) sure: Late,
    /// Ticks on time that came there.
    pub(super) sure_on_time: u64,
}

impl Late {
    pub(super) fn instants_each(self) -> f64 {
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

    /// Mean number of tick instants that such a number of late ticks is a sample of.
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
    /// What these have above others. The interval of a difference of two numbers with intervals of their own is Zou and Donner's (Stat.
    /// Med. 27, 2008).
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
    /// The floor by what ticks found; `None` where they found no user code, or do not tell.
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

    /// Share of the ticks in user code that came late (0 to 1).
    pub fn share(&self) -> f64 {
        self.late_ticks as f64 / self.user_ticks.max(1) as f64
    }

    /// Ticks on time that found user code.
    fn user_on_time(&self) -> u64 {
        self.user_ticks.saturating_sub(self.late_ticks)
    }

    /// Ticks on time that found user code, or the kernel where it does not let interrupts in, as a divisor.
    pub(super) fn on_time(&self) -> f64 {
        self.user_on_time().saturating_add(self.elsewhere_on_time).max(1) as f64
    }

    /// Late ones there.
    pub(super) const fn late(&self) -> u64 {
        self.late_ticks.saturating_add(self.elsewhere_late)
    }

    /// Late ticks of users, as such.
    const fn late_of_users(&self) -> Late {
        Late { ticks: self.late_ticks, instants: self.instants, lateness: 0.0 }
    }

    /// Tick instants to expect in late spans that nothing masked beside so many ticks on time, if each has as many as beside `others` on
    /// time those of `late` have. `known`: what is already said of how far chance spreads them, as [`Late::dispersion`].
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

    /// Those of the kernel's ticks.
    fn of_kernel(&self, found: &InKernel) -> Instants {
        let on_time = found.ticks.saturating_sub(found.late.ticks);
        let others = self.user_on_time().max(1) as f64;
        Self::beside(on_time, (self.late_of_users(), others), found.late.dispersion())
    }

    /// Those of ticks that come where the kernel lets interrupts in.
    fn of_enabling(&self, found: &InKernel) -> Instants {
        let instants = self.instants.saturating_add(self.elsewhere_instants);
        let late = Late { ticks: self.late(), instants, lateness: 0.0 };
        Self::beside(found.sure_on_time, (late, self.on_time()), found.sure.dispersion())
    }
}

/// What late ticks in the kernel have above the floor, or why that is not known.
///
/// A hypervisor may delay the kernel more than users (`guest`): there those count that came where the kernel lets interrupts in, of which as
/// many are the hypervisor's as it delays where ticks come elsewhere, and the others only say how much it is at the most. If ticks do not tell
/// where that is, the interval begins at 0 unless the hypervisor delays hardly any, and if it delays many nothing is known.
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
    // What no late tick at all still allows.
    let least = poisson_interval(0).1 * found.late.instants_each();
    let estimate = of.estimate.max(0.0);
    Ok(Instants { estimate, low: of.low.clamp(0.0, estimate), high: of.high.max(least) })
}

fn withheld(floor: &Floor) -> String {
    format!(
        "{:.0} % of the ticks of user code were late: the hypervisor withholds the CPUs without reporting stolen time, and ticks do not tell \
         where the kernel lets interrupts in",
        100.0 * floor.share()
    )
}
