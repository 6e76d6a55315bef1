//! I/O limits of cgroups: `io.max` of the v2 hierarchy (Documentation/admin-guide/cgroup-v2.rst, IO), and
//! `blkio.throttle.*` where a v1 hierarchy has the controller
//! (Documentation/admin-guide/cgroup-v1/blkio-controller.rst).

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    cgroup::{Cgroup, Layout},
    throttling::v1_path,
};
use crate::{
    named::named,
    untrusted::{Untrusted, exact},
};

/// Name of the v1 controller.
const BLKIO: &str = "blkio";
/// Cgroups that are checked for a limit, at most.
const MOST: usize = 4096;

named! {
    /// Limited quantity, by its key in `io.max`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum IoLimitKind {
        ReadBytes = "rbps", "Bytes read a second.";
        WriteBytes = "wbps", "Bytes written a second.";
        ReadRequests = "riops", "Reads a second.";
        WriteRequests = "wiops", "Writes a second.";
    }
}

impl IoLimitKind {
    /// Returns the operation, as v1 files name it.
    const fn v1_operation(self) -> &'static str {
        match self {
            Self::ReadBytes | Self::ReadRequests => "Read",
            Self::WriteBytes | Self::WriteRequests => "Write",
        }
    }

    /// Returns the file of the limit in a v1 hierarchy.
    const fn v1_file(self) -> &'static str {
        match self {
            Self::ReadBytes => "blkio.throttle.read_bps_device",
            Self::WriteBytes => "blkio.throttle.write_bps_device",
            Self::ReadRequests => "blkio.throttle.read_iops_device",
            Self::WriteRequests => "blkio.throttle.write_iops_device",
        }
    }
}

/// An I/O limit of a cgroup at one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoLimit {
    /// Major and minor number.
    pub device: (u32, u32),
    /// Name of the device.
    #[serde(with = "exact")]
    pub name: Untrusted,
    /// Quantity that is limited.
    pub kind: IoLimitKind,
    /// Limit per second.
    pub most: u64,
    /// The limit is of a v1 hierarchy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub v1: bool,
    /// I/O submitted so far, as a v1 hierarchy counts it where it throttles. It counts since the cgroup was
    /// made, and in an interval since the first reading. `None` where the kernel does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted: Option<Submitted>,
}

/// I/O of one operation at one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// Number of bytes.
    pub bytes: u64,
    /// Number of bios, before the block layer merges them into requests.
    pub bios: u64,
}

impl Submitted {
    /// Returns the difference since `before`.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(before.bytes), bios: self.bios.saturating_sub(before.bios) }
    }
}

impl IoLimit {
    /// Returns the limit as its file contains it: `io.max wbps=1048576`.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self.v1 {
            true => format!("{} {}", self.kind.v1_file(), self.most),
            false => format!("io.max {}={}", self.kind.name(), self.most),
        }
    }
}

impl Layout {
    /// Returns the I/O limits of a cgroup, and of the v1 cgroup of the same path, by device. `root` is the
    /// folder that contains /sys.
    pub fn io_limits(&self, cgroup: &Cgroup, root: &Path) -> Vec<IoLimit> {
        let v2 = self.folder(&cgroup.path).and_then(|folder| fs::read_to_string(folder.join("io.max")).ok());
        let mut limits: Vec<IoLimit> = v2.iter().flat_map(|text| text.lines()).flat_map(of_v2).collect();
        if let Some(folder) = self.folder_of(Some(BLKIO), &cgroup.path) {
            limits.extend(of_v1(&folder));
        }
        limits.iter_mut().for_each(|limit| limit.name = called(root, limit.device));
        limits
    }

    /// Returns the path of a process's cgroup in the v1 hierarchy that limits I/O.
    pub fn io_path_of(&self, root: &Path, process: &str) -> Option<Untrusted> {
        self.v1_mount(BLKIO)?;
        v1_path(&fs::read(root.join(format!("proc/{process}/cgroup"))).ok()?, BLKIO)
    }

    /// Returns whether any cgroup has an I/O limit.
    pub fn has_io_limits(&self) -> bool {
        let all = |mount: &Path| {
            let layout = Self { v2: Some(mount.to_owned()), ..Self::default() };
            let cgroups = layout.list(&Untrusted::from("/")).unwrap_or_default();
            cgroups.into_iter().take(MOST).filter_map(move |cgroup| layout.folder(&cgroup.path))
        };
        let has_v2 = |folder: PathBuf| {
            fs::read_to_string(folder.join("io.max"))
                .is_ok_and(|text| text.lines().any(|line| !of_v2(line).is_empty()))
        };
        self.v2.as_deref().is_some_and(|mount| all(mount).any(has_v2))
            || self.v1_mount(BLKIO).is_some_and(|mount| all(mount).any(|folder| !of_v1(&folder).is_empty()))
    }
}

