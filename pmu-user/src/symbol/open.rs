//! Opens the files of strangers: regular files only, without waiting, following nothing, in the stranger's view and never in
//! ours. What cannot be opened so is not opened.

use std::{
    fs::{self, File},
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2},
    io::Errno,
};

use crate::machine::stat::state;

/// Opens the file at `path` below a folder, in which absolute links begin again at the folder and none leads out.
pub(super) fn below(folder: impl AsFd, path: &Path) -> Result<(File, Stat), Errno> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found =
        openat2(folder, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    regular(&found)
}

/// The root folder as a process sees it. Needs the right to trace it (proc_pid_root(5)).
pub(super) fn root_of(tgid: u32) -> Result<OwnedFd, Errno> {
    let root = |task: u32| folder(Path::new(&format!("/proc/{task}/root")));
    root(tgid).or_else(|error| other_task(tgid).map_or(Err(error), root))
}

/// A task by which /proc shows a process whose first thread has ended before the others; `None` if it has not.
pub(super) fn other_task(tgid: u32) -> Option<u32> {
    let ended = |task: &u32| {
        let stat = fs::read(format!("/proc/{task}/stat")).unwrap_or_default();
        matches!(state(&stat), None | Some("Z" | "X"))
    };
    let id = |task: fs::DirEntry| task.file_name().to_str()?.parse().ok();
    let tasks = || fs::read_dir(format!("/proc/{tgid}/task")).into_iter().flatten().flatten().filter_map(id);
    if ended(&tgid) { tasks().find(|task| !ended(task)) } else { None }
}

/// A folder of this host.
pub(super) fn folder(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Opens what is mapped in a process between two addresses, whatever its path means by now. Needs CAP_SYS_ADMIN or
/// CAP_CHECKPOINT_RESTORE (fs/proc/base.c, `proc_map_files_get_link`).
pub(super) fn mapped(tgid: u32, start: u64, end: u64) -> Result<(File, Stat), Errno> {
    let find = |task: u32| {
        let link = format!("/proc/{task}/map_files/{start:x}-{end:x}");
        open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    };
    regular(&find(tgid).or_else(|error| other_task(tgid).map_or(Err(error), find))?)
}

/// Opens for reading what was only found so far, if it is a regular file. A pipe or a device is never opened.
fn regular(found: &OwnedFd) -> Result<(File, Stat), Errno> {
    let status = fstat(found)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, format!("/proc/self/fd/{}", found.as_raw_fd()), flags, Mode::empty())?;
    Ok((File::from(file), status))
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
