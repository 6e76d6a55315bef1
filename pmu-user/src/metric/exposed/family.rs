//! Names and units of metrics where counters are scraped: base units, and names that contain them.

use crate::table::{
    metric::{Adds, Family as Of, Metric},
    unit::Unit,
};

/// Prefix of every name.
const PREFIX: &str = "pmbpf_";

/// Kind of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Value that only grows.
    Counter,
    /// Value of a current state.
    Gauge,
    /// Values in buckets, which only grow.
    Histogram,
    /// Names, as labels of the value 1.
    Info,
}

/// A metric family: series of one name, which differ by their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// Name without `_total`, `_info` and the like.
    pub name: String,
    /// Help text of the family.
    pub help: String,
    /// Kind of the family.
    pub kind: Kind,
    /// Unit, with which the name ends, none for what is counted in ones.
    pub unit: Option<&'static str>,
}

impl Family {
    /// Returns a family that is not a metric of the catalogue.
    pub(super) fn own(name: &str, kind: Kind, unit: Option<&'static str>, help: &str) -> Self {
        Self { name: name.to_owned(), help: help.to_owned(), kind, unit }
    }

    /// Returns the family of a metric of the catalogue, `None` for one that is neither added up nor in a base
    /// unit.
    pub fn of(metric: &Metric) -> Option<Self> {
        let unit = unit(metric)?;
        let kind = match metric.adds() {
            Adds::Sum | Adds::Rate => Kind::Counter,
            Adds::Distribution => Kind::Histogram,
            Adds::State => Kind::Gauge,
        };
        let mut name = format!("{PREFIX}{}", words(metric.name));
        if let Some(unit) = unit {
            name.push('_');
            name.push_str(unit);
        }
        Some(Self { name, help: help(metric), kind, unit })
    }

    /// Returns the family of the variance of its values, which adds up as they do.
    pub(super) fn variance(&self) -> Self {
        Self {
            name: format!("{}_variance", self.name),
            help: format!("Sum of the squared standard errors of {}.", self.name),
            kind: Kind::Counter,
            unit: None,
        }
    }
}

/// Returns the base unit of a metric's family, `None` for one that is not exposed.
fn unit(metric: &Metric) -> Option<Option<&'static str>> {
    Some(match (metric.unit, metric.adds()) {
        (Unit::Ns, _) | (Unit::Percent, Adds::Rate) => Some("seconds"),
        (Unit::MegabytesPerSecond | Unit::GigabytesPerSecond, Adds::State) => Some("bytes_per_second"),
        (Unit::Bytes | Unit::Megabytes | Unit::MegabytesPerSecond | Unit::GigabytesPerSecond, _) => {
            Some("bytes")
        }
        (Unit::Percent, _) => Some("ratio"),
        (Unit::Gigahertz, _) => Some("hertz"),
        (Unit::Named(_), _) => return None,
        _ => None,
    })
}

/// Converts a metric's value over `over_ns` to the base unit, and a rate to what happened in that time.
pub(super) fn in_base_unit(metric: &Metric, over_ns: u64, value: f64) -> f64 {
    let amount = value * factor(metric, over_ns);
    // The rate counts whole things, over a time that is known to the nanosecond.
    let is_whole = matches!(metric.family, Of::Block | Of::Network) && metric.adds() == Adds::Rate;
    if is_whole { amount.round() } else { amount }
}

/// Returns the factor of that conversion.
pub(super) fn factor(metric: &Metric, length_ns: u64) -> f64 {
    let unit = match metric.unit {
        Unit::Ns => 1e-9,
        Unit::Percent => 0.01,
        Unit::Megabytes
        | Unit::MegabytesPerSecond
        | Unit::MegatransactionsPerSecond
        | Unit::MegaPerSecond => 1e6,
        Unit::GigabytesPerSecond | Unit::Gigahertz => 1e9,
        _ => 1.0,
    };
    if metric.adds() == Adds::Rate { unit * (length_ns as f64 / 1e9) } else { unit }
}

