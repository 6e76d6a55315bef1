//! Symbolizer process: the process that reads the files of others. pmbpf starts itself under a hidden name
//! and passes files as descriptors. The process has no capability, little memory and can open nothing. A file
//! crafted to crash, bloat or hang its parser loses only the names in that file. The collector trusts no
//! answer.

mod clock;
mod demangle;
mod dwarf;
mod elf;
mod go;
mod instructions;
mod jitdump;
mod mapping;
mod mini;
mod ranges;
mod serve;
mod stub;
mod symbols;
mod text;
mod unwind;
mod versions;
mod wire;

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Child,
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

pub use self::serve::serve;
use self::{
    clock::Watched,
    wire::{Answer, Found, SEGMENTS_MAX},
};
pub(super) use self::{
    clock::{Clock, Deadline},
    dwarf::without_lines,
    wire::{
        ADDRESSES_MAX, End, FRAMES_MAX, Held, Identity, Mapped, Request, STACKS_MAX, Start, Unwound, Why,
        receive, send,
    },
};
use super::{progress::Naming, whose::Whose};
use crate::{
    drain::Code,
    machine::{duration_ns, own_process, stat::after_name},
};

/// Code by offset, or the reason why it has no name.
pub(super) type Codes = HashMap<u64, Result<Code, Why>>;

/// Name of the hidden subcommand.
pub const SUBCOMMAND: &str = "__symbolize";

/// Failures of the process that the files of one owner may cause. After that no request is sent for them.
const FAILURES_EACH: u32 = 8;
/// Starts of the process, at most.
const STARTS_MAX: u32 = 4096;

/// `utime` in `/proc/PID/stat`, from the state on. `stime` follows.
const USER_FIELD: usize = 11;

/// Symbolizer process, started on the first request and again after a file has ended it.
#[derive(Debug, Default)]
pub(super) struct Symbolizer {
    running: Option<Running>,
    starts: u32,
    /// Owner of the file of the next request. `None` for a file of the host.
    payer: Option<Whose>,
    /// Failures caused by the files of each owner.
    failures: HashMap<Whose, u32>,
    /// CPU time of processes that have ended.
    past_cpu_ns: u64,
    /// Clock on which deadlines are read.
    clock: Clock,
    /// Program that is started, if it is not this one.
    program: Option<PathBuf>,
    /// State of the look-up, which may stop it.
    naming: Arc<Naming>,
}

#[derive(Debug)]
struct Running {
    process: Child,
    stream: UnixStream,
    cpu_ns: u64,
}

impl Symbolizer {
    /// Returns a symbolizer that starts another program than this one, which must be pmbpf.
    pub(super) fn of(program: &Path) -> Self {
        let mut symbolizer = Self::default();
        symbolizer.program = Some(program.to_owned());
        symbolizer
    }

    /// Returns a symbolizer that stops when `naming` does.
    pub(super) fn stopped_by(naming: &Arc<Naming>) -> Self {
        let mut symbolizer = Self::default();
        symbolizer.naming = Arc::clone(naming);
        symbolizer
    }

    /// Returns whether a deadline is over, or the look-up was stopped.
    pub(super) fn is_over(&self, deadline: Deadline) -> bool {
        self.naming.is_stopped() || self.clock.is_over(deadline)
    }

    /// Charges the following requests to the one of these owners with the fewest failures, or to the host if
    /// there is none.
    pub(super) fn charge(&mut self, owners: &[Whose]) {
        let failures = |whose: &&Whose| self.failures.get(*whose).copied().unwrap_or(0);
        self.payer = owners.iter().min_by_key(failures).cloned();
    }

    /// Returns the identity of an ELF file.
    pub(super) fn identify(&mut self, file: &File, deadline: Deadline) -> Result<Identity, Why> {
        match self.ask(&Request::Identify, &[file], &[], deadline)? {
            Found::Identity(mut identity) => {
                identity.loaded.truncate(SEGMENTS_MAX);
                Ok(identity)
            }
            _ => Err(Why::Crashed),
        }
    }

