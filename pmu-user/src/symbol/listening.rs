//! Merges the kernel's events of all CPUs in order of time.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    machine::monotonic_ns,
    perf::side_band::{SideBand, Told},
};

/// Event streams of the kernel.
#[derive(Debug, Default)]
pub(super) struct Listening {
    bands: Vec<SideBand>,
    /// Streams of CPUs that went offline, which no longer wake the thread.
    over: Vec<SideBand>,
    /// Events that are too recent: another CPU may still report an earlier one.
    waiting: Vec<Told>,
}

impl Listening {
    /// Adds the stream of another CPU, or of one that is back online.
    pub(super) fn add(&mut self, band: SideBand) {
        for bands in [&mut self.bands, &mut self.over] {
            bands.iter_mut().filter(|old| old.cpu == band.cpu).for_each(|old| old.take(&mut self.waiting));
            bands.retain(|old| old.cpu != band.cpu);
        }
        self.bands.push(band);
    }

    /// Waits until `woken` is readable, and empties it, or until the kernel has reported much, for at most
    /// `most`.
    pub(super) fn wait(&mut self, woken: &OwnedFd, most: Option<&Timespec>) {
        let bands = self.bands.iter().map(|band| PollFd::new(band, PollFlags::IN));
        let mut waiting: Vec<PollFd<'_>> = bands.chain([PollFd::new(woken, PollFlags::IN)]).collect();
        let _ = poll(&mut waiting, most);
        let over = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let mut are_over =
            waiting.iter().map(|waited| waited.revents().intersects(over)).collect::<Vec<_>>().into_iter();
        self.over.extend(self.bands.extract_if(.., |_| are_over.next() == Some(true)));
        // Up to a full pipe may have been written.
        let _ = rustix::io::read(woken, &mut [0; 4096]);
    }

    /// Returns the events recorded up to now and not returned yet, in order of time.
    pub(super) fn hear(&mut self) -> Vec<Told> {
        // A CPU records an event after its causes: an event that is not in a ring by now cannot precede one
        // that is.
        let now_ns = monotonic_ns();
        for band in self.bands.iter_mut().chain(&mut self.over) {
            band.take(&mut self.waiting);
        }
        in_order(&mut self.waiting, now_ns)
    }
}

/// Removes and returns the events up to a time, in order. Simultaneous events of one CPU keep their order.
fn in_order(waiting: &mut Vec<Told>, until_ns: u64) -> Vec<Told> {
    waiting.sort_by_key(|told| told.at_ns);
    let due = waiting.partition_point(|told| told.at_ns <= until_ns);
    waiting.drain(..due).collect()
}

#[cfg(test)]
mod tests {
    use super::{Told, in_order};
    use crate::perf::side_band::What;

    #[test]
    fn what_several_cpus_tell_is_put_in_order_and_what_is_too_new_waits() {
        let told = |at_ns, process| Told { at_ns, what: What::Execute(process) };
        let mut waiting = vec![told(10, 1), told(30, 2), told(30, 3), told(20, 4), told(40, 5)];
        assert_eq!(in_order(&mut waiting, 30), [told(10, 1), told(20, 4), told(30, 2), told(30, 3)]);
        assert_eq!(waiting, [told(40, 5)]);
    }
}
