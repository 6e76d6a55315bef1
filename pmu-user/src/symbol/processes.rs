//! Address maps by process: what the kernel told of it, its own, read while it lives, or that of the process it was forked from.
//!
//! A process may be gone before user space can look. Until it executes another program its address map is a copy of its
//! parent's, so that one names its addresses: the map as it was at the parent's first fork, or read since, and if there is
//! none, as it is when it is needed, provided that the parent has executed nothing since. From the program that it executes
//! on, the kernel has told of everything that it mapped, where the kernel is listened to.

mod vain;

use std::{
    collections::{HashMap, VecDeque},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use self::vain::Vain;
use super::address_map::{AddressMap, Region};
use crate::drain::At;

/// Processes kept at a time. The one that began first goes first, and is met anew if it is sampled again.
const PROCESSES_MAX: usize = 8192;
/// Bytes that all their address maps may take.
const MAP_BYTES_MAX: usize = 16 << 20;
/// Addresses that are remembered. They are located again where that is forgotten.
const LOCATED_MAX: usize = 1 << 17;
/// How far up the ancestors to look for a map.
const ANCESTORS_MAX: usize = 8;
/// Files of one process that are opened before a sample has hit them: it may be gone then.
pub(super) const FILES_AHEAD_MAX: usize = 128;

/// Marks the number of a program that has ended.
const ENDED: u64 = 1 << 63;

/// What is mapped in a process.
#[derive(Clone, Debug, Default)]
struct Maps {
    /// What the kernel told of.
    told: Option<Rc<AddressMap>>,
    /// What was read, or is a parent's. What the kernel tells comes later.
    read: Option<Rc<AddressMap>>,
}

impl Maps {
    fn find(&self, address: u64) -> Option<(u32, Region)> {
        let maps = self.told.iter().chain(&self.read);
        maps.filter_map(|map| Some((map.of, map.find(address)?.clone()))).next()
    }
}

/// A process since its fork, or since it executed its program.
#[derive(Debug, Default)]
struct Process {
    /// Tells it from others that had its id, and from what it was before it executed another program.
    program: u64,
    maps: Maps,
    /// Nobody has to look for its map any more.
    is_settled: bool,
    /// Something of it was not told: its map may be another by now.
    is_doubtful: bool,
    /// Samples hit it: its files are wanted. So many have been asked for.
    files_ahead: Option<usize>,
    /// What was mapped before it executed its program.
    before: Option<Maps>,
    /// It forked: its map is that of then, or later. It may have been sampled before its libraries were mapped.
    has_forked: bool,
    /// Who forked it, and the program that was.
    parent: Option<(u32, u64)>,
    /// Addresses that were located, and where.
    located: HashMap<u64, At>,
    vain: Vain,
}

/// Processes met so far.
#[derive(Debug, Default)]
pub(super) struct Processes {
    of: HashMap<u32, Process>,
    /// As they began; those that have another program by now are none.
    oldest: VecDeque<(u32, u64)>,
    programs: u64,
    /// Bytes that address maps take.
    map_bytes: Arc<AtomicUsize>,
    /// Addresses that were located since they were last forgotten.
    located: usize,
    /// Does the kernel tell of everything that is mapped?
    pub(super) are_told: bool,
    /// When the last drain was done (CLOCK_MONOTONIC, ns).
    drained_ns: u64,
    /// Processes that ended or executed another program, each with its number then, and when that was.
    over: VecDeque<(u32, u64, u64)>,
}

impl Processes {
    /// A process begins as a copy of another. The map that was read for that with `read`, if one was.
    pub(super) fn fork(
        &mut self,
        parent: u32,
        child: u32,
        mut read: impl FnMut(u32) -> Option<AddressMap>,
    ) -> Option<Rc<AddressMap>> {
        let (sum, are_told) = (Arc::clone(&self.map_bytes), self.are_told);
        let from = self.meet(parent);
        let reads = !are_told && from.maps.read.is_some() && !from.has_forked;
        from.has_forked = true;
        let new = if reads { read(parent).map(|map| Rc::new(map.counted(&sum))) } else { None };
        if new.is_some() {
            from.maps.read.clone_from(&new);
        }
        let process = Process {
            maps: from.maps.clone(),
            is_settled: are_told && from.is_settled,
            is_doubtful: from.is_doubtful,
            parent: Some((parent, from.program)),
            ..Process::default()
        };
        self.begin(child, process);
        new
    }

    /// A process executes another program: nothing of what is known of it holds. Where the kernel tells of mappings, it
    /// tells of all that follow.
    pub(super) fn execute(&mut self, tgid: u32, at_ns: u64) {
        let old = self.of.remove(&tgid);
        if !self.are_told {
            if old.is_some() {
                self.begin(tgid, Process::default());
            }
            return;
        }
        let parent = old.as_ref().and_then(|old| old.parent);
        let before = old.map(|old| old.maps);
        self.begin(tgid, Process { is_settled: true, before, parent, ..Process::default() });
        self.will_be_over(tgid, self.programs, at_ns);
    }

    /// A process has mapped something. Returns it if it is a file that is wanted before a sample hits it.
    pub(super) fn map(&mut self, tgid: u32, region: Region) -> Option<Region> {
        let sum = Arc::clone(&self.map_bytes);
        let process = self.meet(tgid);
        let ahead = process.files_ahead.as_mut().filter(|ahead| **ahead < FILES_AHEAD_MAX);
        let wanted = ahead.filter(|_| region.file.is_some()).map(|ahead| {
            *ahead += 1;
            region.clone()
        });
        let told = process.maps.told.get_or_insert_with(|| Rc::new(AddressMap::told(tgid).counted(&sum)));
        let told = Rc::make_mut(told);
        told.of = tgid;
        told.insert(region);
        let forgotten = std::mem::take(&mut process.located).len();
        self.located -= forgotten.min(self.located);
        self.drop_oldest();
        wanted
    }

    /// A process has ended. Samples of it may still come.
    pub(super) fn end(&mut self, tgid: u32, at_ns: u64) {
        if let Some(process) = self.of.get(&tgid) {
            self.will_be_over(tgid, process.program | ENDED, at_ns);
        }
    }

    fn will_be_over(&mut self, tgid: u32, program: u64, at_ns: u64) {
        self.over.push_back((tgid, program, at_ns));
        if self.over.len() > 4 * PROCESSES_MAX {
            // It goes with the oldest.
            self.over.pop_front();
        }
    }

    /// Something was not told: every process is looked at again where that is still possible.
    pub(super) fn distrust(&mut self) {
        for process in self.of.values_mut() {
            process.is_doubtful = true;
            process.located = HashMap::new();
        }
        self.located = 0;
    }

    /// All samples of a drain that was done at a time have been located. Nothing asks any more for a process that ended before
    /// the drain before it was done, or for what it was before it executed another program: its last samples came with that
    /// one, or with this one, if that was under way.
    pub(super) fn drained(&mut self, at_ns: u64) {
        let before_ns = std::mem::replace(&mut self.drained_ns, at_ns);
        while let Some(&(tgid, program, over_ns)) = self.over.front()
            && over_ns < before_ns
        {
            self.over.pop_front();
            let (program, has_ended) = (program & !ENDED, program & ENDED != 0);
            if !self.is(tgid, program) {
                continue;
            }
            if has_ended {
                self.of.remove(&tgid);
            } else if let Some(process) = self.of.get_mut(&tgid) {
                process.before = None;
            }
        }
    }

    /// A process was sampled. The files that are mapped there as far as the kernel has told, unless they were asked for before.
    pub(super) fn see(&mut self, tgid: u32) -> Vec<Region> {
        let process = self.meet(tgid);
        if process.files_ahead.is_some() {
            return Vec::new();
        }
        let told = process.maps.told.iter().flat_map(|told| told.regions());
        let files = told.filter(|region| region.file.is_some());
        let files: Vec<Region> = files.take(FILES_AHEAD_MAX).cloned().collect();
        process.files_ahead = Some(files.len());
        files
    }

    /// A process, and those that it was forked from, the last one first.
    pub(super) fn kin(&self, tgid: u32) -> Vec<u32> {
        let parent = |&tgid: &u32| self.of.get(&tgid)?.parent.map(|(parent, _)| parent);
        std::iter::successors(Some(tgid), parent).take(ANCESTORS_MAX).collect()
    }

    /// What tells a process from others that had its id, and from what it was before it executed another program.
    pub(super) fn program(&mut self, tgid: u32) -> u64 {
        self.meet(tgid).program
    }

    /// Where an address of a process was located before; `None` if it is new.
    pub(super) fn located(&self, tgid: u32, address: u64) -> Option<At> {
        self.of.get(&tgid)?.located.get(&address).copied()
    }

    /// Keeps where an address of a process was located.
    pub(super) fn locate(&mut self, tgid: u32, address: u64, at: At) {
        if self.located >= LOCATED_MAX {
            self.of.values_mut().for_each(|process| process.located = HashMap::new());
            self.located = 0;
        }
        self.located += usize::from(self.meet(tgid).located.insert(address, at).is_none());
    }

    /// Looks for the process's map, once, with `read`. The map that was read for it, if one was.
    pub(super) fn settle(
        &mut self,
        tgid: u32,
        mut read: impl FnMut(u32) -> Option<AddressMap>,
    ) -> Option<Rc<AddressMap>> {
        let sum = Arc::clone(&self.map_bytes);
        let process = self.meet(tgid);
        if std::mem::take(&mut process.is_doubtful)
            && let Some(map) = read(tgid)
        {
            let map = Rc::new(map.counted(&sum));
            process.maps = Maps { told: None, read: Some(Rc::clone(&map)) };
            process.is_settled = true;
            return Some(map);
        }
        if process.is_settled || process.maps.read.is_some() {
            return None;
        }
        let map = self.own_or_inherited(tgid, read);
        let process = self.meet(tgid);
        process.is_settled = true;
        process.maps.read.clone_from(&map);
        map
    }

    fn own_or_inherited(
        &mut self,
        tgid: u32,
        mut read: impl FnMut(u32) -> Option<AddressMap>,
    ) -> Option<Rc<AddressMap>> {
        let mut next = (tgid, self.meet(tgid).program);
        for _ in 0..=ANCESTORS_MAX {
            let process = self.of.get_mut(&next.0).filter(|process| process.program == next.1)?;
            if process.maps.read.is_none() {
                process.maps.read = read(next.0).map(|map| Rc::new(map.counted(&self.map_bytes)));
            }
            if let Some(map) = &process.maps.read {
                return Some(Rc::clone(map));
            }
            next = process.parent?;
        }
        None
    }

    /// Why an address was not in a process's map a moment ago, for which that is not read again for a while: what is not found now may be
    /// there by then. `None` if it is read.
    pub(super) fn waits(&self, tgid: u32) -> Option<&'static str> {
        self.of.get(&tgid).filter(|process| process.vain.waits()).map(|process| process.vain.why)
    }

    /// Keeps why an address was not found.
    pub(super) fn missed(&mut self, tgid: u32, why: &'static str) {
        self.meet(tgid).vain.why = why;
    }

    /// The mapping around an address, and the process whose map it was found in. The process's own is read again if it
    /// has mapped more since, unless that [waits](Self::waits). Call [`Processes::settle`] before.
    pub(super) fn find(
        &mut self,
        tgid: u32,
        address: u64,
        mut read: impl FnMut(u32) -> Option<AddressMap>,
    ) -> Option<(u32, Region)> {
        let sum = Arc::clone(&self.map_bytes);
        let process = self.meet(tgid);
        let before = || process.before.as_ref().and_then(|before| before.find(address));
        if let Some(found) = process.maps.find(address).or_else(before) {
            return Some(found);
        }
        if process.vain.waits() {
            return None;
        }
        let begun = Instant::now();
        if let Some(map) = read(tgid) {
            // All that was told of is in there.
            process.maps = Maps { told: None, read: Some(Rc::new(map.counted(&sum))) };
        }
        let found = process.maps.find(address);
        match found {
            Some(_) => process.vain = Vain::default(),
            None => process.vain.add(begun.elapsed()),
        }
        self.drop_oldest();
        found
    }

    fn meet(&mut self, tgid: u32) -> &mut Process {
        if !self.of.contains_key(&tgid) {
            self.begin(tgid, Process::default());
        }
        self.of.entry(tgid).or_default()
    }

    fn begin(&mut self, tgid: u32, process: Process) {
        self.programs += 1;
        self.of.insert(tgid, Process { program: self.programs, ..process });
        self.oldest.push_back((tgid, self.programs));
        self.drop_oldest();
        if self.oldest.len() > 2 * PROCESSES_MAX {
            let mut oldest = std::mem::take(&mut self.oldest);
            oldest.retain(|&(tgid, program)| self.is(tgid, program));
            self.oldest = oldest;
        }
    }

    /// Forgets the oldest until the others fit.
    fn drop_oldest(&mut self) {
        while (self.of.len() > PROCESSES_MAX || self.map_bytes.load(Ordering::Relaxed) > MAP_BYTES_MAX)
            && let Some((tgid, program)) = self.oldest.pop_front()
        {
            if self.is(tgid, program) {
                self.of.remove(&tgid);
            }
        }
    }

    fn is(&self, tgid: u32, program: u64) -> bool {
        self.of.get(&tgid).is_some_and(|process| process.program == program)
    }
}

#[cfg(test)]
mod tests;
