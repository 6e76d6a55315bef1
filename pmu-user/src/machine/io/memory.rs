//! Memory of the host: nodes, modules, channels, and the bandwidth of the channels by specification.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{
    Fact, attribute,
    dmi::{self, MemoryKind, Module},
    names,
    place::{self, Places},
};
use crate::machine::{
    cpu::Cpu,
    pmu::catalog::{Catalog, Entry},
};

/// Bytes per transfer of a DDR channel, whether it is one channel (DDR4) or two halves (DDR5).
const CHANNEL_BYTES: f64 = 8.0;

/// Memory of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// NUMA nodes, by number.
    pub nodes: Vec<Node>,
    /// Channels that have counters, by socket.
    pub channels: Fact<BTreeMap<u32, u32>>,
    /// Modules that are plugged in.
    pub modules: Fact<Vec<Module>>,
    /// Bandwidth of all channels of the host together in bytes/s, by specification: channels × MT/s × 8
    /// bytes. Reads and writes share it, and no workload reaches it.
    pub bytes_per_second_max: Fact<f64>,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Number of the node.
    pub id: u32,
    /// Socket of the node. `None` for memory without CPUs.
    pub socket: Option<u32>,
    /// CPUs of the node.
    pub cpus: Vec<Cpu>,
    /// Memory that the kernel manages there, in bytes.
    pub bytes: Option<u64>,
}

impl Memory {
    pub(super) fn read(root: &Path, catalog: &Catalog, places: &Places) -> Self {
        let nodes = places.nodes().iter().map(|node| Node {
            id: node.id,
            socket: places.socket_of_node(node.id),
            cpus: node.cpus.clone(),
            bytes: node.bytes,
        });
        let channels = channels(catalog, places);
        let modules = modules(root);
        let bytes_per_second_max = match (&channels, &modules) {
            (Fact::Known(channels), Fact::Known(modules)) => most(channels.values().sum(), modules),
            (Fact::Missing(why), _) | (_, Fact::Missing(why)) => Fact::Missing(why.clone()),
        };
        Self { nodes: nodes.collect(), channels, modules, bytes_per_second_max }
    }
}

/// Counts the channels by socket. A memory controller's PMU stands for a channel: `uncore_imc_0`,
/// `amd_umc_0`.
fn channels(catalog: &Catalog, places: &Places) -> Fact<BTreeMap<u32, u32>> {
    let is_channel = |pmu: &&Entry| matches!(place::kind(&pmu.name), "uncore_imc" | "amd_umc");
    let mut channels = BTreeMap::new();
    for pmu in catalog.pmus.iter().filter(is_channel) {
        for die in place::cpus(pmu).iter().filter_map(|cpu| places.die_of(*cpu)) {
            *channels.entry(die.socket).or_insert(0) += 1;
        }
    }
    let why = || "the kernel has no counters of memory channels (no uncore_imc or amd_umc PMU)".to_owned();
    Fact::of((!channels.is_empty()).then_some(channels), why)
}

fn most(channels: u32, modules: &[Module]) -> Fact<f64> {
    // Memory in the processor's package has separate channels, and persistent memory is slower than its
    // channel.
    let plugged = modules
        .iter()
        .filter(|module| !matches!(module.kind, Some(MemoryKind::Persistent | MemoryKind::Hbm)));
    let speeds: Vec<Option<u32>> = plugged.map(|module| module.configured_mts.or(module.best_mts)).collect();
    // A channel without a module transfers nothing.
    let channels = channels.min(u32::try_from(speeds.len()).unwrap_or(u32::MAX));
    // Modules of different speeds run at the slowest.
    let speed = speeds.into_iter().collect::<Option<Vec<u32>>>().and_then(|speeds| speeds.into_iter().min());
    let why = || "the firmware does not say how fast the memory is".to_owned();
    Fact::of(speed.map(|mts| f64::from(channels) * f64::from(mts) * 1e6 * CHANNEL_BYTES), why)
}

