//! Address maps by process: what the kernel told of it, its own, read while it lives, or that of the process it was forked from.
//!
//! A process may be gone before user space can look. Until it executes another program its address map is a copy of its
//! parent's, so that one names its addresses: the map as it was at the parent's first fork, or read since, and if there is
//! none, as it is when it is needed, provided that the parent has executed nothing since. From the program that it executes
//! on, the kernel has told of everything that it mapped, where the kernel is listened to.

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

/// Processes kept at a time. The one that began first goes first, and is met anew if it is sampled again.
const PROCESSES_MAX: usize = 8192;
/// Bytes that all their address maps may take.
const MAP_BYTES_MAX: usize = 16 << 20;
/// Addresses that are remembered. They are located again where that is forgotten.
const LOCATED_MAX: usize = 1 << 17;
/// Why an address is nowhere whose process's map is known.
pub(super) const UNMAPPED: &str = "no executable mapping holds the address";
/// How far up the ancestors to look for a map.
const ANCESTORS_MAX: usize = 8;
/// Files of one process that are opened before a sample has hit them: it may be gone then.
pub(super) const FILES_AHEAD_MAX: usize = 128;

/// A process since its fork, or since it executed its program.
#[derive(Debug, Default)]
struct Process {
    /// Tells it from others that had its id, and from what it was before it executed another program.
    program: u64,
    /// When it began (CLOCK_MONOTONIC, ns); 0 if that was before anything was known of it.
    begun_ns: u64,
    maps: Maps,
    /// When its map was read last; 0 if it was not.
    read_ns: u64,
    /// What was there before, of others that had its id, too.
    history: History,
    /// Nobody has to look for its map any more.
    is_settled: bool,
    /// Something of it was not told: its map may be another by now.
    is_doubtful: bool,
    /// The kernel has reported every mapping since its program began.
    is_reported: bool,
    /// Its address map cannot be read any more.
    is_gone: bool,
    /// Samples hit it: its files are wanted. So many have been asked for.
    files_ahead: Option<usize>,
    /// It forked: its map is that of then, or later. It may have been sampled before its libraries were mapped.
    has_forked: bool,
    /// Who forked it, and the program that was.
    parent: Option<(u32, u64)>,
    /// Addresses that were located since anything was replaced, and where.
    located: HashMap<u64, At>,
    vain: Vain,
}

impl Process {
    /// Are all of its mappings known, also where its address map cannot be read any more?
    fn knows_all_mappings(&self) -> bool {
        self.is_reported && !self.is_doubtful && self.maps.told.as_ref().is_some_and(|told| told.is_whole)
    }
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
    /// Processes that ended, each with its number then, and when that was.
    over: VecDeque<(u32, u64, u64)>,
    /// Processes in which something was replaced.
    changed: HashSet<u32>,
}

/// An address was not found.
#[derive(Debug)]
pub(super) enum NotFound {
    /// It is in no mapping that is known.
    Unmapped,
    /// What was mapped when the sample was taken is not known, for this reason.
    Unknown(&'static str),
}

impl Processes {
    /// A process begins as a copy of another. The map that was read for that with `read`, if one was.
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

    /// What a process was until now becomes part of the history of its id.
    fn end_program(&mut self, tgid: u32, at_ns: u64) -> History {
        let Some(old) = self.of.remove(&tgid) else { return History::counted(&self.map_bytes) };
        self.located -= old.located.len().min(self.located);
        let Process { mut maps, mut history, begun_ns, read_ns, .. } = old;
        if read_ns >= at_ns {
            // It may be the map of what came next.
            maps.read = None;
        }
        history.end_program(maps, begun_ns, at_ns);
        self.changed.insert(tgid);
        history
    }

    /// A process executes another program: nothing of what is known of it holds from then on. Where the kernel tells of mappings, it
    /// tells of all that follow.
    pub(super) fn execute(&mut self, tgid: u32, at_ns: u64) {
        let (is_known, is_settled) = (self.of.contains_key(&tgid), self.are_told);
        if !is_known && !is_settled {
            return;
        }
        let parent = self.of.get(&tgid).and_then(|old| old.parent).filter(|_| is_settled);
        let mut history = self.end_program(tgid, at_ns);
        // Also where nothing was known of it.
        history.change(at_ns);
        let is_reported = is_settled;
        let process =
            Process { begun_ns: at_ns, is_settled, is_reported, parent, history, ..Process::default() };
        self.begin(tgid, process);
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

    /// A process has ended. Samples of it may still come.
    pub(super) fn end(&mut self, tgid: u32, at_ns: u64) {
        if let Some(process) = self.of.get(&tgid) {
            self.over.push_back((tgid, process.program, at_ns));
            if self.over.len() > 4 * PROCESSES_MAX {
                // It goes with the oldest.
                self.over.pop_front();
            }
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

    /// Where an address of a process, as it was at a time, was located before; `None` if it is new.
    pub(super) fn located(&self, tgid: u32, address: u64, at_ns: u64) -> Option<At> {
        let process = self.of.get(&tgid).filter(|_| self.is_present(tgid, at_ns))?;
        process.located.get(&address).copied()
    }

    /// Keeps where an address of a process, as it was at a time, was located, unless something else may be there by now.
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

    /// Why an address was not in a process's map a moment ago, for which that is not read again for a while: what is not found now may be
    /// there by then. `None` if it is read.
    pub(super) fn waits(&self, tgid: u32) -> Option<&'static str> {
        self.of.get(&tgid).filter(|process| process.vain.waits()).map(|process| process.vain.why)
    }

    /// Keeps why an address was not found.
    pub(super) fn missed(&mut self, tgid: u32, why: &'static str) {
        self.meet(tgid).vain.why = why;
    }

    /// The mapping around an address at a time, and the process whose map it was found in. The process's own is read again if it
    /// has mapped more since, unless that [waits](Self::waits). Call [`Processes::settle`] before.
    ///
    /// # Errors
    ///
    /// There is none, or it is not known.
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
            // All that was told of is in there.
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
