//! Time in which a CPU took no timer interrupt, estimated from ticks that came late, and the longest spans of it.
//!
//! A tick comes late if its instant falls into such a span, so the share of late ticks is the share of blind time:
//! late ticks times the period estimates it without bias, and their number is Poisson.

use pmu_common::gap::{IDLE, MASKED, STOLEN};

use super::{
    Quality,
    value::{How, Known, Value, poisson_interval},
};
use crate::{
    drain::{Header, Owner},
    model::{
        Interval, Ledger,
        gap::{Gap, interrupted, is_entry, join},
    },
    untrusted::Untrusted,
};

/// What a gap is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlindClass {
    /// Kernel code ran with interrupts masked.
    Masked,
    /// An interrupt handler ran long: the late interrupt found user code, which cannot mask any.
    Interrupt,
    /// The hypervisor ran something else.
    Stolen,
    /// The CPU was idle and woke late: no gap.
    Idle,
}

impl BlindClass {
    /// Its name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Masked => "masked",
            Self::Interrupt => "interrupt",
            Self::Stolen => "stolen",
            Self::Idle => "idle",
        }
    }
}

/// Blind time of the CPUs that were counted.
#[derive(Clone, Debug)]
pub struct Blind {
    /// Time with interrupts masked, in ns.
    pub masked: Value,
    /// Time that the hypervisor took, as far as ticks were late for it, in ns.
    pub stolen: Value,
    /// Late ticks: masked, stolen, idle.
    pub late_ticks: [u64; 3],
    /// A tick this late counts, in ns: shorter spans are not seen.
    pub late_min_ns: u64,
    /// A gap this long is listed, in ns.
    pub gap_min_ns: u64,
    /// Gaps, longest first, idle ones excepted.
    pub gaps: Vec<GapReport>,
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
    /// Where interrupts came back on, innermost first: names, or addresses that have none.
    pub stack: Vec<Untrusted>,
}

/// Blind time from `late_ticks` late ticks that span `blind_ticks` tick instants, in ns.
pub(super) fn time(quality: &Quality, late_ticks: u64, blind_ticks: u64) -> Value {
    let period_ns = quality.ticks.period_ns as f64;
    if quality.ticks.seen == 0 || period_ns == 0.0 {
        return Value::Missing(
            "no tick was seen: the tick's timer is unknown, or the CPUs were idle".to_owned(),
        );
    }
    let instants = if late_ticks == 0 { 1.0 } else { blind_ticks as f64 / late_ticks as f64 };
    let (low, high) = poisson_interval(late_ticks);
    Value::Known(Known {
        estimate: blind_ticks as f64 * period_ns,
        low: low * instants * period_ns,
        high: high * instants * period_ns,
        coverage: quality.ticks.coverage,
        how: How::Sampled,
    })
}

pub(super) fn blind(header: &Header, ledger: &Ledger, interval: &Interval, quality: &Quality) -> Blind {
    let cpus = interval.all_cpus();
    let of = |class: usize| time(quality, cpus.late_ticks[class], cpus.blind_ticks[class]);
    let gaps = join(&interval.gaps).into_iter().filter(|gap| gap.row.class as usize != IDLE);
    let stolen = if header.knows_steal {
        of(STOLEN)
    } else {
        Value::Missing("this kernel does not account stolen time".to_owned())
    };
    Blind {
        masked: of(MASKED),
        stolen,
        late_ticks: [cpus.late_ticks[MASKED], cpus.late_ticks[STOLEN], cpus.late_ticks[IDLE]],
        late_min_ns: header.plan.late_min_ns,
        gap_min_ns: header.plan.gap_min_ns,
        gaps: gaps.map(|gap| describe(ledger, gap)).collect(),
    }
}

fn describe(ledger: &Ledger, gap: Gap) -> GapReport {
    let name = |address| ledger.place(0, address).and_then(|place| Some(&place.code.ok()?.function));
    let below =
        interrupted(&gap.row.stack, |address| name(address).is_some_and(|name| is_entry(name.as_bytes())));
    let class = match gap.row.class as usize {
        STOLEN => BlindClass::Stolen,
        IDLE => BlindClass::Idle,
        _ if below.is_empty() && !gap.row.stack.is_empty() => BlindClass::Interrupt,
        _ => BlindClass::Masked,
    };
    let shown =
        |&address: &u64| name(address).cloned().unwrap_or_else(|| Untrusted::from(format!("{address:#x}")));
    let stack = below.iter().map(shown).collect();
    let owner = gap.owner.map(|index| ledger.owner(index).clone());
    GapReport { class, owner, stack, gap }
}
