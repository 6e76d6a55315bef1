//! Which boxes there are: every uncore PMU with its number, its dies and the CPUs that count for them.

use std::path::Path;

use super::BoxSite;
use crate::machine::{
    cpu::Cpu,
    pmu::catalog::{Catalog, Place},
    read_line,
};

/// The boxes that these PMUs are, die by die.
#[must_use]
pub(super) fn sites(pmus: &[String], catalog: &Catalog, root: &Path) -> Vec<BoxSite> {
    let mut found = Vec::new();
    let known = catalog.pmus.iter().filter(|pmu| pmus.contains(&pmu.name));
    for (at, pmu) in (0..).zip(known) {
        let Place::Box(cpus) = &pmu.place else { continue };
        let unit = number(&pmu.name).unwrap_or(at);
        let dies = dies(cpus, root);
        found.extend(cpus.iter().zip(dies).map(|(&cpu, die)| BoxSite {
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

/// The number that a PMU's name ends in; none for one that is alone, or that is named after an address.
fn number(name: &str) -> Option<u32> {
    let of_iommu = name.strip_prefix("dmar");
    of_iommu.or(name.rsplit_once('_').map(|(_, number)| number))?.parse().ok()
}

/// The die of each CPU of a `cpumask`, which names one CPU a die: by the topology, or in their order where that does not
/// tell them apart. One CPU alone counts for its package.
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

#[cfg(test)]
mod tests {
    use super::sites;
    use crate::machine::{pmu::catalog::Catalog, testing::Tree};

    fn found(tree: &Tree, pmus: &[&str]) -> Vec<(u32, u32, u32)> {
        let catalog = Catalog::read(&tree.root).unwrap();
        let pmus: Vec<String> = pmus.iter().map(|pmu| (*pmu).to_owned()).collect();
        sites(&pmus, &catalog, &tree.root).iter().map(|site| (site.die, site.unit, site.cpu.0)).collect()
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
        let boxes = found(&tree, &["uncore_iio_2", "uncore_iio_10"]);
        assert_eq!(boxes, [(0, 2, 0), (0, 10, 0), (1, 2, 8), (1, 10, 8)]);
        assert_eq!(found(&tree, &["uncore_imc"]), [(0, 0, 0)], "a PMU that is alone has no number");
        assert_eq!(found(&tree, &["uncore_cha_0"]), []);
    }

    #[test]
    fn boxes_named_after_addresses_are_numbered_in_order() {
        let topology = "sys/devices/system/cpu/cpu72/topology/physical_package_id";
        let tree = Tree::new(&[(topology, "1\n")]);
        for (name, mask) in [("smmuv3_pmcg_ff88840", "0"), ("smmuv3_pmcg_ff8a840", "72")] {
            tree.pmu(name, &[("type", "20"), ("cpumask", mask)]);
        }
        let boxes = found(&tree, &["smmuv3_pmcg_ff88840", "smmuv3_pmcg_ff8a840"]);
        assert_eq!(boxes, [(0, 0, 0), (1, 1, 72)], "a CPU that is alone counts for its package");
    }

    #[test]
    fn the_topology_says_which_die_a_cpu_counts_for() {
        let topology = |cpu: u32| format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
        // The first CPU of socket 0 is offline, so one behind those of socket 1 counts for it.
        let tree = Tree::new(&[(&topology(28), "1\n"), (&topology(56), "0\n")]);
        tree.pmu("uncore_iio_0", &[("type", "20"), ("cpumask", "28,56")]);
        assert_eq!(found(&tree, &["uncore_iio_0"]), [(0, 0, 56), (1, 0, 28)]);
    }
}
