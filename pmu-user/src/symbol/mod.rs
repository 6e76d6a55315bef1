//! Where addresses lie and what they are called.
//!
//! A process may be gone when names are wanted, so the two are apart: while it lives, an address becomes a file, its build id
//! and an offset, and the file is kept open; names are looked up at the end. Whatever a process owns was made by a stranger:
//! its files are opened on a thread of their own, and read in a process of their own.

mod address_map;
mod child;
mod naming;
mod open;
mod patience;
mod processes;
mod recorded;
mod source;
mod tracker;
mod unwinding;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::thread::{CapabilitySet, capabilities};

use self::tracker::{LATE, LATE_WHY, Tracker};
pub use self::{
    child::{SUBCOMMAND, serve},
    recorded::name_recorded,
    unwinding::Snapshot,
};
use crate::{
    drain::{At, CodeRow, CodeStackRow, HotRow, Located, Name, SourceRow, StackRow},
    machine::privilege::keep_only,
};

/// How long a drain waits for the places of its addresses; later ones come with the next drain.
const LOCATING: Duration = Duration::from_millis(20);

/// How long after its time for names the tracker is waited for: it may be in the middle of a file, on a busy machine.
const OVERTIME: Duration = Duration::from_millis(500);

/// Drains whose samples the tracker may be behind. Those of later ones are not located.
const BEHIND_MAX: usize = 256;

/// How long what waits to be unwound may take of the time for names.
const UNWINDING: Duration = Duration::from_millis(500);

/// Bytes of copied stacks that may wait to be unwound.
const COPIED_MAX: usize = 16 << 20;

/// Samples as the kernel side holds them, by process and address.
#[derive(Debug, Default)]
pub struct Samples {
    /// By address.
    pub hot: Vec<HotRow>,
    /// By stack.
    pub stacks: Vec<StackRow>,
    /// Addresses of the kernel that are to be named, although no sample hit them.
    pub kernel: Vec<u64>,
}

/// What the tracker is told, in order.
enum Order {
    See(u32),
    Fork { parent: u32, child: u32 },
    Execute(u32),
    Locate(Samples),
    Unwind(Vec<Snapshot>),
    NameAll(Instant),
}

/// What it says.
enum Answer {
    Located(Located),
    Named(Named),
}

/// Names, and what they cost.
#[derive(Debug, Default)]
pub struct Named {
    /// Names of addresses.
    pub names: Vec<Name>,
    /// Samples that were located late.
    pub located: Located,
    /// CPU time of the symbolizer process, in ns.
    pub cpu_ns: u64,
}

/// Processes, and what their addresses are.
#[derive(Debug)]
pub struct Symbols {
    orders: Sender<Order>,
    answers: Receiver<Answer>,
    /// Answers that are still to come.
    waiting: usize,
    /// What the tracker sees of what waits, and of the time.
    unwinds: Arc<Unwinds>,
}

/// What both sides know of unwinding.
#[derive(Debug, Default)]
struct Unwinds {
    /// Bytes of stacks that wait.
    waiting: AtomicUsize,
    /// When what still waits is given up, because the run is over.
    until: OnceLock<Instant>,
}

impl std::fmt::Debug for Order {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Order")
    }
}

impl Default for Symbols {
    fn default() -> Self {
        let (orders, received) = channel();
        let (answers_to, answers) = channel();
        let unwinds = Arc::new(Unwinds::default());
        let shared = Arc::clone(&unwinds);
        // Without the thread nobody answers, and addresses stay without places.
        let _ = thread::Builder::new()
            .name("pmbpf-names".to_owned())
            .spawn(move || serve_orders(&received, &answers_to, &shared));
        Self { orders, answers, waiting: 0, unwinds }
    }
}

fn serve_orders(orders: &Receiver<Order>, answers: &Sender<Answer>, unwinds: &Unwinds) {
    keep_only(rights());
    let mut tracker = Tracker::new();
    for order in orders {
        let answer = match order {
            Order::See(tgid) => {
                tracker.see(tgid);
                continue;
            }
            Order::Fork { parent, child } => {
                tracker.fork(parent, child);
                continue;
            }
            Order::Execute(tgid) => {
                tracker.execute(tgid);
                continue;
            }
            Order::Unwind(snapshots) => {
                let bytes = snapshots.iter().map(|snapshot| snapshot.stack.len()).sum();
                tracker.unwind(snapshots, unwinds.until.get().copied());
                unwinds.waiting.fetch_sub(bytes, Ordering::Relaxed);
                continue;
            }
            Order::Locate(samples) => Answer::Located(tracker.locate(&samples)),
            Order::NameAll(deadline) => {
                let located = tracker.unwinding.take();
                Answer::Named(Named {
                    names: tracker.name_all(deadline),
                    located,
                    cpu_ns: tracker.symbolizer.cpu_ns() + tracker.unwinding.cpu_ns(),
                })
            }
        };
        if answers.send(answer).is_err() {
            return;
        }
    }
}

