//! Address maps by process: the map that the kernel reported, the process's own, read while it lives, or that
//! of the process from which it was forked.
//!
//! A process may be gone before user space can read its map. Until it executes another program its address
//! map is a copy of its parent's, so the parent's map locates its addresses. That map is the one at the
//! parent's first fork, or one read since. If there is none, it is read on demand, provided that the parent
//! has executed nothing since. After an exec the kernel reports every mapping, where mapping events are
//! recorded.

mod history;
mod seen;
mod times;
mod vain;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use self::{
    history::{History, LATER, Maps, Was},
    vain::Vain,
};
use super::address_map::{AddressMap, Region};
use crate::{drain::At, machine::monotonic_ns};

/// Processes kept at a time. The one that began first is dropped first, and is added again if it is sampled
/// again.
const PROCESSES_MAX: usize = 8192;
/// Bytes of all address maps together, at most.
const MAP_BYTES_MAX: usize = 16 << 20;
/// Located addresses that are kept. Dropped addresses are located again.
const LOCATED_MAX: usize = 1 << 17;
/// Reason why an address cannot be located although the process's map is known.
pub(super) const UNMAPPED: &str = "no executable mapping holds the address";
/// Ancestors that are searched for a map, at most.
const ANCESTORS_MAX: usize = 8;
/// Files of one process that are opened before a sample has hit them, because the process may be gone then.
pub(super) const FILES_AHEAD_MAX: usize = 128;

/// A process since its fork, or since it executed its program.
#[derive(Debug, Default)]
struct Process {
    /// Number that distinguishes it from others that had its id, and from itself before an exec.
    program: u64,
    /// Start time (CLOCK_MONOTONIC, ns). 0 if the process began before anything was known of it.
    begun_ns: u64,
    maps: Maps,
    /// Time of the last read of its map. 0 if it was not read.
    read_ns: u64,
    /// Earlier mappings, also of other processes that had its id.
    history: History,
    /// The map needs no further search.
    is_settled: bool,
    /// An event was lost: its map may have changed.
    is_doubtful: bool,
    /// The kernel has reported every mapping since its program began.
    is_reported: bool,
    /// The address map can no longer be read.
    is_gone: bool,
    /// Files requested ahead of samples. Set once samples hit the process.
    files_ahead: Option<usize>,
    /// The process has forked: its map is that of the fork, or later. It may have been sampled before its
    /// libraries were mapped.
    has_forked: bool,
    /// Parent process, and the program that it ran then.
    parent: Option<(u32, u64)>,
    /// Addresses located since the last replacement, with their locations.
    located: HashMap<u64, At>,
    vain: Vain,
}

impl Process {
    /// Returns whether all of its mappings are known, even if its address map can no longer be read.
    fn knows_all_mappings(&self) -> bool {
        self.is_reported && !self.is_doubtful && self.maps.told.as_ref().is_some_and(|told| told.is_whole)
    }
}

/// Processes seen so far.
#[derive(Debug, Default)]
pub(super) struct Processes {
    of: HashMap<u32, Process>,
    /// Processes in order of start. Entries that have executed another program since are stale.
    oldest: VecDeque<(u32, u64)>,
    programs: u64,
    /// Bytes of all address maps.
    map_bytes: Arc<AtomicUsize>,
    /// Addresses that were located since they were last forgotten.
    located: usize,
    /// The kernel reports every mapping.
    pub(super) are_told: bool,
    /// Time of the last drain (CLOCK_MONOTONIC, ns).
    drained_ns: u64,
    /// Processes that ended: id, program number, and time.
    over: VecDeque<(u32, u64, u64)>,
    /// Processes in which a mapping was replaced.
    changed: HashSet<u32>,
}

/// Error for an address that was not found.
#[derive(Debug)]
pub(super) enum NotFound {
    /// The address is in no known mapping.
    Unmapped,
    /// The mappings at the time of the sample are not known, for this reason.
    Unknown(&'static str),
}

impl Processes {
    /// Adds a process that begins as a copy of another. Returns the map that was read for it with `read`, if
    /// one was.
    pub(super) fn fork(
        &mut self,
        parent: u32,
        child: u32,
        at_ns: u64,
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
            begun_ns: at_ns,
            maps: from.maps.clone(),
            read_ns: from.read_ns,
            is_settled: are_told && from.is_settled,
            is_doubtful: from.is_doubtful,
            is_reported: from.is_reported,
            parent: Some((parent, from.program)),
            ..Process::default()
        };
        let history = self.end_program(child, at_ns);
        self.begin(child, Process { history, ..process });
        new
    }

    /// Moves the state of a process to the history of its id.
    fn end_program(&mut self, tgid: u32, at_ns: u64) -> History {
        let Some(old) = self.of.remove(&tgid) else { return History::counted(&self.map_bytes) };
        self.located -= old.located.len().min(self.located);
        let Process { mut maps, mut history, begun_ns, read_ns, .. } = old;
        if read_ns >= at_ns {
            // It may be the map of the next program.
            maps.read = None;
        }
        history.end_program(maps, begun_ns, at_ns);
        self.changed.insert(tgid);
        history
    }

    /// Handles an exec: from then on, nothing known of the process holds. Where the kernel reports mappings,
    /// it reports all that follow.
    pub(super) fn execute(&mut self, tgid: u32, at_ns: u64) {
        let (is_known, is_settled) = (self.of.contains_key(&tgid), self.are_told);
        if !is_known && !is_settled {
            return;
        }
        let parent = self.of.get(&tgid).and_then(|old| old.parent).filter(|_| is_settled);
        let mut history = self.end_program(tgid, at_ns);
        // Also for a process that was not known.
        history.change(at_ns);
        let is_reported = is_settled;
        let process =
            Process { begun_ns: at_ns, is_settled, is_reported, parent, history, ..Process::default() };
        self.begin(tgid, process);
    }

