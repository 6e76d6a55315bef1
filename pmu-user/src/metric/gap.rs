//! Gaps: their class, the owner that ran, and the code that enabled interrupts again.

use pmu_common::gap::{DELAYED, HANDLED, IDLE, MASKED, STOLEN};

use super::{Quality, interrupt::called};
use crate::{
    drain::{At, GapRow, Owner},
    model::{
        CpuCounts, Interval, Ledger,
        gap::{Gap, interrupted, is_entry},
    },
    named::named,
    untrusted::Untrusted,
};

named! {
    /// Class of a gap.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum BlindClass {
        Masked = "masked", "Kernel code ran with interrupts masked.";
        MaskedOrExit = "masked_or_vm_exit",
            "The late interrupt found the kernel of a virtual machine, and not where it lets interrupts in, or the hypervisor \
             explains more than 1 in 20 of those that come there as late: it masked them, or the hypervisor stopped the CPU (a VM exit).";
        Delayed = "delayed",
            "The late interrupt found user code, which cannot mask any: a handler ran long, or the hypervisor did something.";
        Handler = "handler", "The handler of another interrupt had the CPU when the timer was due (`--interrupts`).";
        Stolen = "stolen", "The hypervisor ran something else.";
        Idle = "idle", "The CPU was idle and woke late: no gap.";
    }
}

/// Gap with its class and names.
#[derive(Clone, Debug)]
pub struct GapReport {
    /// Late timers of the gap, as they were read.
    pub gap: Gap,
    /// Class of the gap.
    pub class: BlindClass,
    /// Owner that ran.
    pub owner: Option<Owner>,
    /// Interrupt handler that had the CPU, if the class is a handler.
    pub handler: Option<String>,
    /// Call stack where interrupts were enabled again, innermost first: names, or addresses without names.
    pub stack: Vec<Untrusted>,
}

/// Largest share of the gaps called masked that the hypervisor may explain.
const DOUBT: f64 = 0.05;

/// Gaps of an interval that exits to a hypervisor explain. Exits delay ticks at the same rate where the
/// kernel enables interrupts and elsewhere, and masked ticks arrive only at the former.
pub(super) struct Exits {
    /// Ticks where the kernel enables interrupts, for each elsewhere; `None` where no hypervisor runs this
    /// machine, or ticks do not report the code.
    at_enable: Option<f64>,
    /// Lateness of those that arrived elsewhere, in ns, longest first.
    elsewhere_ns: Vec<u64>,
    /// Lateness of those that arrived where the kernel enables interrupts.
    sure_ns: Vec<u64>,
}

impl Exits {
    /// Returns the exits of an interval, in which all CPUs counted `cpus`.
    pub(super) fn of(interval: &Interval, cpus: &CpuCounts, quality: &Quality) -> Self {
        let floor = quality.ticks.floor.filter(|_| quality.ticks.guest);
        let late = |is: fn(&GapRow) -> bool| {
            let mut late_ns: Vec<u64> = interval
                .gaps
                .iter()
                .map(|(_, row)| row)
                .filter(|row| is(row))
                .map(|row| row.late_ns)
                .collect();
            late_ns.sort_unstable_by(|one, other| other.cmp(one));
            late_ns
        };
        Self {
            at_enable: floor.map(|floor| {
                let (on_time, late) = (cpus.enable_ticks_on_time as f64, cpus.enable_ticks as f64);
                // With the late ticks included the ratio is larger, as some were masked. Where hardly any
                // tick is on time, it is the better estimate.
                (on_time / floor.on_time()).min((on_time + late) / (floor.on_time() + floor.late() as f64))
            }),
            elsewhere_ns: late(|row| match row.class as usize {
                DELAYED => true,
                MASKED => row.at_enable == Some(false),
                _ => false,
            }),
            sure_ns: late(|row| row.class as usize == MASKED && row.at_enable == Some(true)),
        }
    }

    /// Returns whether an exit may explain a gap this late where the kernel enables interrupts. Gaps at least
    /// half as late count: spans of one cause are of about one length.
    fn explain(&self, late_ns: u64) -> bool {
        let Some(at_enable) = self.at_enable else { return false };
        let as_late = |late: &[u64]| late.partition_point(|&other_ns| other_ns >= late_ns / 2) as f64;
        // Half a gap is added to the count: none so late so far does not exclude one.
        (as_late(&self.elsewhere_ns) + 0.5) * at_enable > DOUBT * as_late(&self.sure_ns)
    }
}

