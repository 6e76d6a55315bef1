//! What was mapped in a process before: programs that it executed, and code over which something else was mapped. Each with the times
//! from which it held and until which, so that a sample is named by what was there when it was taken. It is dropped after the drain that
//! brings the last samples of that time.

use std::{
    collections::VecDeque,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::symbol::address_map::{AddressMap, Region};

/// Programs of one process that are kept: as many as it may execute between two drains.
const PAST_MAX: usize = 1024;
/// Bytes of what was mapped over in one process: some 500 mappings.
const REPLACED_BYTES_MAX: usize = 128 << 10;
/// Changes of one process whose times are kept.
const CHANGES_MAX: usize = 4096;

/// What is mapped in a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Maps {
    /// What the kernel told of.
    pub(super) told: Option<Rc<AddressMap>>,
    /// What was read, or is a parent's. What the kernel tells comes later.
    pub(super) read: Option<Rc<AddressMap>>,
}

impl Maps {
    /// The mapping around an address, and the process whose map it is in.
    pub(super) fn find(&self, address: u64) -> Option<(u32, &Region)> {
        let maps = self.told.iter().chain(&self.read);
        maps.filter_map(|map| Some((map.of, map.find(address)?))).next()
    }

    /// What is mapped.
    pub(super) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.told.iter().chain(&self.read).flat_map(|map| map.regions())
    }

    /// Adds a mapping that the kernel told of, and returns the code that it replaces.
    pub(super) fn insert(
        &mut self,
        tgid: u32,
        mut region: Region,
        sum: &Arc<AtomicUsize>,
    ) -> Vec<(u32, Region)> {
        let mut replaced = Vec::new();
        if let Some(read) = &mut self.read
            && read.overlaps(&region)
        {
            let read = Rc::make_mut(read);
            let of = read.of;
            for piece in read.cut(region.start, region.end) {
                if piece.is_same_code(&region) {
                    region.since_ns = region.since_ns.min(piece.since_ns);
                } else {
                    replaced.push((of, piece));
                }
            }
        }
        let told = self.told.get_or_insert_with(|| Rc::new(AddressMap::told(tgid).counted(sum)));
        let told = Rc::make_mut(told);
        let of = std::mem::replace(&mut told.of, tgid);
        replaced.extend(told.insert(region).into_iter().map(|piece| (of, piece)));
        replaced
    }

    const fn is_known(&self) -> bool {
        self.told.is_some() || self.read.is_some()
    }
}

/// A program that the process executed before.
#[derive(Debug)]
struct Past {
    from_ns: u64,
    until_ns: u64,
    maps: Maps,
}

/// Code over which something else was mapped.
#[derive(Debug)]
struct Replaced {
    /// The process whose map it was in.
    of: u32,
    region: Region,
    from_ns: u64,
    until_ns: u64,
}

/// What an address of a process was at a time that is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Was {
    /// It lay in this mapping, which was found in the map of a process.
    In(u32, Region),
    /// In none of the mappings of that time.
    Unmapped,
    /// What was mapped then is not known.
    Unknown(&'static str),
}

pub(super) const EXECUTED: &str = "the process executed another program before its address map was read";
pub(super) const LATER: &str = "what was mapped there when the sample was taken is not known";
const FORGOTTEN: &str = "the code at the address was replaced more often than is kept";

/// All of it.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The last one at the back.
    past: VecDeque<Past>,
    /// In the order in which it was replaced.
    replaced: VecDeque<Replaced>,
    replaced_bytes: usize,
    /// When something took the place of something else, in order.
    changes: VecDeque<u64>,
    /// Up to when something is missing here.
    forgotten_ns: u64,
    /// Where bytes are counted.
    sum: Option<Arc<AtomicUsize>>,
}

impl Drop for History {
    fn drop(&mut self) {
        self.count(|sum, bytes| sum.fetch_sub(bytes, Ordering::Relaxed), self.replaced_bytes);
    }
}

impl History {
    /// Its bytes are counted in `sum`.
    pub(super) fn counted(sum: &Arc<AtomicUsize>) -> Self {
        let mut history = Self::default();
        history.sum = Some(Arc::clone(sum));
        history
    }

    fn count(&self, change: impl FnOnce(&AtomicUsize, usize) -> usize, bytes: usize) {
        if let Some(sum) = &self.sum {
            change(sum, bytes);
        }
    }

    /// A program ends that began at `from_ns`: the process executes another one, or another process has its id.
    pub(super) fn end_program(&mut self, maps: Maps, from_ns: u64, until_ns: u64) {
        self.past.push_back(Past { from_ns, until_ns, maps });
        if self.past.len() > PAST_MAX {
            // What is searched for it is not found, and said to be unknown.
            self.past.pop_front();
        }
        self.change(until_ns);
    }