/// Reads the modules from the firmware's table, which requires root. Otherwise reads their sizes from the
/// driver of the memory controller.
fn modules(root: &Path) -> Fact<Vec<Module>> {
    let mut table = Vec::new();
    let file = File::open(root.join("sys/firmware/dmi/tables/DMI"));
    let why = match file.and_then(|file| file.take(dmi::BYTES_MAX as u64).read_to_end(&mut table)) {
        Ok(_) => {
            let modules = dmi::modules(&table);
            if !modules.is_empty() {
                return Fact::Known(modules);
            }
            "the firmware's table names no memory module"
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            "the speed of the memory is in the firmware's table, which takes root to read"
        }
        Err(_) => "the firmware gives no table of its memory (no DMI)",
    };
    let modules = of_controllers(root);
    Fact::of((!modules.is_empty()).then_some(modules), || why.to_owned())
}

/// Returns the modules as reported by the kernel's drivers of memory controllers (EDAC): sizes and kinds, no
/// speeds.
fn of_controllers(root: &Path) -> Vec<Module> {
    let folder = "sys/devices/system/edac/mc";
    let numbered = |name: &str, prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let within = |folder: &str, prefix: &str| {
        let names = names(&root.join(folder)).into_iter().filter_map(|name| name.into_string().ok());
        names.filter(|name| numbered(name, prefix)).map(|name| format!("{folder}/{name}")).collect::<Vec<_>>()
    };
    let module = |path: String| {
        // The size is in MiB (drivers/edac/edac_mc_sysfs.c, `dimmdev_size_show`).
        let size: u64 = attribute(root, &format!("{path}/size"))?.parse().ok()?;
        let bytes = size.checked_mul(1 << 20).filter(|bytes| *bytes > 0)?;
        let kind = attribute(root, &format!("{path}/dimm_mem_type")).and_then(|kind| kind_of(&kind));
        Some(Module { bytes, kind, configured_mts: None, best_mts: None, data_bits: None })
    };
    within(folder, "mc").iter().flat_map(|controller| within(controller, "dimm")).filter_map(module).collect()
}

