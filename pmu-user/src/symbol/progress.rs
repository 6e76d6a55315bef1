//! Progress of the look-up of names at the end of a run. A signal stops it: the report then has the names
//! found so far.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

const IDLE: u8 = 0;
const GOES_ON: u8 = 1;
const STOPPED: u8 = 2;

/// State of the look-up that several threads share.
#[derive(Debug, Default)]
pub struct Naming {
    state: AtomicU8,
    /// Files with wanted functions, and those that were looked up.
    files: AtomicUsize,
    asked: AtomicUsize,
}

impl Naming {
    /// Marks the start of the look-up.
    pub(super) fn begin(&self) {
        self.state.store(GOES_ON, Ordering::Relaxed);
    }

    /// Marks the end of the look-up.
    pub(super) fn end(&self) {
        self.state.store(IDLE, Ordering::Relaxed);
    }

    /// Stops the look-up. Returns whether it was running.
    pub fn stop(&self) -> bool {
        self.state.compare_exchange(GOES_ON, STOPPED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Returns whether the look-up was stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.state.load(Ordering::Relaxed) == STOPPED
    }

    /// Sets the number of files with wanted functions.
    pub(super) fn of_files(&self, files: usize) {
        self.files.store(files, Ordering::Relaxed);
    }

    /// Counts a file that was looked up.
    pub(super) fn asked(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of files that were looked up, and of all files.
    pub fn so_far(&self) -> (usize, usize) {
        let all = self.files.load(Ordering::Relaxed);
        (self.asked.load(Ordering::Relaxed).min(all), all)
    }
}

#[cfg(test)]
mod tests {
    use super::Naming;

    #[test]
    fn only_what_goes_on_is_stopped_and_once() {
        let naming = Naming::default();
        assert!(!naming.stop() && !naming.is_stopped());
        naming.begin();
        naming.of_files(3);
        naming.asked();
        assert!(naming.stop() && naming.is_stopped() && !naming.stop());
        assert_eq!(naming.so_far(), (1, 3));
        naming.end();
        assert!(!naming.stop());
    }
}
