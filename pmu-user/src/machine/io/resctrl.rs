//! Memory traffic of CPUs by group, where resctrl is mounted: the processor tags what its cores ask for with the group of the
//! thread that runs, and counts by that tag at each L3 cache. What devices read and write carries no tag.
//!
//! It is only read; nothing is mounted, and no group is made (Documentation/filesystems/resctrl.rst and fs/resctrl, v6.18).

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
    /// What the processor counts for a group.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum MonitoringEvent {
        MbmTotalBytes = "mbm_total_bytes", "Bytes between the L3 cache and memory, of whichever node. They grow.";
        MbmLocalBytes = "mbm_local_bytes", "Bytes between the L3 cache and memory of its own node. They grow.";
        LlcOccupancy = "llc_occupancy", "Bytes of the L3 cache that hold what the group asked for, now.";
    }
}

/// resctrl's monitoring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Monitoring {
    /// Where it is mounted.
    #[serde(with = "exact")]
    pub point: Untrusted,
    /// What is counted, in the order in which counts stand in a [`Domain`].
    pub events: Vec<MonitoringEvent>,
    /// Groups that can be told apart at a time, if the kernel says.
    pub groups_max: Option<u32>,
}

/// A group of threads, and what was counted for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitoringGroup {
    /// Inode of its folder: a group that is made anew under the same name has another.
    pub id: u64,
    /// Path from the mount point: `/` is the default group, which everything is in that is in no other.
    #[serde(with = "exact")]
    pub path: Untrusted,
    /// The control group that a monitoring group is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// What was counted at each L3 cache. A control group's counts hold those of its monitoring groups.
    pub domains: Vec<Domain>,
    /// The same, once more, after its monitoring groups were read; empty if it has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<Domain>,
}

impl MonitoringGroup {
    /// Is it the one that holds whatever is in no other?
    pub fn is_default(&self) -> bool {
        self.path.as_bytes() == b"/"
    }
}

/// What was counted at one L3 cache, or at one of the nodes that share it (sub-NUMA clusters).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// The kernel's name of its folder: `mon_L3_00`, `mon_L3_00/mon_sub_L3_01`.
    #[serde(with = "exact")]
    pub name: Untrusted,
    /// Bytes, in the order of [`Monitoring::events`].
    pub counts: Vec<Fact<u64>>,
}

/// Why nothing is monitored although the processor could.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MonitoringError {
    /// Nobody has mounted it.
    #[error("resctrl is not mounted")]
    NotMounted,
    /// The kernel cannot mount it.
    #[error("this kernel has no resctrl, although the processor counts by group")]
    NotBuilt,
    /// Only allocation is there.
    #[error("resctrl is mounted, but nothing is monitored at the L3 caches here")]
    NotMonitored,
    /// The kernel's list of what is counted.
    #[error("{0}")]
    Unreadable(String),
}

impl MonitoringError {
    /// The least that would help, if it is known.
    pub const fn fix(&self) -> Option<&'static str> {
        match self {
            Self::NotMounted => Some(
                "`mount -t resctrl resctrl /sys/fs/resctrl`, then a group for what is to be told apart \
                 (`mkdir /sys/fs/resctrl/mon_groups/NAME`, its threads into the group's `tasks`)",
            ),
            Self::NotBuilt => Some("a kernel with CONFIG_X86_CPU_RESCTRL"),
            Self::NotMonitored | Self::Unreadable(_) => None,
        }
    }

    /// The reason, and what would help.
    pub fn with_fix(&self) -> String {
        self.fix().map_or_else(|| self.to_string(), |fix| format!("{self}: {fix}"))
    }
}

impl Monitoring {
    /// Where and what it is below `root`; none if `processor` does not count this and nothing is mounted.
    ///
    /// # Errors
    ///
    /// It cannot be had.
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

    /// Every group with its counts, the default group first. One that vanishes meanwhile is left out.
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
            // What its monitoring groups count meanwhile lies between the two readings. One that vanished is in the first only.
            if !inside.is_empty() {
                group.again = self.counts(root, &path, &domains);
            }
            groups.push(group);
            groups.extend(read);
        }
        groups
    }

    /// Threads of a group, as `/proc` numbers them; those of a control group hold those of its monitoring groups. None if
    /// it is gone.
    pub fn threads(&self, root: &Path, group: &MonitoringGroup) -> Option<Vec<u32>> {
        let list = text(&self.folder(root, &group.path.to_path()).join("tasks")).ok()?;
        Some(list.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// CPUs on which threads of the default group count for this one, as the kernel lists them; empty if there are none.
    pub fn cpus(&self, root: &Path, group: &MonitoringGroup) -> String {
        read_line(&self.folder(root, &group.path.to_path()), "cpus_list").unwrap_or_default()
    }

    fn folder(&self, root: &Path, path: &Path) -> PathBuf {
        path_below(root, &self.point).join(below(path))
    }

    /// Groups in the folder at this path.
    fn inside(&self, root: &Path, path: &Path) -> impl Iterator<Item = PathBuf> {
        let (folder, path) = (self.folder(root, path), path.to_owned());
        let is_group = move |name: &OsString| folder.join(name).join("tasks").is_file();
        names(&self.folder(root, &path)).into_iter().filter(is_group).map(move |name| path.join(name))
    }

    /// Where counts are, from a group's folder: the same in every group.
    fn domains(&self, root: &Path) -> Vec<PathBuf> {
        let data = path_below(root, &self.point).join("mon_data");
        let mut domains = Vec::new();
        for cache in names(&data).into_iter().filter(|name| name.as_bytes().starts_with(b"mon_L3_")) {
            let nodes = names(&data.join(&cache)).into_iter();
            let nodes: Vec<PathBuf> = nodes
                .filter(|name| name.as_bytes().starts_with(b"mon_sub_L3_"))
                .map(|name| Path::new(&cache).join(name))
                .collect();
            // The sum of a cache's nodes leaves out one that cannot be read, without a word.
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

/// Where the first resctrl is mounted.
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

/// One number, or the word that stands for it (fs/resctrl/ctrlmondata.c, `rdtgroup_mondata_show`).
fn count(path: &Path) -> Fact<u64> {
    let why = match text(path) {
        Ok(text) => match text.trim() {
            "Unavailable" => "the hardware has no count now (Unavailable)",
            "Unassigned" => "the group has no counter of the hardware (Unassigned; see mbm_L3_assignments)",
            "Error" => "the hardware refused to tell (Error)",
            number => match number.parse() {
                Ok(bytes) => return Fact::Known(bytes),
                Err(_) => "the kernel says no number",
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
