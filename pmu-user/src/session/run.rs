//! The loop of every run: its waits, ticks, and the ring buffer.

use std::time::{Duration, Instant};

use super::{
    Session, SessionError, TasksSession,
    launch::Launched,
    tasks::Occasion,
    watch::{Moment, Over, Signals, Watch},
};
use crate::{
    bpf::release_memory,
    drain::{Drain, Ending},
};

/// Interval at which a run releases memory that it does not use. Rows of a tick come and go between those
/// that stay. After 12 minutes on a busy host 32 of 92 MB were holes, and closing those of a minute takes 2
/// ms. The memory of a short storm of processes, 20 MB, is not kept for longer either.
const RELEASE_EVERY: Duration = Duration::from_secs(10);

/// Outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Ending of the run.
    pub ending: Ending,
    /// The last drain.
    pub last: Drain,
}

/// Groups of the metrics' counters that get turns from now on, by core PMU. `None`, and an empty list: as
/// before.
pub type Next = Vec<Option<Vec<u32>>>;

/// Drains at every tick until something stops the run. `keep` gets every drain but the last, and may return
/// the counters that get turns next. The first drain comes before anything is counted. Signals are caught
/// before counting is announced, so a run that a signal ends from then on has a report.
///
/// # Errors
///
/// The kernel refused something, or `keep` failed.
pub async fn run<E: From<SessionError>>(
    session: &mut Session,
    launched: Option<Launched>,
    mut signals: Signals,
    keep: &mut impl FnMut(Drain) -> Result<Next, E>,
) -> Result<Outcome, E> {
    let over = watch(session, launched, &mut signals, keep).await?;
    signals.let_the_second_kill(session.naming());
    finish(session, over).await
}

/// Does the same as [`run`] where other runs follow. A signal between two of them stops the next.
///
/// # Errors
///
/// As for [`run`].
pub async fn run_one_of_several<E: From<SessionError>>(
    session: &mut Session,
    launched: Option<Launched>,
    signals: &mut Signals,
    keep: &mut impl FnMut(Drain) -> Result<Next, E>,
) -> Result<Outcome, E> {
    let over = watch(session, launched, signals, keep).await?;
    finish(session, over).await
}

async fn watch<E: From<SessionError>>(
    session: &mut Session,
    launched: Option<Launched>,
    signals: &mut Signals,
    keep: &mut impl FnMut(Drain) -> Result<Next, E>,
) -> Result<Over, E> {
    keep(session.baseline()?)?;
    let (tick, duration, target) = session.schedule();
    let target = target.clone();
    session.begin()?;
    let mut watch = Watch::begin(tick, duration, &target, launched)?;
    let mut released = Instant::now();
    loop {
        let due = session.due();
        tokio::select! {
            biased;
            moment = watch.next(signals, due) => match moment {
                Moment::Over(stop) => return Ok(watch.over(stop)),
                Moment::Failed(error) => return Err(SessionError::from(error).into()),
                Moment::Due => {
                    session.turn()?;
                    session.follow();
                }
                Moment::Tick => {
                    let drain = session.tick()?;
                    let next = keep(drain)?;
                    if let Some(tasks) = &mut session.tasks {
                        tasks.keep_to(&next);
                    }
                    if released.elapsed() >= RELEASE_EVERY {
                        released = Instant::now();
                        release_memory();
                    }
                }
            },
            pressed = told(session.tasks.as_mut()) => {
                let pressed = pressed?;
                session.follow();
                if let (true, Some(tasks)) = (pressed, &mut session.tasks) {
                    let drain = tasks.drain(Occasion::Pressed)?;
                    keep(drain.into())?;
                }
            }
        }
    }
}

/// Waits for records in the ring buffer of tasks. Never returns if no tasks are counted.
async fn told(tasks: Option<&mut TasksSession>) -> Result<bool, SessionError> {
    match tasks {
        Some(tasks) => tasks.told().await,
        None => std::future::pending().await,
    }
}

async fn finish<E: From<SessionError>>(session: &mut Session, over: Over) -> Result<Outcome, E> {
    let mut last = session.finish()?;
    let ending = over.ending().await;
    if let Some(last) = &mut last.counts {
        last.ended = Some(ending.clone());
    }
    Ok(Outcome { ending, last })
}
