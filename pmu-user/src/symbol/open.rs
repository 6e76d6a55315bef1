//! Opening of other users' files: regular files only, without blocking, without following links out, in the
//! view of the other process and never in the collector's. A file that cannot be opened so is not opened.
//! Some calls can be blocked for ever, such as opening a file on a mount that is not served. These are made
//! by another process (`ask`), which is left behind after a while (`patience`).

mod ask;
mod patience;

use std::{
    fs::{self, File},
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fstatfs, open, openat2},
    io::Errno,
    thread::{CapabilitySet, capabilities},
};

pub use self::ask::{SUBCOMMAND as OPEN, serve as serve_files};
pub(super) use self::{
    ask::{Ask, Path as AskedPath},
    patience::{Given, Patience},
};
use crate::machine::stat::state;

/// Opens the file at `path` below a folder. Absolute links start again at the folder, and none leads out.
pub(super) fn below(folder: impl AsFd, path: &Path) -> Result<(File, Stat), Errno> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found =
        openat2(folder, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    regular(&found)
}

/// Opens a file in the same way, following a link at its end as far as it leads to a file below the folder.
pub(super) fn within(folder: impl AsFd, path: &Path) -> Result<(File, Stat), Errno> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    regular(&openat2(folder, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

/// Opens the root folder as a process sees it. Needs the permission to trace it (proc_pid_root(5)).
pub(super) fn root_of(tgid: u32) -> Result<OwnedFd, Errno> {
    let root = |task: u32| folder(Path::new(&format!("/proc/{task}/root")));
    root(tgid).or_else(|error| other_task(tgid).map_or(Err(error), root))
}

/// Returns a task by which /proc shows a process whose first thread has ended before the others. Returns
/// `None` if that thread has not ended.
pub(super) fn other_task(tgid: u32) -> Option<u32> {
    let ended = |task: &u32| {
        let stat = fs::read(format!("/proc/{task}/stat")).unwrap_or_default();
        matches!(state(&stat), None | Some("Z" | "X"))
    };
    let id = |task: fs::DirEntry| task.file_name().to_str()?.parse().ok();
    let tasks = || fs::read_dir(format!("/proc/{tgid}/task")).into_iter().flatten().flatten().filter_map(id);
    if ended(&tgid) { tasks().find(|task| !ended(task)) } else { None }
}

/// Opens a folder of this host.
pub(super) fn folder(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Opens the file that is mapped in a process between two addresses, whatever its path means by now. Needs
/// CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE (fs/proc/base.c, `proc_map_files_get_link`).
pub(super) fn mapped(tgid: u32, start: u64, end: u64) -> Result<(File, Stat), Errno> {
    let find = |task: u32| {
        let link = format!("/proc/{task}/map_files/{start:x}-{end:x}");
        open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    };
    regular(&find(tgid).or_else(|error| other_task(tgid).map_or(Err(error), find))?)
}

/// Opens the program that a process executes, wherever it is (proc_pid_exe(5)). Needs the permission to trace
/// it.
pub(super) fn program(tgid: u32) -> Result<(File, Stat), Errno> {
    let found = open(format!("/proc/{tgid}/exe"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    regular(&found)
}

/// Returns whether a file that is mapped in a process between two addresses has this path. Applies to
/// overlayfs only, where the inode numbers of files differ from those in the kernel's mappings.
pub(super) fn is_called(tgid: u32, (start, end): (u64, u64), path: &Path, file: &File) -> bool {
    let is_overlay = fstatfs(file).is_ok_and(|status| status.f_type as u64 == OVERLAYFS);
    is_overlay
        && fs::read_link(format!("/proc/{tgid}/map_files/{start:x}-{end:x}")).is_ok_and(|link| link == path)
}

/// Magic number of overlayfs: `OVERLAYFS_SUPER_MAGIC` (include/uapi/linux/magic.h).
const OVERLAYFS: u64 = 0x794c_7630;

/// Opens a path descriptor for reading, if it is a regular file. A pipe or a device is never opened.
fn regular(found: &OwnedFd) -> Result<(File, Stat), Errno> {
    let status = fstat(found)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, format!("/proc/self/fd/{}", found.as_raw_fd()), flags, Mode::empty())?;
    Ok((File::from(file), status))
}

/// Returns the capabilities needed to open files of other users' processes.
pub(super) fn rights() -> CapabilitySet {
    let rights = CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_READ_SEARCH;
    // Mapped files are opened with CAP_CHECKPOINT_RESTORE where the kernel has it (Linux 5.9), else with
    // CAP_SYS_ADMIN.
    let held = capabilities(None).map_or(CapabilitySet::empty(), |held| held.permitted);
    let files = CapabilitySet::CHECKPOINT_RESTORE;
    rights | if held.contains(files) { files } else { CapabilitySet::SYS_ADMIN }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command};

    use rustix::io::Errno;

    use super::{below, folder};
    use crate::machine::testing::Tree;

    #[test]
    fn only_regular_files_are_opened() {
        let tree = Tree::new(&[("file", "x")]);
        assert!(Command::new("mkfifo").arg(tree.root.join("fifo")).status().unwrap().success());
        tree.link("link", "file");
        let open = |name: &str| {
            below(folder(&tree.root).unwrap(), Path::new(name)).map(|(_, status)| status.st_size)
        };
        assert_eq!(open("file"), Ok(1));
        for other in ["fifo", "link", "."] {
            assert_eq!(open(other), Err(Errno::INVAL), "{other}");
        }
        assert_eq!(open("none"), Err(Errno::NOENT));
    }

    #[test]
    fn no_path_leads_out_of_the_folder() {
        let tree = Tree::new(&[("secret", "x")]);
        tree.link("inner/absolute", tree.root.join("secret").to_str().unwrap());
        tree.link("inner/up", "..");
        tree.link("inner/magic", "/proc/self/fd");
        let inner = folder(&tree.root.join("inner")).unwrap();
        for path in ["../secret", "up/secret", "absolute", "/../secret", "magic/0"] {
            assert!(below(&inner, Path::new(path)).is_err(), "{path}");
        }
    }
}