/// Returns the kind for a kernel name (`edac_mem_types`, drivers/edac/edac_mc.c): `Registered-DDR4`,
/// `Load-Reduced-DDR5-RAM`.
fn kind_of(name: &str) -> Option<MemoryKind> {
    let saves = name.starts_with("Low-Power");
    match name.strip_suffix("-RAM").unwrap_or(name).rsplit('-').next()? {
        "DDR3" if !saves => Some(MemoryKind::Ddr3),
        "DDR4" => Some(if saves { MemoryKind::Lpddr4 } else { MemoryKind::Ddr4 }),
        "DDR5" => Some(if saves { MemoryKind::Lpddr5 } else { MemoryKind::Ddr5 }),
        "volatile" => Some(MemoryKind::Persistent),
        "Gen2" | "Gen3" if name.starts_with("High-bandwidth-memory") => Some(MemoryKind::Hbm),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Fact, Memory, MemoryKind, kind_of};
    use crate::machine::{
        io::{dmi::tests::slot, place::Places},
        pmu::catalog::Catalog,
        testing::Tree,
    };

    /// Two sockets with one CPU and two channels each.
    fn host() -> Tree {
        let tree = Tree::new(&[
            ("sys/devices/system/cpu/online", "0-1\n"),
            ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
            ("sys/devices/system/cpu/cpu1/topology/physical_package_id", "1\n"),
        ]);
        tree.pmu("uncore_imc_0", &[("type", "9"), ("cpumask", "0-1")]);
        tree.pmu("uncore_imc_1", &[("type", "10"), ("cpumask", "0-1")]);
        tree.pmu("uncore_imc_free_running_0", &[("type", "11"), ("cpumask", "0-1")]);
        tree
    }

    fn memory(tree: &Tree) -> Memory {
        Memory::read(&tree.root, &Catalog::read(&tree.root).unwrap(), &Places::read(&tree.root))
    }

    fn table(tree: &Tree, slots: &[Vec<u8>]) {
        tree.write("sys/firmware/dmi/tables/DMI", "");
        fs::write(tree.root.join("sys/firmware/dmi/tables/DMI"), slots.concat()).unwrap();
    }

    #[test]
    fn the_most_that_memory_can_carry_is_channels_by_speed() {
        let tree = host();
        table(&tree, &vec![slot(8192, 0, 0x22, 5600, 4800); 8]);
        let memory = memory(&tree);
        assert_eq!(memory.channels.known().unwrap().iter().collect::<Vec<_>>(), [(&0, &2), (&1, &2)]);
        assert_eq!(memory.bytes_per_second_max, Fact::Known(4.0 * 4800e6 * 8.0));
    }

    #[test]
    fn empty_channels_carry_nothing_and_the_slowest_module_sets_the_pace() {
        let tree = host();
        table(
            &tree,
            &[slot(8192, 0, 0x1a, 3200, 3200), slot(0, 0, 2, 0, 0), slot(8192, 0, 0x1a, 3200, 2933)],
        );
        assert_eq!(memory(&tree).bytes_per_second_max, Fact::Known(2.0 * 2933e6 * 8.0));
    }

    #[test]
    fn without_the_firmwares_table_the_speed_is_not_known() {
        let tree = host();
        let at = "sys/devices/system/edac/mc/mc0";
        tree.write(&format!("{at}/dimm0/size"), "16384\n");
        tree.write(&format!("{at}/dimm0/dimm_mem_type"), "Registered-DDR5\n");
        tree.write(&format!("{at}/dimm1/size"), "0\n");
        let memory = memory(&tree);
        let modules = memory.modules.known().unwrap();
        assert_eq!((modules.len(), modules[0].bytes, modules[0].kind), (1, 16 << 30, Some(MemoryKind::Ddr5)));
        let Fact::Missing(why) = memory.bytes_per_second_max else { panic!("a speed from nowhere") };
        assert_eq!(why, "the firmware does not say how fast the memory is");
    }

    #[test]
    fn other_memory_than_that_of_the_channels_does_not_count() {
        let tree = host();
        table(
            &tree,
            &[slot(8192, 0, 0x1a, 3200, 3200), slot(8192, 0, 0x1f, 2666, 2666), slot(8192, 0, 0x24, 0, 0)],
        );
        assert_eq!(memory(&tree).bytes_per_second_max, Fact::Known(3200e6 * 8.0));
    }

    #[test]
    fn the_kernels_names_of_memory_are_understood() {
        for (name, kind) in [
            ("Unbuffered-DDR3", Some(MemoryKind::Ddr3)),
            ("Registered-DDR4", Some(MemoryKind::Ddr4)),
            ("Load-Reduced-DDR5-RAM", Some(MemoryKind::Ddr5)),
            ("Low-Power-DDR4-RAM", Some(MemoryKind::Lpddr4)),
            ("Non-volatile-RAM", Some(MemoryKind::Persistent)),
            ("High-bandwidth-memory-Gen3", Some(MemoryKind::Hbm)),
            ("Low-Power-DDR3-RAM", None),
            ("Unbuffered-DDR", None),
            ("", None),
        ] {
            assert_eq!(kind_of(name), kind, "{name}");
        }
    }

    #[test]
    fn a_host_that_says_nothing_has_no_numbers() {
        let tree = Tree::new(&[("sys/bus/event_source/devices/software/type", "1")]);
        let memory = memory(&tree);
        assert!(matches!(&memory.channels, Fact::Missing(why) if why.contains("uncore_imc")));
        assert!(matches!(&memory.modules, Fact::Missing(why) if why.contains("no DMI")));
    }
}
