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

use std::{
    collections::HashMap,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::thread::{CapabilitySet, capabilities};

use self::tracker::Tracker;
pub use self::{
    child::{SUBCOMMAND, serve},
    recorded::name_recorded,
};
use crate::{
    drain::{Name, Place},
    machine::privilege::keep_only,
};

/// How long a drain waits for the places of its addresses; later ones come with the next drain.
const LOCATING: Duration = Duration::from_millis(20);

/// How long after its time for names the tracker is waited for: it may be in the middle of a file, on a busy machine.
const OVERTIME: Duration = Duration::from_millis(500);

/// What the tracker is told, in order.
enum Order {
    See(u32),
    Fork { parent: u32, child: u32 },
    Execute(u32),
    Locate(Vec<(u32, u64, u64)>),
    NameAll(Instant),
}

/// What it says.
enum Answer {
    Located(Vec<Place>),
    Named(Named),
}

/// Names, and what they cost.
#[derive(Debug, Default)]
pub struct Named {
    /// Names of addresses.
    pub names: Vec<Name>,
    /// Places that came late.
    pub places: Vec<Place>,
    /// CPU time of the symbolizer process, in ns.
    pub cpu_ns: u64,
}

/// Processes, and places of addresses.
#[derive(Debug)]
pub struct Symbols {
    orders: Sender<Order>,
    answers: Receiver<Answer>,
    /// Answers that are still to come.
    waiting: usize,
    /// Kernel addresses and samples, and user ones by process, of a drain.
    addresses: HashMap<(u32, u64), u64>,
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
        // Without the thread nobody answers, and addresses stay without places.
        let _ = thread::Builder::new()
            .name("pmbpf-names".to_owned())
            .spawn(move || serve_orders(&received, &answers_to));
        Self { orders, answers, waiting: 0, addresses: HashMap::new() }
    }
}

fn serve_orders(orders: &Receiver<Order>, answers: &Sender<Answer>) {
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
            Order::Locate(addresses) => Answer::Located(tracker.locate(&addresses)),
            Order::NameAll(deadline) => {
                let names = tracker.name_all(deadline);
                Answer::Named(Named { names, places: Vec::new(), cpu_ns: tracker.symbolizer.cpu_ns() })
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

    /// Locates addresses, each a process (0 for the kernel), an address and samples. Returns the places that are known by
    /// now, of those that are new; the others come with a later call.
    pub fn locate(&mut self, addresses: impl Iterator<Item = (u32, u64, u64)>) -> Vec<Place> {
        for (tgid, address, samples) in addresses {
            *self.addresses.entry((tgid, address)).or_default() += samples;
        }
        if !self.addresses.is_empty() {
            let mut sum: Vec<_> =
                self.addresses.drain().map(|((tgid, address), samples)| (tgid, address, samples)).collect();
            sum.sort_unstable();
            self.waiting += usize::from(self.orders.send(Order::Locate(sum)).is_ok());
        }
        self.places_until(Instant::now() + LOCATING)
    }

    fn places_until(&mut self, deadline: Instant) -> Vec<Place> {
        let mut places = Vec::new();
        while self.waiting > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(Answer::Located(located)) = self.answers.recv_timeout(left) else { break };
            self.waiting -= 1;
            places.extend(located);
        }
        places
    }

    /// Names of everything that was located, as far as they can be had until `deadline`. Nothing can be located any more.
    pub fn name_all(&mut self, deadline: Instant) -> Named {
        let _ = self.orders.send(Order::NameAll(deadline));
        let given_up = deadline + OVERTIME;
        let places = self.places_until(given_up);
        match self.answers.recv_timeout(given_up.saturating_duration_since(Instant::now())) {
            Ok(Answer::Named(named)) => Named { places, ..named },
            _ => Named { places, ..Named::default() },
        }
    }
}
