//! Calls that a stranger can make wait for ever, such as opening a file on a mount that nobody serves: they are made by
//! another thread, and given up after a while.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::{RecvTimeoutError, Sender, channel, sync_channel},
    },
    thread,
    time::Duration,
};

/// How long a call may take.
const PATIENCE: Duration = Duration::from_millis(500);
/// Threads that may wait at a time. Then nothing is called any more until one of them is back.
const STUCK_MAX: u32 = 8;

type Call = Box<dyn FnOnce() + Send>;

/// Makes calls with patience.
#[derive(Debug, Default)]
pub(super) struct Patience {
    worker: Option<Sender<Call>>,
    stuck: Arc<AtomicU32>,
}

impl Patience {
    /// What a call returns; `None` if it takes too long.
    pub(super) fn call<T: Send + 'static>(&mut self, call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if self.stuck.load(Ordering::Relaxed) >= STUCK_MAX {
            return None;
        }
        let (back, result) = sync_channel(1);
        let stuck = Arc::clone(&self.stuck);
        // Counted as stuck until it is back, so that no moment lies between the two.
        stuck.fetch_add(1, Ordering::Relaxed);
        let call: Call = Box::new(move || {
            let value = call();
            stuck.fetch_sub(1, Ordering::Relaxed);
            // Nobody may be waiting any more.
            let _ = back.send(value);
        });
        self.hand_over(call)?;
        match result.recv_timeout(PATIENCE) {
            Ok(value) => Some(value),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                // The thread ends when it is back.
                self.worker = None;
                None
            }
        }
    }

    fn hand_over(&mut self, call: Call) -> Option<()> {
        if self.worker.is_none() {
            let (calls, received) = channel::<Call>();
            let worker = thread::Builder::new().name("pmbpf-open".to_owned()).stack_size(256 << 10);
            worker.spawn(move || received.into_iter().for_each(|call| call())).ok()?;
            self.worker = Some(calls);
        }
        self.worker.as_ref()?.send(call).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, time::Instant};

    use super::{PATIENCE, Patience, STUCK_MAX};

    #[test]
    fn what_takes_too_long_is_given_up_and_others_go_on() {
        let mut patience = Patience::default();
        let (release, wait) = channel::<()>();
        let begun = Instant::now();
        assert_eq!(patience.call(move || wait.recv().is_ok()), None);
        assert!(begun.elapsed() >= PATIENCE);
        assert_eq!(patience.call(|| 7), Some(7));
        release.send(()).unwrap();
    }

    #[test]
    fn there_is_an_end_to_threads_that_wait() {
        let mut patience = Patience::default();
        let waiting: Vec<_> = (0..STUCK_MAX)
            .map(|_| {
                let (release, wait) = channel::<()>();
                assert_eq!(patience.call(move || wait.recv().is_ok()), None);
                release
            })
            .collect();
        assert_eq!(patience.call(|| 7), None);
        drop(waiting);
        // They come back, one after the other.
        assert!((0..10_000).any(|_| {
            std::thread::yield_now();
            patience.call(|| 7) == Some(7)
        }));
    }
}
