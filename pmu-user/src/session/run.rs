//! The one loop: tick, counters that take turns, ring buffer, signals, child.

use std::{
    io,
    process::ExitStatus,
    time::{Duration, Instant},
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Interval, MissedTickBehavior, interval_at, sleep_until},
};

use super::{Session, SessionError, launch::Launched};
use crate::{
    drain::{Drain, Ending, Stopped, Workload},
    plan::Target,
};

/// Time that a command gets to react to a signal we passed on, before the report is written without it.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often to look whether the targets are still there.
const LOOK: Duration = Duration::from_millis(100);

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// The last drain.
    pub last: Drain,
}

/// Why the loop stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The duration is over.
    Duration,
    /// Every target is gone.
    TargetGone,
    /// A signal came.
    Signal(i32),
}

/// Groups of the metrics' counters that are to have turns from now on; `None`: as before.
pub type Next = Option<Vec<u32>>;

/// Drains at every tick until something stops it. `keep` gets every drain but the last, and may say which counters are to
/// have turns next.
///
/// # Errors
///
/// The kernel refused something, or `keep` failed.
pub async fn run<E: From<SessionError>>(
    session: &mut Session,
    launched: Option<Launched>,
    keep: &mut impl FnMut(Drain) -> Result<Next, E>,
) -> Result<Outcome, E> {
    let mut signals = Signals::new()?;
    let over = watch(session, launched, &mut signals, keep).await?;
    signals.let_the_second_kill();
    over.finish(session).await
}

/// As [`run`], where other runs follow: a signal that comes between two of them stops the next.
///
/// # Errors
///
/// As for [`run`].
pub async fn run_one_of_several<E: From<SessionError>>(
    session: &mut Session,
    launched: Launched,
    signals: &mut Signals,
    keep: &mut impl FnMut(Drain) -> Result<Next, E>,
) -> Result<Outcome, E> {
    watch(session, Some(launched), signals, keep).await?.finish(session).await
}

/// A run that something has stopped.
struct Over {
    stop: Stop,
    launched: Option<Launched>,
    status: Option<ExitStatus>,
    duration: Duration,
}

impl Over {
    async fn finish<E: From<SessionError>>(self, session: &mut Session) -> Result<Outcome, E> {
        let Self { stop, launched, status, duration } = self;
        let last = session.finish()?;
        let workload = became_of(launched, status, stop).await;
        Ok(Outcome { ending: Ending { stopped: stop.into(), workload, duration }, last })
    }
}

async fn watch<E: From<SessionError>>(
    session: &mut Session,
    mut launched: Option<Launched>,
    signals: &mut Signals,
    keep: &mut impl FnMut(Drain) -> Result<Next, E>,
) -> Result<Over, E> {
    keep(session.baseline()?)?;
    if let Some(launched) = &mut launched {
        launched.release().map_err(|error| SessionError::Io("cannot start the command", error))?;
    }
    let started = Instant::now();
    let mut ticks = ticks(session.header.plan.tick);
    let deadline = session.header.plan.duration.map(|duration| started + duration);
    let target = session.header.plan.target.clone();
    let mut gone = std::pin::pin!(targets_gone(&target));
    let mut status = None;
    let stop = loop {
        let turn_due = session.turn_due();
        tokio::select! {
            biased;
            number = signals.next() => break Stop::Signal(number),
            exit = exited(launched.as_mut()), if launched.is_some() => {
                status = exit.ok();
                break Stop::TargetGone;
            }
            () = until(deadline), if deadline.is_some() => break Stop::Duration,
            () = until(turn_due), if turn_due.is_some() => session.take_turns(),
            _ = ticks.tick() => {
                let drain = session.drain(true)?;
                if let Some(groups) = keep(drain)? {
                    session.keep_to(&groups);
                }
            }
            () = &mut gone => break Stop::TargetGone,
            ready = session.ring.readable_mut() => {
                ready.map_err(|error| SessionError::Io("cannot watch the ring buffer", error))?.clear_ready();
                session.read_ring();
                if session.inbox.pressed {
                    let drain = session.drain(false)?;
                    keep(drain)?;
                }
            }
        }
    };
    Ok(Over { stop, launched, status, duration: started.elapsed() })
}

