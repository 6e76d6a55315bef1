//! Who uses a device: processes that drive it by themselves, network namespaces its interfaces are in, mounts of its disks.
//!
//! A device that one process, or one cgroup, has for itself needs no guess: all its traffic is theirs. Everything else goes
//! through the kernel for whoever asks, and has to be apportioned.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{
    Platform,
    bdf::Bdf,
    function::Class,
    process::{self, Process},
};
use crate::untrusted::{Untrusted, exact};

/// A process that uses a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct User {
    /// Its id.
    pub pid: u32,
    /// Its name.
    #[serde(with = "exact")]
    pub name: Untrusted,
    /// Its cgroup: in the v2 hierarchy, or else in the first v1 one.
    #[serde(with = "exact")]
    pub cgroup: Untrusted,
    /// What it uses the device through: a file it has open, an interface, a mount point.
    #[serde(with = "exact")]
    pub through: Untrusted,
}

/// Whose a device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ownership {
    /// One process's, or one cgroup's: every byte it moves is theirs.
    Exclusive {
        /// The process, if it is one.
        pid: Option<u32>,
        /// The cgroup that all of them are in.
        #[serde(with = "exact")]
        cgroup: Untrusted,
        /// All of them.
        users: Vec<User>,
    },
    /// Several have it, or the kernel has it for whoever asks.
    Shared {
        /// Those that have it by themselves.
        users: Vec<User>,
        /// What makes it shared.
        why: String,
    },
    /// Nobody's: no process and no function of the kernel uses it.
    None,
    /// It could not be found out.
    Unknown(String),
}

impl Ownership {
    /// Is every byte that the device moves that of a process in `cgroup`, or below it?
    #[must_use]
    pub fn is_within(&self, cgroup: &[u8]) -> bool {
        let Self::Exclusive { users, .. } = self else { return false };
        let below = |path: &[u8]| match path.strip_prefix(cgroup) {
            Some(rest) => cgroup.ends_with(b"/") || rest.is_empty() || rest.starts_with(b"/"),
            None => false,
        };
        users.iter().all(|user| below(user.cgroup.as_bytes()))
    }

    /// Is every byte that of this process?
    #[must_use]
    pub fn is_of(&self, process: u32) -> bool {
        matches!(self, Self::Exclusive { pid: Some(pid), .. } if *pid == process)
    }
}

/// What was found about one device.
#[derive(Default)]
struct Evidence {
    users: BTreeSet<User>,
    /// Why the kernel has it for whoever asks.
    kernel: Option<String>,
}

/// Who uses each device that moves data, by address. Processes that vanish meanwhile are left out. Without
/// CAP_SYS_PTRACE those of other users cannot be looked into: then nobody is exclusive.
#[must_use]
pub fn read(root: &Path, platform: &Platform) -> Vec<(Bdf, Ownership)> {
    let processes = process::all(root);
    let handles = Handles::of(root, platform);
    let mut found: BTreeMap<Bdf, Evidence> = BTreeMap::new();
    for process in &processes.seen {
        for path in &process.opened {
            for bdf in handles.devices(path) {
                found.entry(bdf).or_default().users.insert(user(process, path.clone()));
            }
        }
    }
    network(root, platform, &processes.seen, &mut found);
    mounts(root, platform, &processes.seen, &mut found);
    let ends = platform.ports.iter().flat_map(|port| &port.devices);
    ends.map(|bdf| (*bdf, ownership(found.remove(bdf).unwrap_or_default(), processes.hidden))).collect()
}

fn user(process: &Process, through: Untrusted) -> User {
    User { pid: process.pid, name: process.name.clone(), cgroup: process.cgroup.clone(), through }
}

