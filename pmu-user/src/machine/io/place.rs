//! Places of CPUs and NUMA nodes: socket and die. Also numbers of uncore PMU instances by kind:
//! `uncore_cha_0` to `uncore_cha_39` are one kind.

use std::{collections::BTreeSet, path::Path};

use serde::{Deserialize, Serialize};

use super::{attribute, names};
use crate::machine::{
    cpu::{self, Cpu, parse_list},
    pmu::catalog::{Catalog, Entry, PmuCpus},
};

/// Sockets and dies of the online CPUs, and NUMA nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// CPUs by number.
    cpus: Vec<(Cpu, Die)>,
    /// Nodes by number.
    nodes: Vec<NumaNode>,
}

/// A die of a socket, by the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Die {
    pub(super) socket: u32,
    die: u32,
}

/// A NUMA node, as far as its files describe it.
#[derive(Clone, Debug)]
pub(super) struct NumaNode {
    pub(super) id: u32,
    pub(super) cpus: Vec<Cpu>,
    pub(super) bytes: Option<u64>,
}

impl Places {
    pub(super) fn read(root: &Path) -> Self {
        let id = |cpu: Cpu, name: &str| {
            let path = format!("sys/devices/system/cpu/cpu{}/topology/{name}", cpu.0);
            attribute(root, &path)?.parse::<u32>().ok()
        };
        let die = |cpu: Cpu| {
            let socket = id(cpu, "physical_package_id")?;
            Some((cpu, Die { socket, die: id(cpu, "die_id").unwrap_or(0) }))
        };
        let folder = root.join("sys/devices/system/node");
        let nodes = names(&folder).into_iter().filter_map(|name| {
            let id: u32 = name.to_str()?.strip_prefix("node")?.parse().ok()?;
            let at = format!("sys/devices/system/node/node{id}");
            let list = attribute(root, &format!("{at}/cpulist"));
            let meminfo = crate::machine::read(root, &format!("{at}/meminfo")).ok();
            Some(NumaNode {
                id,
                cpus: list.and_then(|list| parse_list(&list).ok()).unwrap_or_default(),
                bytes: meminfo.and_then(|text| total_bytes(&text)),
            })
        });
        let mut nodes: Vec<NumaNode> = nodes.collect();
        nodes.sort_by_key(|node| node.id);
        Self { cpus: cpu::online(root).unwrap_or_default().into_iter().filter_map(die).collect(), nodes }
    }

    pub(super) fn nodes(&self) -> &[NumaNode] {
        &self.nodes
    }

    pub(super) fn sockets(&self) -> BTreeSet<u32> {
        self.cpus.iter().map(|(_, die)| die.socket).collect()
    }

    pub(super) fn die_of(&self, cpu: Cpu) -> Option<Die> {
        self.cpus.iter().find(|(known, _)| *known == cpu).map(|(_, die)| *die)
    }

    /// Returns the die with the kernel's number `index`: by socket and die (`topology_get_logical_id`,
    /// arch/x86/kernel/cpu/topology.c, 6.9). Older kernels number them as they start, which is the same
    /// order.
    pub(super) fn die(&self, index: u32) -> Option<Die> {
        let dies: BTreeSet<Die> = self.cpus.iter().map(|(_, die)| *die).collect();
        dies.into_iter().nth(index as usize)
    }

    /// Returns the only die of a socket. Returns `None` if it has several.
    pub(super) fn die_of_socket(&self, socket: u32) -> Option<Die> {
        let dies: BTreeSet<Die> =
            self.cpus.iter().map(|(_, die)| *die).filter(|die| die.socket == socket).collect();
        if dies.len() == 1 { dies.first().copied() } else { None }
    }

    /// Returns the socket of a NUMA node: that of its CPUs. Returns `None` for memory without CPUs.
    pub(super) fn socket_of_node(&self, node: u32) -> Option<u32> {
        let node = self.nodes.iter().find(|known| known.id == node)?;
        self.die_of(*node.cpus.first()?).map(|die| die.socket)
    }

    /// Returns the socket of devices that are reported to be near these nodes. On a host with one socket
    /// returns that one in any case.
    pub(super) fn socket_of(&self, nodes: impl Iterator<Item = Option<u32>>) -> Option<u32> {
        let sockets = self.sockets();
        if sockets.len() == 1 {
            return sockets.first().copied();
        }
        let near: BTreeSet<u32> = nodes.filter_map(|node| self.socket_of_node(node?)).collect();
        if near.len() == 1 { near.first().copied() } else { None }
    }
}

/// Parses `Node 0 MemTotal:       131072 kB`.
fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.contains(" MemTotal:"))?;
    let (_, amount) = line.split_once(" MemTotal:")?;
    amount.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Uncore PMUs of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncorePmus {
    /// Name of their PMUs, without the number.
    pub kind: String,
    /// Number of PMUs of the kind.
    pub pmus: usize,
    /// Number of instances: a PMU has one on each CPU of its cpumask.
    #[serde(rename = "boxes")]
    pub instances: usize,
}

