//! Which boxes there are: every uncore PMU with its number, its dies and the CPUs that count for them.

use std::path::Path;

use super::BoxSite;
use crate::machine::{
    cpu::Cpu,
    pmu::catalog::{Catalog, Entry, Place},
    read_line,
};

/// What the kernel puts before the kind of a box in the names of Intel's PMUs.
const PREFIX: &str = "uncore_";

/// The boxes of a kind, as `iio`, die by die. Others' kinds are whole names: `amd_df`.
#[must_use]
pub(super) fn sites(kind: &str, catalog: &Catalog, root: &Path) -> Vec<BoxSite> {
    let mut found = Vec::new();
    for pmu in &catalog.pmus {
        let (Some(unit), Place::Box(cpus)) = (unit(pmu, kind), &pmu.place) else { continue };
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

/// A PMU's number among those of its kind; 0 for one that has none because it is alone. `None` if it is of another kind.
fn unit(pmu: &Entry, kind: &str) -> Option<u32> {
    let name = pmu.name.strip_prefix(PREFIX).unwrap_or(&pmu.name).strip_prefix(kind)?;
    match name.strip_prefix('_') {
        Some(number) => number.parse().ok(),
        None => name.is_empty().then_some(0),
    }
}

/// The die of each CPU of a `cpumask`, which names one CPU a die: by the topology, or in their order where that does not
/// tell them apart.
fn dies(cpus: &[Cpu], root: &Path) -> Vec<u32> {
    let id = |cpu: &Cpu, name: &str| -> Option<u32> {
        let path = format!("sys/devices/system/cpu/cpu{}/topology/{name}", cpu.0);
        read_line(root, &path).ok()?.trim().parse().ok()
    };
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

    fn found(tree: &Tree, kind: &str) -> Vec<(u32, u32, u32)> {
        let catalog = Catalog::read(&tree.root).unwrap();
        sites(kind, &catalog, &tree.root).iter().map(|site| (site.die, site.unit, site.cpu.0)).collect()
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
        assert_eq!(found(&tree, "iio"), [(0, 2, 0), (0, 10, 0), (1, 2, 8), (1, 10, 8)]);
        assert_eq!(found(&tree, "iio_free_running"), [(0, 2, 0)]);
        assert_eq!(found(&tree, "imc"), [(0, 0, 0)], "a PMU that is alone has no number");
        assert_eq!(found(&tree, "cha"), []);
    }

    #[test]
    fn the_topology_says_which_die_a_cpu_counts_for() {
        let topology = |cpu: u32| format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
        // The first CPU of socket 0 is offline, so one behind those of socket 1 counts for it.
        let tree = Tree::new(&[(&topology(28), "1\n"), (&topology(56), "0\n")]);
        tree.pmu("uncore_iio_0", &[("type", "20"), ("cpumask", "28,56")]);
        assert_eq!(found(&tree, "iio"), [(0, 0, 56), (1, 0, 28)]);
    }
}
