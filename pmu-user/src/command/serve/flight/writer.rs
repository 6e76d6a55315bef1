//! The thread that writes: what it is ordered, what it tells of it, and who gets a dump how soon.

use std::{
    path::Path,
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::Receiver,
    },
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::ring::{Follows, Ring};
use crate::{command::output, drain::Drain, metric::exposed::FlightCounts, view::text::duration};

/// The least time between dumps that somebody asks for: each is all that is kept.
const APART: Duration = Duration::from_secs(10);

/// What the thread is to do.
pub(super) enum Order {
    /// Begin a segment with a checkpoint.
    Begin(Box<Drain>, Follows),
    /// Append a drain.
    Drain(Box<Drain>),
    /// Make a dump.
    Dump(Ask),
    /// The run has ended: nothing is kept any more.
    End,
}

/// Why a dump is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Signal,
    Request,
    Rule,
}

impl Cause {
    /// All of them, as they are counted.
    const ALL: [Self; 3] = [Self::Signal, Self::Request, Self::Rule];

    const fn name(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Request => "request",
            Self::Rule => "rule",
        }
    }
}

/// A dump that is asked for.
pub(super) struct Ask {
    cause: Cause,
    /// Of a rule: its metric, and what was met in words.
    rule: Option<(String, String)>,
    /// Who waits for its name.
    pub(super) answer: Option<oneshot::Sender<Result<String, Refusal>>>,
}

impl Ask {
    pub(super) const fn of(cause: Cause, rule: Option<(String, String)>) -> Self {
        Self { cause, rule, answer: None }
    }
}

/// Why there is no dump.
#[derive(Debug)]
pub(in crate::command::serve) enum Refusal {
    /// There was one so short a time ago; after this one more is made.
    TooSoon(Duration),
    /// Too much waits for the disk.
    Busy,
    /// It could not be made.
    Failed(String),
}

/// What the thread tells, and what it is counted to have done.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Something could not be written.
    has_failed: AtomicBool,
    /// The open segment is as large as it may be.
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

/// Does what is ordered until the run ends. A failure is said once, until something can be written again.
pub(super) fn write(mut ring: Ring, orders: &Receiver<Order>, told: &Told) {
    let (mut is_failing, mut asked) = (false, None);
    while let Ok(order) = orders.recv() {
        let done = match order {
            Order::Begin(base, follows) => {
                let begun = ring.begin(&base, follows);
                if begun.is_ok() && std::mem::take(&mut is_failing) {
                    output::talk("flight recorder: it can be written again");
                }
                begun
            }
            Order::Drain(drain) => ring.drain(&drain).map(|is_full| {
                told.is_full.fetch_or(is_full, Relaxed);
            }),
            Order::Dump(ask) => {
                dump(&ring, ask, &mut asked, told);
                Ok(())
            }
            Order::End => {
                if let Err(error) = ring.clear() {
                    output::talk(&format!("flight recorder: {error:#}"));
                }
                return;
            }
        };
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

/// Makes a dump, unless somebody had one that was `asked` for just before.
fn dump(ring: &Ring, ask: Ask, asked: &mut Option<Instant>, told: &Told) {
    let Ask { cause, rule, answer } = ask;
    let result = too_soon(cause, *asked).map_or(Ok(()), Err).and_then(|()| {
        let why = rule.as_ref().map_or(cause.name(), |(metric, _)| metric.as_str());
        ring.dump(why).map_err(|error| Refusal::Failed(format!("{error:#}")))
    });
    let because = match &rule {
        Some((_, words)) => words.clone(),
        None => match cause {
            Cause::Request => "it was requested".to_owned(),
            _ => "SIGUSR1 came".to_owned(),
        },
    };
    let answered = match result {
        Ok((path, dumped)) => {
            told.dumps[cause as usize].fetch_add(1, Relaxed);
            if cause != Cause::Rule {
                *asked = Some(Instant::now());
            }
            let (length, kilobytes) =
                (duration(dumped.length.as_nanos() as f64), dumped.bytes.div_ceil(1000));
            output::talk(&format!(
                "flight recorder: {because}: {length} in {kilobytes} KB: pmbpf report {}",
                path.display()
            ));
            Ok(name(&path))
        }
        Err(refusal) => {
            told.refuse(cause);
            let why = match &refusal {
                Refusal::TooSoon(left) => {
                    format!("the last dump was just made: again in {} s", left.as_secs() + 1)
                }
                Refusal::Busy => "it is busy".to_owned(),
                Refusal::Failed(why) => why.clone(),
            };
            // Whoever requested it is answered.
            if cause != Cause::Request {
                output::talk(&format!("flight recorder: {because}, and there is no dump: {why}"));
            }
            Err(refusal)
        }
    };
    // Whoever asked may be gone.
    let _ = answer.map(|answer| answer.send(answered));
}

/// For how long there is no dump, of those that somebody asks for; rules wait for longer, and have done so.
fn too_soon(cause: Cause, asked: Option<Instant>) -> Option<Refusal> {
    if cause == Cause::Rule {
        return None;
    }
    asked.and_then(|last| APART.checked_sub(last.elapsed())).map(Refusal::TooSoon)
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| Path::new(name).display().to_string()).unwrap_or_default()
}
