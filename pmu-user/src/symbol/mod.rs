//! Locations and names of addresses.
//!
//! A process may be gone when names are wanted, so locating and naming are separate. While the process lives,
//! an address becomes a file, its build id and an offset, and the file is kept open. Names are looked up at
//! the end. The process may be gone even before its address map can be read: where samples want names, the
//! kernel records every mapping when it is made. The files of a process are not trusted: they are opened in
//! one process and read in another, and each wait for these has a limit.

mod address_map;
mod child;
mod file_namer;
mod kernel;
mod listening;
mod naming;
mod off_cpu;
mod open;
mod orders;
mod perf_map;
mod processes;
mod progress;
mod recorded;
mod source;
mod tracker;
mod unlocated;
mod whose;

use std::{
    collections::VecDeque,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::{
    child::{SUBCOMMAND, serve},
    file_namer::FileNamer,
    off_cpu::{Entered, OffCpuStack, OffCpuSum},
    open::{OPEN, serve_files},
    progress::Naming,
    recorded::{Unfound, instructions_recorded, name_recorded, open_below},
    tracker::unwinding::Snapshot,
};
use self::{
    orders::{Answer, Answers, Order, Orders},
    unlocated::unlocated,
};
use crate::{
    drain::{HotRow, Located, Name, StackRow},
    machine::{cpu::Cpu, monotonic_ns},
    perf::side_band::SideBand,
};

/// Longest wait of a drain for the locations of its addresses. Later ones come with the next drain.
const LOCATING: Duration = Duration::from_millis(20);

/// Longest wait for the tracker beyond its time for names: it may be in the middle of a file, on a busy
/// machine.
const OVERTIME: Duration = Duration::from_millis(500);

/// Drains that the tracker may lag behind. Samples of later drains are not located.
const BEHIND_MAX: usize = 256;

/// Part of the time for names that pending unwinding may take.
const UNWINDING: Duration = Duration::from_millis(500);

/// Interval between look-ups of names during a run that names as it goes: the first, and the longest, up to
/// which it doubles.
const NAMING: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Longest time of such a look-up, by the clock that stops while the process waits for a CPU.
const NAMING_MAX: Duration = Duration::from_secs(1);

/// Longest wait of a drain for the names of new code, in a run that reports intervals.
const WITH_NAMES: Duration = Duration::from_millis(100);

/// Pause before the next look-up, as a multiple of the CPU time of the last one.
const NAMING_SHARE: u32 = 20;

/// Longest time for names at the end, by that clock: a report is due within two seconds of a signal.
const NAMING_ALL: Duration = Duration::from_millis(1200);

/// Time after which a run reports that it is looking names up.
const LONG: Duration = Duration::from_secs(2);

/// Longest wait of a run for names on a host whose CPUs are busy. The thread that it waits for does not wait
/// for other users' processes.
const NAMING_WALL: Duration = Duration::from_secs(60);

/// Bytes of copied stacks that may be pending.
const COPIED_MAX: usize = 16 << 20;

/// Samples as the kernel side holds them, by process and address.
#[derive(Debug, Default)]
pub struct Samples {
    /// Samples by address.
    pub hot: Vec<Hit>,
    /// Samples by stack.
    pub stacks: Vec<HitStack>,
    /// Off-CPU waits by stack.
    pub off_cpu: Vec<OffCpuStack>,
    /// Kernel addresses that are to be named although no sample hit them.
    pub kernel: Vec<u64>,
}

/// Samples at one address, and their times (CLOCK_MONOTONIC, ns).
#[derive(Debug)]
pub struct Hit {
    /// Row of the samples.
    pub row: HotRow,
    /// Time of the first sample.
    pub first_ns: u64,
    /// Upper bound of the time of the last sample.
    pub last_ns: u64,
}

/// Samples with one stack, and the time of each (CLOCK_MONOTONIC, ns).
#[derive(Debug)]
pub struct HitStack {
    /// Row of the samples.
    pub row: StackRow,
    /// Times of the samples.
    pub times_ns: Vec<u64>,
}

/// Names, and samples located late.
#[derive(Debug, Default)]
pub struct Named {
    /// Names of addresses.
    pub names: Vec<Name>,
    /// Samples that were located late.
    pub located: Located,
}

impl Samples {
    fn is_empty(&self) -> bool {
        self.hot.is_empty() && self.stacks.is_empty() && self.off_cpu.is_empty() && self.kernel.is_empty()
    }
}

/// Returns the addresses of a stack, innermost first, each with its process: 0 for the kernel.
fn addresses<'a>(kernel: &'a [u64], tgid: u32, user: &'a [u64]) -> impl Iterator<Item = (u32, u64)> + 'a {
    let kernel = kernel.iter().map(|&address| (0, address));
    kernel.chain(calls(user).map(move |address| (tgid, address)))
}

/// Returns the user addresses of a stack, innermost first. A return address is replaced by that of the call
/// before it. The next instruction may be of another line, or of another function, if the call does not
/// return.
fn calls(user: &[u64]) -> impl Iterator<Item = u64> + '_ {
    user.iter().zip(0..).map(|(&address, at)| if at > 0 { address.saturating_sub(1) } else { address })
}

