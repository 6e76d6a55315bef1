//! Processes that fork, execute and end, and the mappings found for them.

mod replaced;

use std::collections::HashMap;

use super::{
    AddressMap, At, FILES_AHEAD_MAX, LOCATED_MAX, MAP_BYTES_MAX, NotFound, Ordering, PROCESSES_MAX,
    Processes, Region, UNMAPPED, vain::LEAST,
};
use crate::perf::side_band::Mapping;

/// Time after all events of these tests.
const LATE: u64 = u64::MAX;

/// Processes, and the readable maps of those that are alive: one file each, at 0x1000.
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
        self.processes.fork(parent, child, 1, |tgid| Self::read(&self.alive, tgid));
    }

    /// Returns the file at 0x1000 in a process's map, and the process from which it was read.
    fn look(&mut self, tgid: u32) -> Option<(u32, String)> {
        self.look_at(tgid, LATE).ok()
    }

    /// Returns the same at a time.
    fn look_at(&mut self, tgid: u32, at_ns: u64) -> Result<(u32, String), NotFound> {
        let read = |tgid| Self::read(&self.alive, tgid);
        self.processes.settle(tgid, read);
        let (of, region) = self.processes.find(tgid, 0x1000, at_ns, read)?;
        Ok((of, String::from_utf8(region.path.as_bytes().to_vec()).unwrap()))
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
    host.processes.execute(2, 1);
    assert_eq!(host.look(2), None, "it is gone");
    host.fork(1, 3);
    host.processes.execute(3, 1);
    host.alive.insert(3, "program");
    assert_eq!(host.look(3), found(3, "program"));
}

#[test]
fn a_parent_that_executed_something_since_is_no_model() {
    let mut host = Host::with([(1, "shell")]);
    host.fork(1, 2);
    host.processes.execute(1, 1);
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
    host.processes.locate(2, 0x1000, LATE, At::kernel(0x1000));
    assert!(host.processes.located(2, 0x1000, LATE).is_some());
    host.alive.remove(&2);
    host.fork(1, 2);
    assert_eq!(host.look(2), found(1, "shell"));
    assert!(host.processes.located(2, 0x1000, LATE).is_none());
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
    assert!(processes.find(5, 0x3000, LATE, read).is_err());
    assert!(processes.find(5, 0x1000, LATE, |_| None).is_ok(), "it was kept");
}

#[test]
fn addresses_that_are_nowhere_are_not_each_looked_for_anew() {
    let mut processes = Processes::default();
    let mut readings = 0;
    let mut read = |_| {
        readings += 1;
        Some(AddressMap::parse(5, b"1000-2000 r-xp 00000000 fe:00 1 /a\n"))
    };
    processes.settle(5, &mut read);
    for nowhere in 0..10_000 {
        assert!(processes.find(5, 0x10_0000 + nowhere, LATE, &mut read).is_err());
        processes.missed(5, "nowhere");
        assert!(processes.waits(5).is_none_or(|why| why == "nowhere"));
    }
    assert!(processes.find(5, 0x1000, LATE, |_| None).is_ok(), "what is there is found all the same");
    assert!(readings < 100, "read {readings} times: it was read a moment ago");
}

#[test]
fn a_process_that_maps_more_after_a_while_is_read_again() {
    let mut processes = Processes::default();
    processes.settle(5, |_| Some(AddressMap::parse(5, b"")));
    assert!(processes.find(5, 0x1000, LATE, |_| Some(AddressMap::parse(5, b""))).is_err());
    std::thread::sleep(2 * LEAST);
    let read = |_| Some(AddressMap::parse(5, b"1000-2000 r-xp 00000000 fe:00 1 /a\n"));
    assert!(processes.waits(5).is_none() && processes.find(5, 0x1000, LATE, read).is_ok());
    assert!(processes.waits(5).is_none());
}

#[test]
fn the_oldest_go_and_come_back() {
    let mut host = Host::with([(1, "daemon")]);
    assert_eq!(host.look(1), found(1, "daemon"));
    for child in 2..3 * PROCESSES_MAX as u32 {
        host.fork(1, child);
        host.processes.execute(child, 1);
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
        processes.locate((address % 7) as u32 + 1, address, LATE, At::kernel(address));
    }
    let remembered: usize = processes.of.values().map(|process| process.located.len()).sum();
    assert!((1..=LOCATED_MAX).contains(&remembered), "{remembered}");
}

/// Returns a mapping of a file, as the kernel reports it.
fn told(start: u64, end: u64, file: &str) -> Region {
    let path = format!("/{file}").into_bytes();
    let (offset, device, inode, generation) = (0, (0xfe, 0), 1234, 1);
    Region::told(1, Mapping { start, end, offset, device, inode, generation, path })
}

/// Returns a host without readable maps, because all processes are gone.
fn told_of() -> Host {
    let mut host = Host::with([]);
    host.processes.are_told = true;
    host
}

