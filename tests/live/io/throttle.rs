//! A slow disk: the kernel holds back what a cgroup reads, so latencies are long beside everything that is not the disk's.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::{major, minor};

use crate::support::{unique, wait_until};

/// Where cgroups throttle I/O, the file that says how much, and what comes before the number there: cgroup v1, then v2
/// (Documentation/admin-guide/cgroup-v1/blkio-controller.rst, cgroup-v2.rst).
const WAYS: [(&str, &str, &str); 2] =
    [("/sys/fs/cgroup/blkio", "blkio.throttle.read_iops_device", ""), ("/sys/fs/cgroup", "io.max", "riops=")];

/// A cgroup that reads slowly; removed with its owner.
pub(super) struct Throttle(PathBuf);

impl Throttle {
    /// So many reads a second from the disk that `file` lies on. None if it lies on no disk, or the kernel does not throttle.
    pub(super) fn new(file: &Path, reads: u32) -> Option<Self> {
        let disk = disk(file)?;
        WAYS.iter().find_map(|(hierarchy, setting, before)| {
            let throttle = Self(Path::new(hierarchy).join(unique("slow")));
            fs::create_dir(&throttle.0).ok()?;
            fs::write(throttle.0.join(setting), format!("{disk} {before}{reads}")).ok()?;
            Some(throttle)
        })
    }

    /// A command of a shell that runs `command` in the cgroup.
    pub(super) fn wrapped(&self, command: &str) -> String {
        format!("echo $$ > {}/cgroup.procs; exec {command}", self.0.display())
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // A process that has just ended may not have left yet.
        wait_until("the cgroup is empty", || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

/// Number of the disk that a file lies on, as cgroups want it: of the whole disk.
fn disk(file: &Path) -> Option<String> {
    let device = fs::metadata(file).ok()?.dev();
    let folder = fs::canonicalize(format!("/sys/dev/block/{}:{}", major(device), minor(device))).ok()?;
    let whole = if folder.join("partition").exists() { folder.parent()?.to_owned() } else { folder };
    Some(fs::read_to_string(whole.join("dev")).ok()?.trim().to_owned())
}
