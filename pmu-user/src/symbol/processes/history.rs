//! Earlier mappings of a process: of programs that it executed, and of code that was replaced by another
//! mapping. Each has its start and end time, so that a sample is named by what was mapped when it was taken.
//! An entry is dropped after the drain that brings the last samples of its time.

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
/// Bytes of replaced mappings in one process, at most: some 500 mappings.
const REPLACED_BYTES_MAX: usize = 128 << 10;
/// Changes of one process with kept times, at most.
const CHANGES_MAX: usize = 4096;

/// Mappings of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Maps {
    /// Mappings that the kernel reported.
    pub(super) told: Option<Rc<AddressMap>>,
    /// Mappings that were read, or are a parent's. Reports of the kernel are newer.
    pub(super) read: Option<Rc<AddressMap>>,
}

impl Maps {
    /// Returns the mapping around an address, and the process in whose map it is.
    pub(super) fn find(&self, address: u64) -> Option<(u32, &Region)> {
        let maps = self.told.iter().chain(&self.read);
        maps.filter_map(|map| Some((map.of, map.find(address)?))).next()
    }

    /// Returns the mappings.
    pub(super) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.told.iter().chain(&self.read).flat_map(|map| map.regions())
    }

    /// Adds a mapping that the kernel reported, and returns the code that it replaces.
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

/// Code that was replaced by another mapping.
#[derive(Debug)]
struct Replaced {
    /// Process in whose map it was.
    of: u32,
    region: Region,
    from_ns: u64,
    until_ns: u64,
}

/// State of an address of a process at a past time.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Was {
    /// The address was in this mapping, which was found in the map of a process.
    In(u32, Region),
    /// The address was in no mapping of that time.
    Unmapped,
    /// The mappings of that time are not known.
    Unknown(&'static str),
}

pub(super) const EXECUTED: &str = "the process executed another program before its address map was read";
pub(super) const LATER: &str = "what was mapped there when the sample was taken is not known";
const FORGOTTEN: &str = "the code at the address was replaced more often than is kept";

/// History of a process's mappings.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Earlier programs, the last one at the back.
    past: VecDeque<Past>,
    /// Replaced code, in the order of replacement.
    replaced: VecDeque<Replaced>,
    replaced_bytes: usize,
    /// Times of replacements, in order.
    changes: VecDeque<u64>,
    /// Time before which entries are missing.
    forgotten_ns: u64,
    /// Total in which the bytes are counted.
    sum: Option<Arc<AtomicUsize>>,
}

impl Drop for History {
    fn drop(&mut self) {
        self.count(|sum, bytes| sum.fetch_sub(bytes, Ordering::Relaxed), self.replaced_bytes);
    }
}

impl History {
    /// Returns an empty history with its bytes counted in `sum`.
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

    /// Ends the program that began at `from_ns`: the process executes another one, or another process has its
    /// id.
    pub(super) fn end_program(&mut self, maps: Maps, from_ns: u64, until_ns: u64) {
        self.past.push_back(Past { from_ns, until_ns, maps });
        if self.past.len() > PAST_MAX {
            // A search for the dropped program reports it as unknown.
            self.past.pop_front();
        }
        self.change(until_ns);
    }

    /// Adds replaced code of the program that began at `from_ns`.
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

    /// Adds the time of a replacement.
    pub(super) fn change(&mut self, at_ns: u64) {
        if self.changes.back() == Some(&at_ns) {
            return;
        }
        self.changes.push_back(at_ns);
        if self.changes.len() > CHANGES_MAX {
            // Before that time, eras cannot be distinguished.
            self.forgotten_ns = self.forgotten_ns.max(self.changes.pop_front().unwrap_or(0));
        }
    }

    /// Returns when the present era began: nothing has been replaced since.
    pub(super) fn changed_ns(&self) -> u64 {
        self.changes.back().copied().unwrap_or(0)
    }

    /// Returns when the era of a time began, within which nothing was replaced. 0 for the first era.
    pub(super) fn era(&self, at_ns: u64) -> u64 {
        let eras = self.changes.partition_point(|&change| change <= at_ns);
        eras.checked_sub(1).map_or(0, |last| self.changes[last])
    }

    /// Returns the times at which eras began, after the first and up to the last.
    pub(super) fn changes(&self, first_ns: u64, last_ns: u64) -> impl Iterator<Item = u64> + '_ {
        let begin = self.changes.partition_point(|&change| change <= first_ns);
        self.changes.range(begin..).copied().take_while(move |&change| change <= last_ns)
    }

    /// Returns the state of an address at a time, if it is not what the program that began at `begun_ns` has
    /// mapped there now.
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
        // The first match is the one that was replaced next after that time.
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

    /// Returns when the program that ran at a time began, if it is an earlier one.
    pub(super) fn begun(&self, at_ns: u64) -> Option<u64> {
        let past = self.past.iter().rev().find(|past| (past.from_ns..past.until_ns).contains(&at_ns))?;
        Some(past.from_ns)
    }

    /// Drops entries that ended before a time. Returns whether any entry is left.
    pub(super) fn forget(&mut self, before_ns: u64) -> bool {
        while self.past.front().is_some_and(|past| past.until_ns < before_ns) {
            self.past.pop_front();
        }
        while self.replaced.front().is_some_and(|replaced| replaced.until_ns < before_ns) {
            self.drop_replaced();
        }
        // The last one stays: it begins the present era.
        while self.changes.len() > 1 && self.changes.front().is_some_and(|&change| change < before_ns) {
            self.changes.pop_front();
        }
        !(self.past.is_empty() && self.replaced.is_empty())
    }
}
