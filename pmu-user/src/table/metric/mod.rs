//! Catalogue of metrics: every metric of every source, declared once. A name, once given, is never used for
//! anything else.
//!
//! Metrics of a CPU model's own formulas (Top-Down) are in its table ([`super::model`]). All others are here.

use crate::named::named;

mod catalogue;

pub use self::catalogue::*;
use super::unit::Unit;

/// Metric of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name in every output.
    pub name: &'static str,
    /// Unit of its value.
    pub unit: Unit,
    /// Family with which it is shown.
    pub family: Family,
    /// Name of the metric of which it is a part, or another reading.
    pub parent: Option<&'static str>,
    /// Description in one sentence.
    pub says: &'static str,
}

/// Combination of the values of several intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adds {
    /// Sum of the values.
    Sum,
    /// Sum of each value times its interval: the occurrences for a rate, the time for a share of the time.
    Rate,
    /// Distribution of the values of all.
    Distribution,
    /// No combination: each value is the state at its time.
    State,
}

impl Metric {
    /// Returns the combination of its values of several intervals.
    #[must_use]
    pub fn adds(&self) -> Adds {
        let is = |metric: Metric| *self == metric;
        match (self.unit, self.family) {
            _ if is(RUNQUEUE_CULPRIT) => Adds::Sum,
            _ if is(LINK_MAX_BW) || is(BLOCK_QUEUE_DEPTH) => Adds::State,
            (_, Family::Latency | Family::BlockLatency | Family::BlockQueue) => Adds::Distribution,
            (Unit::Ns, Family::Cpu | Family::Blind | Family::OffCpu | Family::Interrupts) => Adds::Sum,
            (Unit::Percent, Family::Pressure) => Adds::Rate,
            (
                Unit::MegabytesPerSecond
                | Unit::GigabytesPerSecond
                | Unit::MegatransactionsPerSecond
                | Unit::MegaPerSecond
                | Unit::PerSecond,
                _,
            ) => Adds::Rate,
            (
                Unit::Switches
                | Unit::Migrations
                | Unit::Faults
                | Unit::Samples
                | Unit::Requests
                | Unit::Packets
                | Unit::Segments
                | Unit::Connections
                | Unit::Counts,
                _,
            ) => Adds::Sum,
            _ => Adds::State,
        }
    }
}

named! {
    /// Metrics that are shown together.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Family {
        Cpu = "cpu", "What tasks did with CPUs.";
        Samples = "samples", "Samples.";
        Blind = "blind", "Time in which no sample could be taken.";
        Latency = "latency", "Waiting for a CPU.";
        OffCpu = "off_cpu", "What tasks wait for.";
        Interrupts = "interrupts", "Interrupt handlers that have a CPU.";
        Limits = "limits", "Limits of cgroups.";
        Pressure = "pressure", "Pressure stall information (PSI).";
        Pcie = "pcie", "Root ports and what is behind them.";
        Link = "link", "PCIe links.";
        Ddio = "ddio", "Devices and the last-level cache.";
        Conflicts = "io", "Cores and devices that want the same cache lines.";
        Iommu = "vtd", "Translations of devices' addresses.";
        Memory = "dram", "Memory.";
        Llc = "llc", "The last-level cache.";
        FreeRunning = "free", "Counters that always run.";
        Upi = "upi", "Links between sockets.";
        Block = "block", "Block devices.";
        BlockLatency = "block.latency", "Latency at block devices.";
        BlockQueue = "block.queue", "Latency in their queues.";
        Network = "net", "Network interfaces.";
        Clock = "clock", "Clocks of what counts.";
    }
}

impl Family {
    /// Families of I/O, in the order of reports.
    pub const IO: [Self; 13] = [
        Self::Pcie,
        Self::Link,
        Self::Ddio,
        Self::Conflicts,
        Self::Iommu,
        Self::Memory,
        Self::Llc,
        Self::FreeRunning,
        Self::Upi,
        Self::Block,
        Self::BlockLatency,
        Self::BlockQueue,
        Self::Network,
    ];

    /// Families of block requests and packets.
    pub const TRAFFIC: [Self; 4] = [Self::Block, Self::BlockLatency, Self::BlockQueue, Self::Network];

    /// Returns the family of a metric by its name; `None` for a name that indicates none.
    pub fn of(name: &str) -> Option<Self> {
        let prefix = name.split('.').next()?;
        // For a metric of a user's own table.
        let by_prefix = || Self::IO.into_iter().find(|family| family.name() == prefix);
        find(name).map(|metric| metric.family).or_else(by_prefix)
    }
}

