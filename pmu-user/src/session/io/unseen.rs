//! Block requests that the kernel counts as completed and no program saw.
//!
//! A tracepoint's program does not run for every completion. The kernel skips a run that would interrupt
//! another one, and counts it. Some hosts run no program, and take no sample, in interrupts of some tasks,
//! and do not count this. The kernel's own counts include all requests. A request's tracepoint comes before
//! its count. Requests that the kernel counted before the programs' rows are read, and that are in none of
//! them, were not seen. They go to the row of requests without a known owner: sums over a device are the
//! kernel's, and no latency includes them.

use std::collections::BTreeMap;

use pmu_common::io::block::BlockCount;

use crate::{
    drain::io::{
        block::{self, BlockRow, DeviceNumber, Operation, Whose},
        traffic::Traffic,
    },
    machine::disk::Completed,
    untrusted::Untrusted,
};

/// Name of the loss of requests that no program saw.
const LOSS: &str = "io_not_seen";

/// The kernel's counts by device: see [`crate::machine::disk::completed`].
pub(super) type Counts = BTreeMap<(u32, u32), Completed>;
type Place = (DeviceNumber, Operation);

/// Requests and bytes, which may be below zero: programs see a request before the kernel counts it.
type Difference = (i128, i128);

/// Comparison of the programs' counts with the kernel's.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    /// Excess of the kernel's counts over the programs' when counting began.
    ahead: Option<BTreeMap<Place, Difference>>,
    /// The kernel's counts when counting began.
    kernel: BTreeMap<Place, (u64, u64)>,
    /// Counts of rows that were given up.
    retired: BTreeMap<Place, Difference>,
    /// The most that was missing at any time. Later readings may show less, because of requests that the
    /// kernel had not counted yet.
    most: BTreeMap<Place, Missing>,
}

/// Requests that no program saw.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    requests: u64,
    bytes: u64,
    /// Requests that moved these bytes, by the mean until then. Reported numbers stay, because numbers of
    /// rows only grow.
    with_data: u64,
}

impl Unseen {
    /// Returns whether there was a first drain.
    pub(super) const fn has_begun(&self) -> bool {
        self.ahead.is_some()
    }

    /// Adds what no program saw to a drain's rows and losses. `kernel` is read before the rows, except in the
    /// first drain, where it is read after them. So nothing that was seen is taken for unseen.
    pub(super) fn add_to(&mut self, traffic: &mut Traffic, kernel: &Counts) {
        let kernel = by_place(kernel);
        let now = self.ahead_of(traffic, &kernel);
        let Some(before) = &self.ahead else {
            (self.ahead, self.kernel) = (Some(now), kernel);
            return;
        };
        for (place, (requests, bytes)) in now {
            // A device that came later had no counts when counting began.
            let (requests_before, bytes_before) = before.get(&place).copied().unwrap_or_default();
            let missing = |now: i128, before: i128| u64::try_from(now - before).unwrap_or(0);
            let most = self.most.entry(place).or_default();
            most.requests = most.requests.max(missing(requests, requests_before));
            most.bytes = most.bytes.max(missing(bytes, bytes_before));
        }
        self.tell(traffic, &kernel);
    }

    /// Returns the excess of the kernel's counts over the programs'.
    fn ahead_of(
        &mut self,
        traffic: &Traffic,
        kernel: &BTreeMap<Place, (u64, u64)>,
    ) -> BTreeMap<Place, Difference> {
        let mut ahead: BTreeMap<Place, Difference> = kernel
            .iter()
            .map(|(&place, &(requests, bytes))| (place, (requests.into(), bytes.into())))
            .collect();
        for row in &traffic.retired.block {
            if let Some(place) = place_of(row) {
                let sum = self.retired.entry(place).or_default();
                *sum = (sum.0 + i128::from(row.count.requests), sum.1 + i128::from(row.count.bytes));
            }
        }
        let rows = traffic.block.iter().filter_map(|row| Some((place_of(row)?, counts_of(row))));
        for (place, seen) in rows.chain(self.retired.iter().map(|(place, seen)| (*place, *seen))) {
            if let Some(ahead) = ahead.get_mut(&place) {
                *ahead = (ahead.0 - seen.0, ahead.1 - seen.1);
            }
        }
        ahead
    }

