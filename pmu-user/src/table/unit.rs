//! Units of metrics. A number never leaves pmbpf without one.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

/// Names of units that are not ours, each kept once and for good: of few tables, which are read once.
static NAMED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Nothing: a ratio.
    Ratio,
    /// Hundredths.
    Percent,
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// 10^6 bytes.
    Megabytes,
    /// 10^6 bytes a second.
    MegabytesPerSecond,
    /// 10^9 bytes a second.
    GigabytesPerSecond,
    /// 10^6 transactions a second.
    MegatransactionsPerSecond,
    /// 10^6 occurrences a second.
    MegaPerSecond,
    /// Occurrences a second.
    PerSecond,
    /// 10^9 cycles a second.
    Gigahertz,
    /// Context switches.
    Switches,
    /// Moves of a task to another CPU.
    Migrations,
    /// Page faults.
    Faults,
    /// Samples.
    Samples,
    /// Requests of a device.
    Requests,
    /// Occurrences of a PMU's event.
    Counts,
    /// What a user's own table of metrics calls it; empty where nothing is known of it.
    Named(&'static str),
}

impl Unit {
    /// That of what nothing is known of.
    pub const UNKNOWN: Self = Self::Named("");

    /// All but [`Unit::Named`].
    const ALL: [Self; 17] = [
        Self::Ratio,
        Self::Percent,
        Self::Ns,
        Self::Bytes,
        Self::Megabytes,
        Self::MegabytesPerSecond,
        Self::GigabytesPerSecond,
        Self::MegatransactionsPerSecond,
        Self::MegaPerSecond,
        Self::PerSecond,
        Self::Gigahertz,
        Self::Switches,
        Self::Migrations,
        Self::Faults,
        Self::Samples,
        Self::Requests,
        Self::Counts,
    ];

    /// The unit of this name: one of ours, or one that a table has in its source's words.
    #[must_use]
    pub fn of(name: &str) -> Self {
        // perfmon's word.
        if name == "percent" {
            return Self::Percent;
        }
        let known = Self::ALL.into_iter().find(|unit| unit.name() == name);
        known.unwrap_or_else(|| Self::Named(kept(name)))
    }

    /// The unit's name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ratio => "1",
            Self::Percent => "%",
            Self::Ns => "ns",
            Self::Bytes => "B",
            Self::Megabytes => "MB",
            Self::MegabytesPerSecond => "MB/s",
            Self::GigabytesPerSecond => "GB/s",
            Self::MegatransactionsPerSecond => "MT/s",
            Self::MegaPerSecond => "M/s",
            Self::PerSecond => "1/s",
            Self::Gigahertz => "GHz",
            Self::Switches => "switches",
            Self::Migrations => "migrations",
            Self::Faults => "faults",
            Self::Samples => "samples",
            Self::Requests => "requests",
            Self::Counts => "counts",
            Self::Named(name) => name,
        }
    }

    /// The most that a quantity of this unit can be.
    #[must_use]
    pub const fn most(self) -> f64 {
        if matches!(self, Self::Percent) { 100.0 } else { f64::INFINITY }
    }
}

/// The same text, kept for good.
fn kept(name: &str) -> &'static str {
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = named.get(name) {
        return kept;
    }
    let kept: &'static str = Box::leak(name.into());
    named.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::Unit;

    #[test]
    fn a_unit_is_found_by_its_name() {
        for unit in Unit::ALL {
            assert_eq!(Unit::of(unit.name()), unit);
        }
        assert_eq!(Unit::of("percent"), Unit::Percent);
        assert_eq!(Unit::of("furlongs"), Unit::Named("furlongs"));
        assert_eq!(Unit::of(""), Unit::UNKNOWN);
        assert_eq!(Unit::of("furlongs").name(), "furlongs");
    }
}