    /// Requests the process to keep the call frame information of a file, by its number.
    pub(super) fn keep_frames(&mut self, file: u32, files: &[&File], deadline: Deadline) -> Result<(), Why> {
        match self.ask(&Request::Frames(file), files, &[], deadline)? {
            Found::Ready => Ok(()),
            _ => Err(Why::Crashed),
        }
    }

    /// Returns the code that addresses held, with start times, from a JIT's dump.
    pub(super) fn jit_held(
        &mut self,
        addresses: &[u64],
        dump: &File,
        deadline: Deadline,
    ) -> Result<Vec<Vec<Held>>, Why> {
        match self.ask(&Request::JitHeld(addresses.to_vec()), &[dump], &[], deadline)? {
            Found::Held(held) if held.len() == addresses.len() => Ok(held),
            _ => Err(Why::Crashed),
        }
    }

    /// Starts the process that unwinds, with the vDSO by this number. Its work until it answers involves no
    /// file of others.
    pub(super) fn begin(&mut self, vdso: u32, deadline: Deadline) -> Result<(), Why> {
        self.ask(&Request::Frames(vdso), &[], &[], deadline).map(drop)
    }

    /// Unwinds user stacks, which follow each other in `bytes`.
    pub(super) fn unwind(
        &mut self,
        mappings: &[Mapped],
        starts: &[Start],
        bytes: &[&[u8]],
        deadline: Deadline,
    ) -> Result<Vec<Unwound>, Why> {
        let request = Request::Unwind(mappings.to_vec(), starts.to_vec());
        match self.ask(&request, &[], bytes, deadline)? {
            Found::Stacks(stacks) if stacks.len() == starts.len() => Ok(stacks),
            _ => Err(Why::Crashed),
        }
    }

    /// Returns the clock on which deadlines are read.
    pub(super) const fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the deadline after `time` on that clock.
    pub(super) fn within(&self, time: Duration) -> Deadline {
        self.clock.within(time)
    }

    /// Returns whether the process runs. After a failure it does not.
    pub(super) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns the process id, while the process runs.
    pub(super) fn process(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.process.id())
    }

    /// Ends the process, which has not failed: the count of starts is reset.
    pub(super) fn retire(&mut self) {
        self.end();
        self.starts = 0;
    }

    /// Returns the CPU time of the present process so far, in ns.
    pub(super) fn running_cpu_ns(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.cpu_ns)
    }

    /// Returns the code at each address of a request, in their order.
    pub(super) fn names(
        &mut self,
        request: &Request,
        addresses: usize,
        files: &[&File],
        deadline: Deadline,
    ) -> Result<Vec<Result<Code, Why>>, Why> {
        match self.ask(request, files, &[], deadline)? {
            Found::Names(names) if names.len() == addresses => Ok(names),
            _ => Err(Why::Crashed),
        }
    }

    /// Returns the instructions of the function around an offset of a file, each with its offset.
    pub(super) fn instructions(
        &mut self,
        offset: u64,
        files: &[&File],
        deadline: Deadline,
    ) -> Result<Vec<(u64, Vec<u8>)>, Why> {
        match self.ask(&Request::Instructions(offset), files, &[], deadline)? {
            Found::Instructions(instructions) => Ok(instructions),
            _ => Err(Why::Crashed),
        }
    }

    /// Returns the CPU time of the process so far, in ns, as it reports itself.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.past_cpu_ns + self.running.as_ref().map_or(0, |running| running.cpu_ns)
    }

    fn ask(
        &mut self,
        request: &Request,
        files: &[&File],
        bytes: &[&[u8]],
        deadline: Deadline,
    ) -> Result<Found, Why> {
        let failures = |whose: &Whose| self.failures.get(whose).copied().unwrap_or(0);
        if self.payer.as_ref().is_some_and(|whose| failures(whose) >= FAILURES_EACH) {
            return Err(Why::Greedy);
        }
        if self.running.is_none() {
            self.running = Some(self.start()?);
        }
        let running = self.running.as_mut().ok_or(Why::NoProcess)?;
        let mut watched = Watched::begin(running.process.id(), self.clock);
        match running.ask(request, files, bytes, (&mut watched, deadline, &self.naming)) {
            Ok(answer) => {
                running.cpu_ns = answer.cpu_ns;
                self.clock = watched.answered();
                answer.found
            }
            Err(why) => {
                self.clock = watched.so_far();
                self.end();
                // A file that takes long to name uses its own time. Before its identity is known, that time
                // is shared by all.
                let is_failure = why == Why::Crashed || matches!(request, Request::Identify);
                if let Some(whose) = self.payer.as_ref().filter(|_| is_failure) {
                    *self.failures.entry(whose.clone()).or_default() += 1;
                }
                Err(why)
            }
        }
    }

    fn start(&mut self) -> Result<Running, Why> {
        self.starts += 1;
        if self.starts > STARTS_MAX {
            return Err(Why::NoProcess);
        }
        let program = self.program.as_deref().unwrap_or(Path::new("/proc/self/exe"));
        Running::start(program).map_err(|_| Why::NoProcess)
    }

    /// Ends the process.
    fn end(&mut self) {
        if let Some(mut running) = self.running.take() {
            // The process could not report the time of an answer that was not awaited.
            self.past_cpu_ns += running.cpu_ns.max(running.spent_ns());
            let _ = running.process.kill();
            own_process::reap(running.process);
        }
    }
}

