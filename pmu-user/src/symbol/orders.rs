//! What the thread is told that follows processes, in order, and what it says. Between orders it listens to the kernel.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, TryRecvError, channel},
    },
    thread,
    time::Instant,
};

use rustix::{
    event::Timespec,
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{getpriority_process, setpriority_process},
    thread::CapabilitySet,
};

use super::{NAMING_ALL, NAMING_MAX, Named, Naming, OVERTIME, Samples, Snapshot, open, tracker::Tracker};
use crate::{drain::Located, machine::privilege::keep_only, perf::side_band::SideBand};

/// How often the maps that JITs write are looked at.
const MEASURE_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The niceness of the thread, where it may have it and pmbpf was given none to be polite, so that names come soon on a host whose CPUs are busy: beside ten busy tasks of its
/// cgroup it has half of a CPU, not a tenth.
const NICE: i32 = -10;

/// What the tracker is told, in order.
pub(super) enum Order {
    See(u32),
    Fork {
        parent: u32,
        child: u32,
        at_ns: u64,
    },
    /// A process, and when.
    Execute(u32, u64),
    Listen(SideBand),
    /// Samples, and when their drain was done.
    Locate(Arc<Samples>, u64),
    Unwind(Vec<Snapshot>),
    /// Names are looked up as the run goes.
    NameAsItGoes,
    NameNew,
    /// Until then by the clock that never stands.
    NameAll(Instant),
}

/// What it says.
pub(super) enum Answer {
    Located(Located),
    Named(Named),
}

/// Takes what it says. Dropped after [`Orders`], it waits for the thread's end, and so for that of the processes that read the files of
/// others: one that nobody waits for stays as a zombie where the first process of a container does not either.
#[derive(Debug)]
pub(super) struct Answers(Receiver<Answer>);

impl Answers {
    /// The next one, if it comes by then.
    pub(super) fn next(&self, until: Instant) -> Option<Answer> {
        self.0.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        let until = Instant::now() + OVERTIME;
        // The thread's end of it is dropped last.
        while self.next(until).is_some() {}
    }
}

/// Gives orders. The thread ends when this does.
#[derive(Debug)]
pub(super) struct Orders {
    orders: Sender<Order>,
    /// Wakes the thread; dropped after `orders`, so that it finds them over. Without it nobody listens.
    wake: Option<OwnedFd>,
    /// Records of the kernel that found no room.
    lost: Arc<AtomicU64>,
    /// CPU time of the symbolizer process, in ns, as it was after names were looked up.
    cpu_ns: Arc<AtomicU64>,
    /// What the thread sees of what waits to be unwound, and of the time.
    pub(super) unwinds: Arc<Unwinds>,
    /// What others see of looking names up at the end.
    pub(super) naming: Arc<Naming>,
}

/// What both sides know of unwinding.
#[derive(Debug, Default)]
pub(super) struct Unwinds {
    /// Bytes of stacks that wait.
    waiting: AtomicUsize,
    /// When what still waits is given up, because the run is over.
    until: OnceLock<Instant>,
}

impl Unwinds {
    /// Bytes of stacks that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// More bytes wait.
    pub(super) fn add(&self, bytes: usize) {
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The run is over: what waits until then is given up.
    pub(super) fn end(&self, until: Instant) {
        let _ = self.until.set(until);
    }
}

impl std::fmt::Debug for Order {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Order")
    }
}

impl Orders {
    /// Starts the thread. Without it nobody answers, and addresses stay without places.
    pub(super) fn start() -> (Self, Answers) {
        let (orders, received) = channel();
        let (answers_to, answers) = channel();
        let (lost, cpu_ns) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (woken, wake) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok().unzip();
        let (unwinds, naming) = (Arc::new(Unwinds::default()), Arc::new(Naming::default()));
        let worker = Worker {
            received,
            answers: answers_to,
            lost: Arc::clone(&lost),
            cpu_ns: Arc::clone(&cpu_ns),
            unwinds: Arc::clone(&unwinds),
            naming: Arc::clone(&naming),
        };
        if let Some(woken) = woken {
            let name = thread::Builder::new().name("pmbpf-names".to_owned());
            let _ = name.spawn(move || worker.serve(&woken));
        }
        (Self { orders, wake, lost, cpu_ns, unwinds, naming }, Answers(answers))
    }

