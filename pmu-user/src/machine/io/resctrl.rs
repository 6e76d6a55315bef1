//! Memory traffic of CPUs by group, where resctrl is mounted. The processor tags the requests of its cores
//! with the group of the running thread, and counts by that tag at each L3 cache. Reads and writes of devices
//! carry no tag.
//!
//! resctrl is only read: nothing is mounted, and no group is made (Documentation/filesystems/resctrl.rst and
//! fs/resctrl, v6.18).

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::{
    ffi::OsString,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{Fact, names};
use crate::{
    machine::{bytes, cpu::Processor, mount, read, read_line},
    named::named,
    untrusted::{Untrusted, exact},
};

named! {
    /// Event that the processor counts for a group.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum MonitoringEvent {
        MbmTotalBytes = "mbm_total_bytes", "Bytes between the L3 cache and memory, of whichever node. They grow.";
        MbmLocalBytes = "mbm_local_bytes", "Bytes between the L3 cache and memory of its own node. They grow.";
        LlcOccupancy = "llc_occupancy", "Bytes of the L3 cache that hold what the group asked for, now.";
    }
}

/// Monitoring by resctrl.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Monitoring {
    /// Mount point of resctrl.
    #[serde(with = "exact")]
    pub point: Untrusted,
    /// Events, in the order of the counts in a [`Domain`].
    pub events: Vec<MonitoringEvent>,
    /// Groups that can be monitored at a time, if the kernel reports it.
    pub groups_max: Option<u32>,
}

/// A group of threads, and its counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitoringGroup {
    /// Inode of the group's folder: a group that is made again under the same name has another.
    pub id: u64,
    /// Path from the mount point. `/` is the default group, which contains everything that is in no other.
    #[serde(with = "exact")]
    pub path: Untrusted,
    /// Control group that contains a monitoring group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// Counts at each L3 cache. A control group's counts include those of its monitoring groups.
    pub domains: Vec<Domain>,
    /// Counts read again after the monitoring groups of the group. Empty if it has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<Domain>,
}

impl MonitoringGroup {
    /// Returns whether this is the default group, which contains everything that is in no other.
    pub fn is_default(&self) -> bool {
        self.path.as_bytes() == b"/"
    }
}

/// Counts at one L3 cache, or at one of the nodes that share it (sub-NUMA clusters).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// Name of the folder in the kernel: `mon_L3_00`, `mon_L3_00/mon_sub_L3_01`.
    #[serde(with = "exact")]
    pub name: Untrusted,
    /// Counts in bytes, in the order of [`Monitoring::events`].
    pub counts: Vec<Fact<u64>>,
}

/// Reason why nothing is monitored although the processor supports it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MonitoringError {
    /// resctrl is not mounted.
    #[error("resctrl is not mounted")]
    NotMounted,
    /// The kernel cannot mount resctrl.
    #[error("this kernel has no resctrl, although the processor counts by group")]
    NotBuilt,
    /// resctrl has allocation only.
    #[error("resctrl is mounted, but nothing is monitored at the L3 caches here")]
    NotMonitored,
    /// The kernel's list of events cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

impl MonitoringError {
    /// Returns the smallest remedy, if one is known.
    pub const fn fix(&self) -> Option<&'static str> {
        match self {
            Self::NotMounted => Some(
                "`mount -t resctrl resctrl /sys/fs/resctrl`, then a group for each set of threads \
                 (`mkdir /sys/fs/resctrl/mon_groups/NAME`, its threads into the group's `tasks`)",
            ),
            Self::NotBuilt => Some("a kernel with CONFIG_X86_CPU_RESCTRL"),
            Self::NotMonitored | Self::Unreadable(_) => None,
        }
    }

    /// Returns the reason, with its remedy.
    pub fn with_fix(&self) -> String {
        self.fix().map_or_else(|| self.to_string(), |fix| format!("{self}: {fix}"))
    }
}

impl Monitoring {
    /// Finds resctrl below `root`. Returns `None` if `processor` does not count by group and nothing is
    /// mounted.
    ///
    /// # Errors
    ///
    /// Monitoring is not available.
    pub fn find(root: &Path, processor: &Processor) -> Option<Result<Self, MonitoringError>> {
        let Some(point) = mounted(root) else {
            return processor.counts_by_group.then(|| Err(not_mounted(root)));
        };
        let info = path_below(root, &point).join("info/L3_MON");
        if !info.is_dir() {
            return Some(Err(MonitoringError::NotMonitored));
        }
        let features = match read(&info, "mon_features") {
            Ok(features) => features,
            Err(error) => return Some(Err(MonitoringError::Unreadable(error.to_string()))),
        };
        let is_there = |event: &MonitoringEvent| features.lines().any(|line| line == event.name());
        let groups_max = read_line(&info, "num_rmids").ok().and_then(|line| line.parse().ok());
        Some(Ok(Self {
            point,
            events: MonitoringEvent::ALL.into_iter().filter(is_there).collect(),
            groups_max,
        }))
    }

