//! Flight recorder: the last minutes of a run in a ring of recordings on disk. A dump of them is made on
//! request, or when a rule is met. The counting thread gives copies of its drains to a writer thread, and
//! never waits for it.

mod dump;
mod folder;
mod ring;
mod rule;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    time::{Duration, Instant},
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use self::{
    folder::Folder,
    ring::{Bounds, Follows, Ring, SEGMENTS},
    writer::{Ask, Cause, Order, Told, write},
};
pub(super) use self::{
    rule::{Measured, rule},
    writer::Refusal,
};
use crate::{
    command::{failure::Usage, output, parse},
    drain::{Drain, Header, checkpoint::Checkpoint},
    machine::duration_ns,
    metric::{
        Report,
        condition::{Condition, Conditions, Met},
        exposed::FlightCounts,
    },
    session::confine::{Duty, confine},
    table::unit::Unit,
    view::text::duration,
};

/// Time that drains may wait for the disk before one is lost, and the least and greatest number of them.
const WAITING: Duration = Duration::from_secs(30);
const WAITING_DRAINS: (usize, usize) = (64, 4096);
/// Delay before a new segment begins after a loss or a failed write.
const AGAIN_NS: u64 = 10_000_000_000;
/// Time that the end of the run waits for the disk.
const PATIENCE: Duration = Duration::from_secs(5);
/// Least size of a ring in bytes: checkpoints of some size fit.
const BYTES_MIN: u64 = 1_000_000;
/// Least time span of a ring.
const TIME_MIN: Duration = Duration::from_secs(10);

/// Help of `--when`.
const RULE: &str = "Make a dump when this rule holds for an owner or the host (repeatable): METRIC[.PART] OP VALUE[UNIT] [for TIME] [of OWNER]";

/// Options of the flight recorder: whether the last minutes are kept, and when they are dumped.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FlightArgs {
    /// Keep the last minutes as recordings in DIR, which must not be shared; SIGUSR1, `POST /flight` or a
    /// rule makes one file of them, a dump
    #[arg(long, value_name = "DIR", help_heading = "Flight recorder")]
    flight_recorder: Option<PathBuf>,
    /// Keep this length of time
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "10m", requires = "flight_recorder", help_heading = "Flight recorder")]
    flight_time: Duration,
    /// Limit the size on disk; a dump needs as much again
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes, default_value = "256M", requires = "flight_recorder", help_heading = "Flight recorder")]
    flight_bytes: u64,
    /// Wait this long after its cause before a dump is made, so that it includes what followed
    #[arg(long, value_name = "TIME", value_parser = parse::duration_or_none, default_value = "5s", requires = "flight_recorder", help_heading = "Flight recorder")]
    flight_after: Duration,
    /// Sample stacks for dumps N times per second on each CPU; 0: no samples
    #[arg(long, value_name = "N", default_value_t = 19, requires = "flight_recorder", help_heading = "Flight recorder",
          value_parser = clap::value_parser!(u32).range(0..=10_000))]
    flight_stacks: u32,
    /// Keep the N newest dumps; older ones are deleted
    #[arg(long, value_name = "N", default_value_t = 10, requires = "flight_recorder", help_heading = "Flight recorder", value_parser = clap::value_parser!(u32).range(1..=1000))]
    flight_keep: u32,
    /// Rules that make a dump when they are met.
    #[arg(long, value_name = "RULE", value_parser = rule, requires = "flight_recorder", help_heading = "Flight recorder", help = RULE)]
    when: Vec<Condition>,
}

impl FlightArgs {
    /// Returns whether the last minutes are kept.
    pub(super) const fn is_wanted(&self) -> bool {
        self.flight_recorder.is_some()
    }

    /// Returns the sampling frequency of stacks for dumps; `None` if none are sampled.
    pub(super) fn frequency(&self) -> Option<u32> {
        Some(self.flight_stacks).filter(|frequency| self.is_wanted() && *frequency > 0)
    }

    /// Returns the rules of the command line.
    pub(super) fn rules(&self) -> &[Condition] {
        &self.when
    }

    /// Refuses limits that cannot be kept, and rules that cannot be met, before anything is opened.
    pub(super) fn check(&self, measured: Measured) -> Result<(), Usage> {
        if self.flight_time < TIME_MIN {
            return Err(Usage("--flight-time is at least 10s".to_owned()));
        }
        if self.flight_after > self.flight_time / 2 {
            return Err(Usage(
                "--flight-after is at most half of --flight-time, or nothing from before is in a dump"
                    .to_owned(),
            ));
        }
        if self.flight_bytes < BYTES_MIN {
            return Err(Usage("--flight-bytes is at least 1M".to_owned()));
        }
        self.when.iter().try_for_each(|rule| measured.expect(rule)).map_err(Usage)
    }

