//! How far looking up names at the end of a run is, and that it stops when a signal comes: then the report has the names that are there.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

const IDLE: u8 = 0;
const GOES_ON: u8 = 1;
const STOPPED: u8 = 2;

/// What several threads see of it.
#[derive(Debug, Default)]
pub struct Naming {
    state: AtomicU8,
    /// Files whose functions are wanted, and those that were asked.
    files: AtomicUsize,
    asked: AtomicUsize,
}

impl Naming {
    /// It begins.
    pub(super) fn begin(&self) {
        self.state.store(GOES_ON, Ordering::Relaxed);
    }

    /// It is over.
    pub(super) fn end(&self) {
        self.state.store(IDLE, Ordering::Relaxed);
    }

    /// Stops it. Did it go on?
    pub fn stop(&self) -> bool {
        self.state.compare_exchange(GOES_ON, STOPPED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Is it to stop?
    pub(super) fn is_stopped(&self) -> bool {
        self.state.load(Ordering::Relaxed) == STOPPED
    }

    /// So many files have functions that are wanted.
    pub(super) fn of_files(&self, files: usize) {
        self.files.store(files, Ordering::Relaxed);
    }

    /// One more was asked.
    pub(super) fn asked(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// Files that were asked, and all of them.
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
