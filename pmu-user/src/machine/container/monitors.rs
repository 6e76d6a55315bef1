//! Reads command lines of `conmon` in a process that may be left behind: reading one waits for the memory map of its process, which a process can hold for
//! ever. No thread of the collector waits for that. Each command line is read once, those of every user in turn, and a user whose processes
//! do not answer loses their names alone. The lists of podman that they name are read at each look, as a rename changes them; one that does not
//! answer is not read again.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    process::Child,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::Builder,
    time::Duration,
};

use rustix::{
    process::{Signal, set_parent_process_death_signal},
    thread::{CapabilitySet, set_name},
};
use serde::{Deserialize, Serialize};

use super::{
    claims::ROOT,
    conmon::{self, Named, Names},
};
use crate::machine::{
    own_process,
    privilege::{inheriting, keep_only},
    stat::after_name,
};

/// The hidden subcommand.
pub const SUBCOMMAND: &str = "__monitors";

/// How long a process may be blocked in one command line. Time in which it waits for a CPU does not count.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long one is waited for that gets no CPU.
const WALL: Duration = Duration::from_secs(10);
/// Processes that may be left behind for one user, and in all.
const LEFT_BEHIND_EACH: usize = 2;
const LEFT_BEHIND_MAX: usize = 32;
/// Processes called `conmon` that are read.
const MONITORS_MAX: usize = 16_384;
/// Lists of podman's that are read: root has one, and another for each `--root`.
const LISTS_MAX: usize = 64;

/// A process that is called `conmon`, in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Monitor {
    user: u32,
    pid: u32,
    /// When it began, in ticks.
    begun: u64,
}

/// What is to be read: neither those that were, nor those that do not answer.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Question {
    read: BTreeSet<Monitor>,
    users_left_out: BTreeSet<u32>,
    /// Lists of monitors that were read, and those that do not answer.
    lists: BTreeSet<PathBuf>,
    lists_left_out: BTreeSet<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// Those that are there, and that are not left out.
    There(BTreeSet<Monitor>),
    /// This one is read now.
    Reading(Monitor),
    /// What it says, if that is something.
    Read(Monitor, Option<Named>),
    /// This list is read now.
    ReadingList(PathBuf),
    List(PathBuf, Names),
    Done,
}

/// Answers until the collector is gone.
///
/// # Errors
///
/// The socket fails.
pub fn serve() -> io::Result<()> {
    let _ = set_name(c"pmbpf-monitors");
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Where /proc hides the processes of others (`hidepid`).
    keep_only(CapabilitySet::SYS_PTRACE);
    let standard_input: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    let mut stream = UnixStream::from(standard_input);
    let questions = BufReader::new(stream.try_clone()?);
    for question in questions.lines() {
        let question: Question = serde_json::from_str(&question?)?;
        answer(Path::new("/"), &question, &mut |line| {
            let mut text = serde_json::to_vec(&line)?;
            text.push(b'\n');
            stream.write_all(&text)
        })?;
    }
    Ok(())
}

fn answer(root: &Path, question: &Question, say: &mut dyn FnMut(Line) -> io::Result<()>) -> io::Result<()> {
    let there = monitors(root);
    say(Line::There(there.clone()))?;
    let new =
        there.difference(&question.read).filter(|monitor| !question.users_left_out.contains(&monitor.user));
    let mut lists = question.lists.clone();
    for monitor in in_turns(new.copied()) {
        say(Line::Reading(monitor))?;
        let named = conmon::read(root, monitor.pid, monitor.user);
        lists.extend(named.as_ref().and_then(|named| named.list.clone()));
        say(Line::Read(monitor, named))?;
    }
    for list in lists.difference(&question.lists_left_out).take(LISTS_MAX) {
        say(Line::ReadingList(list.clone()))?;
        say(Line::List(list.clone(), conmon::names(root, list)))?;
    }
    say(Line::Done)
}

