//! Blind time: time in which a CPU took no timer interrupt, estimated from late ticks, and its longest spans.
//!
//! A tick is late if its instant falls into such a span, so the share of late ticks is the share of blind
//! time. Late ticks times the period estimate it without bias, and their number is Poisson. Only ticks that
//! found the kernel can show masked time, and only those above the floor (`floor`) count.

use pmu_common::gap::{IDLE, LATENESS_NS, MASKED, STOLEN};

use super::{
    Floor, Quality,
    floor::{InKernel, Instants, Late, above},
    gap::{Exits, GapReport, describe},
    interrupt::interrupted_by,
    value::{How, Known, Value, share},
};
use crate::{
    drain::TasksHeader,
    model::{
        Counts, CpuCounts, Interval, Ledger,
        gap::{Gap, join},
    },
    plan::Target,
};

/// Time with interrupts masked.
#[derive(Clone, Debug, PartialEq)]
pub struct Masked {
    /// Masked time in ns.
    pub time: Value,
    /// Number of late ticks from which it is estimated.
    pub late_ticks: u64,
    /// Late ticks that arrived right where the kernel enables interrupts: a hypervisor does not explain them.
    pub sure_ticks: u64,
    /// Ticks that found the kernel, late or not.
    pub kernel_ticks: u64,
    /// Time in ns that is left out because the floor explains it; `None` where the floor is not known.
    pub floor_ns: Option<f64>,
    /// CPU time in ns in which it could have occurred: length times CPUs, or the run time of a target.
    pub of_ns: u64,
}

impl Masked {
    /// Returns the share of that CPU time (0 to 1), `None` where blind time is not known. Every output and
    /// every gate uses this definition.
    pub fn share(&self) -> Option<f64> {
        self.time.known().map(|known| if self.of_ns == 0 { 0.0 } else { known.estimate / self.of_ns as f64 })
    }
}

/// Blind time of the target and of the CPUs that were counted.
#[derive(Clone, Debug)]
pub struct Blind {
    /// Blind time of the target; `None` where everything on the CPUs is the target.
    pub target: Option<Masked>,
    /// Blind time of all CPUs that were counted, regardless of the owner that ran.
    pub machine: Masked,
    /// Time in ns that the hypervisor took from those CPUs, as far as it delayed ticks.
    pub stolen: Value,
    /// Late ticks on those CPUs that the hypervisor explains.
    pub stolen_ticks: u64,
    /// Time in ns in which handlers of other interrupts had those CPUs, as far as they delayed ticks, and the
    /// number of those ticks. `None` where handlers are not timed: that time is then in the floor, or counts
    /// as masked.
    pub handled: Option<(Value, u64)>,
    /// Late ticks on those CPUs while they were idle.
    pub idle_ticks: u64,
    /// Late ticks among those that found user code; `None` where no tick found user code, or ticks do not
    /// report the code.
    pub floor: Option<Floor>,
    /// Whether a hypervisor runs this machine; its exits may delay the kernel more than user code.
    pub guest: bool,
    /// Smallest lateness in ns at which a tick counts as late: shorter spans are not seen.
    pub late_min_ns: u64,
    /// Smallest length in ns of a gap that is listed.
    pub gap_min_ns: u64,
    /// Gaps while the target ran, longest first, idle ones excepted.
    pub gaps: Vec<GapReport>,
    /// Gaps while other tasks ran, longest first; empty where everything is the target.
    pub others_gaps: Vec<GapReport>,
    /// Number of late timers that no listed gap contains, in any task, because there were too many. They are
    /// shorter than all that are listed.
    pub gaps_left_out: u64,
}

impl Blind {
    /// Returns the blind time of what was requested.
    pub fn masked(&self) -> &Masked {
        self.target.as_ref().unwrap_or(&self.machine)
    }
}

/// Returns the time in ns of tick instants, for ticks that watched the share `coverage` of the time.
fn time(quality: &Quality, instants: Instants, coverage: f64) -> Value {
    let period_ns = quality.ticks.period_ns as f64;
    if quality.ticks.seen == 0 || period_ns == 0.0 {
        return Value::Missing(
            "no tick was seen: the tick's timer is unknown, or the CPUs were idle".to_owned(),
        );
    }
    let Instants { estimate, low, high } = instants;
    Value::Known(Known {
        estimate: estimate * period_ns,
        low: low * period_ns,
        high: high * period_ns,
        coverage,
        how: How::Sampled,
    })
}

/// Returns the time that an owner with these counts ran with interrupts masked.
pub(super) fn masked(quality: &Quality, counts: &Counts) -> Masked {
    let watched_ns = counts.ticks.saturating_mul(quality.ticks.period_ns);
    let coverage = match counts.ticks {
        0 => quality.ticks.coverage,
        _ => share(watched_ns, counts.cpu_time_ns),
    };
    let late = Late {
        ticks: counts.late_ticks,
        instants: counts.blind_ticks,
        lateness: periods(quality, counts.lateness),
    };
    let sure = Late {
        ticks: counts.enable_ticks,
        instants: counts.enable_instants,
        lateness: periods(quality, counts.enable_lateness),
    };
    let found = InKernel {
        ticks: counts.kernel_ticks,
        late,
        sure: of_older(sure, late, quality.ticks.floor.as_ref()),
        sure_on_time: counts.enable_ticks_on_time,
    };
    above_floor(quality, &found, coverage, counts.cpu_time_ns)
}