impl Drop for Symbolizer {
    fn drop(&mut self) {
        self.end();
    }
}

impl Running {
    fn start(program: &Path) -> io::Result<Self> {
        let (mut command, stream) = own_process::command(program, SUBCOMMAND)?;
        Ok(Self { process: command.spawn()?, stream, cpu_ns: 0 })
    }

    fn ask(
        &mut self,
        request: &Request,
        files: &[&File],
        bytes: &[&[u8]],
        (watched, deadline, naming): (&mut Watched, Deadline, &Naming),
    ) -> Result<Answer, Why> {
        let left = || deadline.left().map(Some);
        let sent = left().and_then(|left| self.stream.set_write_timeout(left));
        sent.and_then(|()| send(&mut self.stream, request, files)).map_err(|error| why(&error))?;
        bytes.iter().try_for_each(|bytes| self.stream.write_all(bytes)).map_err(|error| why(&error))?;
        self.wait(watched, deadline, naming)?;
        let wait = |stream: &UnixStream| stream.set_read_timeout(left()?);
        match receive::<Answer>(&mut self.stream, wait) {
            Ok(Some((answer, _))) => Ok(answer),
            Ok(None) => Err(Why::Crashed),
            Err(error) => Err(why(&error)),
        }
    }
}

impl Running {
    /// Waits for an answer until the deadline.
    fn wait(&self, watched: &mut Watched, deadline: Deadline, naming: &Naming) -> Result<(), Why> {
        loop {
            let mut streams = [PollFd::new(&self.stream, PollFlags::IN)];
            match poll(&mut streams, Some(&own_process::POLL)) {
                Ok(0) | Err(Errno::INTR) if naming.is_stopped() => return Err(Why::NoTime),
                Ok(0) | Err(Errno::INTR) if watched.is_over(deadline) => return Err(Why::Slow),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(_) => return Err(Why::Crashed),
            }
        }
    }

    /// Returns the CPU time of the process so far in ns, from the kernel.
    fn spent_ns(&self) -> u64 {
        let text =
            std::fs::read_to_string(format!("/proc/{}/schedstat", self.process.id())).unwrap_or_default();
        let exact = text.split(' ').next().and_then(|time_ns| time_ns.parse().ok());
        exact.unwrap_or_else(|| duration_ns(self.busy()))
    }

    /// Returns the CPU time of the process so far, from the kernel, to 10 ms. Returns 0 where it is not
    /// available.
    fn busy(&self) -> Duration {
        let stat = std::fs::read(format!("/proc/{}/stat", self.process.id())).unwrap_or_default();
        let ticks = |field: Option<&str>| field.and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or(0);
        after_name(&stat).map_or(Duration::ZERO, |mut fields| {
            let (user, system) = (ticks(fields.nth(USER_FIELD)), ticks(fields.next()));
            Duration::from_millis(user.saturating_add(system).saturating_mul(10))
        })
    }
}

fn why(error: &io::Error) -> Why {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Why::Slow,
        _ => Why::Crashed,
    }
}