/// Schedule of look-ups during a run.
#[derive(Debug)]
enum Pace {
    /// At `due`, and again after `after`, which doubles.
    Doubling { due: Instant, after: Duration },
    /// With a drain from `due` on. `cpu_ns` is the CPU time spent at the last look-up.
    WithDrains { due: Instant, cpu_ns: u64 },
}

/// Symbols of processes: the locations and names of their addresses.
#[derive(Debug)]
pub struct Symbols {
    orders: Orders,
    /// Declared after `orders`: dropping `orders` ends the thread, and this waits for its end.
    answers: Answers,
    /// Samples without locations yet, in order.
    waiting: VecDeque<Arc<Samples>>,
    /// The kernel reports mappings.
    listens: bool,
    /// Schedule of look-ups, in a run that names as it goes.
    pace: Option<Pace>,
}

impl Default for Symbols {
    fn default() -> Self {
        let (orders, answers) = Orders::start();
        Self { orders, answers, waiting: VecDeque::new(), listens: false, pace: None }
    }
}

impl Symbols {
    /// Opens the kernel's mapping events on `cpus`, so that processes need not live until their address maps
    /// are read. Needs CAP_PERFMON.
    ///
    /// # Errors
    ///
    /// The kernel refused one of the events. Address maps are then read as before.
    pub fn listen(&mut self, cpus: &[Cpu]) -> io::Result<()> {
        let bands: Vec<SideBand> =
            cpus.iter().map(|&cpu| SideBand::open(cpu, cpus.len())).collect::<io::Result<_>>()?;
        self.listens = true;
        for band in bands {
            self.orders.give(Order::Listen(band));
        }
        Ok(())
    }

    /// Opens the mapping events of a CPU that is back online, if they were open: events there since were
    /// lost.
    pub fn listen_again(&self, cpu: Cpu, cpus: usize) {
        if self.listens
            && let Ok(band) = SideBand::open(cpu, cpus)
        {
            self.orders.give(Order::Listen(band));
        }
    }

    /// Returns the number of mapping records lost for lack of room.
    pub fn lost(&self) -> u64 {
        self.orders.lost()
    }

    /// Returns the CPU time of the symbolizer process in ns, as of the last look-up of names.
    pub fn cpu_ns(&self) -> u64 {
        self.orders.cpu_ns()
    }

    /// Registers a sampled process: its address map is read while it lives.
    pub fn see(&self, tgid: u32) {
        self.orders.give(Order::See(tgid));
    }

    /// Registers a process that began at a time (CLOCK_MONOTONIC, ns) as a copy of `parent`.
    pub fn fork(&self, parent: u32, child: u32, at_ns: u64) {
        if !self.listens {
            self.orders.give(Order::Fork { parent, child, at_ns });
        }
    }

    /// Registers an exec at a time (CLOCK_MONOTONIC, ns): from then on the process's address map and
    /// locations are void.
    pub fn execute(&self, tgid: u32, at_ns: u64) {
        if !self.listens {
            self.orders.give(Order::Execute(tgid, at_ns));
        }
    }

    /// Enables look-ups of function names during the run. The names come with [`Located::names`].
    pub fn name_as_it_goes(&mut self) {
        self.orders.give(Order::NameAsItGoes);
        self.pace = Some(Pace::Doubling { due: Instant::now() + NAMING.0, after: NAMING.0 });
    }

