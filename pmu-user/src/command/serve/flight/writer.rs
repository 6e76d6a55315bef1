//! Writer thread of the flight recorder: its orders, its state, and when a dump is refused.

use std::{
    path::Path,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::{
    dump::Dumped,
    ring::{Follows, Ring},
};
use crate::{
    command::output, drain::Drain, machine::duration_ns, metric::exposed::FlightCounts, view::text::duration,
};

/// Least time between two requested dumps: each holds all that is kept.
const APART: Duration = Duration::from_secs(10);
/// Longest delay of a requested dump: a connection ends after 30 s.
const AFTER_REQUEST_MAX: Duration = Duration::from_secs(20);
/// Delay of a due drain after which a dump is made without it.
const LATE_MAX: Duration = Duration::from_secs(5);

/// Orders to the writer thread.
pub(super) enum Order {
    /// Begins a segment with a checkpoint.
    Begin(Box<Drain>, Follows),
    /// Appends a drain.
    Drain(Box<Drain>),
    /// Makes a dump.
    Dump(Ask),
    /// The run has ended: nothing is kept any more.
    End,
}

/// Cause of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Signal,
    Request,
    Rule,
}

impl Cause {
    /// Causes, in the order in which they are counted.
    const ALL: [Self; 3] = [Self::Signal, Self::Request, Self::Rule];

    const fn name(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Request => "request",
            Self::Rule => "rule",
        }
    }
}

/// Request for a dump.
pub(super) struct Ask {
    cause: Cause,
    /// Metric of the rule, and what was met in words, if a rule is the cause.
    rule: Option<(String, String)>,
    /// Channel to the client that waits for the name, if there is one.
    pub(super) answer: Option<oneshot::Sender<Result<String, Refusal>>>,
}

impl Ask {
    pub(super) const fn of(cause: Cause, rule: Option<(String, String)>) -> Self {
        Self { cause, rule, answer: None }
    }
}

/// Reason why there is no dump.
#[derive(Debug)]
pub(in crate::command::serve) enum Refusal {
    /// A dump was made a short time ago; after this time another one is made.
    TooSoon(Duration),
    /// Too many orders wait for the disk.
    Busy,
    /// The dump could not be made.
    Failed(String),
}

/// State and counts of the writer thread.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Whether something could not be written.
    has_failed: AtomicBool,
    /// Whether the open segment has reached its size.
    is_full: AtomicBool,
    dumps: [AtomicU64; Cause::ALL.len()],
    refused: [AtomicU64; Cause::ALL.len()],
    failures: AtomicU64,
    lost_drains: AtomicU64,
    bytes: AtomicU64,
    span_ns: AtomicU64,
}

impl Told {
    pub(super) fn take_failure(&self) -> bool {
        self.has_failed.swap(false, Relaxed)
    }

    pub(super) fn take_full(&self) -> bool {
        self.is_full.swap(false, Relaxed)
    }

    pub(super) fn lose(&self) {
        self.lost_drains.fetch_add(1, Relaxed);
    }