fn ownership(evidence: Evidence, hidden: usize) -> Ownership {
    let users: Vec<User> = evidence.users.into_iter().collect();
    if let Some(why) = evidence.kernel {
        return Ownership::Shared { users, why };
    }
    if hidden > 0 {
        return Ownership::Unknown(format!("{hidden} processes may not be looked into; run as root"));
    }
    let pids: BTreeSet<u32> = users.iter().map(|user| user.pid).collect();
    let cgroups: BTreeSet<Untrusted> = users.iter().map(|user| user.cgroup.clone()).collect();
    match (pids.first(), cgroups.first()) {
        (Some(pid), Some(cgroup)) if cgroups.len() == 1 => {
            Ownership::Exclusive { pid: (pids.len() == 1).then_some(*pid), cgroup: cgroup.clone(), users }
        }
        (Some(_), _) => Ownership::Shared { users, why: format!("{} cgroups use it", cgroups.len()) },
        (None, _) => Ownership::None,
    }
}

/// Files that stand for devices: who has one open drives the device without the kernel.
struct Handles {
    /// By path.
    nodes: BTreeMap<Vec<u8>, Vec<Bdf>>,
}

impl Handles {
    fn of(root: &Path, platform: &Platform) -> Self {
        let mut nodes: BTreeMap<Vec<u8>, Vec<Bdf>> = BTreeMap::new();
        for device in platform.devices.iter().filter(|device| !device.is_infrastructure()) {
            if let Some(group) = device.iommu_group {
                nodes.entry(format!("/dev/vfio/{group}").into_bytes()).or_default().push(device.bdf);
            }
        }
        for node in &platform.nodes {
            let folder: &[u8] = match node.class {
                Class::Uio => b"/dev/",
                Class::Vfio => b"/dev/vfio/devices/",
                Class::Uverbs => b"/dev/infiniband/",
                Class::Drm => b"/dev/dri/",
                Class::Accel => b"/dev/accel/",
                // An NVMe controller's node takes commands for its keeper, not data.
                Class::Nvme | Class::Rdma | Class::Dsa => continue,
            };
            nodes.entry([folder, node.name.as_bytes()].concat()).or_default().push(node.device);
        }
        for (minor, bdf) in process::nvidia(root) {
            nodes.entry(format!("/dev/nvidia{minor}").into_bytes()).or_default().push(bdf);
        }
        Self { nodes }
    }

    fn devices(&self, path: &Untrusted) -> Vec<Bdf> {
        match self.nodes.get(path.as_bytes()) {
            Some(devices) => devices.clone(),
            None => process::of_resource(path).into_iter().collect(),
        }
    }
}

/// Interfaces: those of our own network namespace are everyone's there; another namespace's are its processes'.
fn network(root: &Path, platform: &Platform, processes: &[Process], found: &mut BTreeMap<Bdf, Evidence>) {
    for interface in &platform.interfaces {
        if let Some(bdf) = interface.device {
            let why = format!("interface {} is in the host's network namespace", interface.name.terminal());
            found.entry(bdf).or_default().kernel = Some(why);
        }
    }
    let own = process::namespace(root, "self", "net");
    let mut others: BTreeMap<&Untrusted, Vec<&Process>> = BTreeMap::new();
    for process in processes {
        match &process.network {
            Some(namespace) if own.is_some() && Some(namespace) != own.as_ref() => {
                others.entry(namespace).or_default().push(process);
            }
            _ => {}
        }
    }
    for members in others.values() {
        let interfaces =
            members.iter().find_map(|member| process::interfaces(root, member.pid)).unwrap_or_default();
        for (name, bdf) in interfaces {
            let users = members.iter().map(|member| user(member, name.clone()));
            found.entry(bdf).or_default().users.extend(users);
        }
    }
}