    /// Takes the folder, if a flight recorder is wanted, while this process has all its privileges. Keeps
    /// what an earlier run left there.
    pub(super) fn take(&self, rules: Vec<Condition>) -> anyhow::Result<Option<Taken>> {
        let Some(path) = &self.flight_recorder else { return Ok(None) };
        let folder = Folder::take(path, self.flight_keep as usize)?;
        if let Some(left) = folder.recover()? {
            output::talk(&format!(
                "flight recorder: an earlier run did not end: {} is what it left",
                left.display()
            ));
        }
        let bounds = Bounds { time_ns: duration_ns(self.flight_time), bytes: self.flight_bytes };
        Ok(Some(Taken { folder, bounds, after: self.flight_after, rules }))
    }
}

/// Flight recorder that is ready to begin.
pub(super) struct Taken {
    folder: Folder,
    bounds: Bounds,
    after: Duration,
    rules: Vec<Condition>,
}

impl Taken {
    /// Begins to keep the drains of the run that `header` describes. The calling thread has been confined,
    /// and runs a runtime.
    pub(super) fn begin(self, header: &Header) -> anyhow::Result<Flight> {
        // A folder that can be read by now can be written: it belongs to this user.
        self.folder.check()?;
        let (orders, receiver) = sync_channel(waiting(header));
        let (told, bounds) = (Arc::new(Told::default()), self.bounds);
        let (ring, after) = (Ring::new(self.folder, header.clone(), bounds), self.after);
        let (ended, of_writer) = (sync_channel(1), Arc::clone(&told));
        std::thread::Builder::new().name("flight".to_owned()).spawn(move || {
            // The thread writes files of its own user, which needs no privilege.
            confine(Duty::Write);
            write(ring, &receiver, &of_writer, after);
            let _ = ended.0.send(());
        })?;
        let asks = Asks { orders: orders.clone() };
        let by_signal = asks.clone();
        let mut signals = signal(SignalKind::user_defined1())?;
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if by_signal.ask(Ask::of(Cause::Signal, None)).is_err() {
                    output::talk("flight recorder: too busy to make a dump");
                }
            }
        });
        let feed = Feed {
            checkpoint: Checkpoint::default(),
            orders,
            told: Arc::clone(&told),
            segment_ns: bounds.time_ns / SEGMENTS,
            begun_ns: None,
            again_ns: 0,
            ticks: None,
            ended: ended.1,
        };
        let rules = Rules {
            conditions: Conditions::new(self.rules),
            apart: bounds.time_ns,
            last: None,
            asks: asks.clone(),
            told,
        };
        Ok(Flight { feed, rules, asks })
    }
}

/// Returns the number of drains that may wait for the disk.
fn waiting(header: &Header) -> usize {
    let tick = header.tasks.as_ref().map_or(WAITING, |tasks| tasks.plan.tick);
    let drains = WAITING.as_nanos() / tick.as_nanos().max(1);
    let (least, most) = WAITING_DRAINS;
    usize::try_from(drains).unwrap_or(most).clamp(least, most)
}

/// Flight recorder that has begun: its input, its rules, and the handle for dump requests.
pub(super) struct Flight {
    pub(super) feed: Feed,
    pub(super) rules: Rules,
    pub(super) asks: Asks,
}

/// Input of the flight recorder: copies of drains, and a checkpoint at the start of each segment.
pub(super) struct Feed {
    checkpoint: Checkpoint,
    orders: SyncSender<Order>,
    told: Arc<Told>,
    segment_ns: u64,
    /// Start of the open segment; `None` where none is open.
    begun_ns: Option<u64>,
    /// Earliest start of a segment after a loss.
    again_ns: u64,
    /// Ticks of the last drain.
    ticks: Option<u64>,
    ended: Receiver<()>,
}

impl Feed {
    /// Takes a drain.
    pub(super) fn drain(&mut self, drain: &Drain) {
        if self.told.take_failure() {
            self.break_off(drain.at_ns());
        }
        if self.begun_ns.is_some() && !self.send(Order::Drain(Box::new(drain.clone()))) {
            self.told.lose();
            self.break_off(drain.at_ns());
        }
        self.checkpoint.take(drain);
        if self.is_regular(drain) {
            self.begin_if_due(drain.at_ns());
        }
    }

