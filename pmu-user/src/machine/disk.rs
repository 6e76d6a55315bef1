//! Block devices: their names, those that take I/O without requests, and the kernel's counters.

use std::{collections::BTreeMap, fs, path::Path};

use serde::{Deserialize, Serialize};

use crate::untrusted::Untrusted;

/// Bytes of a sector in `/proc/diskstats`, whatever the device's own sector size.
const SECTOR_BYTES: u64 = 512;
/// Fields of a line of `/proc/diskstats` before the first count: numbers and name.
const BEFORE_COUNTS: usize = 3;

/// Requests and bytes that a block device has completed since it came up, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// Read requests: number and bytes.
    pub read: (u64, u64),
    /// Other requests except flushes: writes, discards, and what the device writes by itself. Number and
    /// bytes.
    pub write: (u64, u64),
}

/// Returns the kernel's counts of completed requests, by major and minor number, of devices that make
/// requests. The map is empty where the kernel does not report them. The kernel counts a request after the
/// tracepoint of its completion, and counts nothing for devices with `queue/iostats` 0. `/proc/diskstats`,
/// Documentation/admin-guide/iostats.rst.
pub fn completed(root: &Path) -> BTreeMap<(u32, u32), Completed> {
    let text = fs::read_to_string(root.join("proc/diskstats")).unwrap_or_default();
    let makes_requests =
        |(major, minor): (u32, u32)| root.join(format!("sys/dev/block/{major}:{minor}/mq")).exists();
    text.lines().filter_map(completed_of).filter(|(number, _)| makes_requests(*number)).collect()
}

/// Returns the bytes read from all block devices below `root` since they came up. Partitions and stacked
/// devices count each time, so this is an upper bound of the bytes that any process read.
pub fn bytes_read_at_most(root: &Path) -> u64 {
    let text = fs::read_to_string(root.join("proc/diskstats")).unwrap_or_default();
    let bytes = text.lines().filter_map(completed_of).map(|(_, completed)| completed.read.1);
    bytes.fold(0, u64::saturating_add)
}

fn completed_of(line: &str) -> Option<((u32, u32), Completed)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let number = (fields.first()?.parse().ok()?, fields.get(1)?.parse().ok()?);
    // Discards were added in Linux 4.18.
    let count = |index: usize| fields.get(BEFORE_COUNTS + index).and_then(|count| count.parse().ok());
    let (reads, sectors_read): (u64, u64) = (count(0)?, count(2)?);
    let (writes, sectors_written): (u64, u64) = (count(4)?, count(6)?);
    let (discards, sectors_discarded) = (count(11).unwrap_or(0), count(13).unwrap_or(0));
    let bytes = |sectors: u64| sectors.wrapping_mul(SECTOR_BYTES);
    let completed = Completed {
        read: (reads, bytes(sectors_read)),
        write: (writes.wrapping_add(discards), bytes(sectors_written.wrapping_add(sectors_discarded))),
    };
    Some((number, completed))
}

/// Utilization of a block device since it came up, modulo 2³²: the kernel reports no more bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InUse {
    /// Time in ms during which at least one request was in flight, in whole ticks: `io_ticks`.
    pub busy_ms: u32,
    /// Time in ms of all its requests together, until they completed: `time_in_queue`.
    pub queue_ms: u32,
}

impl InUse {
    /// Returns the difference since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            busy_ms: self.busy_ms.wrapping_sub(earlier.busy_ms),
            queue_ms: self.queue_ms.wrapping_sub(earlier.queue_ms),
        }
    }
}

/// Returns the utilization of the devices of `/proc/diskstats`, with their numbers and names, including
/// partitions.
pub fn in_use(text: &[u8]) -> Vec<((u32, u32), Untrusted, InUse)> {
    let device = |line: &[u8]| {
        let fields: Vec<&[u8]> =
            line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).collect();
        let number = |index: usize| std::str::from_utf8(fields.get(index)?).ok()?.parse::<u32>().ok();
        let in_use = InUse { busy_ms: number(BEFORE_COUNTS + 9)?, queue_ms: number(BEFORE_COUNTS + 10)? };
        Some(((number(0)?, number(1)?), Untrusted::new(fields[2]), in_use))
    };
    text.split(|&byte| byte == b'\n').filter_map(device).collect()
}

