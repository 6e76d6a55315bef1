//! Time in which a CPU took no timer interrupt, estimated from ticks that came late, and the longest spans of it.
//!
//! A tick comes late if its instant falls into such a span, so the share of late ticks is the share of blind time:
//! late ticks times the period estimates it without bias, and their number is Poisson. Only ticks that found the kernel can show
//! masked time, and of those only what is above the floor (`floor`).

use pmu_common::gap::{DELAYED, HANDLED, IDLE, MASKED, STOLEN};

use super::{
    Floor, Quality,
    floor::{Instants, Late, above},
    interrupt::{called, interrupted_by},
    value::{How, Known, Value, share},
};
use crate::{
    drain::{At, GapRow, Owner, TasksHeader},
    model::{
        Counts, Interval, Ledger,
        gap::{Gap, interrupted, is_entry, join},
    },
    named::named,
    plan::Target,
    untrusted::Untrusted,
};

named! {
    /// What a gap is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum BlindClass {
        Masked = "masked", "Kernel code ran with interrupts masked.";
        MaskedOrExit = "masked_or_vm_exit",
            "The late interrupt found the kernel of a virtual machine, but not where it lets interrupts in: it masked them, or the \
             hypervisor stopped the CPU (a VM exit).";
        Delayed = "delayed",
            "The late interrupt found user code, which cannot mask any: a handler ran long, or the hypervisor did something.";
        Handler = "handler", "The handler of another interrupt had the CPU when the timer was due (`--interrupts`).";
        Stolen = "stolen", "The hypervisor ran something else.";
        Idle = "idle", "The CPU was idle and woke late: no gap.";
    }
}

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

/// One gap.
#[derive(Clone, Debug)]
pub struct GapReport {
    /// What it shows, as it was read.
    pub gap: Gap,
    /// What it is.
    pub class: BlindClass,
    /// Who ran.
    pub owner: Option<Owner>,
    /// The interrupt handler that had the CPU, where it is one.
    pub handler: Option<String>,
    /// Where interrupts came back on, innermost first: names, or addresses that have none.
    pub stack: Vec<Untrusted>,
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
    let late = Late { ticks: counts.late_ticks, instants: counts.blind_ticks, sure: counts.enable_ticks };
    above_floor(quality, late, counts.kernel_ticks, coverage, counts.cpu_time_ns)
}