/// Returns late ticks with a known number of instants in their spans. Older recordings hold only the number
/// of those that arrived where the kernel enables interrupts. The spans of the others then hold as many
/// instants as those of user ticks.
fn of_older(sure: Late, all: Late, floor: Option<&Floor>) -> Late {
    if sure.ticks == 0 || sure.instants > 0 {
        return sure;
    }
    let others = all.ticks.saturating_sub(sure.ticks);
    if others == 0 {
        return Late { ticks: sure.ticks, ..all };
    }
    let of_users = floor.map_or(1.0, |floor| floor.instants as f64 / floor.late_ticks.max(1) as f64).max(1.0);
    let instants = all.instants.saturating_sub((others as f64 * of_users).round() as u64).max(sure.ticks);
    Late { ticks: sure.ticks, instants, lateness: 0.0 }
}

/// Returns a sum of [`lateness`](pmu_common::gap::lateness) in periods of the tick.
fn periods(quality: &Quality, lateness: i64) -> f64 {
    lateness as f64 * LATENESS_NS as f64 / quality.ticks.period_ns.max(1) as f64
}

fn above_floor(quality: &Quality, found: &InKernel, coverage: f64, of_ns: u64) -> Masked {
    let floor = quality.ticks.floor.as_ref();
    let masked = above(floor, quality.ticks.guest, found);
    let of_floor =
        masked.as_ref().ok().zip(floor).map(|(masked, _)| found.late.instants as f64 - masked.estimate);
    Masked {
        time: masked.map_or_else(Value::Missing, |masked| time(quality, masked, coverage)),
        late_ticks: found.late.ticks,
        sure_ticks: found.sure.ticks,
        kernel_ticks: found.ticks,
        floor_ns: of_floor.map(|instants| instants.max(0.0) * quality.ticks.period_ns as f64),
        of_ns,
    }
}

/// Returns the blind time of an interval in which the target's counts are `total`.
pub(super) fn blind(
    header: &TasksHeader,
    ledger: &Ledger,
    interval: &Interval,
    quality: &Quality,
    total: &Counts,
) -> Blind {
    let cpus = interval.all_cpus();
    let late = |class: usize| Late {
        ticks: cpus.late_ticks[class],
        instants: cpus.blind_ticks[class],
        lateness: 0.0,
    };
    let coverage = quality.ticks.coverage;
    let all = join(&interval.gaps).into_iter().filter(|gap| gap.row.class as usize != IDLE);
    let is_targets = |gap: &Gap| header.plan.target == Target::System || gap.owner.is_some();
    let (gaps, others): (Vec<Gap>, Vec<Gap>) = all.partition(is_targets);
    let exits = Exits::of(interval, &cpus, quality);
    let describe = |gaps: Vec<Gap>| gaps.into_iter().map(|gap| describe(ledger, &exits, gap)).collect();
    Blind {
        target: (header.plan.target != Target::System).then(|| masked(quality, total)),
        machine: above_floor(quality, &in_kernel(quality, &cpus), coverage, interval.capacity_ns()),
        stolen: match header.knows_steal {
            true => time(quality, late(STOLEN).mean(), coverage),
            false => Value::Missing("this kernel does not account stolen time".to_owned()),
        },
        handled: handled(header, interval, quality),
        stolen_ticks: cpus.late_ticks[STOLEN],
        idle_ticks: cpus.late_ticks[IDLE],
        floor: quality.ticks.floor,
        guest: quality.ticks.guest,
        late_min_ns: header.plan.late_min_ns,
        gap_min_ns: header.plan.gap_min_ns,
        gaps: describe(gaps),
        others_gaps: describe(others),
        gaps_left_out: interval.gaps_left_out,
    }
}

/// Returns the ticks of all CPUs together that found the kernel.
fn in_kernel(quality: &Quality, cpus: &CpuCounts) -> InKernel {
    let late = Late {
        ticks: cpus.late_ticks[MASKED],
        instants: cpus.blind_ticks[MASKED],
        lateness: periods(quality, cpus.lateness),
    };
    let sure = Late {
        ticks: cpus.enable_ticks,
        instants: cpus.enable_instants,
        lateness: periods(quality, cpus.enable_lateness),
    };
    InKernel {
        ticks: cpus.kernel_ticks,
        late,
        sure: of_older(sure, late, quality.ticks.floor.as_ref()),
        sure_on_time: cpus.enable_ticks_on_time,
    }
}

/// Returns the time of interrupt handlers that delayed ticks, and the number of those ticks.
fn handled(header: &TasksHeader, interval: &Interval, quality: &Quality) -> Option<(Value, u64)> {
    // Without handler counts, the ticks that handlers delayed are not known either.
    interrupted_by(header, interval)?;
    let each = || interval.spare_interrupts.values();
    let ticks = each().map(|spare| spare.late_ticks).fold(0, u64::saturating_add);
    let instants = each().map(|spare| spare.late_instants).fold(0, u64::saturating_add);
    Some((time(quality, Late { ticks, instants, ..Late::default() }.mean(), quality.ticks.coverage), ticks))
}