/// Returns the CPUs of a PMU's cpumask. Returns none for a PMU that counts in cores.
pub(super) fn cpus(pmu: &Entry) -> &[Cpu] {
    match &pmu.place {
        PmuCpus::Uncore(cpus) => cpus,
        PmuCpus::Anywhere | PmuCpus::Cores(_) => &[],
    }
}

/// Returns the kind of a PMU with this name: without the number at its end. (`amd_l3` has none.)
pub(super) fn kind(name: &str) -> &str {
    let stem = name.trim_end_matches(|character: char| character.is_ascii_digit());
    match stem.strip_suffix('_') {
        Some(kind) if stem.len() < name.len() => kind,
        _ if stem == "dmar" => stem,
        _ => name,
    }
}

/// Returns the kinds of uncore PMUs in the catalog, by name.
pub(super) fn of(catalog: &Catalog) -> Vec<UncorePmus> {
    let mut kinds: Vec<UncorePmus> = Vec::new();
    for pmu in catalog.pmus.iter().filter(|pmu| matches!(pmu.place, PmuCpus::Uncore(_))) {
        let kind = kind(&pmu.name);
        match kinds.iter_mut().find(|known| known.kind == kind) {
            Some(known) => {
                known.pmus += 1;
                known.instances += cpus(pmu).len();
            }
            None => kinds.push(UncorePmus { kind: kind.to_owned(), pmus: 1, instances: cpus(pmu).len() }),
        }
    }
    kinds.sort_by(|a, b| a.kind.cmp(&b.kind));
    kinds
}

#[cfg(test)]
mod tests {
    use super::{Places, UncorePmus, of};
    use crate::machine::{cpu::Cpu, pmu::catalog::Catalog, testing::Tree};

    fn host() -> Places {
        let tree = Tree::new(&[
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/node/node0/cpulist", "0,2\n"),
            (
                "sys/devices/system/node/node0/meminfo",
                "\nNode 0 MemTotal:       1024 kB\nNode 0 MemFree: 3 kB\n",
            ),
            ("sys/devices/system/node/node1/cpulist", "1,3\n"),
            ("sys/devices/system/node/node2/cpulist", "\n"),
            ("sys/devices/system/node/node2/meminfo", "Node 2 MemTotal: much kB\n"),
        ]);
        for (cpu, socket) in [(0, 1), (1, 0), (2, 1), (3, 0)] {
            let at = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            tree.write(&format!("{at}/physical_package_id"), &format!("{socket}\n"));
        }
        Places::read(&tree.root)
    }

    #[test]
    fn dies_are_numbered_by_socket_whichever_cpu_comes_first() {
        let host = host();
        assert_eq!((host.die(0).unwrap().socket, host.die(1).unwrap().socket), (0, 1));
        assert_eq!(host.die(2), None);
        assert_eq!(host.die_of(Cpu(3)).unwrap().socket, 0);
    }

    #[test]
    fn nodes_have_a_size_and_a_socket_where_they_say_so() {
        let host = host();
        let sizes: Vec<_> = host.nodes().iter().map(|node| node.bytes).collect();
        assert_eq!(sizes, [Some(1 << 20), None, None]);
        let sockets: Vec<_> = (0..4).map(|node| host.socket_of_node(node)).collect();
        assert_eq!(sockets, [Some(1), Some(0), None, None]);
    }

    #[test]
    fn devices_near_different_sockets_have_none() {
        let host = host();
        let of = |nodes: &[Option<u32>]| host.socket_of(nodes.iter().copied());
        assert_eq!((of(&[Some(0), None]), of(&[Some(0), Some(1)]), of(&[None])), (Some(1), None, None));
    }

    #[test]
    fn uncore_pmus_of_a_kind_are_counted_on_every_die() {
        let tree = Tree::new(&[]);
        tree.pmu("cpu", &[("type", "4")]);
        for name in ["uncore_iio_0", "uncore_iio_10", "uncore_iio_free_running_0"] {
            tree.pmu(name, &[("type", "9"), ("cpumask", "0,32")]);
        }
        for name in ["amd_l3", "dmar0", "dmar12"] {
            tree.pmu(name, &[("type", "8"), ("cpumask", "0")]);
        }
        let kind = |kind: &str, pmus, instances| UncorePmus { kind: kind.to_owned(), pmus, instances };
        assert_eq!(
            of(&Catalog::read(&tree.root).unwrap()),
            [
                kind("amd_l3", 1, 1),
                kind("dmar", 2, 2),
                kind("uncore_iio", 2, 4),
                kind("uncore_iio_free_running", 1, 2)
            ]
        );
    }
}
