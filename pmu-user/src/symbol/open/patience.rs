//! Calls to the process that opens files of others, with a limited wait. A user's process can block such a
//! call for ever, even against signals. The blocked process is then left behind, and another one is started.
//! The number left behind for one owner is limited. After that no call is made for that owner.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::Child,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use super::{
    ask::{Ask, Got, Question, Reply, SUBCOMMAND},
    rights,
};
use crate::{
    machine::{own_process, privilege::inheriting},
    symbol::{
        address_map::TEXT_BYTES_MAX,
        child::{receive, send},
        whose::{Owners, Whose},
    },
};

/// Longest time that a call may be blocked. The second value applies while another call of the same owner is
/// blocked. Time in which the process waits for a CPU does not count.
const PATIENCE: Duration = Duration::from_millis(500);
const PATIENCE_AGAIN: Duration = Duration::from_millis(100);
/// Longest wait for a call that gets no CPU.
const WALL: Duration = Duration::from_secs(20);
/// Processes that may be left behind for one owner, each of them for another process of that owner, and for
/// all owners together.
const LEFT_BEHIND_EACH: usize = 16;
const LEFT_BEHIND_MAX: usize = 64;
/// Longest total time blocked by one process and by one owner. An owner has a first allowance, and a part of
/// the elapsed time.
const BLOCKED_BY_PROCESS: Duration = Duration::from_millis(1000);
const BLOCKED_FIRST: Duration = Duration::from_millis(3000);
const BLOCKED_PART: u32 = 20;
/// Bytes of one owner's files that are copied into memory, in total.
const COPIED_MAX: u64 = 64 << 20;

/// Result of a call.
#[derive(Debug)]
pub(in crate::symbol) enum Given {
    /// An open file.
    File(Opened),
    /// Bytes that were read.
    Bytes(Vec<u8>),
    /// Size of a file.
    Size(u64),
}

/// A file that was opened.
#[derive(Debug)]
pub(in crate::symbol) struct Opened {
    pub(in crate::symbol) file: File,
    /// Inode of the file, if it was requested.
    pub(in crate::symbol) inode: u64,
    /// The file is owned by root.
    pub(in crate::symbol) is_of_root: bool,
}

/// Caller with limited patience.
#[derive(Debug)]
pub(in crate::symbol) struct Patience {
    program: PathBuf,
    running: Option<Opener>,
    left_behind: Vec<LeftBehind>,
    owners: Owners,
    used: HashMap<Whose, Used>,
    /// Total time blocked by each process.
    blocked: HashMap<u32, Duration>,
    began: Instant,
    /// CPU time of processes that have ended.
    past_cpu_ns: u64,
}

/// Resources used for one owner.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    blocked: Duration,
    copied: u64,
}

/// A process that does not respond, and the owner of the call.
#[derive(Debug)]
struct LeftBehind {
    process: Child,
    whose: Whose,
    tgid: u32,
}

#[derive(Debug)]
struct Opener {
    process: Child,
    stream: UnixStream,
    cpu_ns: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self::of("/proc/self/exe".into())
    }
}

impl Patience {
    /// Returns a caller that starts this program, which must be pmbpf.
    pub(in crate::symbol) fn of(program: PathBuf) -> Self {
        Self {
            program,
            running: None,
            left_behind: Vec::new(),
            owners: Owners::default(),
            used: HashMap::new(),
            blocked: HashMap::new(),
            began: Instant::now(),
            past_cpu_ns: 0,
        }
    }

    /// Returns the owner of a process, or that of its nearest ancestor that still exists.
    pub(in crate::symbol) fn whose(&mut self, kin: &[u32]) -> Whose {
        self.owners.of(kin)
    }

    /// Discards the state of this id, which now belongs to another process.
    pub(in crate::symbol) fn forget(&mut self, tgid: u32) {
        self.owners.forget(tgid);
        self.blocked.remove(&tgid);
    }

    /// Returns the CPU time of the processes so far, in ns.
    pub(in crate::symbol) fn cpu_ns(&self) -> u64 {
        self.past_cpu_ns + self.running.as_ref().map_or(0, |running| running.cpu_ns)
    }

    /// Makes a call for a process of an owner. Returns its result or error. Returns `None` if it takes too
    /// long.
    pub(in crate::symbol) fn call(
        &mut self,
        (whose, tgid): (&Whose, u32),
        ask: Ask,
        files: &[&File],
    ) -> Option<Result<Given, Errno>> {
        let patience = self.patience(whose, tgid)?;
        if self.running.is_none() {
            self.running = Opener::start(&self.program).ok();
        }
        let used = self.used.get(whose).copied().unwrap_or_default();
        let question = Question { ask, copy_bytes_max: COPIED_MAX.saturating_sub(used.copied) };
        let (mut blocked, running) = (Duration::ZERO, self.running.as_mut()?);
        let answer = running.ask(&question, files, (&mut blocked, patience));
        if !blocked.is_zero() || matches!(answer, Ok((_, 1..))) {
            let used = self.used.entry(whose.clone()).or_default();
            used.blocked += blocked;
            used.copied += answer.as_ref().map_or(0, |(_, copied)| *copied);
            *self.blocked.entry(tgid).or_default() += blocked;
        }
        match answer {
            Ok((given, _)) => Some(given),
            Err(_) => {
                self.leave_behind(whose.clone(), tgid);
                None
            }
        }
    }

