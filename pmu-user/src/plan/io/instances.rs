//! Instances of uncore PMUs, each with its number, its die and the CPU that counts for it. Also the slice of
//! a group of theirs, and free-running counters, which take no slice of other events.

use std::{path::Path, time::Duration};

use super::{UncoreInstance, class::selected};
use crate::{
    machine::{
        cpu::Cpu,
        pmu::catalog::{Catalog, PmuCpus},
        read_line,
    },
    table::{
        event_syntax::Selected,
        io::{FreeRunning, IoTable},
    },
};

/// Returns the instances of these uncore PMUs, ordered by die.
pub(super) fn instances(pmus: &[String], catalog: &Catalog, root: &Path) -> Vec<UncoreInstance> {
    let mut found = Vec::new();
    let known = catalog.pmus.iter().filter(|pmu| pmus.contains(&pmu.name));
    for (at, pmu) in (0..).zip(known) {
        let PmuCpus::Uncore(cpus) = &pmu.place else { continue };
        let unit = number(&pmu.name).unwrap_or(at);
        let dies = dies(cpus, root);
        found.extend(cpus.iter().zip(dies).map(|(&cpu, die)| UncoreInstance {
            pmu: pmu.name.clone(),
            kind: pmu.kind,
            unit,
            die,
            cpu,
        }));
    }
    found.sort_by_key(|site| (site.die, site.unit));
    found
}

/// Returns the number at the end of a PMU's name; `None` for a single PMU, or for one named after an address.
fn number(name: &str) -> Option<u32> {
    let of_iommu = name.strip_prefix("dmar");
    of_iommu.or(name.rsplit_once('_').map(|(_, number)| number))?.parse().ok()
}

/// Returns the die of each CPU of a `cpumask`, which names one CPU per die. The die comes from the topology,
/// or from the order of the CPUs where the topology does not distinguish them. A single CPU counts for its
/// package.
fn dies(cpus: &[Cpu], root: &Path) -> Vec<u32> {
    let id = |cpu: &Cpu, name: &str| -> Option<u32> {
        let path = format!("sys/devices/system/cpu/cpu{}/topology/{name}", cpu.0);
        read_line(root, &path).ok()?.trim().parse().ok()
    };
    if let [cpu] = cpus {
        return vec![id(cpu, "physical_package_id").unwrap_or(0)];
    }
    let places: Vec<(Option<u32>, Option<u32>)> =
        cpus.iter().map(|cpu| (id(cpu, "physical_package_id"), id(cpu, "die_id"))).collect();
    let mut order = places.clone();
    order.sort_unstable();
    order.dedup();
    let told_apart = order.len() == places.len() && places.iter().all(|(package, _)| package.is_some());
    let die = |(at, place): (usize, &(Option<u32>, Option<u32>))| {
        let by_topology = order.iter().position(|other| other == place).unwrap_or(at);
        (if told_apart { by_topology } else { at }) as u32
    };
    places.iter().enumerate().map(die).collect()
}

/// Slices of every group of a kind between two ticks: an interval from three is half as wide again.
pub(super) const ROUNDS: u32 = 4;
/// Shortest mean slice: changing groups on all uncore PMUs of a large machine takes about a millisecond.
const SLICE_MIN: Duration = Duration::from_millis(20);
/// Longest mean slice, and that of uncore PMUs without multiplexing: the resolution of bandwidth over time.
const SLICE_MAX: Duration = Duration::from_millis(125);

/// Returns the mean slice of a group, if `groups` are multiplexed between ticks that are `tick` apart.
pub(super) fn slice(groups: usize, tick: Duration) -> Duration {
    let turns = u32::try_from(groups).unwrap_or(u32::MAX).saturating_mul(ROUNDS).max(1);
    (tick / turns).clamp(SLICE_MIN, SLICE_MAX)
}

/// A free-running counter that this host shows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FreeCounter {
    /// Description of the counter in the table.
    pub(super) counter: FreeRunning,
    /// Event that opens the counter on each uncore PMU that has it. Its scale is 1: the kernel's scale was
    /// wrong on many.
    pub(super) event: Selected,
}