    /// Without a thread.
    #[cfg(test)]
    pub(super) fn to_no_thread() -> (Self, Answers) {
        let (lost, cpu_ns, unwinds) = (Arc::default(), Arc::default(), Arc::default());
        let naming = Arc::default();
        (Self { orders: channel().0, wake: None, lost, cpu_ns, unwinds, naming }, Answers(channel().1))
    }

    /// Gives an order. Is there anybody to take it?
    pub(super) fn give(&self, order: Order) -> bool {
        let given = self.orders.send(order).is_ok();
        // A pipe that is full wakes as well.
        given
            && self
                .wake
                .as_ref()
                .is_some_and(|wake| matches!(rustix::io::write(wake, &[0]), Ok(_) | Err(Errno::AGAIN)))
    }

    /// Records of the kernel that found no room, in all.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// CPU time of the symbolizer process, in ns, as it was after names were looked up.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }
}

/// The thread.
struct Worker {
    received: Receiver<Order>,
    answers: Sender<Answer>,
    lost: Arc<AtomicU64>,
    cpu_ns: Arc<AtomicU64>,
    unwinds: Arc<Unwinds>,
    naming: Arc<Naming>,
}

impl Worker {
    fn serve(self, woken: &OwnedFd) {
        // The processes that it starts inherit it: who reads a report waits for them.
        if getpriority_process(None).is_ok_and(|niceness| niceness <= 0) {
            let _ = setpriority_process(None, NICE);
        }
        keep_only(rights());
        let mut tracker = Tracker::new(Arc::clone(&self.naming));
        loop {
            let has_maps = tracker.measure_perf_maps();
            tracker.listening.wait(woken, has_maps.then_some(&MEASURE_EVERY));
            self.hear(&mut tracker);
            loop {
                let answer = match self.received.try_recv() {
                    Ok(order) => self.follow(&mut tracker, order),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                };
                if answer.is_some_and(|answer| self.answers.send(answer).is_err()) {
                    return;
                }
            }
        }
    }

    /// Follows an order, knowing all that happened before it was given.
    fn follow(&self, tracker: &mut Tracker, order: Order) -> Option<Answer> {
        self.hear(tracker);
        match order {
            Order::See(tgid) => tracker.see(tgid),
            Order::Fork { parent, child, at_ns } => tracker.fork(parent, child, at_ns),
            Order::Execute(tgid, at_ns) => tracker.execute(tgid, at_ns),
            Order::Listen(band) => tracker.listen(band),
            Order::Unwind(snapshots) => {
                let bytes = snapshots.iter().map(|snapshot| snapshot.stack.len()).sum();
                tracker.unwind(snapshots, self.unwinds.until.get().copied());
                self.unwinds.waiting.fetch_sub(bytes, Ordering::Relaxed);
            }
            Order::Locate(samples, drained_ns) => {
                return Some(Answer::Located(tracker.locate(&samples, drained_ns)));
            }
            Order::NameAsItGoes => tracker.name_as_it_goes(),
            Order::NameNew => {
                let deadline = tracker.symbolizer.within(NAMING_MAX);
                tracker.name_new(deadline);
                self.cpu_ns.store(cpu_ns(tracker), Ordering::Relaxed);
            }
            Order::NameAll(until) => {
                let deadline = tracker.symbolizer.within(NAMING_ALL).not_after(until);
                let located = tracker.unwinding.take();
                let names = tracker.name_all(deadline);
                self.cpu_ns.store(cpu_ns(tracker), Ordering::Relaxed);
                return Some(Answer::Named(Named { names, located }));
            }
        }
        None
    }

    fn hear(&self, tracker: &mut Tracker) {
        self.lost.fetch_add(tracker.hear(), Ordering::Relaxed);
    }
}

/// CPU time of the processes that read the files of others, in ns.
fn cpu_ns(tracker: &Tracker) -> u64 {
    tracker.symbolizer.cpu_ns() + tracker.unwinding.cpu_ns() + tracker.patience.cpu_ns()
}

/// What naming takes: opening the files of others' processes, and the kernel's symbols, for which a program asks it, or its list.
fn rights() -> CapabilitySet {
    open::rights() | CapabilitySet::SYSLOG | CapabilitySet::BPF | CapabilitySet::PERFMON
}