    fn tell(&mut self, traffic: &mut Traffic, kernel: &BTreeMap<Place, (u64, u64)>) {
        let mut lost = 0_u64;
        for (&(device, operation), missing) in &mut self.most {
            let all = |counts: &BTreeMap<Place, (u64, u64)>| counts.get(&(device, operation)).copied();
            let (now, before) = (all(kernel).unwrap_or_default(), all(&self.kernel).unwrap_or_default());
            let done = (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
            missing.with_data = missing.with_data.max(with_data(missing.requests, missing.bytes, done));
            let (requests, bytes) = (missing.with_data, missing.bytes);
            if (requests, bytes) == (0, 0) {
                continue;
            }
            lost = lost.saturating_add(requests);
            let count = BlockCount { requests, bytes, unstarted: requests, changes: 1, ..BlockCount::ZERO };
            let ours = |row: &&mut BlockRow| {
                (row.device, row.operation, row.whose) == (device, operation, Whose::Unseen)
            };
            if let Some(row) = traffic.block.iter_mut().find(ours) {
                row.count = block::sum(&row.count, &count);
            } else {
                let (name, latency, queue) = (Untrusted::default(), Vec::new(), Vec::new());
                let whose = Whose::Unseen;
                traffic.block.push(BlockRow { device, operation, whose, name, count, latency, queue });
            }
        }
        if lost > 0 {
            traffic.losses.push((LOSS.to_owned(), lost));
        }
    }
}

/// Returns the kernel's counts of each device, by operation.
fn by_place(kernel: &Counts) -> BTreeMap<Place, (u64, u64)> {
    let of = |(&(major, minor), completed): (&(u32, u32), &Completed)| {
        let device = DeviceNumber { major, minor };
        [((device, Operation::Read), completed.read), ((device, Operation::Write), completed.write)]
    };
    kernel.iter().flat_map(of).collect()
}

/// Returns how many of the missing `requests` moved `bytes`, given `done` requests and bytes in all. The
/// kernel also counts a requested flush as a write without data. The programs leave it out: they count the
/// flush that the device does.
fn with_data(requests: u64, bytes: u64, done: (u64, u64)) -> u64 {
    let mean = (done.1 / done.0.max(1)).max(1);
    requests.min((bytes / mean + u64::from(bytes % mean > mean / 2)).max(u64::from(bytes > 0)))
}

/// Returns the place where the kernel counts a row's requests. The kernel counts flushes separately, and they
/// are not compared.
fn place_of(row: &BlockRow) -> Option<Place> {
    let operation = match row.operation {
        Operation::Read => Operation::Read,
        Operation::Write | Operation::Discard | Operation::Other => Operation::Write,
        Operation::Flush => return None,
    };
    Some((row.device, operation))
}

fn counts_of(row: &BlockRow) -> Difference {
    (row.count.requests.into(), row.count.bytes.into())
}

#[cfg(test)]
mod tests {
    use pmu_common::io::block::BlockCount;

    use super::{Counts, Unseen};
    use crate::{
        drain::io::{
            block::{BlockRow, DeviceNumber, Operation, Whose},
            traffic::{Retired, Traffic},
        },
        machine::{cgroup::CgroupId, disk::Completed},
        untrusted::Untrusted,
    };

    const DISK: DeviceNumber = DeviceNumber { major: 7, minor: 0 };

    fn row(operation: Operation, whose: Whose, requests: u64) -> BlockRow {
        BlockRow {
            device: DISK,
            operation,
            whose,
            name: Untrusted::default(),
            count: BlockCount { requests, bytes: requests * 4096, ..BlockCount::ZERO },
            latency: Vec::new(),
            queue: Vec::new(),
        }
    }

    fn kernel(reads: u64, writes: u64) -> Counts {
        let of = |requests: u64| (requests, requests * 4096);
        [((7, 0), Completed { read: of(reads), write: of(writes) })].into()
    }

    /// Returns the requests in the row without an owner, and the loss, after these counts of the kernel and
    /// the programs.
    fn told(unseen: &mut Unseen, kernel: &Counts, rows: Vec<BlockRow>, retired: Vec<BlockRow>) -> (u64, u64) {
        let retired = Retired { block: retired, net: Vec::new() };
        let mut traffic = Traffic { block: rows, retired, ..Traffic::default() };
        unseen.add_to(&mut traffic, kernel);
        let rows = traffic.block.iter().filter(|row| row.whose == Whose::Unseen);
        let bytes: u64 = rows.clone().map(|row| row.count.bytes).sum();
        let requests = rows.map(|row| row.count.requests).sum();
        assert_eq!(bytes, requests * 4096);
        (requests, traffic.losses.iter().map(|(_, count)| count).sum())
    }