    pub(super) fn refuse(&self, cause: Cause) {
        self.refused[cause as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn counts(&self) -> FlightCounts {
        let of = |counts: &[AtomicU64; Cause::ALL.len()]| {
            Cause::ALL.map(|cause| (cause.name(), counts[cause as usize].load(Relaxed)))
        };
        FlightCounts {
            dumps: of(&self.dumps),
            refused: of(&self.refused),
            failures: self.failures.load(Relaxed),
            lost_drains: self.lost_drains.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            seconds: self.span_ns.load(Relaxed) as f64 / 1e9,
        }
    }
}

/// Executes orders until the run ends. A failure is reported once, until something can be written again.
pub(super) fn write(mut ring: Ring, orders: &Receiver<Order>, told: &Told, after: Duration) {
    let (mut is_failing, mut dumps) = (false, Dumps::new(after));
    while let Some(order) = dumps.next(orders) {
        let done = match order {
            Some(Order::Begin(base, follows)) => {
                let begun = ring.begin(&base, follows);
                if begun.is_ok() && std::mem::take(&mut is_failing) {
                    output::talk("flight recorder: it can be written again");
                }
                begun
            }
            Some(Order::Drain(drain)) => ring.drain(&drain).map(|is_full| {
                told.is_full.fetch_or(is_full, Relaxed);
            }),
            Some(Order::Dump(ask)) => {
                dumps.ask(ask, &ring, told);
                Ok(())
            }
            Some(Order::End) => {
                dumps.make(&ring, told, |_| true);
                if let Err(error) = ring.clear() {
                    output::talk(&format!("flight recorder: {error:#}"));
                }
                return;
            }
            None => Ok(()),
        };
        dumps.make_due(&ring, told);
        told.bytes.store(ring.bytes(), Relaxed);
        told.span_ns.store(ring.span_ns(), Relaxed);
        if let Err(error) = done {
            told.has_failed.store(true, Relaxed);
            told.failures.fetch_add(1, Relaxed);
            if !std::mem::replace(&mut is_failing, true) {
                output::talk(&format!("flight recorder: {error:#}; counting goes on, and it is tried again"));
            }
        }
    }
}

/// Dump that is made once what follows is kept as well.
struct Due {
    ask: Ask,
    at: Timestamp,
    /// Time of the drain that has to come before, in ns since counting began.
    from_ns: u64,
    /// Time at which the dump is made, whatever has come.
    until: Instant,
}

/// Due dumps, and when a requested one was made last.
struct Dumps {
    after: Duration,
    due: Vec<Due>,
    asked: Option<Instant>,
}

impl Dumps {
    const fn new(after: Duration) -> Self {
        Self { after, due: Vec::new(), asked: None }
    }

    /// Returns the next order, unless a dump is due before: `Some(None)` if one is due, `None` once no order
    /// can come any more.
    fn next(&self, orders: &Receiver<Order>) -> Option<Option<Order>> {
        let Some(until) = self.due.iter().map(|due| due.until).min() else {
            return orders.recv().ok().map(Some);
        };
        match orders.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(order) => Some(Some(order)),
            Err(RecvTimeoutError::Timeout) => Some(None),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Takes a request, or a rule that was met, unless there was a dump just before.
    fn ask(&mut self, ask: Ask, ring: &Ring, told: &Told) {
        if let Some(refusal) = self.too_soon(ask.cause) {
            return ask.refuse(refusal, told);
        }
        let after = if ask.cause == Cause::Request { self.after.min(AFTER_REQUEST_MAX) } else { self.after };
        self.due.push(Due {
            ask,
            at: Timestamp::now(),
            from_ns: ring.last_ns().saturating_add(duration_ns(after)),
            until: Instant::now() + after + LATE_MAX,
        });
    }

    fn make_due(&mut self, ring: &Ring, told: &Told) {
        let (last_ns, now) = (ring.last_ns(), Instant::now());
        self.make(ring, told, |due| due.from_ns <= last_ns || due.until <= now);
    }

    /// Makes the dumps for which `is_due` holds.
    fn make(&mut self, ring: &Ring, told: &Told, is_due: impl Fn(&Due) -> bool) {
        let (due, later) = std::mem::take(&mut self.due).into_iter().partition(is_due);
        self.due = later;
        let due: Vec<Due> = due;
        for Due { ask, at, .. } in due {
            match ring.dump(at, ask.why()) {
                Ok((path, dumped)) => {
                    if ask.cause != Cause::Rule {
                        self.asked = Some(Instant::now());
                    }
                    ask.done(&path, &dumped, told);
                }
                Err(error) => ask.refuse(Refusal::Failed(format!("{error:#}")), told),
            }
        }
    }

    /// Returns for how long a request gets no dump. Rules wait for longer, and have done so.
    fn too_soon(&self, cause: Cause) -> Option<Refusal> {
        if cause == Cause::Rule {
            return None;
        }
        let asked = self.due.iter().find(|due| due.ask.cause != Cause::Rule);
        let left = match asked {
            Some(due) => Some(APART + due.until.saturating_duration_since(Instant::now())),
            None => self.asked.and_then(|last| APART.checked_sub(last.elapsed())),
        };
        left.map(Refusal::TooSoon)
    }
}

impl Ask {
    /// Returns the cause in the name of the dump.
    fn why(&self) -> &str {
        self.rule.as_ref().map_or(self.cause.name(), |(metric, _)| metric.as_str())
    }

    fn because(&self) -> String {
        match (&self.rule, self.cause) {
            (Some((_, words)), _) => words.clone(),
            (None, Cause::Request) => "it was requested".to_owned(),
            (None, _) => "SIGUSR1 came".to_owned(),
        }
    }

    /// Reports the dump, to the client that waits for it, too.
    fn done(self, path: &Path, dumped: &Dumped, told: &Told) {
        told.dumps[self.cause as usize].fetch_add(1, Relaxed);
        let (length, kilobytes) = (duration(dumped.length.as_nanos() as f64), dumped.bytes.div_ceil(1000));
        output::talk(&format!(
            "flight recorder: {}: {length} in {kilobytes} KB: pmbpf report {}",
            self.because(),
            path.display()
        ));
        // The requester may be gone.
        let _ = self.answer.map(|answer| answer.send(Ok(name(path))));
    }

    /// Reports that there is no dump.
    fn refuse(self, refusal: Refusal, told: &Told) {
        told.refuse(self.cause);
        let why = match &refusal {
            Refusal::TooSoon(left) => {
                format!("a dump was just made: retry in {} s", left.as_secs() + 1)
            }
            Refusal::Busy => "it is busy".to_owned(),
            Refusal::Failed(why) => why.clone(),
        };
        // A request receives a response instead.
        if self.cause != Cause::Request {
            output::talk(&format!("flight recorder: {}, and there is no dump: {why}", self.because()));
        }
        let _ = self.answer.map(|answer| answer.send(Err(refusal)));
    }
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| Path::new(name).display().to_string()).unwrap_or_default()
}
