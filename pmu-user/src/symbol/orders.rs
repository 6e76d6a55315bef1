//! Orders to the thread that tracks processes, and its answers. Between orders the thread reads the kernel's
//! events.

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

/// Interval at which the maps that JITs write are measured.
const MEASURE_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Niceness of the thread, where it is permitted and pmbpf's own is not positive, so that names come soon on
/// a host whose CPUs are busy. Next to ten busy tasks of its cgroup the thread gets half of a CPU, not a
/// tenth.
const NICE: i32 = -10;

/// Orders to the tracker, in sequence.
pub(super) enum Order {
    See(u32),
    Fork {
        parent: u32,
        child: u32,
        at_ns: u64,
    },
    /// A process, and the time of its exec.
    Execute(u32, u64),
    Listen(SideBand),
    /// Samples, and the time of their drain.
    Locate(Arc<Samples>, u64),
    Unwind(Vec<Snapshot>),
    /// Names are looked up during the run.
    NameAsItGoes,
    NameNew,
    /// Deadline by the clock that never stops.
    NameAll(Instant),
}

/// Answer of the tracker.
pub(super) enum Answer {
    Located(Located),
    Named(Named),
}

/// Receiver of the answers. Dropped after [`Orders`], it waits for the end of the thread, and so for that of
/// the processes that read the files of others. An unreaped process would stay as a zombie where the first
/// process of a container does not reap.
#[derive(Debug)]
pub(super) struct Answers(Receiver<Answer>);

impl Answers {
    /// Returns the next answer, if it comes in time.
    pub(super) fn next(&self, until: Instant) -> Option<Answer> {
        self.0.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        let until = Instant::now() + OVERTIME;
        // The thread drops its sender last.
        while self.next(until).is_some() {}
    }
}

/// Sender of orders. The thread ends when it is dropped.
#[derive(Debug)]
pub(super) struct Orders {
    orders: Sender<Order>,
    /// Wakes the thread. Dropped after `orders`, so that the thread finds them closed. Without it there is no
    /// thread.
    wake: Option<OwnedFd>,
    /// Records lost by the kernel for lack of room.
    lost: Arc<AtomicU64>,
    /// CPU time of the symbolizer process, in ns, after the last look-up of names.
    cpu_ns: Arc<AtomicU64>,
    /// Pending unwinding, and its deadline.
    pub(super) unwinds: Arc<Unwinds>,
    /// State of the look-up at the end, for other threads.
    pub(super) naming: Arc<Naming>,
}

/// State of unwinding that both threads share.
#[derive(Debug, Default)]
pub(super) struct Unwinds {
    /// Bytes of pending stacks.
    waiting: AtomicUsize,
    /// Deadline of pending stacks, once the run is over.
    until: OnceLock<Instant>,
}

impl Unwinds {
    /// Returns the bytes of pending stacks.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Adds bytes of pending stacks.
    pub(super) fn add(&self, bytes: usize) {
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sets the deadline of pending stacks at the end of the run.
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
    /// Starts the thread. Without it there are no answers, and addresses stay without locations.
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

    /// Returns a sender without a thread.
    #[cfg(test)]
    pub(super) fn to_no_thread() -> (Self, Answers) {
        let (lost, cpu_ns, unwinds) = (Arc::default(), Arc::default(), Arc::default());
        let naming = Arc::default();
        (Self { orders: channel().0, wake: None, lost, cpu_ns, unwinds, naming }, Answers(channel().1))
    }

    /// Sends an order. Returns whether there is a thread to take it.
    pub(super) fn give(&self, order: Order) -> bool {
        let given = self.orders.send(order).is_ok();
        // A full pipe wakes the thread as well.
        given
            && self
                .wake
                .as_ref()
                .is_some_and(|wake| matches!(rustix::io::write(wake, &[0]), Ok(_) | Err(Errno::AGAIN)))
    }

    /// Returns the number of records lost by the kernel for lack of room.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns the CPU time of the symbolizer process, in ns, after the last look-up of names.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }
}

/// State of the thread.
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
        // The processes that it starts inherit the niceness: a report waits for them.
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

    /// Executes an order, after all events that precede it.
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

/// Returns the CPU time of the processes that read the files of others, in ns.
fn cpu_ns(tracker: &Tracker) -> u64 {
    tracker.symbolizer.cpu_ns() + tracker.unwinding.cpu_ns() + tracker.patience.cpu_ns()
}

/// Returns the capabilities that naming needs: to open files of other users' processes, and to read the
/// kernel's symbols by a program or from its list.
fn rights() -> CapabilitySet {
    open::rights() | CapabilitySet::SYSLOG | CapabilitySet::BPF | CapabilitySet::PERFMON
}
