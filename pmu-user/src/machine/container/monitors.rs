//! Reader of `conmon` command lines, in a process that may be left behind. Reading one waits for the memory
//! map of its process, which a process can hold for ever. No thread of the collector waits for that. Each
//! command line is read once, users in turn. If a user's processes do not respond, only their names are lost.
//! The lists of podman that the command lines name are read at each look, as a rename changes them. A list
//! that does not respond is not read again.

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

/// Name of the hidden subcommand.
pub const SUBCOMMAND: &str = "__monitors";

/// Longest time that a process may be blocked in one command line. Time in which it waits for a CPU does not
/// count.
const PATIENCE: Duration = Duration::from_millis(300);
/// Longest wait for a process that gets no CPU.
const WALL: Duration = Duration::from_secs(10);
/// Processes that may be left behind for one user, and in total.
const LEFT_BEHIND_EACH: usize = 2;
const LEFT_BEHIND_MAX: usize = 32;
/// Processes named `conmon` that are read, at most.
const MONITORS_MAX: usize = 16_384;
/// Lists of podman that are read, at most: root has one, and another for each `--root`.
const LISTS_MAX: usize = 64;

/// A process named `conmon`, identified by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Monitor {
    user: u32,
    pid: u32,
    /// Start time in ticks.
    begun: u64,
}

/// Request to read command lines, without those that were read and those that do not respond.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Question {
    read: BTreeSet<Monitor>,
    users_left_out: BTreeSet<u32>,
    /// Lists of monitors that were read, and those that do not respond.
    lists: BTreeSet<PathBuf>,
    lists_left_out: BTreeSet<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// Processes that exist.
    There(BTreeSet<Monitor>),
    /// Process whose command line is read next.
    Reading(Monitor),
    /// Contents of the command line, if there is a name.
    Read(Monitor, Option<Named>),
    /// List that is read next.
    ReadingList(PathBuf),
    List(PathBuf, Names),
    Done,
}

/// Serves requests until the collector exits.
///
/// # Errors
///
/// The socket fails.
pub fn serve() -> io::Result<()> {
    let _ = set_name(c"pmbpf-monitors");
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Needed where /proc hides the processes of others (`hidepid`).
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
        let process = root.join("proc").join(monitor.pid.to_string());
        // The number of a process that has ended may be that of another user's by now.
        let named = conmon::read(root, monitor.pid, monitor.user).filter(|_| is_still(monitor, &process));
        lists.extend(named.as_ref().and_then(|named| named.list.clone()));
        say(Line::Read(monitor, named))?;
    }
    for list in lists.difference(&question.lists_left_out).take(LISTS_MAX) {
        say(Line::ReadingList(list.clone()))?;
        say(Line::List(list.clone(), conmon::names(root, list)))?;
    }
    say(Line::Done)
}

/// Returns the first process of each user, then the second of each, and so on.
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

/// Returns the processes named `conmon`. Nothing that is read here waits for a process.
fn monitors(root: &Path) -> BTreeSet<Monitor> {
    let entries = fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        monitor(pid, &entry.path())
    });
    found.take(MONITORS_MAX).collect()
}

/// Returns the process with this folder in /proc if its name is `conmon`.
fn monitor(pid: u32, process: &Path) -> Option<Monitor> {
    let comm = fs::read(process.join("comm")).ok()?;
    if comm.trim_ascii_end() != b"conmon" {
        return None;
    }
    let stat = fs::read(process.join("stat")).ok()?;
    let begun = after_name(&stat).and_then(|mut fields| fields.nth(19)?.parse().ok())?;
    Some(Monitor { user: conmon::user(process)?, pid, begun })
}

fn is_still(before: Monitor, process: &Path) -> bool {
    monitor(before.pid, process) == Some(before)
}

/// Contents of `conmon` command lines, read by another process.
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
    /// Contents of podman's lists, and the lists that do not respond.
    by_list: BTreeMap<PathBuf, Names>,
    lists_left_out: BTreeSet<PathBuf>,
    /// Looks that were requested, and that are done.
    asked: u64,
    over: u64,
}

impl Found {
    /// Adds the contents of a line.
    fn take(&mut self, line: Line) {
        match line {
            Line::There(there) => self.by_monitor.retain(|monitor, _| there.contains(monitor)),
            Line::Read(monitor, named) => drop(self.by_monitor.insert(monitor, named)),
            Line::List(list, names) => drop(self.by_list.insert(list, names)),
            Line::Reading(_) | Line::ReadingList(_) | Line::Done => {}
        }
    }

    /// Returns the names from all command lines.
    fn named(&self) -> Vec<Named> {
        self.by_monitor.values().flatten().map(|named| named.renamed(&self.by_list)).collect()
    }

    /// Returns the lists that the command lines name.
    fn lists(&self) -> BTreeSet<PathBuf> {
        self.by_monitor.values().flatten().filter_map(|named| named.list.clone()).collect()
    }
}

impl Monitors {
    /// Returns a reader of the processes below `root`. A separate thread waits for the process that reads
    /// those of this host, which is started at the first look. Must be called before the system call filter
    /// is installed.
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

    /// Returns the known names, after another look that is awaited up to `patience`. A look that takes longer
    /// is not awaited any further.
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

/// State of the thread.
#[derive(Debug, Default)]
struct Worker {
    running: Option<Running>,
    /// Processes left behind, each with the user whose data it was reading.
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
            // Each round reads what is left, except for a process that does not respond.
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

    /// Runs a round. An error means that a process was left behind, and that there is more to read.
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
        // This entry is not read again.
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

    /// Sends a request, and passes every line of the answer to `take`.
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
