//! Numbers that the screen shows: of an owner, a device, uncore PMUs, blind time and pmbpf itself.

use crate::{
    drain::Owner,
    metric::{
        OwnerOrTarget,
        culprit::{Charge, Waited},
        io::Subject,
        value::{Distribution, Known},
    },
    table::{
        metric::{self, Metric},
        unit::Unit,
    },
    untrusted::Untrusted,
    view::text::{CULPRITS_NAMED, culprits_in_words},
};

/// Number of buckets of a distribution: a power of two each, from 1 µs.
pub(super) const BUCKETS: usize = 24;

/// Number with its 95 % interval, in half the room: a screen shows three digits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounded {
    pub(super) estimate: f32,
    pub(super) low: f32,
    pub(super) high: f32,
    pub(super) coverage: f32,
}

impl Bounded {
    /// Returns `known` multiplied by `factor`.
    pub(super) fn scaled(known: &Known, factor: f64) -> Self {
        let Known { estimate, low, high, coverage, .. } = known.times(factor);
        Self { estimate: estimate as f32, low: low as f32, high: high as f32, coverage: coverage as f32 }
    }

    pub(super) fn of(known: &Known) -> Self {
        Self::scaled(known, 1.0)
    }

    /// Returns whether the number is reliable: coverage of at least one half, and an interval no wider than
    /// the number itself.
    pub(super) fn is_sure(&self) -> bool {
        self.coverage >= 0.5 && self.high - self.low <= self.estimate.abs()
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            estimate: self.estimate + other.estimate,
            low: self.low + other.low,
            high: self.high + other.high,
            coverage: self.coverage.min(other.coverage),
        }
    }
}

/// Run-queue latencies of an owner, in ns.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    pub(super) p50: Bounded,
    pub(super) p99: Bounded,
    pub(super) max: Bounded,
    /// Number of waits below 2 µs, 4 µs, …
    pub(super) buckets: [u32; BUCKETS],
}

impl Waits {
    pub(super) fn of(found: &Distribution) -> Self {
        let max = found.quantiles().last().map_or_else(|| found.quantile(1.0), |(_, max)| max);
        let mut buckets = [0_u32; BUCKETS];
        for (bucket, count) in found.histogram.iter() {
            let at = ((bucket.middle() / 1000).max(1).ilog2() as usize).min(BUCKETS - 1);
            buckets[at] = buckets[at].saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
        let [p50, p99] = [0.5, 0.99].map(|share| Bounded::of(&found.quantile(share)));
        Self { p50, p99, max: Bounded::of(&max), buckets }
    }
}

/// Culprits that had the CPUs for which an owner waited.
#[derive(Clone, Debug, Default)]
pub(super) struct Culprits {
    /// Culprits that are named, the longest first.
    named: Box<[Charge]>,
    /// Number of all culprits.
    all: usize,
}

impl Culprits {
    pub(super) fn of(waited: &Waited) -> Self {
        let all = waited.charges.len();
        Self { named: waited.charges[..all.min(CULPRITS_NAMED)].into(), all }
    }

    /// Returns the names and shares of the culprits, or `None` if there are none.
    pub(super) fn in_words(&self, victim: &OwnerOrTarget) -> Option<String> {
        culprits_in_words(&self.named, self.all, victim)
    }
}

/// Node of an owner's Top-Down tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// Value in per cent, `None` where it is missing.
    pub(super) value: Option<Bounded>,
    /// Whether the value is over its threshold.
    pub(super) is_flagged: bool,
}

/// Numbers of an owner.
#[derive(Clone, Debug)]
pub(super) struct OwnerRow {
    pub(super) who: OwnerOrTarget,
    pub(super) has_ended: bool,
    /// CPU time per second: 1 is one CPU.
    pub(super) cpu: Option<Bounded>,
    pub(super) waits: Option<Box<Waits>>,
    /// Culprits that had the CPUs for which the owner waited.
    pub(super) culprits: Culprits,
    pub(super) ipc: Option<Bounded>,
    /// Nodes that are kept, empty where the tree is not measured.
    pub(super) nodes: Box<[Node]>,
    /// Bytes per second at disks.
    pub(super) block: Option<Bounded>,
    /// Bytes per second at interfaces.
    pub(super) net: Option<Bounded>,
    /// Rates per second, in the order of [`RATES`].
    pub(super) rates: [Option<Bounded>; RATES.len()],
    /// Share of its CPU time with interrupts masked.
    pub(super) blind: Option<Bounded>,
}

/// Counts of an owner that are shown per second.
pub(super) const RATES: [(&str, Metric); 4] = [
    ("switches", metric::CONTEXT_SWITCHES),
    ("migrations", metric::MIGRATIONS),
    ("faults", metric::MINOR_FAULTS),
    ("major faults", metric::MAJOR_FAULTS),
];

/// Disk or interface that moved bytes, in one direction.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) subject: Subject,
    /// Bytes per second.
    pub(super) bandwidth: Option<Bounded>,
    /// Requests or packets per second.
    pub(super) rate: Option<Bounded>,
    /// 99th percentile of a request's latency, in ns.
    pub(super) p99: Option<Bounded>,
}

/// Numbers of uncore PMUs.
#[derive(Clone, Debug, Default)]
pub(super) struct Uncore {
    pub(super) known: Vec<UncoreRow>,
    /// Number of others that are missing.
    pub(super) missing: usize,
    /// Reason why the first of them is missing.
    pub(super) why: Option<String>,
}

/// Number of an uncore PMU.
#[derive(Clone, Debug)]
pub(super) struct UncoreRow {
    pub(super) subject: Subject,
    pub(super) metric: String,
    pub(super) unit: Unit,
    pub(super) value: Bounded,
}

/// Gap, as it is listed.
#[derive(Clone, Debug)]
pub(super) struct GapLine {
    pub(super) length_ns: u64,
    pub(super) cpu: u32,
    pub(super) class: &'static str,
    pub(super) owner: Option<Owner>,
    /// Code where interrupts came back on.
    pub(super) code: Option<Untrusted>,
}

/// Blind time and quality.
#[derive(Clone, Debug, Default)]
pub(super) struct Sight {
    /// Share of the CPU time with interrupts masked.
    pub(super) masked: Option<Bounded>,
    /// Reason why the share is not known.
    pub(super) why: Option<String>,
    /// Share of the CPUs' time that ticks watched.
    pub(super) watched: Option<f32>,
    pub(super) gaps: Vec<GapLine>,
    /// Number of gaps that are not in the list.
    pub(super) more_gaps: u64,
    /// Share of the switches for which the task was known.
    pub(super) switches: Option<f32>,
}

/// CPU time of pmbpf since counting began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    /// CPU time of the process and of its programs.
    pub(super) cpu_ns: u64,
    /// Time per run of the program that handles switches, in ns.
    pub(super) switch_ns: Option<f32>,
}