    /// Enables look-ups of new names with every drain. The names come with it, unless the look-up takes too
    /// much time.
    pub fn name_with_drains(&mut self) {
        self.orders.give(Order::NameAsItGoes);
        self.pace = Some(Pace::WithDrains { due: Instant::now(), cpu_ns: 0 });
    }

    /// Requests the names of new code, if a look-up is due. Returns how long a drain waits for them.
    fn name_new(&mut self) -> Duration {
        let (now, spent_ns) = (Instant::now(), self.orders.cpu_ns());
        match &mut self.pace {
            Some(Pace::Doubling { due, after }) if *due <= now => {
                (*due, *after) = (now + *after, NAMING.1.min(*after * 2));
                self.orders.give(Order::NameNew);
                LOCATING
            }
            Some(Pace::WithDrains { due, cpu_ns }) if *due <= now => {
                let took = Duration::from_nanos(spent_ns.saturating_sub(*cpu_ns));
                (*due, *cpu_ns) = (now + took * NAMING_SHARE, spent_ns);
                self.orders.give(Order::NameNew);
                // Names come with locations.
                self.ask(Samples::default());
                WITH_NAMES
            }
            _ => LOCATING,
        }
    }

    /// Requests the locations of samples. Without an answer they are reported as they are when the run is
    /// over.
    fn ask(&mut self, samples: Samples) {
        let samples = Arc::new(samples);
        self.orders.give(Order::Locate(Arc::clone(&samples), monotonic_ns()));
        self.waiting.push_back(samples);
    }

    /// Returns whether there is room for another copy of `bytes` bytes. Copies are not recorded, so they are
    /// unwound during the run.
    pub fn may_unwind(&self, bytes: usize) -> bool {
        self.orders.unwinds.waiting() + bytes <= COPIED_MAX
    }

    /// Unwinds the user stacks of samples. The stacks come with samples that are located later.
    pub fn unwind(&self, snapshots: Vec<Snapshot>) {
        let bytes: usize = snapshots.iter().map(|snapshot| snapshot.stack.len()).sum();
        if !snapshots.is_empty() {
            self.orders.unwinds.add(bytes);
            self.orders.give(Order::Unwind(snapshots));
        }
    }

    /// Locates samples. Returns those located so far. The others come with a later call.
    pub fn locate(&mut self, samples: Samples) -> Located {
        if self.waiting.len() >= BEHIND_MAX {
            return unlocated(&samples);
        }
        if !samples.is_empty() {
            self.ask(samples);
        }
        let patience = self.name_new();
        self.located_until(Instant::now() + patience)
    }

    fn located_until(&mut self, deadline: Instant) -> Located {
        let mut all = Located::default();
        while !self.waiting.is_empty() {
            let Some(Answer::Located(located)) = self.answers.next(deadline) else { break };
            self.waiting.pop_front();
            all.append(located);
        }
        all
    }

    /// Returns the state of the look-up at the end, for other threads.
    pub fn naming(&self) -> Arc<Naming> {
        Arc::clone(&self.orders.naming)
    }

    /// Returns the names of everything that was located, as far as time permits. Nothing can be located
    /// afterwards. Samples without locations by then keep their addresses. If it takes long, `takes_long` is
    /// called, once.
    pub fn name_all(&mut self, takes_long: impl FnOnce(&Naming)) -> Named {
        let naming = self.naming();
        naming.begin();
        let named = self.name_until(Instant::now() + NAMING_WALL, takes_long);
        naming.end();
        named
    }

    fn name_until(&mut self, until: Instant, takes_long: impl FnOnce(&Naming)) -> Named {
        let patient = Instant::now() + LONG;
        self.orders.unwinds.end(Instant::now() + UNWINDING);
        self.orders.give(Order::NameAll(until));
        let given_up = until + OVERTIME;
        let mut located = self.located_until(given_up);
        let named = if self.waiting.is_empty() { self.answers.next(patient) } else { None };
        let named = named.or_else(|| {
            takes_long(&self.orders.naming);
            self.answers.next(given_up)
        });
        let unlocated =
            self.waiting.drain(..).filter(|samples| !samples.is_empty()).map(|samples| unlocated(&samples));
        unlocated.for_each(|rows| located.append(rows));
        match named {
            Some(Answer::Named(mut named)) => {
                located.append(std::mem::take(&mut named.located));
                Named { located, ..named }
            }
            _ => Named { located, ..Named::default() },
        }
    }
}

#[cfg(test)]
mod tests;
