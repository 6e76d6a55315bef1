//! What block devices are called.

use std::{fs, path::Path};

use crate::untrusted::Untrusted;

/// Name of the block device with this number below `root`: `nvme0n1`, `dm-0`. None if it is gone.
#[must_use]
pub fn name_of(root: &Path, major: u32, minor: u32) -> Option<Untrusted> {
    let link = fs::read_link(root.join(format!("sys/dev/block/{major}:{minor}"))).ok()?;
    link.file_name().map(Untrusted::from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::name_of;
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
}