/// What looking at the processes of others takes: their maps and files, and the kernel's symbols.
fn rights() -> CapabilitySet {
    let rights = CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::SYSLOG;
    // Files that are mapped are opened with the one, where the kernel knows it (Linux 5.9), else with the other.
    let held = capabilities(None).map_or(CapabilitySet::empty(), |held| held.permitted);
    let files = CapabilitySet::CHECKPOINT_RESTORE;
    rights | if held.contains(files) { files } else { CapabilitySet::SYS_ADMIN }
}

impl Symbols {
    /// A process was sampled: its address map is read while it lives.
    pub fn see(&self, tgid: u32) {
        let _ = self.orders.send(Order::See(tgid));
    }

    /// A process begins as a copy of `parent`.
    pub fn fork(&self, parent: u32, child: u32) {
        let _ = self.orders.send(Order::Fork { parent, child });
    }

    /// The process executed another program: its address map and places are void.
    pub fn execute(&self, tgid: u32) {
        let _ = self.orders.send(Order::Execute(tgid));
    }

    /// Is there room for another copy of so many bytes? Copies are in no recording, so they are unwound while the run goes on,
    /// and those that wait are all that is kept of them: a recording holds finished stacks, and reads the same anywhere.
    #[must_use]
    pub fn may_unwind(&self, bytes: usize) -> bool {
        self.unwinds.waiting.load(Ordering::Relaxed) + bytes <= COPIED_MAX
    }

    /// Unwinds the user stacks of samples; they come with those that are located later.
    pub fn unwind(&self, snapshots: Vec<Snapshot>) {
        let bytes: usize = snapshots.iter().map(|snapshot| snapshot.stack.len()).sum();
        if !snapshots.is_empty() {
            self.unwinds.waiting.fetch_add(bytes, Ordering::Relaxed);
            let _ = self.orders.send(Order::Unwind(snapshots));
        }
    }

    /// Locates samples. Returns those that are located by now; the others come with a later call.
    pub fn locate(&mut self, samples: Samples) -> Located {
        if self.waiting >= BEHIND_MAX {
            return unlocated(&samples);
        }
        if !(samples.hot.is_empty() && samples.stacks.is_empty() && samples.kernel.is_empty()) {
            self.waiting += usize::from(self.orders.send(Order::Locate(samples)).is_ok());
        }
        self.located_until(Instant::now() + LOCATING)
    }

    fn located_until(&mut self, deadline: Instant) -> Located {
        let mut all = Located::default();
        while self.waiting > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(Answer::Located(located)) = self.answers.recv_timeout(left) else { break };
            self.waiting -= 1;
            all.append(located);
        }
        all
    }

    /// Names of everything that was located, as far as they can be had until `deadline`. Nothing can be located any more.
    pub fn name_all(&mut self, deadline: Instant) -> Named {
        let _ = self.unwinds.until.set(Instant::now() + UNWINDING);
        let _ = self.orders.send(Order::NameAll(deadline));
        let given_up = deadline + OVERTIME;
        let mut located = self.located_until(given_up);
        match self.answers.recv_timeout(given_up.saturating_duration_since(Instant::now())) {
            Ok(Answer::Named(mut named)) => {
                located.append(std::mem::take(&mut named.located));
                Named { located, ..named }
            }
            _ => Named { located, ..Named::default() },
        }
    }
}

/// Samples that the tracker is too far behind to locate.
fn unlocated(samples: &Samples) -> Located {
    let at = |tgid: u32, address: u64| match tgid {
        0 => At::kernel(address),
        _ => At { source: LATE, offset: address },
    };
    let row = |&HotRow { slot, tgid, address, count, event, cpu }: &HotRow| {
        let at = at(tgid, address);
        CodeRow { slot, at, count, event, cpu }
    };
    let stack = |row: &StackRow| {
        let frames = row.kernel.iter().map(|&address| at(0, address));
        let frames = frames.chain(row.user.iter().map(|&address| at(row.tgid, address))).collect();
        CodeStackRow { slot: row.slot, frames, count: row.count, event: row.event }
    };
    let unnamed = LATE_WHY.to_owned();
    Located {
        sources: vec![SourceRow { source: LATE, path: None, build_id: None, unnamed }],
        code: samples.hot.iter().map(row).collect(),
        stacks: samples.stacks.iter().map(stack).collect(),
        ..Located::default()
    }
}
