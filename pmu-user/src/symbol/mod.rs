//! Where addresses lie and what they are called.
//!
//! A process may be gone when names are wanted, so the two are apart: while it lives, an address becomes a file, its build id and an offset, and
//! the file is kept open; names are looked up at the end. It may be gone even before its address map can be read: where samples want
//! names, the kernel records every mapping when it is made. What a process owns was made by a stranger: its files are opened in one
//! process and read in another, and neither is waited for without end.

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

/// How long a drain waits for the places of its addresses; later ones come with the next drain.
const LOCATING: Duration = Duration::from_millis(20);

/// How long after its time for names the tracker is waited for: it may be in the middle of a file, on a busy machine.
const OVERTIME: Duration = Duration::from_millis(500);

/// Drains whose samples the tracker may be behind. Those of later ones are not located.
const BEHIND_MAX: usize = 256;

/// How long what waits to be unwound may take of the time for names.
const UNWINDING: Duration = Duration::from_millis(500);

/// How long it takes until names are looked up again in a run that does so as it goes: at first, and the longest, to which it doubles.
const NAMING: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// How long that may take, by the clock that stands while a CPU is waited for.
const NAMING_MAX: Duration = Duration::from_secs(1);

/// How long a drain waits for the names of what is new, in a run that reports intervals.
const WITH_NAMES: Duration = Duration::from_millis(100);

/// How much longer than looking names up took CPU time is waited before it is done again.
const NAMING_SHARE: u32 = 20;

/// How long names may take at the end, by that clock: a report is due within two seconds of a signal.
const NAMING_ALL: Duration = Duration::from_millis(1200);

/// After how long a run says that it is looking names up.
const LONG: Duration = Duration::from_secs(2);

/// How long a run waits for them on a host whose CPUs are busy. The thread that is waited for waits for no stranger.
const NAMING_WALL: Duration = Duration::from_secs(60);

/// Bytes of copied stacks that may wait.
const COPIED_MAX: usize = 16 << 20;

/// Samples as the kernel side holds them, by process and address.
#[derive(Debug, Default)]
pub struct Samples {
    /// By address.
    pub hot: Vec<Hit>,
    /// By stack.
    pub stacks: Vec<HitStack>,
    /// Waits by stack.
    pub off_cpu: Vec<OffCpuStack>,
    /// Addresses of the kernel that are to be named, although no sample hit them.
    pub kernel: Vec<u64>,
}

/// Samples at one address, and when they were taken (CLOCK_MONOTONIC, ns).
#[derive(Debug)]
pub struct Hit {
    /// They.
    pub row: HotRow,
    /// The first.
    pub first_ns: u64,
    /// By when the last was.
    pub last_ns: u64,
}

/// Samples with one stack, and when each was taken (CLOCK_MONOTONIC, ns).
#[derive(Debug)]
pub struct HitStack {
    /// They.
    pub row: StackRow,
    /// When.
    pub times_ns: Vec<u64>,
}

/// Names.
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

/// Addresses of a stack, innermost first, each with its process: 0 for the kernel.
fn addresses<'a>(kernel: &'a [u64], tgid: u32, user: &'a [u64]) -> impl Iterator<Item = (u32, u64)> + 'a {
    let kernel = kernel.iter().map(|&address| (0, address));
    kernel.chain(calls(user).map(move |address| (tgid, address)))
}

/// User addresses of a stack, innermost first. Those that code returns to are taken for the calls before them: the next instruction may be
/// of another line, or of another function, if the call does not return.
fn calls(user: &[u64]) -> impl Iterator<Item = u64> + '_ {
    user.iter().zip(0..).map(|(&address, at)| if at > 0 { address.saturating_sub(1) } else { address })
}

/// When names are looked up while a run goes on.
#[derive(Debug)]
enum Pace {
    /// At this time, and so much later again, which doubles.
    Doubling { due: Instant, after: Duration },
    /// With a drain from this time on. So much CPU time had been spent the last time.
    WithDrains { due: Instant, cpu_ns: u64 },
}

/// Processes, and what their addresses are.
#[derive(Debug)]
pub struct Symbols {
    orders: Orders,
    /// Behind `orders`, with which the thread ends that this waits for.
    answers: Answers,
    /// Samples whose places are still to come, in order.
    waiting: VecDeque<Arc<Samples>>,
    /// Does the kernel tell of mappings?
    listens: bool,
    /// When names are looked up, in a run that does so as it goes.
    pace: Option<Pace>,
}

