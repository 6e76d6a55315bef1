//! Units of metrics. pmbpf never writes a number without one.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

/// Names of units that are not ours, each kept once and permanently. They come from few tables, which are
/// read once.
static NAMED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

/// Declares the units, each with its name in every output and its meaning.
macro_rules! units {
    ($($unit:ident = $name:literal, $says:literal;)*) => {
        /// Unit of a number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Unit {
            $(#[doc = $says] $unit,)*
            /// Name in a user's own table of metrics; empty where nothing is known of it.
            Named(&'static str),
        }

        impl Unit {
            /// List of the units but [`Unit::Named`].
            const ALL: [Self; [$($name),*].len()] = [$(Self::$unit),*];

            /// Returns the unit's name in every output.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$unit => $name,)*
                    Self::Named(name) => name,
                }
            }
        }
    };
}

units! {
    Ratio = "1", "Nothing: a ratio.";
    Percent = "%", "Hundredths.";
    Ns = "ns", "Nanoseconds.";
    Bytes = "B", "Bytes.";
    Megabytes = "MB", "10^6 bytes.";
    MegabytesPerSecond = "MB/s", "10^6 bytes a second.";
    GigabytesPerSecond = "GB/s", "10^9 bytes a second.";
    MegatransactionsPerSecond = "MT/s", "10^6 transactions a second.";
    MegaPerSecond = "M/s", "10^6 occurrences a second.";
    PerSecond = "1/s", "Occurrences a second.";
    Gigahertz = "GHz", "10^9 cycles a second.";
    Switches = "switches", "Context switches.";
    Migrations = "migrations", "Moves of a task to another CPU.";
    Faults = "faults", "Page faults.";
    Samples = "samples", "Samples.";
    Requests = "requests", "Requests of a device.";
    Packets = "packets", "Packets.";
    Segments = "segments", "TCP segments.";
    Connections = "connections", "TCP connections.";
    Counts = "counts", "Occurrences of a PMU's event.";
}

impl Unit {
    /// Unit of a value about which nothing is known.
    pub const UNKNOWN: Self = Self::Named("");

    /// Returns the unit of this name: one of ours, or one that a table has in its source's words.
    pub fn of(name: &str) -> Self {
        // perfmon's word.
        if name == "percent" {
            return Self::Percent;
        }
        let known = Self::ALL.into_iter().find(|unit| unit.name() == name);
        known.unwrap_or_else(|| Self::Named(kept(name)))
    }

    /// Returns the maximum of a quantity of this unit.
    pub const fn most(self) -> f64 {
        if matches!(self, Self::Percent) { 100.0 } else { f64::INFINITY }
    }
}

/// Returns the same text, kept permanently.
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