/// Returns the metrics of the catalogue that runs of tasks have.
pub fn of_tasks() -> impl Iterator<Item = &'static Metric> {
    TASKS
        .iter()
        .chain(&OFF_CPU)
        .chain(&INTERRUPTS)
        .chain(&CULPRITS)
        .chain(&CORE_TYPES)
        .chain(&LIMITS)
        .chain(&PRESSURE)
}

/// Returns all metrics of the catalogue.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    of_tasks().chain(&TRAFFIC).chain(&UNCORE)
}

/// Names of the parts of a distribution, which are appended to its name: `block.latency.p99`.
pub const PARTS: [&str; 6] = ["mean", "p50", "p90", "p99", "p99.9", "max"];

/// Metrics of I/O that are distributions.
pub const LATENCIES: [&str; 4] =
    [BLOCK_LATENCY.name, BLOCK_QUEUE.name, BLOCK_READ_LATENCY.name, BLOCK_WRITE_LATENCY.name];

/// Traffic of an owner on all devices together: metrics in one row with those of its tasks.
pub const OF_OWNERS: [Metric; 6] =
    [BLOCK_READ_BW, BLOCK_READ_LATENCY, BLOCK_WRITE_BW, BLOCK_WRITE_LATENCY, NET_RECEIVE_BW, NET_SEND_BW];

/// Returns the metric of this name, or the one of which it names a part.
pub fn find(name: &str) -> Option<&'static Metric> {
    let is_part_of = |whole: &&&str| name.strip_prefix(**whole).is_some_and(|part| part.starts_with('.'));
    let whole = LATENCIES.iter().find(is_part_of).unwrap_or(&name);
    all().find(|metric| metric.name == *whole)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Adds, Family, all, find};
    use crate::table::io::{IOMMUS, KNOWN, load, of_iommu};

    #[test]
    fn a_name_is_used_once_and_a_parent_is_there() {
        let names: BTreeSet<&str> = all().map(|metric| metric.name).collect();
        assert_eq!(names.len(), all().count());
        for metric in all() {
            assert!(metric.parent.is_none_or(|parent| names.contains(parent)), "{}", metric.name);
            assert!(metric.says.ends_with('.') && metric.says.len() > 15, "{}", metric.name);
        }
    }

    #[test]
    fn every_metric_of_every_io_table_is_in_the_catalogue_with_its_unit() {
        let tables = KNOWN.iter().map(|(name, _)| load(name).unwrap());
        let iommus = IOMMUS.iter().filter_map(|(name, _)| of_iommu(name).unwrap());
        let mut seen = BTreeSet::new();
        for table in tables.chain(iommus) {
            for metric in &table.model.metrics {
                let known = find(&metric.name).unwrap_or_else(|| panic!("{}", metric.name));
                assert_eq!(known.unit, metric.unit, "{}", metric.name);
                seen.insert(known.name);
            }
            for absent in &table.absent {
                assert_eq!(find(&absent.name).map(|known| known.unit), Some(absent.unit), "{}", absent.name);
            }
        }
        assert!(seen.len() > 30, "{seen:?}");
    }

    #[test]
    fn what_adds_up_is_what_happened() {
        let adds = |name: &str| find(name).unwrap().adds();
        for name in ["cpu_time", "context_switches", "off_cpu.io", "runqueue_latency.culprit", "net.drops"] {
            assert_eq!(adds(name), Adds::Sum, "{name}");
        }
        for name in ["block.read_bw", "dram.bw", "block.requests_rate", "pressure.io.some"] {
            assert_eq!(adds(name), Adds::Rate, "{name}");
        }
        for name in ["runqueue_latency", "block.latency", "block.queue", "block.write_latency"] {
            assert_eq!(adds(name), Adds::Distribution, "{name}");
        }
        let states =
            ["link.max_bw", "block.queue_depth", "pcie.inbound_read_latency", "memory.max", "iio.frequency"];
        for name in states {
            assert_eq!(adds(name), Adds::State, "{name}");
        }
    }

    #[test]
    fn a_part_of_a_latency_is_that_latency() {
        assert_eq!(find("block.latency.p99.9").unwrap().name, "block.latency");
        assert_eq!(find("block.bandwidth").unwrap().family, Family::Block);
        assert_eq!(find("block.bandwidth.p99"), None);
        assert_eq!(Family::of("pcie.of_somebodys_table"), Some(Family::Pcie));
        assert_eq!((Family::of("iio.frequency"), Family::of("event.x")), (Some(Family::Clock), None));
    }
}
