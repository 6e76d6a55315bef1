//! Opens the files of strangers: regular files only, without waiting, following nothing, in the stranger's view and never in
//! ours. What cannot be opened so is not opened. Calls that a stranger can make wait for ever, such as opening a file on a mount that
//! nobody serves, are made by another thread, and given up after a while.

use std::{
    fs::{self, File},
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
        mpsc::{RecvTimeoutError, Sender, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fstatfs, open, openat2},
    io::Errno,
    thread::{CapabilitySet, capabilities},
};

use super::child::is_runnable;
use crate::machine::{privilege::keep_only, stat::state};

/// Opens the file at `path` below a folder, in which absolute links begin again at the folder and none leads out.
pub(super) fn below(folder: impl AsFd, path: &Path) -> Result<(File, Stat), Errno> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found =
        openat2(folder, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    regular(&found)
}

/// The same, with a link at its end followed as far as it leads to a file below the folder.
pub(super) fn within(folder: impl AsFd, path: &Path) -> Result<(File, Stat), Errno> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    regular(&openat2(folder, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?)
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

/// Opens the program that a process executes, wherever it lies (proc_pid_exe(5)). Needs the right to trace it.
pub(super) fn program(tgid: u32) -> Result<(File, Stat), Errno> {
    let found = open(format!("/proc/{tgid}/exe"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    regular(&found)
}

/// Is a file, which is mapped in a process between two addresses, called so? Only of overlayfs, whose inodes have other numbers
/// than those that the kernel gives for their mappings.
pub(super) fn is_called(tgid: u32, (start, end): (u64, u64), path: &Path, file: &File) -> bool {
    let is_overlay = fstatfs(file).is_ok_and(|status| status.f_type as u64 == OVERLAYFS);
    is_overlay
        && fs::read_link(format!("/proc/{tgid}/map_files/{start:x}-{end:x}")).is_ok_and(|link| link == path)
}

/// `OVERLAYFS_SUPER_MAGIC` (include/uapi/linux/magic.h).
const OVERLAYFS: u64 = 0x794c_7630;

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

/// What opening the files of others' processes takes.
pub(super) fn rights() -> CapabilitySet {
    let rights = CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_READ_SEARCH;
    // Files that are mapped are opened with the one, where the kernel knows it (Linux 5.9), else with the other.
    let held = capabilities(None).map_or(CapabilitySet::empty(), |held| held.permitted);
    let files = CapabilitySet::CHECKPOINT_RESTORE;
    rights | if held.contains(files) { files } else { CapabilitySet::SYS_ADMIN }
}

/// How long a call may be blocked. Time in which its thread waits for a CPU does not count.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often its thread is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long a call is waited for that gets no CPU.
const WALL: Duration = Duration::from_secs(20);
/// Threads that may wait at a time. Then nothing is called any more until one of them is back.
const STUCK_MAX: u32 = 8;

type Call = Box<dyn FnOnce() + Send>;

/// Makes calls with patience.
#[derive(Debug, Default)]
pub(super) struct Patience {
    worker: Option<Sender<Call>>,
    /// The thread's id, once it runs.
    thread: Arc<OnceLock<i32>>,
    stuck: Arc<AtomicU32>,
}

impl Patience {
    /// What a call returns; `None` if it takes too long.
    pub(super) fn call<T: Send + 'static>(&mut self, call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if self.stuck.load(Ordering::Relaxed) >= STUCK_MAX {
            return None;
        }
        let (back, result) = sync_channel(1);
        let stuck = Arc::clone(&self.stuck);
        // Counted as stuck until it is back, so that no moment lies between the two.
        stuck.fetch_add(1, Ordering::Relaxed);
        let call: Call = Box::new(move || {
            let value = call();
            stuck.fetch_sub(1, Ordering::Relaxed);
            // Nobody may be waiting any more.
            let _ = back.send(value);
        });
        self.hand_over(call)?;
        let (mut blocked, given_up) = (Duration::ZERO, Instant::now() + WALL);
        while blocked < PATIENCE && Instant::now() < given_up {
            match result.recv_timeout(LOOK) {
                Ok(value) => return Some(value),
                Err(RecvTimeoutError::Timeout) => {
                    let waits = self
                        .thread
                        .get()
                        .is_none_or(|thread| is_runnable(&format!("/proc/self/task/{thread}/stat")));
                    blocked += if waits { Duration::ZERO } else { LOOK };
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // The thread ends when it is back.
        self.worker = None;
        None
    }

    fn hand_over(&mut self, call: Call) -> Option<()> {
        if self.worker.is_none() {
            let (calls, received) = channel::<Call>();
            let worker = thread::Builder::new().name("pmbpf-open".to_owned()).stack_size(256 << 10);
            self.thread = Arc::default();
            let thread = Arc::clone(&self.thread);
            let serve = move || {
                let _ = thread.set(rustix::thread::gettid().as_raw_nonzero().get());
                keep_only(rights());
                received.into_iter().for_each(|call| call());
            };
            worker.spawn(serve).ok()?;
            self.worker = Some(calls);
        }
        self.worker.as_ref()?.send(call).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command, sync::mpsc::channel, time::Instant};

    use rustix::io::Errno;

    use super::{PATIENCE, Patience, STUCK_MAX, below, folder};
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

    #[test]
    fn what_takes_too_long_is_given_up_and_others_go_on() {
        let mut patience = Patience::default();
        let (release, wait) = channel::<()>();
        let begun = Instant::now();
        assert_eq!(patience.call(move || wait.recv().is_ok()), None);
        assert!(begun.elapsed() >= PATIENCE);
        assert_eq!(patience.call(|| 7), Some(7));
        release.send(()).unwrap();
    }

    #[test]
    fn there_is_an_end_to_threads_that_wait() {
        let mut patience = Patience::default();
        let waiting: Vec<_> = (0..STUCK_MAX)
            .map(|_| {
                let (release, wait) = channel::<()>();
                assert_eq!(patience.call(move || wait.recv().is_ok()), None);
                release
            })
            .collect();
        assert_eq!(patience.call(|| 7), None);
        drop(waiting);
        // They come back, one after the other.
        assert!((0..10_000).any(|_| {
            std::thread::yield_now();
            patience.call(|| 7) == Some(7)
        }));
    }
}
