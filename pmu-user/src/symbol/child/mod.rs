//! The symbolizer process: the one that reads the files of strangers. pmbpf starts itself under a hidden name and hands over
//! files as descriptors; the process has no capability, little memory and can open nothing, so whoever crafts a file to
//! crash, bloat or hang whatever parses it loses the names in that file. This side trusts no answer.

mod demangle;
mod dwarf;
mod elf;
mod mapping;
mod rank;
mod sandbox;
mod serve;
mod stub;
mod text;
mod wire;

use std::{
    fs::File,
    io,
    os::unix::{net::UnixStream, process::CommandExt as _},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

pub use self::serve::serve;
pub(super) use self::wire::{ADDRESSES_MAX, Identity, Request, Why};
use self::wire::{Answer, Found, receive, send};
use crate::drain::Code;

/// The hidden subcommand.
pub const SUBCOMMAND: &str = "__symbolize";

/// Times that the process is started. Whoever crashes it this often keeps it down.
const STARTS_MAX: u32 = 64;

/// The symbolizer process, started when it is first asked and again after a file has ended it.
#[derive(Debug, Default)]
pub(super) struct Symbolizer {
    running: Option<Running>,
    starts: u32,
    /// CPU time of processes that have ended.
    past_cpu_ns: u64,
}

#[derive(Debug)]
struct Running {
    process: Child,
    stream: UnixStream,
    cpu_ns: u64,
}

impl Symbolizer {
    /// Who an ELF file is.
    pub(super) fn identify(&mut self, file: &File, deadline: Instant) -> Result<Identity, Why> {
        match self.ask(&Request::Identify, &[file], deadline)? {
            Found::Identity(identity) => Ok(identity),
            Found::Names(_) => Err(Why::Crashed),
        }
    }

    /// The code at each address of a request, in their order.
    pub(super) fn names(
        &mut self,
        request: &Request,
        addresses: usize,
        files: &[&File],
        deadline: Instant,
    ) -> Result<Vec<Result<Code, Why>>, Why> {
        match self.ask(request, files, deadline)? {
            Found::Names(names) if names.len() == addresses => Ok(names),
            _ => Err(Why::Crashed),
        }
    }

    /// CPU time of the process so far, in ns, as it says itself.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.past_cpu_ns + self.running.as_ref().map_or(0, |running| running.cpu_ns)
    }

    fn ask(&mut self, request: &Request, files: &[&File], deadline: Instant) -> Result<Found, Why> {
        if self.running.is_none() {
            self.running = Some(self.start()?);
        }
        let running = self.running.as_mut().ok_or(Why::NoProcess)?;
        match running.ask(request, files, deadline) {
            Ok(answer) => {
                running.cpu_ns = answer.cpu_ns;
                answer.found
            }
            Err(why) => {
                self.end();
                Err(why)
            }
        }
    }

    fn start(&mut self) -> Result<Running, Why> {
        self.starts += 1;
        if self.starts > STARTS_MAX {
            return Err(Why::NoProcess);
        }
        Running::start().map_err(|_| Why::NoProcess)
    }

    /// Ends the process.
    fn end(&mut self) {
        if let Some(mut running) = self.running.take() {
            self.past_cpu_ns += running.cpu_ns;
            let _ = running.process.kill();
            let _ = running.process.wait();
        }
    }
}

impl Drop for Symbolizer {
    fn drop(&mut self) {
        self.end();
    }
}

impl Running {
    fn start() -> io::Result<Self> {
        let (ours, its) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        // A group of its own: a terminal's Ctrl-C is for us.
        command.arg(SUBCOMMAND).process_group(0).env_clear();
        command
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(its)))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Self { process: command.spawn()?, stream: ours, cpu_ns: 0 })
    }

    fn ask(&mut self, request: &Request, files: &[&File], deadline: Instant) -> Result<Answer, Why> {
        let left = || match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
            left => Ok(Some(left)),
        };
        let sent = left().and_then(|left| self.stream.set_write_timeout(left));
        sent.and_then(|()| send(&mut self.stream, request, files)).map_err(|error| why(&error))?;
        let wait = |stream: &UnixStream| stream.set_read_timeout(left()?);
        match receive::<Answer>(&mut self.stream, wait) {
            Ok(Some((answer, _))) => Ok(answer),
            Ok(None) => Err(Why::Crashed),
            Err(error) => Err(why(&error)),
        }
    }
}

fn why(error: &io::Error) -> Why {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Why::Slow,
        _ => Why::Crashed,
    }
}