    /// Returns whether a drain is regular. Early ones have neither I/O nor pressure.
    fn is_regular(&mut self, drain: &Drain) -> bool {
        let ticks = drain.tasks.as_ref().map(|tasks| tasks.ticks);
        ticks.is_none() || std::mem::replace(&mut self.ticks, ticks) != ticks
    }

    fn begin_if_due(&mut self, at_ns: u64) {
        let follows = match self.begun_ns {
            None if at_ns >= self.again_ns => Follows::No,
            Some(begun_ns) if at_ns.saturating_sub(begun_ns) >= self.segment_ns || self.told.take_full() => {
                Follows::Yes
            }
            _ => return,
        };
        let base = Box::new(self.checkpoint.drain());
        if self.send(Order::Begin(base, follows)) {
            self.begun_ns = Some(at_ns);
        } else if follows == Follows::No {
            self.break_off(at_ns);
        }
    }

    fn break_off(&mut self, at_ns: u64) {
        self.begun_ns = None;
        self.again_ns = at_ns.saturating_add(AGAIN_NS);
    }

    fn send(&self, order: Order) -> bool {
        self.orders.try_send(order).is_ok()
    }

    /// Ends the input with the run, and the ring with it.
    pub(super) fn end(self) {
        let Self { orders, ended, .. } = self;
        if orders.try_send(Order::End).is_err() || ended.recv_timeout(PATIENCE).is_err() {
            output::talk(
                "flight recorder: the disk is slow: the next start makes a dump of what is in the ring",
            );
        }
    }
}

/// Rules, evaluated on the report of every interval.
pub(super) struct Rules {
    conditions: Conditions,
    /// Least time between two dumps that rules make, in ns: within it, what is kept overlaps.
    apart: u64,
    last: Option<Instant>,
    asks: Asks,
    told: Arc<Told>,
}

impl Rules {
    /// Makes a dump if a rule is met, unless a rule made one within the least time.
    pub(super) fn watch(&mut self, report: &Report) {
        let met = self.conditions.met(report);
        let Some((first, condition)) =
            met.first().and_then(|met| Some((met, self.conditions.at(met.condition)?)))
        else {
            return;
        };
        if self.last.is_some_and(|last| duration_ns(last.elapsed()) < self.apart) {
            return self.told.refuse(Cause::Rule);
        }
        let why = words(condition, first, met.len() - 1);
        if self.asks.ask(Ask::of(Cause::Rule, Some((condition.measure.name(), why)))).is_ok() {
            self.last = Some(Instant::now());
            self.conditions.set_reported();
        } else {
            self.told.refuse(Cause::Rule);
        }
    }

    /// Replaces the rules; those that stay the same keep their state.
    pub(super) fn replace(&mut self, rules: Vec<Condition>) {
        self.conditions.replace(rules);
    }

    /// Returns the number of dumps, and what is kept.
    pub(super) fn counts(&self) -> FlightCounts {
        self.told.counts()
    }
}

/// Describes the rule that was met, its owner and the value.
fn words(condition: &Condition, met: &Met, others: usize) -> String {
    let unit = condition.measure.unit();
    let value = match unit {
        Unit::Ns => duration(met.value),
        Unit::Counts => format!("{}", met.value),
        unit => format!("{:.4} {}", met.value, unit.name()),
    };
    let others = if others == 0 { String::new() } else { format!(", and of {others} more") };
    format!("`{}` is met: {} of {}{others}", condition.text, value.trim_end(), met.whose)
}

/// Handle for dump requests.
#[derive(Clone, Debug)]
pub(super) struct Asks {
    orders: SyncSender<Order>,
}

impl Asks {
    /// Requests a dump for a client, and returns the receiver of the result.
    pub(super) fn request(&self) -> Result<oneshot::Receiver<Result<String, Refusal>>, Refusal> {
        let (sender, receiver) = oneshot::channel();
        let mut ask = Ask::of(Cause::Request, None);
        ask.answer = Some(sender);
        self.ask(ask).map(|()| receiver)
    }

    fn ask(&self, ask: Ask) -> Result<(), Refusal> {
        self.orders.try_send(Order::Dump(ask)).map_err(|error| match error {
            TrySendError::Full(_) | TrySendError::Disconnected(_) => Refusal::Busy,
        })
    }
}
