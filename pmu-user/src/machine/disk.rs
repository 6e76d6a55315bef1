//! What block devices are called, and which take I/O as it comes.

use std::{fs, path::Path};

use crate::untrusted::Untrusted;

/// Name of the block device with this number below `root`: `nvme0n1`, `dm-0`. None if it is gone.
#[must_use]
pub fn name_of(root: &Path, major: u32, minor: u32) -> Option<Untrusted> {
    let link = fs::read_link(root.join(format!("sys/dev/block/{major}:{minor}"))).ok()?;
    link.file_name().map(Untrusted::from)
}

/// Names of devices below `root` that make no requests of what they are given (dm, md, zram) and are larger than nothing, in
/// order.
#[must_use]
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

    use super::{name_of, without_requests};
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