/// Returns a metric's name in letters, digits and `_`, without words that its unit implies.
fn words(name: &str) -> String {
    const SAID_BY_UNIT: [&str; 5] = ["_bandwidth", "bandwidth", "_bw", "_rate", "_share"];
    let parts = name.split('.').map(|part| {
        let shorter = SAID_BY_UNIT.iter().find_map(|said| part.strip_suffix(said));
        shorter.unwrap_or(part)
    });
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_")
}

/// Returns the help text of a metric's sum.
fn help(metric: &Metric) -> String {
    match metric.adds() {
        Adds::Rate => metric
            .says
            .replace("Share of the time", "Time")
            .replace(", a second", "")
            .replace(" a second", ""),
        Adds::Distribution => metric.says.replace(": mean, quantiles and maximum", ""),
        _ => metric.says.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Family, Kind, factor, in_base_unit};
    use crate::table::metric::{self, Adds, all};

    #[test]
    fn names_say_their_units_and_are_used_once() {
        let name = |metric| Family::of(&metric).unwrap().name;
        assert_eq!(name(metric::CPU_TIME), "pmbpf_cpu_time_seconds");
        assert_eq!(name(metric::RUNQUEUE_LATENCY), "pmbpf_runqueue_latency_seconds");
        assert_eq!(name(metric::BLOCK_READ_BW), "pmbpf_block_read_bytes");
        assert_eq!(name(metric::BLOCK_BANDWIDTH), "pmbpf_block_bytes");
        assert_eq!(name(metric::NET_PACKETS_RATE), "pmbpf_net_packets");
        assert_eq!(
            name(metric::PCIE_INBOUND_READ_BW_REMOTE),
            "pmbpf_pcie_inbound_read_remote_bytes",
            "in the middle, too"
        );
        assert_eq!(name(metric::LINK_MAX_BW), "pmbpf_link_max_bytes_per_second");
        assert_eq!(name(metric::PRESSURE_IO_SOME), "pmbpf_pressure_io_some_seconds");
        let mut names = BTreeSet::new();
        for family in all().filter_map(Family::of) {
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(family.name.chars().all(is_plain), "{}", family.name);
            assert!(family.unit.is_none_or(|unit| family.name.ends_with(unit)), "{}", family.name);
            assert!(names.insert(family.name.clone()), "{} twice", family.name);
            assert!(names.insert(family.variance().name));
            assert!(!family.help.contains("a second"), "{}", family.help);
        }
    }

    #[test]
    fn rates_become_what_happened_in_an_interval() {
        let over_ns = 2_000_000_000;
        assert_eq!(factor(&metric::BLOCK_READ_BW, over_ns), 2e6);
        assert_eq!(factor(&metric::DRAM_BW, over_ns), 2e9);
        assert!((factor(&metric::PRESSURE_CPU_SOME, over_ns) - 0.02).abs() < 1e-12, "seconds of 2 s");
        assert_eq!(factor(&metric::CPU_TIME, over_ns), 1e-9);
        assert_eq!(factor(&metric::DDIO_READ_L3_HIT, over_ns), 0.01);
        assert_eq!(factor(&metric::CONTEXT_SWITCHES, over_ns), 1.0);
        let rate = 4096.0 / 1e6 / (1_000_000_003.0 / 1e9);
        assert_eq!(in_base_unit(&metric::BLOCK_READ_BW, 1_000_000_003, rate), 4096.0, "bytes are whole");
        let kind = |metric: metric::Metric| (Family::of(&metric).unwrap().kind, metric.adds());
        assert_eq!(kind(metric::DDIO_READ_L3_HIT), (Kind::Gauge, Adds::State));
        assert_eq!(kind(metric::BLOCK_LATENCY), (Kind::Histogram, Adds::Distribution));
    }
}