/// Returns the class of a late timer that interrupted `below`.
fn class(row: &GapRow, below: &[u64], exits: &Exits) -> BlindClass {
    match row.class as usize {
        STOLEN => BlindClass::Stolen,
        IDLE => BlindClass::Idle,
        DELAYED => BlindClass::Delayed,
        HANDLED => BlindClass::Handler,
        // Where timers do not report the code that they found, the stack does.
        _ if below.is_empty() && !row.stack.is_empty() => BlindClass::Delayed,
        // Without a hypervisor, or without the code that timers found, the place where interrupts were
        // enabled adds nothing.
        _ if exits.at_enable.is_none() => BlindClass::Masked,
        _ => match row.at_enable {
            Some(false) => BlindClass::MaskedOrExit,
            Some(true) if exits.explain(row.late_ns) => BlindClass::MaskedOrExit,
            _ => BlindClass::Masked,
        },
    }
}

/// Returns the gap with names.
pub(super) fn describe(ledger: &Ledger, exits: &Exits, gap: Gap) -> GapReport {
    let name = |address| Some(&ledger.code(At::kernel(address)).code.ok()?.function);
    let below =
        interrupted(&gap.row.stack, |address| name(address).is_some_and(|name| is_entry(name.as_bytes())));
    let class = class(&gap.row, below, exits);
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

    use super::{BlindClass, Exits, class};
    use crate::{drain::GapRow, machine::cpu::Cpu, untrusted::Untrusted};

    const LATE_NS: u64 = 5;

    fn row(class: usize, at_enable: Option<bool>, stack: &[u64]) -> GapRow {
        GapRow {
            cpu: Cpu(0),
            at_ns: 5,
            late_ns: LATE_NS,
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

    fn exits(at_enable: Option<f64>, elsewhere: usize, sure: usize) -> Exits {
        Exits { at_enable, elsewhere_ns: vec![LATE_NS; elsewhere], sure_ns: vec![LATE_NS; sure] }
    }

    #[test]
    fn in_a_virtual_machine_only_what_comes_where_the_kernel_unmasks_is_surely_masked() {
        let (guest, bare) = (exits(Some(0.01), 1, 1), exits(None, 1, 1));
        let of = |at_enable, exits| class(&row(MASKED, at_enable, &[1, 2]), &[2], exits);
        assert_eq!(of(Some(true), &guest), BlindClass::Masked);
        assert_eq!(of(Some(false), &guest), BlindClass::MaskedOrExit);
        assert_eq!(of(None, &guest), BlindClass::Masked, "an older recording");
        assert_eq!(of(Some(false), &bare), BlindClass::Masked, "no hypervisor, or it is not known where");
        let other = |class_of| class(&row(class_of, Some(false), &[1, 2]), &[2], &guest);
        assert_eq!((other(STOLEN), other(DELAYED)), (BlindClass::Stolen, BlindClass::Delayed));
        assert_eq!(class(&row(MASKED, Some(false), &[1]), &[], &guest), BlindClass::Delayed);
    }

    #[test]
    fn what_exits_explain_is_not_surely_masked() {
        let of = |at_enable, elsewhere, sure| {
            class(&row(MASKED, Some(true), &[1, 2]), &[2], &exits(Some(at_enable), elsewhere, sure))
        };
        // A copy of single bytes: a tick in ten arrives where the kernel enables interrupts, and user ticks
        // are late as often.
        assert_eq!(of(0.1, 20, 2), BlindClass::MaskedOrExit);
        assert_eq!(of(0.1, 20, 60), BlindClass::Masked, "far more than exits explain");
        assert_eq!(of(0.2, 0, 1), BlindClass::MaskedOrExit, "one alone");
        assert_eq!(of(0.01, 0, 1), BlindClass::Masked, "the kernel hardly ever unmasks");
        // Shorter gaps are not evidence.
        let short = Exits { elsewhere_ns: vec![LATE_NS / 2 - 1; 100], ..exits(Some(0.01), 0, 1) };
        assert_eq!(class(&row(MASKED, Some(true), &[1, 2]), &[2], &short), BlindClass::Masked);
    }
}