/// Returns the table's free-running counters that this host shows. Opens nothing and needs no privilege.
pub(super) fn free_running(table: &IoTable, catalog: &Catalog) -> Vec<FreeCounter> {
    let found = |counter: &FreeRunning| {
        let event = selected(&counter.unit, &counter.name, &counter.terms, catalog).ok()?;
        Some(FreeCounter { counter: counter.clone(), event })
    };
    table.free_running.iter().filter_map(found).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{free_running, instances, slice};
    use crate::{
        machine::{
            pmu::{bits::Word, catalog::Catalog},
            testing::Tree,
        },
        table::io::{
            load,
            testing::{Family, server},
        },
    };

    fn found(tree: &Tree, pmus: &[&str]) -> Vec<(u32, u32, u32)> {
        let catalog = Catalog::read(&tree.root).unwrap();
        let pmus: Vec<String> = pmus.iter().map(|pmu| (*pmu).to_owned()).collect();
        instances(&pmus, &catalog, &tree.root).iter().map(|site| (site.die, site.unit, site.cpu.0)).collect()
    }

    #[test]
    fn every_box_is_there_once_a_die_whatever_its_number() {
        let tree = Tree::new(&[]);
        for (name, mask) in
            [("uncore_iio_2", "0,8"), ("uncore_iio_10", "0,8"), ("uncore_iio_free_running_2", "0")]
        {
            tree.pmu(name, &[("type", "20"), ("cpumask", mask)]);
        }
        tree.pmu("uncore_imc", &[("type", "30"), ("cpumask", "0")]);
        tree.pmu("cpu", &[("type", "4")]);
        let instances = found(&tree, &["uncore_iio_2", "uncore_iio_10"]);
        assert_eq!(instances, [(0, 2, 0), (0, 10, 0), (1, 2, 8), (1, 10, 8)]);
        assert_eq!(found(&tree, &["uncore_imc"]), [(0, 0, 0)], "a PMU that is alone has no number");
        assert_eq!(found(&tree, &["uncore_cha_0"]), []);
    }

    #[test]
    fn uncore_pmus_named_after_addresses_are_numbered_in_order() {
        let topology = "sys/devices/system/cpu/cpu72/topology/physical_package_id";
        let tree = Tree::new(&[(topology, "1\n")]);
        for (name, mask) in [("smmuv3_pmcg_ff88840", "0"), ("smmuv3_pmcg_ff8a840", "72")] {
            tree.pmu(name, &[("type", "20"), ("cpumask", mask)]);
        }
        let instances = found(&tree, &["smmuv3_pmcg_ff88840", "smmuv3_pmcg_ff8a840"]);
        assert_eq!(instances, [(0, 0, 0), (1, 1, 72)], "a CPU that is alone counts for its package");
    }

    #[test]
    fn the_topology_says_which_die_a_cpu_counts_for() {
        let topology = |cpu: u32| format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
        // The first CPU of socket 0 is offline, so a CPU after those of socket 1 counts for it.
        let tree = Tree::new(&[(&topology(28), "1\n"), (&topology(56), "0\n")]);
        tree.pmu("uncore_iio_0", &[("type", "20"), ("cpumask", "28,56")]);
        assert_eq!(found(&tree, &["uncore_iio_0"]), [(0, 0, 56), (1, 0, 28)]);
    }

    #[test]
    fn every_group_has_several_turns_between_two_ticks() {
        let second = Duration::from_secs(1);
        assert_eq!(slice(1, second), Duration::from_millis(125));
        assert_eq!(slice(4, second), Duration::from_micros(62_500));
        assert_eq!(slice(400, second), Duration::from_millis(20));
        assert_eq!(slice(4, Duration::from_secs(60)), Duration::from_millis(125));
    }

    #[test]
    fn a_counter_is_taken_by_its_code_and_not_by_the_kernels_scale() {
        let tree = server(Family::IceLake, &[("iio", 2)]);
        let scale = "sys/bus/event_source/devices/uncore_iio_free_running_0/events";
        tree.write(&format!("{scale}/bw_in_port0"), "event=0xff,umask=0x20\n");
        tree.write(&format!("{scale}/bw_in_port0.scale"), "3.814697266e-6\n");
        let found = free_running(&load("icelakex").unwrap(), &Catalog::read(&tree.root).unwrap());
        assert_eq!(found.len(), 9, "a clock and eight ports; no memory controller is shown");
        let port = &found[1];
        assert_eq!(
            (port.counter.name.as_str(), port.counter.unit_bytes, port.event.scale),
            ("bw_in_port0", 32, 1.0)
        );
        let at: Vec<(&str, u64)> =
            port.event.instances.iter().map(|at| (at.pmu.as_str(), at.words.get(Word::Config))).collect();
        assert_eq!(at, [("uncore_iio_free_running_0", 0x20ff), ("uncore_iio_free_running_1", 0x20ff)]);
    }

    #[test]
    fn sizes_differ_between_generations() {
        let bytes = |model: &str, name: &str| {
            let table = load(model).unwrap();
            table.free_running.iter().find(|counter| counter.name == name).map(|counter| counter.unit_bytes)
        };
        assert_eq!(bytes("skylakex", "bw_out_port3"), Some(4));
        assert_eq!(bytes("icelakex", "bw_in_port7"), Some(32));
        assert_eq!(bytes("icelakex", "read"), Some(64));
        assert_eq!(bytes("sapphirerapids", "bw_out_port0"), None, "a count has no fixed size there");
    }
}
