//! Address maps by process: its own, read while it lives, or that of the process it was forked from.
//!
//! A process may be gone before user space can look. Until it executes another program its address map is a copy of its
//! parent's, so that one names its addresses: the map as it was at the parent's first fork, or read since, and if there is
//! none, as it is when it is needed, provided that the parent has executed nothing since.

use std::{
    collections::{HashMap, VecDeque},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::address_map::{AddressMap, Region};
use crate::drain::At;

/// Processes kept at a time. The one that began first goes first, and is met anew if it is sampled again.
const PROCESSES_MAX: usize = 8192;
/// Bytes that all their address maps may take.
const MAP_BYTES_MAX: usize = 64 << 20;
/// Addresses that are remembered. They are located again where that is forgotten.
const LOCATED_MAX: usize = 1 << 17;
/// How far up the ancestors to look for a map.
const ANCESTORS_MAX: usize = 8;

/// A process since its fork, or since it executed its program.
#[derive(Debug, Default)]
struct Process {
    /// Tells it from others that had its id, and from what it was before it executed another program.
    program: u64,
    map: Option<Rc<AddressMap>>,
    /// Nobody has to look for its map any more.
    is_settled: bool,
    /// It forked: its map is that of then, or later. It may have been sampled before its libraries were mapped.
    has_forked: bool,
    /// Who forked it, and the program that was.
    parent: Option<(u32, u64)>,
    /// Addresses that were located, and where.
    located: HashMap<u64, At>,
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
}

impl Processes {
    /// A process begins as a copy of another. The map that was read for that with `read`, if one was.
    pub(super) fn fork(
        &mut self,
        parent: u32,
        child: u32,
        mut read: impl FnMut(u32) -> Option<AddressMap>,
    ) -> Option<Rc<AddressMap>> {
        let sum = Arc::clone(&self.map_bytes);
        let from = self.meet(parent);
        let reads = from.map.is_some() && !from.has_forked;
        from.has_forked = true;
        let new = if reads { read(parent).map(|map| Rc::new(map.counted(&sum))) } else { None };
        if new.is_some() {
            from.map.clone_from(&new);
        }
        let process =
            Process { map: from.map.clone(), parent: Some((parent, from.program)), ..Process::default() };
        self.begin(child, process);
        new
    }

    /// A process executes another program: nothing of what is known of it holds.
    pub(super) fn execute(&mut self, tgid: u32) {
        if self.of.contains_key(&tgid) {
            self.begin(tgid, Process::default());
        }
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
        read: impl FnMut(u32) -> Option<AddressMap>,
    ) -> Option<Rc<AddressMap>> {
        let process = self.meet(tgid);
        if process.is_settled || process.map.is_some() {
            return None;
        }
        let map = self.own_or_inherited(tgid, read);
        let process = self.meet(tgid);
        process.is_settled = true;
        process.map.clone_from(&map);
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
            if process.map.is_none() {
                process.map = read(next.0).map(|map| Rc::new(map.counted(&self.map_bytes)));
            }
            if let Some(map) = &process.map {
                return Some(Rc::clone(map));
            }
            next = process.parent?;
        }
        None
    }

    /// The mapping around an address, and the process whose map it was found in. The process's own is read again if it
    /// has mapped more since. Call [`Processes::settle`] before.
    pub(super) fn find(
        &mut self,
        tgid: u32,
        address: u64,
        mut read: impl FnMut(u32) -> Option<AddressMap>,
    ) -> Option<(u32, Region)> {
        let find = |map: &AddressMap| Some((map.of, map.find(address)?.clone()));
        let sum = Arc::clone(&self.map_bytes);
        let process = self.meet(tgid);
        if let Some(found) = process.map.as_deref().and_then(find) {
            return Some(found);
        }
        let map = read(tgid)?;
        let found = find(&map);
        process.map = Some(Rc::new(map.counted(&sum)));
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
mod tests {
    use std::collections::HashMap;

    use super::{AddressMap, At, LOCATED_MAX, MAP_BYTES_MAX, Ordering, PROCESSES_MAX, Processes};

    /// Processes, and what can be read of those that are alive: one file each, at 0x1000.
    struct Host {
        alive: HashMap<u32, &'static str>,
        processes: Processes,
    }

    impl Host {
        fn with<const N: usize>(alive: [(u32, &'static str); N]) -> Self {
            Self { alive: HashMap::from(alive), processes: Processes::default() }
        }

        fn read(alive: &HashMap<u32, &'static str>, tgid: u32) -> Option<AddressMap> {
            let file = alive.get(&tgid)?;
            let line = format!("1000-2000 r-xp 00000000 fe:00 1234 /{file}\n");
            Some(AddressMap::parse(tgid, line.as_bytes()))
        }

        fn fork(&mut self, parent: u32, child: u32) {
            self.processes.fork(parent, child, |tgid| Self::read(&self.alive, tgid));
        }

        /// The file at 0x1000 in a process's map, and the process that it was read of.
        fn look(&mut self, tgid: u32) -> Option<(u32, String)> {
            let read = |tgid| Self::read(&self.alive, tgid);
            self.processes.settle(tgid, read);
            let (of, region) = self.processes.find(tgid, 0x1000, read)?;
            Some((of, String::from_utf8(region.path.as_bytes().to_vec()).unwrap()))
        }
    }

    fn found(of: u32, file: &str) -> Option<(u32, String)> {
        Some((of, format!("/{file}")))
    }

    #[test]
    fn a_process_that_is_gone_has_the_map_of_whom_it_was_forked_from() {
        let mut host = Host::with([(1, "shell")]);
        host.fork(1, 2);
        host.fork(2, 3);
        assert_eq!(host.look(3), found(1, "shell"), "its grandparent's");
        assert_eq!(host.look(2), found(1, "shell"));
        assert_eq!(host.look(4), None, "nobody forked it");
    }

    #[test]
    fn what_a_process_executed_is_nobodys_but_its_own() {
        let mut host = Host::with([(1, "shell")]);
        host.fork(1, 2);
        host.processes.execute(2);
        assert_eq!(host.look(2), None, "it is gone");
        host.fork(1, 3);
        host.processes.execute(3);
        host.alive.insert(3, "program");
        assert_eq!(host.look(3), found(3, "program"));
    }

    #[test]
    fn a_parent_that_executed_something_since_is_no_model() {
        let mut host = Host::with([(1, "shell")]);
        host.fork(1, 2);
        host.processes.execute(1);
        host.alive.insert(1, "program");
        assert_eq!(host.look(2), None);
        assert_eq!(host.look(1), found(1, "program"));
        host.fork(1, 3);
        host.alive.clear();
        assert_eq!(host.look(3), found(1, "program"), "as it was known at the fork");
    }

    #[test]
    fn an_id_that_is_used_again_names_another_process() {
        let mut host = Host::with([(1, "shell"), (2, "first")]);
        assert_eq!(host.look(2), found(2, "first"));
        host.processes.locate(2, 0x1000, At::kernel(0x1000));
        assert!(host.processes.located(2, 0x1000).is_some());
        host.alive.remove(&2);
        host.fork(1, 2);
        assert_eq!(host.look(2), found(1, "shell"));
        assert!(host.processes.located(2, 0x1000).is_none());
    }

    #[test]
    fn a_parent_that_was_sampled_while_it_was_starting_is_read_again_when_it_forks() {
        let mut host = Host::with([(1, "loader")]);
        assert_eq!(host.look(1), found(1, "loader"));
        host.alive.insert(1, "program");
        host.fork(1, 2);
        host.alive.insert(1, "later");
        host.fork(1, 3);
        assert_eq!(host.look(2), found(1, "program"));
        assert_eq!(host.look(3), found(1, "program"));
    }

    #[test]
    fn a_process_that_maps_more_is_read_again() {
        let mut processes = Processes::default();
        let read = |_| Some(AddressMap::parse(5, b"1000-2000 r-xp 00000000 fe:00 1 /a\n"));
        processes.settle(5, |_| Some(AddressMap::parse(5, b"")));
        assert!(processes.find(5, 0x3000, read).is_none());
        assert!(processes.find(5, 0x1000, |_| None).is_some(), "it was kept");
    }

    #[test]
    fn the_oldest_go_and_come_back() {
        let mut host = Host::with([(1, "daemon")]);
        assert_eq!(host.look(1), found(1, "daemon"));
        for child in 2..3 * PROCESSES_MAX as u32 {
            host.fork(1, child);
            host.processes.execute(child);
        }
        assert_eq!(host.processes.of.len(), PROCESSES_MAX);
        assert!(host.processes.oldest.len() <= 2 * PROCESSES_MAX);
        assert_eq!(host.look(1), found(1, "daemon"));
    }

    #[test]
    fn maps_take_no_more_than_they_may() {
        let line = |index: usize| format!("{index:x}000-{index:x}001 r-xp 0 fe:00 7 /{}\n", "x".repeat(4000));
        let text: String = (1..200).map(line).collect();
        let mut processes = Processes::default();
        for tgid in 1..200 {
            processes.settle(tgid, |tgid| Some(AddressMap::parse(tgid, text.as_bytes())));
        }
        assert!(
            (MAP_BYTES_MAX / 2..=MAP_BYTES_MAX + (1 << 20))
                .contains(&processes.map_bytes.load(Ordering::Relaxed))
        );
        processes.of.clear();
        assert_eq!(processes.map_bytes.load(Ordering::Relaxed), 0);
    }
    #[test]
    fn no_more_addresses_are_remembered_than_may_be() {
        let mut processes = Processes::default();
        for address in 0..3 * LOCATED_MAX as u64 {
            processes.locate((address % 7) as u32 + 1, address, At::kernel(address));
        }
        let remembered: usize = processes.of.values().map(|process| process.located.len()).sum();
        assert!((1..=LOCATED_MAX).contains(&remembered), "{remembered}");
    }
}
