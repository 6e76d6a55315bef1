//! Time in which a CPU took no timer interrupt, estimated from ticks that came late, and the longest spans of it.
//!
//! A tick comes late if its instant falls into such a span, so the share of late ticks is the share of blind time:
//! late ticks times the period estimates it without bias, and their number is Poisson. Only ticks that found the kernel can show
//! masked time, and of those only what is above the floor (`floor`).

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
    /// That time, in ns.
    pub time: Value,
    /// Late ticks that it is estimated from.
    pub late_ticks: u64,
    /// Those that came right where the kernel lets interrupts in: no hypervisor explains them.
    pub sure_ticks: u64,
    /// Ticks that found the kernel, late or not.
    pub kernel_ticks: u64,
    /// Time that is not in it because the floor explains it, in ns; `None` where the floor is not known.
    pub floor_ns: Option<f64>,
    /// CPU time in which it could have been, in ns: length times CPUs, or what a target ran.
    pub of_ns: u64,
}

impl Masked {
    /// Share of that CPU time (0 to 1), `None` where blind time is not known. The one definition for every output and every gate.
    pub fn share(&self) -> Option<f64> {
        self.time.known().map(|known| if self.of_ns == 0 { 0.0 } else { known.estimate / self.of_ns as f64 })
    }
}

/// Blind time of the target and of the CPUs that were counted.
#[derive(Clone, Debug)]
pub struct Blind {
    /// The target's; `None` where everything on the CPUs is the target.
    pub target: Option<Masked>,
    /// That of all CPUs that were counted, whoever ran.
    pub machine: Masked,
    /// Time that the hypervisor took from those CPUs, as far as ticks were late for it, in ns.
    pub stolen: Value,
    /// Late ticks on those CPUs that the hypervisor explains.
    pub stolen_ticks: u64,
    /// Time in which handlers of other interrupts had those CPUs, as far as ticks were late for it, in ns, and how many were; `None` where
    /// handlers are not timed. Without that it is in the floor, or masked.
    pub handled: Option<(Value, u64)>,
    /// Late ticks on those CPUs while they were idle.
    pub idle_ticks: u64,
    /// How often ticks come late that found user code; `None` where none did, or ticks do not tell.
    pub floor: Option<Floor>,
    /// Does a hypervisor run this machine, whose exits may delay the kernel more than users?
    pub guest: bool,
    /// A tick this late counts, in ns: shorter spans are not seen.
    pub late_min_ns: u64,
    /// A gap this long is listed, in ns.
    pub gap_min_ns: u64,
    /// Gaps while the target ran, longest first, idle ones excepted.
    pub gaps: Vec<GapReport>,
    /// Those while others ran, longest first; none where everything is the target.
    pub others_gaps: Vec<GapReport>,
    /// Late timers that are in none of them, whoever ran, because there were too many: shorter ones than all that are.
    pub gaps_left_out: u64,
}

impl Blind {
    /// Blind time of what was asked for.
    pub fn masked(&self) -> &Masked {
        self.target.as_ref().unwrap_or(&self.machine)
    }
}

/// Time of tick instants, of which a share of the time was watched, in ns.
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

/// Time that an owner, which did `counts`, ran with interrupts masked.
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

/// Late ticks of which it is known how many instants their spans hold; older recordings have only the number of those that came where the
/// kernel lets interrupts in: the others' spans then hold as many as those of users.
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

/// A sum of [`lateness`](pmu_common::gap::lateness) in periods of the tick.
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

/// Blind time in an interval in which the target did `total`.
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

/// Ticks of all CPUs together that found the kernel.
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

/// Time of handlers that ticks were late for.
fn handled(header: &TasksHeader, interval: &Interval, quality: &Quality) -> Option<(Value, u64)> {
    // What knows of no handlers knows of none that ticks were late for.
    interrupted_by(header, interval)?;
    let each = || interval.spare_interrupts.values();
    let ticks = each().map(|spare| spare.late_ticks).fold(0, u64::saturating_add);
    let instants = each().map(|spare| spare.late_instants).fold(0, u64::saturating_add);
    Some((time(quality, Late { ticks, instants, ..Late::default() }.mean(), quality.ticks.coverage), ticks))
}