impl Default for Symbols {
    fn default() -> Self {
        let (orders, answers) = Orders::start();
        Self { orders, answers, waiting: VecDeque::new(), listens: false, pace: None }
    }
}

impl Symbols {
    /// Opens what the kernel tells of mappings on `cpus`, so that processes need not live until their address maps are read.
    /// Needs CAP_PERFMON.
    ///
    /// # Errors
    ///
    /// The kernel refused one of them; then address maps are read as before.
    pub fn listen(&mut self, cpus: &[Cpu]) -> io::Result<()> {
        let bands: Vec<SideBand> =
            cpus.iter().map(|&cpu| SideBand::open(cpu, cpus.len())).collect::<io::Result<_>>()?;
        self.listens = true;
        for band in bands {
            self.orders.give(Order::Listen(band));
        }
        Ok(())
    }

    /// A CPU is back, if it was listened to: what happened there since is not known.
    pub fn listen_again(&self, cpu: Cpu, cpus: usize) {
        if self.listens
            && let Ok(band) = SideBand::open(cpu, cpus)
        {
            self.orders.give(Order::Listen(band));
        }
    }

    /// Records of mappings that found no room, in all.
    pub fn lost(&self) -> u64 {
        self.orders.lost()
    }

    /// CPU time of the symbolizer process in ns, when names were looked up last.
    pub fn cpu_ns(&self) -> u64 {
        self.orders.cpu_ns()
    }

    /// A process was sampled: its address map is read while it lives.
    pub fn see(&self, tgid: u32) {
        self.orders.give(Order::See(tgid));
    }

    /// A process began at a time (CLOCK_MONOTONIC, ns) as a copy of `parent`.
    pub fn fork(&self, parent: u32, child: u32, at_ns: u64) {
        if !self.listens {
            self.orders.give(Order::Fork { parent, child, at_ns });
        }
    }

    /// The process executed another program at a time (CLOCK_MONOTONIC, ns): from then on its address map and places are void.
    pub fn execute(&self, tgid: u32, at_ns: u64) {
        if !self.listens {
            self.orders.give(Order::Execute(tgid, at_ns));
        }
    }

    /// From now on names of functions are looked up as the run goes, and come with [`Located::names`].
    pub fn name_as_it_goes(&mut self) {
        self.orders.give(Order::NameAsItGoes);
        self.pace = Some(Pace::Doubling { due: Instant::now() + NAMING.0, after: NAMING.0 });
    }

    /// From now on the names of what is new are looked up with every drain, and come with it, unless that takes too much time.
    pub fn name_with_drains(&mut self) {
        self.orders.give(Order::NameAsItGoes);
        self.pace = Some(Pace::WithDrains { due: Instant::now(), cpu_ns: 0 });
    }

    /// Has the names looked up of what is new, if it is time to. How long a drain waits for them.
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
                // Names come with places.
                self.ask(Samples::default());
                WITH_NAMES
            }
            _ => LOCATING,
        }
    }

    /// Asks for the places of samples. Where nothing answers, they come out as they are when the run is over.
    fn ask(&mut self, samples: Samples) {
        let samples = Arc::new(samples);
        self.orders.give(Order::Locate(Arc::clone(&samples), monotonic_ns()));
        self.waiting.push_back(samples);
    }

    /// Is there room for another copy of so many bytes? Copies are in no recording, so they are unwound while the run goes on.
    pub fn may_unwind(&self, bytes: usize) -> bool {
        self.orders.unwinds.waiting() + bytes <= COPIED_MAX
    }

    /// Unwinds the user stacks of samples; they come with those that are located later.
    pub fn unwind(&self, snapshots: Vec<Snapshot>) {
        let bytes: usize = snapshots.iter().map(|snapshot| snapshot.stack.len()).sum();
        if !snapshots.is_empty() {
            self.orders.unwinds.add(bytes);
            self.orders.give(Order::Unwind(snapshots));
        }
    }

    /// Locates samples. Returns those that are located by now; the others come with a later call.
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

    /// What others see of looking names up at the end.
    pub fn naming(&self) -> Arc<Naming> {
        Arc::clone(&self.orders.naming)
    }

    /// Names of everything that was located, as far as they can be had in time. Nothing can be located any more; samples whose places have
    /// not come by then have their addresses. Where it takes long, that is said by `takes_long`, once.
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