impl From<Stop> for Stopped {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Duration => Self::Duration,
            Stop::TargetGone => Self::TargetGone,
            Stop::Signal(number) => Self::Signal(number),
        }
    }
}

pub(super) fn ticks(every: Duration) -> Interval {
    let mut ticks = interval_at((Instant::now() + every).into(), every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

pub(super) async fn until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        sleep_until(deadline.into()).await;
    }
}

pub(super) async fn exited(launched: Option<&mut Launched>) -> io::Result<ExitStatus> {
    match launched {
        Some(launched) => launched.child.wait().await,
        None => std::future::pending().await,
    }
}

/// What became of the command, if there was one.
pub(super) async fn became_of(
    launched: Option<Launched>,
    status: Option<ExitStatus>,
    stop: Stop,
) -> Option<Workload> {
    match (launched, status) {
        (None, _) => None,
        (Some(_), Some(status)) => Some(ended(status)),
        (Some(launched), None) => Some(pass_on(launched, stop).await),
    }
}

/// The command still runs. A terminal's signal has reached it too, so it gets a moment before ours is passed on.
async fn pass_on(mut launched: Launched, stop: Stop) -> Workload {
    let Stop::Signal(number) = stop else { return Workload::Running };
    if let Ok(Ok(status)) = tokio::time::timeout(PATIENCE / 4, launched.child.wait()).await {
        return ended(status);
    }
    let pid = launched.child.id().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
    let signal = rustix::process::Signal::from_named_raw(number);
    if let (Some(pid), Some(signal)) = (pid, signal) {
        let _ = rustix::process::kill_process(pid, signal);
    }
    match tokio::time::timeout(PATIENCE, launched.child.wait()).await {
        Ok(Ok(status)) => ended(status),
        _ => Workload::Running,
    }
}

fn ended(status: ExitStatus) -> Workload {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => Workload::Exited(code),
        (None, Some(signal)) => Workload::Killed(signal),
        (None, None) => Workload::Running,
    }
}

/// Processes and threads end; cgroups and the system do not.
pub(super) async fn targets_gone(target: &Target) {
    let (Target::Processes(ids) | Target::Threads(ids)) = target else {
        return std::future::pending().await;
    };
    let mut looks = ticks(LOOK);
    while ids.iter().any(|&id| is_alive(id)) {
        looks.tick().await;
    }
}

/// A zombie is gone, whether or not its parent has noticed. (State is the field after the name, proc_pid_stat(5).)
fn is_alive(id: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.iter().rposition(|&byte| byte == b')').and_then(|end| stat.get(end + 2));
    state.is_some_and(|state| !matches!(state, b'Z' | b'X'))
}

/// SIGINT, SIGTERM and SIGHUP, from now on.
#[derive(Debug)]
pub struct Signals([(i32, Signal); 3]);

impl Signals {
    /// Catches them. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn new() -> Result<Self, SessionError> {
        let kind = |kind: SignalKind| Ok::<_, io::Error>((kind.as_raw_value(), signal(kind)?));
        let all = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = all.map(kind);
        let caught = || Ok([interrupt?, terminate?, hangup?]);
        Ok(Self(caught().map_err(|error| SessionError::Io("cannot catch signals", error))?))
    }

    pub(super) async fn next(&mut self) -> i32 {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.1.recv() => interrupt.0,
            _ = terminate.1.recv() => terminate.0,
            _ = hangup.1.recv() => hangup.0,
        }
    }

    /// From now on a signal ends the process at once. The report is being written, so nobody polls this loop: another
    /// thread listens.
    pub fn let_the_second_kill(self) {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(async {
                    if let Ok(mut signals) = Signals::new() {
                        let number = signals.next().await;
                        std::process::exit(128 + number);
                    }
                });
            }
        });
    }
}