fn above_floor(quality: &Quality, late: Late, kernel_ticks: u64, coverage: f64, of_ns: u64) -> Masked {
    let floor = quality.ticks.floor.as_ref();
    let of_floor = floor.map(|floor| floor.of_kernel(kernel_ticks).estimate.min(late.instants as f64));
    Masked {
        time: time(quality, above(floor, quality.ticks.guest, kernel_ticks, late), coverage),
        late_ticks: late.ticks,
        sure_ticks: late.sure,
        kernel_ticks,
        floor_ns: of_floor.map(|instants| instants * quality.ticks.period_ns as f64),
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
    let late = |class: usize| {
        let sure = if class == MASKED { cpus.enable_ticks } else { 0 };
        Late { ticks: cpus.late_ticks[class], instants: cpus.blind_ticks[class], sure }
    };
    let coverage = quality.ticks.coverage;
    let all = join(&interval.gaps).into_iter().filter(|gap| gap.row.class as usize != IDLE);
    let is_targets = |gap: &Gap| header.plan.target == Target::System || gap.owner.is_some();
    let (gaps, others): (Vec<Gap>, Vec<Gap>) = all.partition(is_targets);
    let describe = |gaps: Vec<Gap>| gaps.into_iter().map(|gap| describe(ledger, quality, gap)).collect();
    Blind {
        target: (header.plan.target != Target::System).then(|| masked(quality, total)),
        machine: above_floor(quality, late(MASKED), cpus.kernel_ticks, coverage, interval.capacity_ns()),
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

/// Time of handlers that ticks were late for.
fn handled(header: &TasksHeader, interval: &Interval, quality: &Quality) -> Option<(Value, u64)> {
    // What knows of no handlers knows of none that ticks were late for.
    interrupted_by(header, interval)?;
    let each = || interval.spare_interrupts.values();
    let ticks = each().map(|spare| spare.late_ticks).fold(0, u64::saturating_add);
    let instants = each().map(|spare| spare.late_instants).fold(0, u64::saturating_add);
    Some((time(quality, Late { ticks, instants, sure: 0 }.mean(), quality.ticks.coverage), ticks))
}

/// What a late timer shows that interrupted `below`. `exits`: the floor of a machine that a hypervisor runs; without one timers do not
/// tell what code they found, and so not where interrupts were let in.
fn class(row: &GapRow, below: &[u64], exits: Option<&Floor>) -> BlindClass {
    match row.class as usize {
        STOLEN => BlindClass::Stolen,
        IDLE => BlindClass::Idle,
        DELAYED => BlindClass::Delayed,
        HANDLED => BlindClass::Handler,
        // Where timers do not tell what code they found, the stack does.
        _ if below.is_empty() && !row.stack.is_empty() => BlindClass::Delayed,
        _ if row.at_enable == Some(false) && exits.is_some() => BlindClass::MaskedOrExit,
        _ => BlindClass::Masked,
    }
}

fn describe(ledger: &Ledger, quality: &Quality, gap: Gap) -> GapReport {
    let name = |address| Some(&ledger.code(At::kernel(address)).code.ok()?.function);
    let below =
        interrupted(&gap.row.stack, |address| name(address).is_some_and(|name| is_entry(name.as_bytes())));
    let class = class(&gap.row, below, quality.ticks.floor.as_ref().filter(|_| quality.ticks.guest));
    let shown =
        |&address: &u64| name(address).cloned().unwrap_or_else(|| Untrusted::from(format!("{address:#x}")));
    let stack = below.iter().map(shown).collect();
    let owner = gap.owner.map(|index| ledger.owner(index).clone());
    let handler = gap.row.handler.map(|handler| called(handler, ledger.handler_name(handler)));
    GapReport { class, owner, handler, stack, gap }
}

#[cfg(test)]
mod tests {
    use pmu_common::gap::{DELAYED, MASKED, STOLEN};

    use super::{BlindClass, Floor, class};
    use crate::{drain::GapRow, machine::cpu::Cpu, untrusted::Untrusted};

    fn row(class: usize, at_enable: Option<bool>, stack: &[u64]) -> GapRow {
        GapRow {
            cpu: Cpu(0),
            at_ns: 5,
            late_ns: 5,
            stolen_ns: 0,
            class: class as u32,
            by_tick: true,
            at_enable,
            handler: None,
            slot: None,
            tid: 1,
            tgid: 1,
            comm: Untrusted::from("x"),
            stack: stack.to_vec(),
        }
    }

    #[test]
    fn in_a_virtual_machine_only_what_comes_where_the_kernel_unmasks_is_surely_masked() {
        let floor = Floor { user_ticks: 100, late_ticks: 1, instants: 1 };
        let of = |at_enable, exits| class(&row(MASKED, at_enable, &[1, 2]), &[2], exits);
        assert_eq!(of(Some(true), Some(&floor)), BlindClass::Masked);
        assert_eq!(of(Some(false), Some(&floor)), BlindClass::MaskedOrExit);
        assert_eq!(of(None, Some(&floor)), BlindClass::Masked, "an older recording");
        assert_eq!(of(Some(false), None), BlindClass::Masked, "no hypervisor, or it is not known where");
        let other = |class_of| class(&row(class_of, Some(false), &[1, 2]), &[2], Some(&floor));
        assert_eq!((other(STOLEN), other(DELAYED)), (BlindClass::Stolen, BlindClass::Delayed));
        assert_eq!(class(&row(MASKED, Some(false), &[1]), &[], Some(&floor)), BlindClass::Delayed);
    }
}