/// Parses a line of `io.max`: `8:16 rbps=2097152 wbps=max riops=max wiops=120`.
fn of_v2(line: &str) -> Vec<IoLimit> {
    let mut words = line.split_whitespace();
    let Some(device) = words.next().and_then(device) else { return Vec::new() };
    let limit = |word: &str| {
        let (key, most) = word.split_once('=')?;
        let kind = IoLimitKind::ALL.into_iter().find(|kind| kind.name() == key)?;
        Some(IoLimit {
            device,
            name: Untrusted::default(),
            kind,
            most: most.parse().ok()?,
            v1: false,
            submitted: None,
        })
    };
    words.filter_map(limit).collect()
}

/// Reads the limits in the files of a v1 cgroup: a line `8:16 1048576` per device.
fn of_v1(folder: &Path) -> Vec<IoLimit> {
    let of = |kind: IoLimitKind| {
        let text = fs::read_to_string(folder.join(kind.v1_file())).unwrap_or_default();
        let limit = |line: &str| {
            let (of, most) = line.split_once(' ')?;
            let (device, most) = (device(of)?, most.trim().parse().ok()?);
            Some(IoLimit { device, name: Untrusted::default(), kind, most, v1: true, submitted: None })
        };
        text.lines().filter_map(limit).collect::<Vec<_>>()
    };
    let mut limits: Vec<IoLimit> = IoLimitKind::ALL.into_iter().flat_map(of).collect();
    if !limits.is_empty() {
        let text = |file| fs::read_to_string(folder.join(file)).unwrap_or_default();
        let (bytes, bios) =
            (text("blkio.throttle.io_service_bytes_recursive"), text("blkio.throttle.io_serviced_recursive"));
        for limit in &mut limits {
            let of = |text| counted(text, limit.device, limit.kind.v1_operation());
            limit.submitted = of(&bytes).zip(of(&bios)).map(|(bytes, bios)| Submitted { bytes, bios });
        }
    }
    limits
}

/// Returns a count of a v1 file with a line `8:16 Write 1048576` for each device and operation. Returns 0 for
/// a device without a line yet.
fn counted(text: &str, of: (u32, u32), operation: &str) -> Option<u64> {
    // The total of all devices comes last, so a file without any line could not be read.
    text.lines().next()?;
    let count = |line: &str| {
        let mut words = line.split_whitespace();
        let is = words.next().and_then(device) == Some(of) && words.next() == Some(operation);
        is.then(|| words.next()?.parse().ok()).flatten()
    };
    Some(text.lines().find_map(count).unwrap_or(0))
}

fn device(numbers: &str) -> Option<(u32, u32)> {
    let (major, minor) = numbers.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns the name of a device: the last component of the target of its link in sysfs.
fn called(root: &Path, (major, minor): (u32, u32)) -> Untrusted {
    let link = fs::read_link(root.join(format!("sys/dev/block/{major}:{minor}")));
    let name = link.ok().and_then(|path| Some(Untrusted::from(Path::new(path.file_name()?))));
    name.unwrap_or_else(|| Untrusted::from(format!("{major}:{minor}")))
}

#[cfg(test)]
mod tests {
    use super::{IoLimit, IoLimitKind, Submitted};
    use crate::{
        machine::{
            cgroup::{Cgroup, CgroupId, Layout},
            testing::Tree,
        },
        untrusted::Untrusted,
    };

    fn words(limits: &[IoLimit]) -> Vec<String> {
        limits.iter().map(|limit| format!("{} {}", limit.name.terminal(), limit.in_words())).collect()
    }

    #[test]
    fn limits_of_either_hierarchy_are_as_their_files_have_them() {
        let tree = Tree::new(&[
            ("v2/web/io.max", "8:16 rbps=2097152 wbps=max riops=max wiops=120\nnonsense\n"),
            ("v2/free/io.max", "8:16 rbps=max wbps=max riops=max wiops=max\n"),
            ("v1/web/blkio.throttle.write_bps_device", "8:0 1048576\n"),
            (
                "v1/web/blkio.throttle.io_service_bytes_recursive",
                "8:16 Write 1\n8:0 Read 2\n8:0 Write 4096\nTotal 4099\n",
            ),
            ("v1/web/blkio.throttle.io_serviced_recursive", "Total 0\n"),
        ]);
        let v2 = Some(tree.root.join("v2"));
        let only_v2 = Layout { v2: v2.clone(), ..Layout::default() };
        let both = Layout { v2, controllers: vec![("blkio", tree.root.join("v1"))], ..Layout::default() };
        let of = |layout: &Layout, path: &str| {
            layout.io_limits(&Cgroup { path: Untrusted::from(path), id: CgroupId(7) }, &tree.root)
        };
        assert_eq!(words(&of(&only_v2, "/web")), ["8:16 io.max rbps=2097152", "8:16 io.max wiops=120"]);
        let submitted = of(&both, "/web").pop().unwrap().submitted;
        assert_eq!(submitted, Some(Submitted { bytes: 4096, bios: 0 }));
        assert_eq!(words(&of(&both, "/web")).last().unwrap(), "8:0 blkio.throttle.write_bps_device 1048576");
        assert_eq!((of(&both, "/free"), of(&both, "/../v1/web")), (Vec::new(), Vec::new()));
        assert_eq!(of(&only_v2, "/web")[1].kind, IoLimitKind::WriteRequests);
        assert!(only_v2.has_io_limits() && both.has_io_limits() && !Layout::default().has_io_limits());
    }
}