    /// Returns how long a call for a process may block. Returns `None` if the process or its owner has
    /// blocked too often or for too long.
    fn patience(&mut self, whose: &Whose, tgid: u32) -> Option<Duration> {
        self.left_behind.retain_mut(|one| matches!(one.process.try_wait(), Ok(None)));
        let of_it = self.left_behind.iter().filter(|one| one.whose == *whose).count();
        let share = BLOCKED_FIRST + self.began.elapsed() / BLOCKED_PART;
        let may = of_it < LEFT_BEHIND_EACH
            && self.left_behind.len() < LEFT_BEHIND_MAX
            && self.left_behind.iter().all(|one| one.tgid != tgid)
            && self.blocked.get(&tgid).is_none_or(|blocked| *blocked < BLOCKED_BY_PROCESS)
            && self.used.get(whose).is_none_or(|used| used.blocked < share);
        may.then_some(if of_it == 0 { PATIENCE } else { PATIENCE_AGAIN })
    }

    fn leave_behind(&mut self, whose: Whose, tgid: u32) {
        if let Some(mut opener) = self.running.take() {
            self.past_cpu_ns += opener.cpu_ns;
            let _ = opener.process.kill();
            self.left_behind.push(LeftBehind { process: opener.process, whose, tgid });
        }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        if let Some(mut opener) = self.running.take() {
            let _ = opener.process.kill();
            own_process::reap(opener.process);
        }
        // A process that is blocked in the kernel ends when the kernel releases it.
        self.left_behind.iter_mut().for_each(|one| drop(one.process.try_wait()));
    }
}

impl Opener {
    fn start(program: &std::path::Path) -> io::Result<Self> {
        let (mut command, stream) = own_process::command(program, SUBCOMMAND)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let process = inheriting(rights(), || command.spawn())?;
        Ok(Self { process, stream, cpu_ns: 0 })
    }

    /// Returns the answer, with the bytes that were copied for it. Adds the time that the process was
    /// blocked.
    fn ask(
        &mut self,
        question: &Question,
        files: &[&File],
        (blocked, patience): (&mut Duration, Duration),
    ) -> io::Result<(Result<Given, Errno>, u64)> {
        send(&mut self.stream, question, files)?;
        own_process::wait((&self.process, &self.stream), blocked, (patience, WALL))?;
        let wait = |stream: &UnixStream| stream.set_read_timeout(Some(PATIENCE));
        let (reply, mut files) =
            receive::<Reply>(&mut self.stream, wait)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.cpu_ns = reply.cpu_ns;
        let given = match reply.got {
            Err(error) => Err(Errno::from_raw_os_error(error)),
            Ok(Got::File(inode, is_of_root)) => {
                let opened = |file| Given::File(Opened { file, inode, is_of_root });
                files.pop().map(opened).ok_or(Errno::BADF)
            }
            Ok(Got::Size(size)) => Ok(Given::Size(size)),
            Ok(Got::Bytes(count)) if count <= TEXT_BYTES_MAX => {
                let mut bytes = Vec::new();
                (&self.stream).take(count).read_to_end(&mut bytes)?;
                Ok(Given::Bytes(bytes))
            }
            Ok(Got::Bytes(_)) => return Err(io::ErrorKind::InvalidData.into()),
        };
        Ok((given, reply.copied))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::PermissionsExt as _,
        process::Command,
        time::{Duration, Instant},
    };

    use super::{Ask, LEFT_BEHIND_EACH, LeftBehind, PATIENCE, PATIENCE_AGAIN, Patience};
    use crate::{machine::testing::Tree, symbol::whose::Whose};

    /// A caller whose process never responds.
    fn silent() -> (Tree, Patience) {
        let tree = Tree::new(&[("program", "#!/bin/sh\nexec sleep 60\n")]);
        let program = tree.root.join("program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        (tree, Patience::of(program))
    }

    #[test]
    fn what_takes_too_long_is_given_up_and_the_process_asked_no_more() {
        let (_tree, mut patience) = silent();
        let owner = Whose::named("slow");
        let begun = Instant::now();
        assert!(patience.call((&owner, 1), Ask::AddressMap(1), &[]).is_none());
        patience.blocked.insert(1, PATIENCE * 2);
        assert!(begun.elapsed() >= PATIENCE - Duration::from_millis(50));
        assert_eq!(patience.patience(&owner, 1), None, "{:?}", patience.blocked);
        // A killed process ends a moment later.
        while patience.patience(&owner, 2) != Some(PATIENCE) {
            assert!(begun.elapsed() < PATIENCE + Duration::from_secs(10), "another process");
            std::thread::sleep(Duration::from_millis(10));
        }
        patience.forget(1);
        assert!(patience.patience(&owner, 1).is_some(), "another process with its id");
    }

    #[test]
    fn so_many_are_left_behind_for_one_owner_and_others_go_on() {
        let (_tree, mut patience) = silent();
        let owner = Whose::named;
        // As if no signal ended them.
        let stuck = |tgid: u32| {
            let process = Command::new("sleep").arg("60").spawn().unwrap();
            LeftBehind { process, whose: owner("greedy"), tgid }
        };
        patience.left_behind.push(stuck(0));
        assert_eq!(patience.patience(&owner("greedy"), 0), None, "it has not answered");
        assert_eq!(patience.patience(&owner("greedy"), 99), Some(PATIENCE_AGAIN));
        patience.left_behind.extend((1..LEFT_BEHIND_EACH as u32).map(stuck));
        assert_eq!(patience.patience(&owner("greedy"), 99), None);
        assert_eq!(patience.patience(&owner("honest"), 100), Some(PATIENCE));
        for one in &mut patience.left_behind {
            one.process.kill().unwrap();
            one.process.wait().unwrap();
        }
        assert_eq!(patience.patience(&owner("greedy"), 99), Some(PATIENCE), "they let go");
    }
}
