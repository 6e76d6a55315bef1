//! Events that every run waits for: signals, the end of its time, command or targets, ticks, and what is due
//! between them.

use std::{
    io,
    os::unix::net::UnixStream,
    pin::Pin,
    process::ExitStatus,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
    time::{Interval, MissedTickBehavior, interval_at, sleep_until},
};

use super::{
    SessionError,
    launch::{LaunchError, Launched},
};
use crate::{
    drain::{Ending, Stopped, Usage, Workload},
    machine::stat::{has_tasks, state},
    plan::Target,
    symbol::Naming,
};

/// Time that a command gets to react to a signal passed on to it, before the report is written without it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Interval at which the targets are checked for existence.
const LOOK: Duration = Duration::from_millis(100);

/// Reason why the loop stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The duration is over.
    Duration,
    /// Every target is gone.
    TargetGone,
    /// A signal came.
    Signal(i32),
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

/// Next event of a run.
pub(super) enum Moment {
    /// The run is over.
    Over(Stop),
    /// There is no command: the process that was to become it could not.
    Failed(LaunchError),
    /// Something is due between two ticks.
    Due,
    /// A tick is due.
    Tick,
}

/// A run in progress.
pub(super) struct Watch {
    started: Instant,
    ticks: Option<Interval>,
    deadline: Option<Instant>,
    gone: Pin<Box<dyn Future<Output = ()>>>,
    launched: Option<Launched>,
    status: Option<ExitStatus>,
    /// CPU time of the command, once it has ended.
    used: Option<Usage>,
}

impl Watch {
    /// Lets the command go, if there is one. The time of the run starts here.
    ///
    /// # Errors
    ///
    /// The command cannot be let go.
    pub(super) fn begin(
        tick: Option<Duration>,
        duration: Option<Duration>,
        target: &Target,
        mut launched: Option<Launched>,
    ) -> Result<Self, SessionError> {
        // Before the command is let go, which may get this CPU at once.
        let started = Instant::now();
        launched.as_mut().map_or(Ok(()), Launched::release)?;
        // With a command the run is as long as the command, as with perf stat -p: it may outlive its targets.
        let ends_with = if launched.is_some() { &Target::System } else { target };
        Ok(Self {
            started,
            ticks: tick.map(ticks),
            deadline: duration.map(|duration| started + duration),
            gone: Box::pin(targets_gone(ends_with.clone())),
            launched,
            status: None,
            used: None,
        })
    }

    /// Waits for the next event. `due` is the time at which something is due. Nothing is lost if the wait is
    /// cancelled.
    pub(super) async fn next(&mut self, signals: &mut Signals, due: Option<Instant>) -> Moment {
        tokio::select! {
            biased;
            number = signals.next() => Moment::Over(Stop::Signal(number)),
            exit = exited(self.launched.as_mut()), if self.launched.is_some() => {
                self.status = exit.ok();
                let (used, refusal) = self.launched.as_mut().map(Launched::said).unwrap_or_default();
                self.used = used;
                refusal.map_or(Moment::Over(Stop::TargetGone), Moment::Failed)
            }
            () = until(self.deadline), if self.deadline.is_some() => Moment::Over(Stop::Duration),
            () = until(due), if due.is_some() => Moment::Due,
            () = tick(self.ticks.as_mut()) => Moment::Tick,
            () = &mut self.gone => Moment::Over(Stop::TargetGone),
        }
    }

    /// Ends the run.
    pub(super) fn over(self, stop: Stop) -> Over {
        let Self { started, launched, status, used, .. } = self;
        Over { stop, duration: started.elapsed(), launched, status, used }
    }
}

/// A run that was stopped.
pub(super) struct Over {
    stop: Stop,
    /// Duration of the run.
    duration: Duration,
    launched: Option<Launched>,
    status: Option<ExitStatus>,
    used: Option<Usage>,
}

impl Over {
    /// Returns the ending, that of the command included, which gets a moment to end.
    pub(super) async fn ending(self) -> Ending {
        let Self { stop, duration, launched, status, used } = self;
        let (workload, usage) = match (launched, status) {
            (None, _) => (None, None),
            (Some(_), Some(status)) => (Some(ended(status)), used),
            (Some(launched), None) => pass_on(launched, stop).await,
        };
        Ending { stopped: stop.into(), workload, duration, usage }
    }
}

