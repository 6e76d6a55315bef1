//! Puts what the kernel tells on every CPU into one order.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    machine::monotonic_ns,
    perf::side_band::{SideBand, Told},
};

/// What the kernel tells.
#[derive(Debug, Default)]
pub(super) struct Listening {
    bands: Vec<SideBand>,
    /// Those of CPUs that went: nothing wakes for them any more.
    over: Vec<SideBand>,
    /// What is too new: another CPU may yet tell of something before it.
    waiting: Vec<Told>,
}

impl Listening {
    /// Listens to another CPU, or anew to one that was gone.
    pub(super) fn add(&mut self, band: SideBand) {
        for bands in [&mut self.bands, &mut self.over] {
            bands.iter_mut().filter(|old| old.cpu == band.cpu).for_each(|old| old.take(&mut self.waiting));
            bands.retain(|old| old.cpu != band.cpu);
        }
        self.bands.push(band);
    }

    /// Waits until `woken` can be read, which is then emptied, or until the kernel has reported much, at most so long.
    pub(super) fn wait(&mut self, woken: &OwnedFd, most: Option<&Timespec>) {
        let bands = self.bands.iter().map(|band| PollFd::new(band, PollFlags::IN));
        let mut waiting: Vec<PollFd<'_>> = bands.chain([PollFd::new(woken, PollFlags::IN)]).collect();
        let _ = poll(&mut waiting, most);
        let over = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let mut are_over =
            waiting.iter().map(|waited| waited.revents().intersects(over)).collect::<Vec<_>>().into_iter();
        self.over.extend(self.bands.extract_if(.., |_| are_over.next() == Some(true)));
        // As many may have written to it as it takes.
        let _ = rustix::io::read(woken, &mut [0; 4096]);
    }

    /// What was told by now and not heard yet, in the order in which it happened.
    pub(super) fn hear(&mut self) -> Vec<Told> {
        // Who tells of something has told of what led there: what is not in a ring by now cannot be before what is.
        let now_ns = monotonic_ns();
        for band in self.bands.iter_mut().chain(&mut self.over) {
            band.take(&mut self.waiting);
        }
        in_order(&mut self.waiting, now_ns)
    }
}

/// Takes out what happened up to a time, in order. What one CPU told at the same time stays in its order.
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
