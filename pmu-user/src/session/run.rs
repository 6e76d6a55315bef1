//! The loop of `pmbpf run`: what every run waits for, and the ring buffer.

use super::{
    Session, SessionError,
    launch::Launched,
    watch::{Moment, Over, Signals, Watch},
};
use crate::drain::{Drain, Ending};

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// The last drain.
    pub last: Drain,
}

/// Groups of the metrics' counters that are to have turns from now on; `None`: as before.
pub type Next = Option<Vec<u32>>;

/// Drains at every tick until something stops it. `keep` gets every drain but the last, and may say which counters are to
/// have turns next. Signals are caught from before counting is announced: who then ends the run gets its report.
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
    signals.let_the_second_kill();
    finish(session, over).await
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
    let over = watch(session, Some(launched), signals, keep).await?;
    finish(session, over).await
}

async fn watch<E: From<SessionError>>(
    session: &mut Session,
    launched: Option<Launched>,
    signals: &mut Signals,
    keep: &mut impl FnMut(Drain) -> Result<Next, E>,
) -> Result<Over, E> {
    keep(session.baseline()?)?;
    let plan = &session.header.plan;
    let mut watch = Watch::release(plan.tick, plan.duration, &plan.target, launched)?;
    loop {
        let due = session.turn_due();
        tokio::select! {
            biased;
            moment = watch.next(signals, due) => match moment {
                Moment::Over(stop) => return Ok(watch.over(stop)),
                Moment::Failed(error) => return Err(SessionError::from(error).into()),
                Moment::Due => session.take_turns(),
                Moment::Tick => {
                    let drain = session.drain(true)?;
                    if let Some(groups) = keep(drain)? {
                        session.keep_to(&groups);
                    }
                }
            },
            ready = session.ring.readable_mut() => {
                ready.map_err(|error| SessionError::Io("cannot watch the ring buffer", error))?.clear_ready();
                session.read_ring();
                if session.inbox.pressed {
                    let drain = session.drain(false)?;
                    keep(drain)?;
                }
            }
        }
    }
}

async fn finish<E: From<SessionError>>(session: &mut Session, over: Over) -> Result<Outcome, E> {
    let last = session.finish()?;
    Ok(Outcome { ending: over.ending().await, last })
}