/// Returns whether the block device with this number is a partition of another.
pub fn is_partition(root: &Path, major: u32, minor: u32) -> bool {
    root.join(format!("sys/dev/block/{major}:{minor}/partition")).exists()
}

/// Returns the name of the block device with this number below `root`: `nvme0n1`, `dm-0`. Returns `None` if
/// it is gone.
pub fn name_of(root: &Path, major: u32, minor: u32) -> Option<Untrusted> {
    let link = fs::read_link(root.join(format!("sys/dev/block/{major}:{minor}"))).ok()?;
    link.file_name().map(Untrusted::from)
}

/// Returns the names of devices below `root` that make no requests of their I/O (dm, md, zram) and are not
/// empty, in order.
pub fn without_requests(root: &Path) -> Vec<Untrusted> {
    let disks = fs::read_dir(root.join("sys/block")).into_iter().flatten().flatten();
    let makes_none = |disk: &Path| {
        let size = fs::read_to_string(disk.join("size")).unwrap_or_default();
        !disk.join("mq").exists() && size.trim() != "0"
    };
    let found = disks.into_iter().filter(|disk| makes_none(&disk.path()));
    let mut names: Vec<Untrusted> = found.map(|disk| Untrusted::from(disk.file_name().as_os_str())).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::{Completed, InUse, completed, in_use, name_of, without_requests};
    use crate::{machine::testing::Tree, untrusted::Untrusted};

    #[test]
    fn a_device_is_called_what_its_link_ends_in() {
        let tree = Tree::new(&[("sys/devices/virtual/block/dm-0/dev", "253:0\n")]);
        let links = tree.root.join("sys/dev/block");
        std::fs::create_dir_all(&links).unwrap();
        symlink("../../devices/virtual/block/dm-0", links.join("253:0")).unwrap();
        assert_eq!(name_of(&tree.root, 253, 0), Some(Untrusted::from("dm-0")));
        assert_eq!(name_of(&tree.root, 253, 1), None);
    }

    #[test]
    fn the_kernel_s_counts_are_of_whole_devices_that_make_requests() {
        let tree = Tree::new(&[
            (
                "proc/diskstats",
                "   7       0 loop0 3 1 24 9 2 0 16 8 0 20 17 5 0 40 1 4 2\n 253 0 dm-0 9 0 9 9 9 0 9 9 0 9 9\n \
                 259 1 nvme0n1p1 1 0 8 0 0 0 0 0 0 0 0\nnot a line\n 8 0 sda 1 0 8 0 4 0 32 0 0 0 0\n",
            ),
            ("sys/dev/block/7:0/mq/0/cpu_list", "0\n"),
            ("sys/dev/block/8:0/mq/0/cpu_list", "0\n"),
            ("sys/dev/block/253:0/size", "8\n"),
        ]);
        let loop0 = Completed { read: (3, 24 * 512), write: (7, 56 * 512) };
        let sda = Completed { read: (1, 8 * 512), write: (4, 32 * 512) };
        assert_eq!(completed(&tree.root), [((7, 0), loop0), ((8, 0), sda)].into());
        assert!(completed(&tree.root.join("nowhere")).is_empty());
    }

    #[test]
    fn how_a_disk_is_used_stands_behind_its_counts() {
        let text = b" 8 0 sda 1 0 8 1 4 0 32 9 0 4294967290 70 0 0 0 0\n 8 1 broken 1\n";
        let found = in_use(text);
        let sda = InUse { busy_ms: 4_294_967_290, queue_ms: 70 };
        assert_eq!(found, [((8, 0), Untrusted::from("sda"), sda)]);
        assert_eq!(InUse { busy_ms: 4, queue_ms: 80 }.since(sda), InUse { busy_ms: 10, queue_ms: 10 });
    }

    #[test]
    fn devices_with_queues_of_requests_and_empty_ones_are_not_those_without() {
        let tree = Tree::new(&[
            ("sys/block/zram1/size", "0\n"),
            ("sys/block/zram0/size", "2048\n"),
            ("sys/block/dm-0/size", "8\n"),
            ("sys/block/vda/size", "8\n"),
            ("sys/block/vda/mq/0/cpu_list", "0\n"),
        ]);
        assert_eq!(without_requests(&tree.root), ["dm-0", "zram0"].map(Untrusted::from));
    }
}