    /// Adds a mapping of a process. Returns it if its file is wanted before a sample hits it.
    pub(super) fn map(&mut self, tgid: u32, region: Region) -> Option<Region> {
        let sum = Arc::clone(&self.map_bytes);
        let process = self.meet(tgid);
        let ahead = process.files_ahead.as_mut().filter(|ahead| **ahead < FILES_AHEAD_MAX);
        let wanted = ahead.filter(|_| region.file.is_some()).map(|ahead| {
            *ahead += 1;
            region.clone()
        });
        let at_ns = region.since_ns;
        let replaced = process.maps.insert(tgid, region, &sum);
        let forgotten = std::mem::take(&mut process.located).len();
        if !replaced.is_empty() {
            process.history.replace(replaced, process.begun_ns, at_ns);
            self.changed.insert(tgid);
        }
        self.located -= forgotten.min(self.located);
        self.drop_oldest();
        wanted
    }

    /// Handles the end of a process. Samples of it may still arrive.
    pub(super) fn end(&mut self, tgid: u32, at_ns: u64) {
        if let Some(process) = self.of.get(&tgid) {
            self.over.push_back((tgid, process.program, at_ns));
            if self.over.len() > 4 * PROCESSES_MAX {
                // The process is dropped with the oldest.
                self.over.pop_front();
            }
        }
    }

    /// Handles a lost event: every process's map is read again where that is still possible.
    pub(super) fn distrust(&mut self) {
        for process in self.of.values_mut() {
            process.is_doubtful = true;
            process.located = HashMap::new();
        }
        self.located = 0;
    }

    /// Returns the known location of an address of a process at a time. Returns `None` if the address is new.
    pub(super) fn located(&self, tgid: u32, address: u64, at_ns: u64) -> Option<At> {
        let process = self.of.get(&tgid).filter(|_| self.is_present(tgid, at_ns))?;
        process.located.get(&address).copied()
    }

    /// Keeps the location of an address of a process at a time, unless the mapping there may have been
    /// replaced since.
    pub(super) fn locate(&mut self, tgid: u32, address: u64, at_ns: u64, at: At) {
        if !self.is_present(tgid, at_ns) {
            return;
        }
        if self.located >= LOCATED_MAX {
            self.of.values_mut().for_each(|process| process.located = HashMap::new());
            self.located = 0;
        }
        self.located += usize::from(self.meet(tgid).located.insert(address, at).is_none());
    }

    /// Reads the process's map, once, with `read`. Returns the map if one was read.
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
            process.read_ns = monotonic_ns();
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
        process.read_ns = monotonic_ns();
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
                process.read_ns = monotonic_ns();
            }
            if let Some(map) = &process.maps.read {
                return Some(Rc::clone(map));
            }
            next = process.parent?;
        }
        None
    }

    /// Returns why an address was not in a process's map a moment ago, while that map is not read again. The
    /// address may be mapped by now. Returns `None` if the map is read.
    pub(super) fn waits(&self, tgid: u32) -> Option<&'static str> {
        self.of.get(&tgid).filter(|process| process.vain.waits()).map(|process| process.vain.why)
    }

    /// Keeps the reason why an address was not found.
    pub(super) fn missed(&mut self, tgid: u32, why: &'static str) {
        self.meet(tgid).vain.why = why;
    }

    /// Returns the mapping around an address at a time, and the process in whose map it was found. Reads the
    /// process's own map again if it has mapped more since, unless that [waits](Self::waits). Call
    /// [`Processes::settle`] first.
    ///
    /// # Errors
    ///
    /// There is no such mapping, or it is not known.
    pub(super) fn find(
        &mut self,
        tgid: u32,
        address: u64,
        at_ns: u64,
        mut read: impl FnMut(u32) -> Option<AddressMap>,
    ) -> Result<(u32, Region), NotFound> {
        let sum = Arc::clone(&self.map_bytes);
        let process = self.meet(tgid);
        match process.history.was(address, at_ns, process.begun_ns) {
            Some(Was::In(of, region)) => return Ok((of, region)),
            Some(Was::Unmapped) => return Err(NotFound::Unknown(UNMAPPED)),
            Some(Was::Unknown(why)) => return Err(NotFound::Unknown(why)),
            None => {}
        }
        match process.maps.find(address) {
            Some((of, region)) if region.since_ns <= at_ns => return Ok((of, region.clone())),
            Some(_) => return Err(NotFound::Unknown(LATER)),
            None if process.is_gone && process.knows_all_mappings() => {
                return Err(NotFound::Unknown(UNMAPPED));
            }
            None if process.vain.waits() => return Err(NotFound::Unmapped),
            None => {}
        }
        let begun = Instant::now();
        if let Some(map) = read(tgid) {
            // The map that was read contains every reported mapping.
            process.maps = Maps { told: None, read: Some(Rc::new(map.counted(&sum))) };
            process.read_ns = monotonic_ns();
        } else {
            process.is_gone = true;
            if process.knows_all_mappings() {
                return Err(NotFound::Unknown(UNMAPPED));
            }
        }
        let found = process.maps.find(address).map(|(of, region)| (of, region.clone()));
        match found {
            Some(_) => process.vain = Vain::default(),
            None => process.vain.add(begun.elapsed()),
        }
        self.drop_oldest();
        found.ok_or(NotFound::Unmapped)
    }

    fn meet(&mut self, tgid: u32) -> &mut Process {
        if !self.of.contains_key(&tgid) {
            let history = History::counted(&self.map_bytes);
            self.begin(tgid, Process { history, ..Process::default() });
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

    /// Drops the oldest processes until the others fit.
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