    /// Returns every group with its counts, the default group first. A group that vanishes during the read is
    /// left out.
    pub fn groups(&self, root: &Path) -> Vec<MonitoringGroup> {
        let domains = self.domains(root);
        let mut paths = vec![PathBuf::from("/")];
        paths.extend(self.inside(root, Path::new("/")));
        let mut groups = Vec::new();
        for path in paths {
            let inside: Vec<PathBuf> = self.inside(root, &path.join("mon_groups")).collect();
            let Some(mut group) = self.group(root, &path, None, &domains) else { continue };
            let of = Some(group.id);
            let read: Vec<MonitoringGroup> =
                inside.iter().filter_map(|path| self.group(root, path, of, &domains)).collect();
            // Counts of the monitoring groups, read in between, lie between the two readings. A group that
            // vanished is in the first reading only.
            if !inside.is_empty() {
                group.again = self.counts(root, &path, &domains);
            }
            groups.push(group);
            groups.extend(read);
        }
        groups
    }

    /// Returns the threads of a group, as numbered in `/proc`. Those of a control group include those of its
    /// monitoring groups. Returns `None` if the group is gone.
    pub fn threads(&self, root: &Path, group: &MonitoringGroup) -> Option<Vec<u32>> {
        let list = text(&self.folder(root, &group.path.to_path()).join("tasks")).ok()?;
        Some(list.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Returns the CPUs on which threads of the default group count for this group, as the kernel lists them.
    /// Empty if there are none.
    pub fn cpus(&self, root: &Path, group: &MonitoringGroup) -> String {
        read_line(&self.folder(root, &group.path.to_path()), "cpus_list").unwrap_or_default()
    }

    fn folder(&self, root: &Path, path: &Path) -> PathBuf {
        path_below(root, &self.point).join(below(path))
    }

    /// Returns the groups in the folder at this path.
    fn inside(&self, root: &Path, path: &Path) -> impl Iterator<Item = PathBuf> {
        let (folder, path) = (self.folder(root, path), path.to_owned());
        let is_group = move |name: &OsString| folder.join(name).join("tasks").is_file();
        names(&self.folder(root, &path)).into_iter().filter(is_group).map(move |name| path.join(name))
    }

    /// Returns the paths of the counts from a group's folder, which are the same in every group.
    fn domains(&self, root: &Path) -> Vec<PathBuf> {
        let data = path_below(root, &self.point).join("mon_data");
        let mut domains = Vec::new();
        for cache in names(&data).into_iter().filter(|name| name.as_bytes().starts_with(b"mon_L3_")) {
            let nodes = names(&data.join(&cache)).into_iter();
            let nodes: Vec<PathBuf> = nodes
                .filter(|name| name.as_bytes().starts_with(b"mon_sub_L3_"))
                .map(|name| Path::new(&cache).join(name))
                .collect();
            // The sum of a cache silently leaves out a node that cannot be read.
            if nodes.is_empty() {
                domains.push(PathBuf::from(cache));
            } else {
                domains.extend(nodes);
            }
        }
        domains
    }

    fn group(
        &self,
        root: &Path,
        path: &Path,
        of: Option<u64>,
        domains: &[PathBuf],
    ) -> Option<MonitoringGroup> {
        let folder = self.folder(root, path);
        let id = fs::metadata(&folder).ok()?.ino();
        let domains = self.counts(root, path, domains);
        let same = fs::metadata(&folder).ok()?.ino() == id;
        same.then(|| MonitoringGroup { id, path: Untrusted::from(path), of, domains, again: Vec::new() })
    }

    fn counts(&self, root: &Path, path: &Path, domains: &[PathBuf]) -> Vec<Domain> {
        let data = self.folder(root, path).join("mon_data");
        let domain = |domain: &PathBuf| Domain {
            name: Untrusted::from(domain.as_path()),
            counts: self.events.iter().map(|event| count(&data.join(domain).join(event.name()))).collect(),
        };
        domains.iter().map(domain).collect()
    }
}

/// Returns the mount point of the first resctrl mount.
fn mounted(root: &Path) -> Option<Untrusted> {
    let mounts = mount::of_process(root, "self").ok()?;
    mounts.into_iter().find(|mount| mount.kind == b"resctrl").map(|mount| mount.point)
}

fn not_mounted(root: &Path) -> MonitoringError {
    let known = read(root, "proc/filesystems").unwrap_or_default();
    if known.lines().any(|line| line.ends_with("\tresctrl")) {
        MonitoringError::NotMounted
    } else {
        MonitoringError::NotBuilt
    }
}

/// Reads a number, or the word in its place (fs/resctrl/ctrlmondata.c, `rdtgroup_mondata_show`).
fn count(path: &Path) -> Fact<u64> {
    let why = match text(path) {
        Ok(text) => match text.trim() {
            "Unavailable" => "the hardware has no count now (Unavailable)",
            "Unassigned" => "the group has no counter of the hardware (Unassigned; see mbm_L3_assignments)",
            "Error" => "the hardware reported an error (Error)",
            number => match number.parse() {
                Ok(bytes) => return Fact::Known(bytes),
                Err(_) => "the kernel returned no number",
            },
        },
        Err(error) => return Fact::Missing(format!("its count cannot be read: {}", error.kind())),
    };
    Fact::Missing(why.to_owned())
}

fn text(path: &Path) -> io::Result<String> {
    String::from_utf8(bytes(path)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn path_below(root: &Path, path: &Untrusted) -> PathBuf {
    root.join(below(&path.to_path()))
}

fn below(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}