/// The first of each user, then the second of each.
fn in_turns(all: impl Iterator<Item = Monitor>) -> Vec<Monitor> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    let with_turn = all.map(|monitor| {
        let turn = counts.entry(monitor.user).or_default();
        *turn += 1;
        (*turn, monitor)
    });
    let mut all: Vec<(usize, Monitor)> = with_turn.collect();
    all.sort_unstable();
    all.into_iter().map(|(_, monitor)| monitor).collect()
}

/// Processes that are called `conmon`. None of what is read here waits for a process.
fn monitors(root: &Path) -> BTreeSet<Monitor> {
    let entries = fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let comm = fs::read(entry.path().join("comm")).ok()?;
        if comm.trim_ascii_end() != b"conmon" {
            return None;
        }
        let stat = fs::read(entry.path().join("stat")).unwrap_or_default();
        let begun = after_name(&stat).and_then(|mut fields| fields.nth(19)?.parse().ok()).unwrap_or(0);
        Some(Monitor { user: conmon::user(&entry.path()), pid, begun })
    });
    found.take(MONITORS_MAX).collect()
}

/// What command lines of `conmon` say, read beside.
#[derive(Clone, Debug)]
pub struct Monitors {
    root: PathBuf,
    asks: Option<Sender<()>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    found: Mutex<Found>,
    over: Condvar,
}

#[derive(Debug, Default)]
struct Found {
    by_monitor: BTreeMap<Monitor, Option<Named>>,
    /// What lists of podman's have, and those that do not answer.
    by_list: BTreeMap<PathBuf, Names>,
    lists_left_out: BTreeSet<PathBuf>,
    /// Looks that were asked for, and that are over.
    asked: u64,
    over: u64,
}

impl Found {
    /// Takes what a line has.
    fn take(&mut self, line: Line) {
        match line {
            Line::There(there) => self.by_monitor.retain(|monitor, _| there.contains(monitor)),
            Line::Read(monitor, named) => drop(self.by_monitor.insert(monitor, named)),
            Line::List(list, names) => drop(self.by_list.insert(list, names)),
            Line::Reading(_) | Line::ReadingList(_) | Line::Done => {}
        }
    }

    /// What all of them say.
    fn named(&self) -> Vec<Named> {
        self.by_monitor.values().flatten().map(|named| named.renamed(&self.by_list)).collect()
    }

    /// The lists that they name.
    fn lists(&self) -> BTreeSet<PathBuf> {
        self.by_monitor.values().flatten().filter_map(|named| named.list.clone()).collect()
    }
}

impl Monitors {
    /// Of the processes below `root`. A thread of its own waits for the process that reads those of this host, which is started at the first
    /// look. To be made before system calls are refused.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        let shared = Arc::<Shared>::default();
        let asks = (root == Path::new("/")).then(|| {
            let (asks, asked) = channel();
            let shared = Arc::clone(&shared);
            let thread = Builder::new().name("pmbpf-monitors".to_owned());
            let _ = thread.spawn(move || Worker::default().serve(&asked, &shared));
            asks
        });
        Self { root: root.to_owned(), asks, shared }
    }

    /// What is known, after another look that is waited for at most so long. One that takes longer is waited for no more.
    #[must_use]
    pub(super) fn look(&self, patience: Duration) -> Vec<Named> {
        let Some(asks) = &self.asks else {
            let mut found = Found::default();
            let _ = answer(&self.root, &Question::default(), &mut |line| {
                found.take(line);
                Ok(())
            });
            return found.named();
        };
        let mut found = self.shared.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.asked == found.over {
            found.asked += 1;
            let _ = asks.send(());
            let wait = |found: &mut Found| found.over < found.asked;
            let waited = self.shared.over.wait_timeout_while(found, patience, wait);
            found = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        found.named()
    }
}

/// The thread's.
#[derive(Debug, Default)]
struct Worker {
    running: Option<Running>,
    /// Each with the user for whom it was reading.
    left_behind: Vec<(Child, u32)>,
}

