//! Files of resctrl for tests, as the kernel shows them.

use crate::machine::testing::Tree;

/// Mount point of resctrl.
pub(crate) const POINT: &str = "sys/fs/resctrl";

/// Mounts in the kernel's list.
pub(crate) const MOUNTS: &str = "\
    24 30 0:22 / /proc rw,nosuid - proc proc rw\n\
    41 31 0:38 / /sys/fs/resctrl rw,relatime shared:12 - resctrl resctrl rw\n";

/// Returns a host with one L3 cache, which counts all traffic and occupancy, and only the default group.
pub(crate) fn host() -> Tree {
    let tree = Tree::new(&[
        ("proc/self/mountinfo", MOUNTS),
        ("sys/fs/resctrl/info/L3_MON/num_rmids", "256\n"),
        (
            "sys/fs/resctrl/info/L3_MON/mon_features",
            "llc_occupancy\nmbm_total_bytes\nmbm_total_bytes_config\n",
        ),
    ]);
    group(&tree, "", [900, 90], &[]);
    tree
}

/// Makes a group, or writes it again: its counts, its occupancy, its threads.
pub(crate) fn group(tree: &Tree, path: &str, [total, occupancy]: [u64; 2], threads: &[u32]) {
    let at = format!("{POINT}/{path}");
    let threads: String = threads.iter().map(|thread| format!("{thread}\n")).collect();
    tree.write(&format!("{at}/tasks"), &threads);
    tree.write(&format!("{at}/cpus_list"), "\n");
    tree.write(&format!("{at}/mon_data/mon_L3_00/mbm_total_bytes"), &format!("{total}\n"));
    tree.write(&format!("{at}/mon_data/mon_L3_00/llc_occupancy"), &format!("{occupancy}\n"));
}
