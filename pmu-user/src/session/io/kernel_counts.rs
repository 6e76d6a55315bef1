//! The kernel's own counts of disks, interfaces and TCP, of the host and of separate network namespaces of
//! targets.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
};

use crate::{
    drain::{
        Owner,
        io::{DiskCount, KernelCounts, NetworkCount, block::DeviceNumber},
    },
    file::reread,
    machine::{
        Machine, bytes,
        cgroup::Cgroup,
        disk::{in_use, is_partition},
        network::NetworkFiles,
        stat::born_ns,
    },
    plan::{Target, io::IoPlan},
    untrusted::Untrusted,
};

/// Network namespaces of targets that are read, in addition to the host's.
const NAMESPACES_MAX: usize = 16;

/// Files in which the kernel reports its counts.
pub(super) struct KernelFiles {
    disks: Option<File>,
    /// Whether a device number is a partition. Partitions are counted in their disks.
    partitions: BTreeMap<DeviceNumber, bool>,
    networks: Vec<(Option<Owner>, NetworkFiles)>,
    root: PathBuf,
}

impl KernelFiles {
    /// Opens the files that are read at every tick.
    pub(super) fn open(plan: &IoPlan, machine: &Machine, root: &Path) -> Self {
        let own = NetworkFiles::own(root).ok().map(|files| (None, files));
        Self {
            disks: File::open(root.join("proc/diskstats")).ok(),
            partitions: BTreeMap::new(),
            networks: own.into_iter().chain(of_targets(plan, machine, root)).collect(),
            root: root.to_owned(),
        }
    }

    /// Reads the kernel's counts so far. `at_ns` is the present time, since counting started.
    pub(super) fn read(&mut self, at_ns: u64) -> KernelCounts {
        let text = self.disks.as_ref().and_then(|file| reread(file).ok()).unwrap_or_default();
        let mut disks = Vec::new();
        for ((major, minor), name, in_use) in in_use(&text) {
            let device = DeviceNumber { major, minor };
            let is_part =
                self.partitions.entry(device).or_insert_with(|| is_partition(&self.root, major, minor));
            if !*is_part {
                disks.push(DiskCount { device, name, in_use });
            }
        }
        let network = |(owner, files): &(Option<Owner>, NetworkFiles)| {
            let (interfaces, tcp) = files.read()?;
            Some(NetworkCount { owner: owner.clone(), interfaces, tcp })
        };
        KernelCounts { at_ns, disks, networks: self.networks.iter().filter_map(network).collect() }
    }
}

/// Returns the network namespaces other than pmbpf's, each with the first target in it.
fn of_targets(plan: &IoPlan, machine: &Machine, root: &Path) -> Vec<(Option<Owner>, NetworkFiles)> {
    let process = |pid: u32| Owner::Process {
        pid,
        born_ns: born_ns(root, pid).unwrap_or(0),
        name: bytes(&root.join(format!("proc/{pid}/comm")))
            .map_or_else(|_| Untrusted::default(), |name| Untrusted::new(name.trim_ascii_end())),
    };
    let of_cgroup = |cgroup: &Cgroup| {
        let below = machine.cgroups.list(&cgroup.path).unwrap_or_default();
        let pid = below.iter().find_map(|cgroup| machine.cgroups.threads(cgroup)?.first().copied())?;
        Some((Owner::cgroup(cgroup.id.0, cgroup.path.clone()), pid))
    };
    let targets: Vec<(Owner, u32)> = match &plan.target {
        Target::Processes(pids) => pids.iter().map(|&pid| (process(pid), pid)).collect(),
        Target::Cgroups(cgroups) => cgroups.iter().filter_map(of_cgroup).collect(),
        // A process that is yet to become the command has pmbpf's namespace.
        Target::System | Target::Threads(_) | Target::Command(_) => Vec::new(),
    };
    let mut seen = BTreeSet::new();
    let other = |(owner, pid): (Owner, u32)| {
        let (namespace, files) = NetworkFiles::of_process(root, pid)?;
        seen.insert(namespace).then_some((Some(owner), files))
    };
    targets.into_iter().filter_map(other).take(NAMESPACES_MAX).collect()
}