#[derive(Debug)]
struct Running {
    process: Child,
    lines: BufReader<UnixStream>,
}

impl Worker {
    fn serve(mut self, asked: &Receiver<()>, shared: &Shared) {
        keep_only(CapabilitySet::SYS_PTRACE);
        for () in asked {
            // Each round reads what is left, but for one that does not answer.
            while self.round(shared).is_err() {}
            shared.found.lock().unwrap_or_else(PoisonError::into_inner).over += 1;
            shared.over.notify_all();
        }
        if let Some(Running { mut process, lines }) = self.running {
            drop(lines);
            let _ = process.kill();
            own_process::reap(process);
        }
        self.left_behind.iter_mut().for_each(|(process, _)| drop(process.try_wait()));
    }

    /// An error is a process that was left behind: there is more to be read.
    fn round(&mut self, shared: &Shared) -> Result<(), ()> {
        self.left_behind.retain_mut(|(process, _)| matches!(process.try_wait(), Ok(None)));
        if self.running.is_none() {
            self.running = Running::start().ok();
        }
        let question = self.question(shared);
        let Some(running) = self.running.as_mut() else { return Ok(()) };
        let mut reading = None;
        let outcome = running.ask(&question, &mut |line| match line {
            Line::Reading(_) | Line::ReadingList(_) => reading = Some(line),
            line => shared.found.lock().unwrap_or_else(PoisonError::into_inner).take(line),
        });
        if outcome.is_ok() {
            return Ok(());
        }
        let Some(Running { mut process, .. }) = self.running.take() else { return Ok(()) };
        let _ = process.kill();
        // It is not read again.
        let mut found = shared.found.lock().unwrap_or_else(PoisonError::into_inner);
        let user = match reading {
            Some(Line::Reading(monitor)) => {
                found.by_monitor.insert(monitor, None);
                monitor.user
            }
            Some(Line::ReadingList(list)) => {
                found.lists_left_out.insert(list);
                ROOT
            }
            _ => {
                drop(found);
                own_process::reap(process);
                return Ok(());
            }
        };
        self.left_behind.push((process, user));
        Err(())
    }

    fn question(&self, shared: &Shared) -> Question {
        let found = shared.found.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for (_, user) in &self.left_behind {
            *counts.entry(*user).or_default() += 1;
        }
        let is_full = self.left_behind.len() >= LEFT_BEHIND_MAX;
        counts.retain(|_, count| is_full || *count >= LEFT_BEHIND_EACH);
        let of_root = found.lists();
        Question {
            read: found.by_monitor.keys().copied().collect(),
            lists: if counts.contains_key(&ROOT) { BTreeSet::new() } else { of_root },
            lists_left_out: found.lists_left_out.clone(),
            users_left_out: counts.into_keys().collect(),
        }
    }
}

impl Running {
    fn start() -> io::Result<Self> {
        let (mut command, stream) = own_process::command(Path::new("/proc/self/exe"), SUBCOMMAND)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let process = inheriting(CapabilitySet::SYS_PTRACE, || command.spawn())?;
        Ok(Self { process, lines: BufReader::new(stream) })
    }

    /// Gives every line of the answer to `take`.
    fn ask(&mut self, question: &Question, take: &mut dyn FnMut(Line)) -> io::Result<()> {
        let mut text = serde_json::to_vec(question)?;
        text.push(b'\n');
        self.lines.get_mut().write_all(&text)?;
        loop {
            if self.lines.buffer().is_empty() {
                let mut blocked = Duration::ZERO;
                own_process::wait((&self.process, self.lines.get_ref()), &mut blocked, (PATIENCE, WALL))?;
            }
            let mut line = String::new();
            if self.lines.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match serde_json::from_str(&line)? {
                Line::Done => return Ok(()),
                line => take(line),
            }
        }
    }
}