fn ticks(every: Duration) -> Interval {
    let mut ticks = interval_at((Instant::now() + every).into(), every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

async fn tick(ticks: Option<&mut Interval>) {
    match ticks {
        Some(ticks) => drop(ticks.tick().await),
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        sleep_until(deadline.into()).await;
    }
}

async fn exited(launched: Option<&mut Launched>) -> io::Result<ExitStatus> {
    match launched {
        Some(launched) => launched.wait().await,
        None => std::future::pending().await,
    }
}

/// Passes the signal on to a command that still runs. A terminal's signal has reached it too, so it gets a
/// moment before that.
async fn pass_on(mut launched: Launched, stop: Stop) -> (Option<Workload>, Option<Usage>) {
    let number = match stop {
        Stop::Signal(number) => number,
        Stop::Duration if launched.ends_with_run => rustix::process::Signal::TERM.as_raw(),
        Stop::Duration | Stop::TargetGone => return (Some(Workload::Running), None),
    };
    if matches!(stop, Stop::Signal(_))
        && let Ok(Ok(status)) = tokio::time::timeout(PATIENCE / 4, launched.wait()).await
    {
        return (Some(ended(status)), launched.said().0);
    }
    let pid = launched.child.id().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
    let signal = rustix::process::Signal::from_named_raw(number);
    if let (Some(pid), Some(signal)) = (pid, signal) {
        let _ = rustix::process::kill_process(pid, signal);
    }
    match tokio::time::timeout(PATIENCE, launched.wait()).await {
        Ok(Ok(status)) => (Some(ended(status)), launched.said().0),
        _ => (Some(Workload::Running), None),
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

/// Waits until the targets are gone. Processes and threads end; cgroups and the system do not.
async fn targets_gone(target: Target) {
    let (ids, is_alive): (_, fn(&[u8]) -> bool) = match target {
        // The first thread of a process may have ended long before the others.
        Target::Processes(ids) => (ids, has_tasks),
        Target::Threads(ids) => (ids, is_running),
        Target::System | Target::Cgroups(_) | Target::Command(_) => return std::future::pending().await,
    };
    let mut looks = ticks(LOOK);
    while ids.iter().any(|id| is_alive(&std::fs::read(format!("/proc/{id}/stat")).unwrap_or_default())) {
        looks.tick().await;
    }
}

/// Returns whether a thread runs. A zombie is gone, whether or not its parent has noticed.
fn is_running(stat: &[u8]) -> bool {
    state(stat).is_some_and(|state| !matches!(state, "Z" | "X"))
}

/// Returns a runtime of one thread, in which a session runs.
///
/// # Errors
///
/// The kernel refused, most often because this process may not open more files.
pub fn runtime() -> Result<Runtime, SessionError> {
    let built = spare_files().and_then(|()| Builder::new_current_thread().enable_all().build());
    built.map_err(|error| SessionError::Io("cannot wait for signals and time", error))
}

/// Checks that as many files can be opened as a runtime takes: tokio 1.54 panics if there is no socket left
/// for signals.
fn spare_files() -> io::Result<()> {
    (0..4).map(|_| UnixStream::pair()).collect::<io::Result<Vec<_>>>().map(drop)
}

/// Signals that end a run, from now on: SIGINT, SIGTERM and SIGHUP.
#[derive(Debug)]
pub struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// Catches these signals. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn new() -> Result<Self, SessionError> {
        Self::of(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])
    }

    /// Catches the signals that end a service, which has no terminal to lose. SIGHUP is left to other code in
    /// the process that waits for it.
    ///
    /// # Errors
    ///
    /// As for [`Signals::new`].
    pub fn of_service() -> Result<Self, SessionError> {
        Self::of(&[SignalKind::interrupt(), SignalKind::terminate()])
    }

    fn of(kinds: &[SignalKind]) -> Result<Self, SessionError> {
        let kind = |kind: &SignalKind| Ok::<_, io::Error>((kind.as_raw_value(), signal(*kind)?));
        let caught: Result<_, io::Error> = kinds.iter().map(kind).collect();
        Ok(Self(caught.map_err(|error| SessionError::Io("cannot catch signals", error))?))
    }

    async fn next(&mut self) -> i32 {
        std::future::poll_fn(|context| {
            // Each signal that has not come is registered to wake this task.
            let come = self
                .0
                .iter_mut()
                .filter_map(|(number, signal)| signal.poll_recv(context).is_ready().then_some(*number));
            come.min().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Lets a signal end the process at once, from now on. While names are looked up, the first signal stops
    /// that instead. The report is being written, so this loop is not polled: another thread listens.
    pub fn let_the_second_kill(self, naming: Arc<Naming>) {
        std::thread::spawn(move || {
            if let Ok(runtime) = runtime() {
                runtime.block_on(async {
                    if let Ok(mut signals) = Signals::new() {
                        let mut number = signals.next().await;
                        if naming.stop() {
                            number = signals.next().await;
                        }
                        std::process::exit(128 + number);
                    }
                });
            }
        });
    }
}
