//! The flight recorder: the last minutes of a run in a ring of recordings on disk, of which a dump is made when somebody asks, or a rule
//! says so. The thread that counts gives copies of its drains to one that writes, and never waits for it.

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

/// For how long drains may wait for the disk before one is lost, and how many at least and at most.
const WAITING: Duration = Duration::from_secs(30);
const WAITING_DRAINS: (usize, usize) = (64, 4096);
/// How soon after something was lost, or could not be written, a segment is begun again.
const AGAIN_NS: u64 = 10_000_000_000;
/// How long the end of the run waits for the disk.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a ring, at least: checkpoints of some size fit.
const BYTES_MIN: u64 = 1_000_000;
/// Time of a ring, at least.
const TIME_MIN: Duration = Duration::from_secs(10);

/// Help of `--when`.
const RULE: &str = "Make a dump when this holds of an owner or the host (repeatable): METRIC[.PART] OP VALUE[UNIT] [for TIME] [of OWNER]";

/// Whether the last minutes are kept, and when a dump of them is made.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FlightArgs {
    /// Keep the last minutes as recordings in DIR, which is ours alone: SIGUSR1, `POST /flight` or a rule makes one file of them
    #[arg(long, value_name = "DIR", help_heading = "Flight recorder")]
    flight_recorder: Option<PathBuf>,
    /// How much is kept
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "10m", requires = "flight_recorder", help_heading = "Flight recorder")]
    flight_time: Duration,
    /// The most that it may be on disk; a dump is as large once more
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes, default_value = "256M", requires = "flight_recorder", help_heading = "Flight recorder")]
    flight_bytes: u64,
    /// How long after what caused it a dump is made, so that what followed is in it
    #[arg(long, value_name = "TIME", value_parser = parse::duration_or_none, default_value = "5s", requires = "flight_recorder", help_heading = "Flight recorder")]
    flight_after: Duration,
    /// Sample stacks so many times a second on each CPU, which dumps have; 0: no samples
    #[arg(long, value_name = "N", default_value_t = 19, requires = "flight_recorder", help_heading = "Flight recorder",
          value_parser = clap::value_parser!(u32).range(0..=10_000))]
    flight_stacks: u32,
    /// Dumps that are kept; of more the oldest go
    #[arg(long, value_name = "N", default_value_t = 10, requires = "flight_recorder", help_heading = "Flight recorder", value_parser = clap::value_parser!(u32).range(1..=1000))]
    flight_keep: u32,
    /// Rules, each of which makes a dump when it is met.
    #[arg(long, value_name = "RULE", value_parser = rule, requires = "flight_recorder", help_heading = "Flight recorder", help = RULE)]
    when: Vec<Condition>,
}

impl FlightArgs {
    /// Are the last minutes kept?
    pub(super) const fn is_wanted(&self) -> bool {
        self.flight_recorder.is_some()
    }

    /// How often stacks are sampled for dumps; `None` if none are.
    pub(super) fn frequency(&self) -> Option<u32> {
        Some(self.flight_stacks).filter(|frequency| self.is_wanted() && *frequency > 0)
    }

    /// Rules of the command line.
    pub(super) fn rules(&self) -> &[Condition] {
        &self.when
    }

    /// Refuses what cannot be kept, and rules that cannot be met, before anything is opened.
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

    /// Takes the folder, if there is to be a flight recorder, while this process has all its rights; keeps what an earlier one left there.
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

/// A flight recorder that is ready to begin.
pub(super) struct Taken {
    folder: Folder,
    bounds: Bounds,
    after: Duration,
    rules: Vec<Condition>,
}

impl Taken {
    /// Begins to keep the drains of the run that `header` describes. The thread that calls has been confined, and runs a runtime.
    pub(super) fn begin(self, header: &Header) -> anyhow::Result<Flight> {
        // What can be read by now can be written: it is our own.
        self.folder.check()?;
        let (orders, receiver) = sync_channel(waiting(header));
        let (told, bounds) = (Arc::new(Told::default()), self.bounds);
        let (ring, after) = (Ring::new(self.folder, header.clone(), bounds), self.after);
        let (ended, of_writer) = (sync_channel(1), Arc::clone(&told));
        std::thread::Builder::new().name("flight".to_owned()).spawn(move || {
            // It writes files of its own user's, which takes no right.
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
                    output::talk("flight recorder: it has no time for a dump now");
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

/// How many drains may wait for the disk.
fn waiting(header: &Header) -> usize {
    let tick = header.tasks.as_ref().map_or(WAITING, |tasks| tasks.plan.tick);
    let drains = WAITING.as_nanos() / tick.as_nanos().max(1);
    let (least, most) = WAITING_DRAINS;
    usize::try_from(drains).unwrap_or(most).clamp(least, most)
}

/// A flight recorder that has begun: what it is given, what its rules see, and how others ask it.
pub(super) struct Flight {
    pub(super) feed: Feed,
    pub(super) rules: Rules,
    pub(super) asks: Asks,
}

/// What is given to the flight recorder: copies of drains, and a checkpoint wherever a segment begins.
pub(super) struct Feed {
    checkpoint: Checkpoint,
    orders: SyncSender<Order>,
    told: Arc<Told>,
    segment_ns: u64,
    /// When the open segment began; `None` where none is open.
    begun_ns: Option<u64>,
    /// When one may be begun after something was lost.
    again_ns: u64,
    /// Of the last drain.
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

    /// Is it no drain that came early? Those have neither I/O nor pressure.
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

    /// Ends it with the run, and the ring with it.
    pub(super) fn end(self) {
        let Self { orders, ended, .. } = self;
        if orders.try_send(Order::End).is_err() || ended.recv_timeout(PATIENCE).is_err() {
            output::talk(
                "flight recorder: the disk is slow: what is in the ring is kept when pmbpf begins again",
            );
        }
    }
}

/// Rules, which see the report of every interval.
pub(super) struct Rules {
    conditions: Conditions,
    /// The least time from one dump to the next that rules make, in ns: what is kept overlaps within it.
    apart: u64,
    last: Option<Instant>,
    asks: Asks,
    told: Arc<Told>,
}

impl Rules {
    /// Makes a dump if a rule is met, and none was made for that a short time ago.
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
            self.conditions.told();
        } else {
            self.told.refuse(Cause::Rule);
        }
    }

    /// Takes the place of the rules there are, of which those that stay the same go on.
    pub(super) fn replace(&mut self, rules: Vec<Condition>) {
        self.conditions.replace(rules);
    }

    /// How many dumps there have been, and what is kept.
    pub(super) fn counts(&self) -> FlightCounts {
        self.told.counts()
    }
}

/// Which rule was met, by whom, with which value.
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

/// How others ask for a dump.
#[derive(Clone, Debug)]
pub(super) struct Asks {
    orders: SyncSender<Order>,
}

impl Asks {
    /// Asks for a dump because somebody requested it: what will become of that.
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