/// Disks: one that a single mount namespace has mounted, and not ours, is that of the namespace's processes.
fn mounts(root: &Path, platform: &Platform, processes: &[Process], found: &mut BTreeMap<Bdf, Evidence>) {
    let mut carriers: BTreeMap<(u32, u32), Vec<Bdf>> = BTreeMap::new();
    for disk in &platform.disks {
        let own = std::iter::once((&disk.name, disk.number));
        for (name, number) in own.chain(disk.partitions.iter().map(|(name, number)| (name, *number))) {
            carriers.insert(number, platform.carriers_of(name.as_bytes()));
        }
    }
    let host = process::namespace(root, "self", "mnt");
    let mut spaces: BTreeMap<&Untrusted, Vec<&Process>> = BTreeMap::new();
    for process in processes {
        if let Some(space) = &process.mounts {
            spaces.entry(space).or_default().push(process);
        }
    }
    for (space, members) in spaces {
        let mounted =
            members.iter().find_map(|member| process::mounted(root, member.pid)).unwrap_or_default();
        for (number, point) in mounted {
            for bdf in carriers.get(&number).into_iter().flatten() {
                let evidence = found.entry(*bdf).or_default();
                if Some(space) == host.as_ref() {
                    evidence.kernel = Some(format!("it is mounted at {} on the host", point.terminal()));
                } else {
                    evidence.users.extend(members.iter().map(|member| user(member, point.clone())));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Ownership, read};
    use crate::machine::{io::Platform, pmu::catalog::Catalog, testing::Tree};

    const PORT: &str = "sys/devices/pci0000:64/0000:64:02.0";

    /// A host with a device in IOMMU group 42, and one process.
    fn host(class: &str) -> Tree {
        let tree = Tree::new(&[("sys/bus/event_source/devices/cpu/type", "4")]);
        for (path, class) in [(PORT.to_owned(), "0x060400"), (format!("{PORT}/0000:65:00.0"), class)] {
            tree.write(&format!("{path}/class"), class);
            tree.write(&format!("{path}/vendor"), "0x8086");
            tree.write(&format!("{path}/device"), "0x1234");
            tree.link(&format!("{path}/iommu_group"), "../../../kernel/iommu_groups/42");
            let bdf = path.rsplit('/').next().unwrap();
            tree.link(&format!("sys/bus/pci/devices/{bdf}"), &format!("../../../../{path}"));
        }
        for kind in ["net", "mnt"] {
            tree.link(&format!("proc/self/ns/{kind}"), &format!("{kind}:[1]"));
        }
        process(&tree, 7, "/web", "1");
        tree
    }

    fn process(tree: &Tree, pid: u32, cgroup: &str, namespace: &str) {
        let at = format!("proc/{pid}");
        tree.write(&format!("{at}/comm"), &format!("server-{pid}\n"));
        tree.write(&format!("{at}/cgroup"), &format!("0::{cgroup}\n"));
        tree.write(&format!("{at}/maps"), "00400000-00401000 r-xp 00000000 08:01 9    /usr/bin/server\n");
        tree.write(&format!("{at}/mountinfo"), "22 1 0:20 / /sys rw - sysfs sysfs rw\n");
        tree.write(&format!("{at}/net/dev"), "Inter-|\n face |bytes\n");
        tree.link(&format!("{at}/fd/0"), "/dev/null");
        tree.link(&format!("{at}/ns/net"), &format!("net:[{namespace}]"));
        tree.link(&format!("{at}/ns/mnt"), &format!("mnt:[{namespace}]"));
    }

    fn ownership(tree: &Tree) -> Ownership {
        let platform = Platform::read(&tree.root, &Catalog::read(&tree.root).unwrap());
        let mut found = read(&tree.root, &platform);
        assert_eq!(found.len(), 1);
        found.remove(0).1
    }

    fn why(ownership: &Ownership) -> &str {
        match ownership {
            Ownership::Shared { why, .. } | Ownership::Unknown(why) => why,
            _ => panic!("{ownership:?}"),
        }
    }

    #[test]
    fn a_device_that_nobody_opened_is_nobodys() {
        assert_eq!(ownership(&host("0x020000")), Ownership::None);
    }

    #[test]
    fn a_device_that_one_process_drives_is_its_own() {
        let tree = host("0x020000");
        tree.link("proc/7/fd/5", "/dev/vfio/42");
        let found = ownership(&tree);
        assert!(found.is_of(7) && !found.is_of(8), "{found:?}");
        assert!(found.is_within(b"/web") && found.is_within(b"/") && !found.is_within(b"/we"));
    }

    #[test]
    fn processes_of_a_cgroup_have_it_together() {
        let tree = host("0x020000");
        process(&tree, 8, "/web", "1");
        tree.link("proc/7/fd/5", "/dev/vfio/42");
        tree.link("proc/8/fd/5", "/dev/vfio/42");
        let found = ownership(&tree);
        assert!(
            matches!(&found, Ownership::Exclusive { pid: None, cgroup, .. } if cgroup.as_bytes() == b"/web")
        );
        process(&tree, 9, "/batch", "1");
        tree.link("proc/9/fd/5", "/dev/vfio/42");
        assert_eq!(why(&ownership(&tree)), "2 cgroups use it");
    }

    #[test]
    fn mapped_memory_of_a_device_is_use_of_it() {
        let tree = host("0x020000");
        let path = "/sys/devices/pci0000:64/0000:64:02.0/0000:65:00.0/resource0";
        tree.write("proc/7/maps", &format!("7f00-7f01 rw-s 00000000 00:16 9   {path}\n"));
        assert!(ownership(&tree).is_of(7));
    }

    #[test]
    fn a_graphics_card_is_known_by_its_minor_number() {
        let tree = host("0x030200");
        tree.write(
            "proc/driver/nvidia/gpus/0000:65:00.0/information",
            "Model: \t Some GPU\nDevice Minor: \t 3\n",
        );
        tree.link("proc/7/fd/5", "/dev/nvidia3");
        assert!(ownership(&tree).is_of(7));
    }

    #[test]
    fn an_interface_of_the_host_is_everyones() {
        let tree = host("0x020000");
        tree.write(&format!("{PORT}/0000:65:00.0/net/eth0/ifindex"), "2");
        tree.link("sys/class/net/eth0", "../../devices/pci0000:64/0000:64:02.0/0000:65:00.0/net/eth0");
        assert_eq!(why(&ownership(&tree)), "interface eth0 is in the host's network namespace");
    }

    #[test]
    fn an_interface_of_another_namespace_is_that_of_its_processes() {
        let tree = host("0x020000");
        process(&tree, 8, "/pod", "2");
        tree.write("proc/8/root/sys/class/net/eth0/ifindex", "2");
        tree.link("proc/8/root/sys/class/net/eth0/device", "../../../0000:65:00.0");
        assert_eq!(ownership(&tree), Ownership::None, "its /sys shows another namespace's interfaces");
        tree.write("proc/8/net/dev", "Inter-|\n face |bytes\n  eth0: 1 2 3\n");
        assert!(ownership(&tree).is_of(8));
    }

    #[test]
    fn a_disk_of_one_mount_namespace_is_that_of_its_processes() {
        let tree = host("0x010802");
        tree.write(&format!("{PORT}/0000:65:00.0/nvme/nvme0/nvme0n1/dev"), "259:0");
        tree.link("sys/block/nvme0n1", "../devices/pci0000:64/0000:64:02.0/0000:65:00.0/nvme/nvme0/nvme0n1");
        process(&tree, 8, "/pod", "2");
        let mount = "40 22 259:0 / /data rw - ext4 /dev/nvme0n1 rw\n";
        tree.write("proc/8/mountinfo", mount);
        assert!(ownership(&tree).is_of(8));
        tree.write("proc/7/mountinfo", mount);
        assert_eq!(why(&ownership(&tree)), "it is mounted at /data on the host");
    }

    #[test]
    fn a_process_that_vanishes_is_left_out() {
        let tree = host("0x020000");
        tree.write("proc/99/comm", "gone\n");
        assert_eq!(ownership(&tree), Ownership::None);
    }

    #[test]
    fn a_hostile_mount_point_is_escaped() {
        let tree = host("0x010802");
        tree.write(&format!("{PORT}/0000:65:00.0/nvme/nvme0/nvme0n1/dev"), "259:0");
        tree.link("sys/block/nvme0n1", "../devices/pci0000:64/0000:64:02.0/0000:65:00.0/nvme/nvme0/nvme0n1");
        tree.write("proc/7/mountinfo", "40 22 259:0 / /\x1b[31m rw - ext4 x rw\n");
        assert!(!why(&ownership(&tree)).contains('\x1b'));
    }
}