#[test]
fn an_address_in_no_mapping_of_a_process_that_is_gone_is_in_none() {
    let why = |host: &mut Host| match host.processes.find(2, 0x9000, LATE, |_| None) {
        Err(NotFound::Unknown(why)) => Some(why),
        _ => None,
    };
    let mut host = told_of();
    host.processes.map(2, told(0x1000, 0x2000, "library"));
    assert_eq!(why(&mut host), None, "it began before the kernel was heard");
    host.processes.execute(2, 1);
    host.processes.map(2, told(0x1000, 0x2000, "program"));
    assert_eq!(why(&mut host), Some(UNMAPPED));
    host.processes.distrust();
    assert_eq!(why(&mut host), None, "records were lost");
}

#[test]
fn what_the_kernel_told_of_is_known_when_the_process_is_gone() {
    let mut host = told_of();
    host.fork(1, 2);
    host.processes.execute(2, 1);
    host.processes.map(2, told(0x1000, 0x2000, "program"));
    assert_eq!(host.look(2), found(2, "program"));
    host.fork(2, 3);
    assert_eq!(host.look(3), found(2, "program"), "it has what its parent has");
    host.processes.map(3, told(0x1000, 0x2000, "library"));
    assert_eq!((host.look(3), host.look(2)), (found(3, "library"), found(2, "program")));
}

#[test]
fn what_is_mapped_later_replaces_what_was_there() {
    let mut host = told_of();
    host.processes.execute(2, 1);
    host.processes.map(2, told(0x0, 0x4000, "first"));
    host.processes.map(2, told(0x1000, 0x2000, "second"));
    let mut at = |address| {
        let (_, region) = host.processes.find(2, address, LATE, |_| None).ok()?;
        Some((region.start, region.offset, region.path.to_path().display().to_string()))
    };
    assert_eq!(at(0xfff), Some((0, 0, "/first".to_owned())));
    assert_eq!(at(0x1fff), Some((0x1000, 0, "/second".to_owned())));
    assert_eq!(at(0x2000), Some((0x2000, 0x2000, "/first".to_owned())));
    assert_eq!(at(0x4000), None);
}

#[test]
fn a_place_is_looked_for_anew_when_something_was_mapped() {
    let mut host = told_of();
    host.processes.execute(2, 1);
    host.processes.locate(2, 0x1000, LATE, At::kernel(0x1000));
    host.processes.map(2, told(0x1000, 0x2000, "program"));
    assert!(host.processes.located(2, 0x1000, LATE).is_none());
}

#[test]
fn a_process_that_has_ended_is_forgotten_when_its_samples_have_come() {
    let mut host = told_of();
    host.processes.execute(2, 1);
    host.processes.map(2, told(0x1000, 0x2000, "program"));
    host.processes.end(2, 10);
    // Many drains may be pending while the kernel's events are read.
    (0..9).for_each(|drained_ns| host.processes.drained(drained_ns));
    host.processes.drained(11);
    assert_eq!(host.look(2), found(2, "program"));
    host.processes.drained(12);
    assert!(!host.processes.of.contains_key(&2));
    // The id is used again before that.
    host.processes.execute(3, 13);
    host.processes.end(3, 14);
    host.fork(1, 3);
    host.processes.map(3, told(0x1000, 0x2000, "other"));
    (15..20).for_each(|drained_ns| host.processes.drained(drained_ns));
    assert_eq!(host.look(3), found(3, "other"));
}

#[test]
fn a_process_that_maps_more_than_is_kept_is_read() {
    let mut host = told_of();
    host.alive.insert(2, "program");
    host.processes.execute(2, 1);
    for start in 2..100_000_u64 {
        host.processes.map(2, told(start << 12, (start << 12) + 1, "many"));
    }
    assert!(host.processes.map_bytes.load(Ordering::Relaxed) < 1 << 18);
    assert!(host.processes.find(2, 2 << 12, LATE, |_| None).is_ok(), "the first are known");
    assert_eq!(host.look(2), found(2, "program"));
}

#[test]
fn files_are_wanted_once_a_process_is_sampled_and_not_without_end() {
    let mut host = told_of();
    host.processes.execute(2, 1);
    assert_eq!(host.processes.map(2, told(0x1000, 0x2000, "program")), None, "nobody has sampled it");
    assert_eq!(host.processes.see(2).len(), 1);
    assert_eq!(host.processes.see(2).len(), 0, "once");
    let mut map = |index: u64| host.processes.map(2, told(0x3000, 0x4000, &format!("library{index}")));
    assert_eq!((0..1000).filter_map(&mut map).count(), FILES_AHEAD_MAX - 1);
}

#[test]
fn a_process_is_read_again_when_records_were_lost() {
    let mut host = told_of();
    host.processes.execute(2, 1);
    host.processes.map(2, told(0x1000, 0x2000, "program"));
    host.processes.distrust();
    assert_eq!(host.look(2), found(2, "program"), "it is gone, and nothing else is known");
    host.processes.distrust();
    host.alive.insert(2, "another");
    assert_eq!(host.look(2), found(2, "another"));
}