    #[test]
    fn what_only_the_kernel_counted_has_a_row_and_is_a_loss() {
        let mut unseen = Unseen::default();
        let owner = Whose::Cgroup(CgroupId(9));
        let of = |reads, discards| {
            vec![row(Operation::Read, owner, reads), row(Operation::Discard, owner, discards)]
        };
        assert_eq!(told(&mut unseen, &kernel(100, 50), of(3, 0), vec![]), (0, 0), "the past");
        assert_eq!(told(&mut unseen, &kernel(110, 50), of(13, 0), vec![]), (0, 0));
        assert_eq!(told(&mut unseen, &kernel(120, 55), of(21, 4), vec![]), (3, 3));
        // Two requests are seen that the kernel has not counted yet. What was missing is still missing.
        assert_eq!(told(&mut unseen, &kernel(120, 55), of(23, 4), vec![]), (3, 3));
        // The owner's row is given up: its counts are in no row any more.
        assert_eq!(told(&mut unseen, &kernel(122, 55), vec![], of(23, 4)), (3, 3));
        let back = vec![row(Operation::Read, owner, 5), row(Operation::Flush, owner, 7)];
        assert_eq!(told(&mut unseen, &kernel(127, 55), back, vec![]), (3, 3));
    }

    #[test]
    fn flushes_that_the_kernel_counts_as_writes_without_data_are_not_missing() {
        let mut unseen = Unseen::default();
        let kernel = |writes, written: u64| -> Counts {
            [((7, 0), Completed { read: (0, 0), write: (writes, written * 4096) })].into()
        };
        let rows = |requests| vec![row(Operation::Write, Whose::Kernel, requests)];
        told(&mut unseen, &kernel(3, 3), vec![], vec![]);
        assert_eq!(told(&mut unseen, &kernel(12, 10), rows(7), vec![]), (0, 0));
        assert_eq!(told(&mut unseen, &kernel(1012, 1010), rows(1005), vec![]), (2, 2));
    }

    #[test]
    fn what_was_told_to_be_missing_stays_when_requests_become_larger() {
        let mut unseen = Unseen::default();
        let kernel = |small: u64, large: u64| -> Counts {
            let written = (small + large, (small + large * 256) * 4096);
            [((7, 0), Completed { read: (0, 0), write: written })].into()
        };
        let rows = |small: u64, large: u64| {
            let mut row = row(Operation::Write, Whose::Kernel, small + large * 256);
            row.count.requests = small + large;
            vec![row]
        };
        told(&mut unseen, &kernel(0, 0), vec![], vec![]);
        assert_eq!(told(&mut unseen, &kernel(12, 0), rows(2, 0), vec![]), (10, 10));
        assert_eq!(told(&mut unseen, &kernel(12, 100), rows(2, 100), vec![]), (10, 10));
    }

    #[test]
    fn a_row_of_requests_without_a_start_has_both() {
        let mut unseen = Unseen::default();
        told(&mut unseen, &kernel(0, 0), vec![], vec![]);
        let rows = vec![row(Operation::Read, Whose::Unseen, 2)];
        assert_eq!(told(&mut unseen, &kernel(5, 0), rows, vec![]), (5, 3));
    }

    #[test]
    fn where_the_kernel_does_not_count_nothing_is_missing() {
        let mut unseen = Unseen::default();
        let rows = |requests| vec![row(Operation::Read, Whose::Kernel, requests)];
        for (kernel, seen) in [(kernel(40, 0), 2), (kernel(40, 0), 7), (Counts::new(), 9), (kernel(0, 0), 9)]
        {
            assert_eq!(told(&mut unseen, &kernel, rows(seen), vec![]), (0, 0), "{seen}");
        }
    }

    #[test]
    fn a_device_that_comes_later_counts_from_nothing() {
        let mut unseen = Unseen::default();
        told(&mut unseen, &Counts::new(), vec![], vec![]);
        assert_eq!(
            told(&mut unseen, &kernel(5, 2), vec![row(Operation::Read, Whose::Kernel, 5)], vec![]),
            (2, 2)
        );
    }
}
