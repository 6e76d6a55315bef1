//! Evidence of the users of a device: open files of processes, network namespaces, mounts, swap.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::User;
use crate::{
    machine::{
        io::{
            Platform,
            bdf::Bdf,
            function::Class,
            process::{self, Process},
        },
        mount,
    },
    untrusted::Untrusted,
};

/// Evidence about one device.
#[derive(Default)]
pub(super) struct Evidence {
    pub(super) users: BTreeSet<User>,
    /// Reason why the kernel uses the device for any process.
    pub(super) kernel: Option<String>,
}

/// Returns the evidence about each device for which there is any.
pub(super) fn of(root: &Path, platform: &Platform, processes: &[Process]) -> BTreeMap<Bdf, Evidence> {
    let handles = Handles::of(root, platform);
    let mut found: BTreeMap<Bdf, Evidence> = BTreeMap::new();
    for process in processes {
        for path in &process.opened {
            for bdf in handles.devices(path) {
                found.entry(bdf).or_default().users.insert(user(process, path.clone()));
            }
        }
    }
    network(root, platform, processes, &mut found);
    mounts(root, platform, processes, &mut found);
    found
}

fn user(process: &Process, through: Untrusted) -> User {
    User { pid: process.pid, born_ns: 0, name: process.name.clone(), cgroup: process.cgroup.clone(), through }
}

/// Files that stand for devices: a process with one open drives the device without the kernel.
struct Handles {
    /// Devices by path.
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
                // Through an NVMe controller's node its administrator sends commands, not data.
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

/// Adds network interfaces: those of this network namespace are shared by all its processes. An interface of
/// another namespace belongs to the processes in it.
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

/// Adds mounts: a disk that only one other mount namespace has mounted belongs to the processes of that
/// namespace.
fn mounts(root: &Path, platform: &Platform, processes: &[Process], found: &mut BTreeMap<Bdf, Evidence>) {
    let carriers = Carriers::of(platform);
    for swap in process::swaps(root) {
        for bdf in carriers.of_path(&swap) {
            found.entry(bdf).or_default().kernel = Some(format!("the kernel swaps to {}", swap.terminal()));
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
        let mounts = members.iter().find_map(|member| mount::of_process(root, &member.pid.to_string()).ok());
        for mount in mounts.unwrap_or_default() {
            let of_number = mount.number.and_then(|number| carriers.numbers.get(&number).cloned());
            for bdf in of_number.unwrap_or_else(|| carriers.of_path(&mount.source)) {
                let evidence = found.entry(bdf).or_default();
                if host.as_ref().is_none_or(|host| host == space) {
                    evidence.kernel =
                        Some(format!("it is mounted at {} on the host", mount.point.terminal()));
                } else {
                    evidence.users.extend(members.iter().map(|member| user(member, mount.point.clone())));
                }
            }
        }
    }
}

/// Devices below disks and partitions.
struct Carriers {
    numbers: BTreeMap<(u32, u32), Vec<Bdf>>,
    /// Devices by path below `/dev`.
    paths: BTreeMap<Vec<u8>, Vec<Bdf>>,
}

impl Carriers {
    fn of(platform: &Platform) -> Self {
        let mut carriers = Self { numbers: BTreeMap::new(), paths: BTreeMap::new() };
        for disk in &platform.disks {
            let own = std::iter::once((&disk.name, disk.number));
            for (name, number) in own.chain(disk.partitions.iter().map(|(name, number)| (name, *number))) {
                let devices = platform.carriers_of(name.as_bytes());
                carriers.numbers.insert(number, devices.clone());
                carriers.paths.insert(name.as_bytes().to_vec(), devices);
            }
            if let Some(mapped) = &disk.mapped {
                let path = [b"mapper/", mapped.as_bytes()].concat();
                carriers.paths.insert(path, platform.carriers_of(disk.name.as_bytes()));
            }
        }
        carriers
    }

    fn of_path(&self, path: &Untrusted) -> Vec<Bdf> {
        let below = path.as_bytes().strip_prefix(b"/dev/");
        below.and_then(|name| self.paths.get(name)).cloned().unwrap_or_default()
    }
}
