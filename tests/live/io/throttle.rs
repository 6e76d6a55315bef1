//! Slow disk: the kernel throttles a cgroup's reads, so latencies are long compared with everything that is
//! not the disk's.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::{major, minor};

use crate::support::{unique, wait_until};

/// Folder, file and prefix of the number for I/O throttling in cgroup v1, then v2
/// (Documentation/admin-guide/cgroup-v1/blkio-controller.rst, cgroup-v2.rst).
const WAYS: [(&str, &str, &str); 2] =
    [("/sys/fs/cgroup/blkio", "blkio.throttle.read_iops_device", ""), ("/sys/fs/cgroup", "io.max", "riops=")];

/// Cgroup with throttled reads, removed on drop.
pub(super) struct Throttle(PathBuf);

impl Throttle {
    /// Limits reads per second from the disk of `file`. Returns `None` if it is not on a disk, or the kernel
    /// does not throttle.
    pub(super) fn new(file: &Path, reads: u32) -> Option<Self> {
        let disk = disk(file)?;
        WAYS.iter().find_map(|(hierarchy, setting, before)| {
            let throttle = Self(Path::new(hierarchy).join(unique("slow")));
            fs::create_dir(&throttle.0).ok()?;
            fs::write(throttle.0.join(setting), format!("{disk} {before}{reads}")).ok()?;
            Some(throttle)
        })
    }

    /// Returns a shell command that runs `command` in the cgroup.
    pub(super) fn wrapped(&self, command: &str) -> String {
        format!("echo $$ > {}/cgroup.procs; exec {command}", self.0.display())
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // A process that has just ended may still be in it.
        wait_until("the cgroup is empty", || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

/// Returns the number of the whole disk that contains a file, in the format of cgroup files.
fn disk(file: &Path) -> Option<String> {
    let device = fs::metadata(file).ok()?.dev();
    let folder = fs::canonicalize(format!("/sys/dev/block/{}:{}", major(device), minor(device))).ok()?;
    let whole = if folder.join("partition").exists() { folder.parent()?.to_owned() } else { folder };
    Some(fs::read_to_string(whole.join("dev")).ok()?.trim().to_owned())
}