    /// Code of the program that began at `from_ns` is replaced.
    pub(super) fn replace(&mut self, pieces: Vec<(u32, Region)>, from_ns: u64, until_ns: u64) {
        if pieces.is_empty() {
            return;
        }
        for (of, region) in pieces {
            let bytes = region.bytes();
            self.replaced_bytes += bytes;
            self.count(|sum, bytes| sum.fetch_add(bytes, Ordering::Relaxed), bytes);
            self.replaced.push_back(Replaced { of, region, from_ns, until_ns });
        }
        while self.replaced_bytes > REPLACED_BYTES_MAX
            && let Some(oldest) = self.drop_replaced()
        {
            self.forgotten_ns = oldest;
        }
        self.change(until_ns);
    }

    fn drop_replaced(&mut self) -> Option<u64> {
        let Replaced { region, until_ns, .. } = self.replaced.pop_front()?;
        self.replaced_bytes -= region.bytes();
        self.count(|sum, bytes| sum.fetch_sub(bytes, Ordering::Relaxed), region.bytes());
        Some(until_ns)
    }

    /// Something takes the place of something else.
    pub(super) fn change(&mut self, at_ns: u64) {
        if self.changes.back() == Some(&at_ns) {
            return;
        }
        self.changes.push_back(at_ns);
        if self.changes.len() > CHANGES_MAX {
            // Before that, eras cannot be told apart.
            self.forgotten_ns = self.forgotten_ns.max(self.changes.pop_front().unwrap_or(0));
        }
    }

    /// When the present era began: nothing has taken the place of something else since.
    pub(super) fn changed_ns(&self) -> u64 {
        self.changes.back().copied().unwrap_or(0)
    }

    /// When the era of a time began, in which nothing took the place of something else; 0 for the first.
    pub(super) fn era(&self, at_ns: u64) -> u64 {
        let eras = self.changes.partition_point(|&change| change <= at_ns);
        eras.checked_sub(1).map_or(0, |last| self.changes[last])
    }

    /// Times at which eras began, after the first and up to the last.
    pub(super) fn changes(&self, first_ns: u64, last_ns: u64) -> impl Iterator<Item = u64> + '_ {
        let begin = self.changes.partition_point(|&change| change <= first_ns);
        self.changes.range(begin..).copied().take_while(move |&change| change <= last_ns)
    }

    /// What an address was at a time, if that is not what the program that began at `begun_ns` has mapped there now.
    pub(super) fn was(&self, address: u64, at_ns: u64, begun_ns: u64) -> Option<Was> {
        if at_ns >= self.changed_ns() {
            return None;
        }
        let holds = |replaced: &&Replaced| {
            (replaced.from_ns..replaced.until_ns).contains(&at_ns)
                && (replaced.region.start..replaced.region.end).contains(&address)
        };
        if at_ns < self.forgotten_ns {
            return Some(Was::Unknown(FORGOTTEN));
        }
        // Of what lay there one after the other, the one that was replaced next.
        if let Some(found) = self.replaced.iter().find(holds) {
            return Some(Was::In(found.of, found.region.clone()));
        }
        if at_ns >= begun_ns {
            return None;
        }
        let then = self.past.iter().rev().find(|past| (past.from_ns..past.until_ns).contains(&at_ns));
        Some(match then.map(|past| (past, past.maps.find(address))) {
            Some((_, Some((of, region)))) if region.since_ns <= at_ns => Was::In(of, region.clone()),
            Some((_, Some(_))) => Was::Unknown(LATER),
            Some((past, None)) if past.maps.is_known() => Was::Unmapped,
            _ => Was::Unknown(EXECUTED),
        })
    }

    /// When the program began that ran at a time, if it is none that runs now.
    pub(super) fn begun(&self, at_ns: u64) -> Option<u64> {
        let past = self.past.iter().rev().find(|past| (past.from_ns..past.until_ns).contains(&at_ns))?;
        Some(past.from_ns)
    }

    /// Drops what was over before a time. Is anything left?
    pub(super) fn forget(&mut self, before_ns: u64) -> bool {
        while self.past.front().is_some_and(|past| past.until_ns < before_ns) {
            self.past.pop_front();
        }
        while self.replaced.front().is_some_and(|replaced| replaced.until_ns < before_ns) {
            self.drop_replaced();
        }
        // The last one stays: from then on, everything is as it is.
        while self.changes.len() > 1 && self.changes.front().is_some_and(|&change| change < before_ns) {
            self.changes.pop_front();
        }
        !(self.past.is_empty() && self.replaced.is_empty())
    }
}
