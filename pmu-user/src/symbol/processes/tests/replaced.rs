//! Mappings at the time of a sample that were replaced since.

use super::{Host, LATE, found, told_of};
use crate::{
    drain::At,
    perf::side_band::Mapping,
    symbol::{
        address_map::Region,
        processes::{
            NotFound, Ordering, UNMAPPED,
            history::{EXECUTED, LATER},
        },
    },
};

/// Returns the mapping of a file at a time.
fn told_at(since_ns: u64, start: u64, end: u64, file: &str) -> Region {
    let path = format!("/{file}").into_bytes();
    let inode = file.bytes().map(u64::from).sum();
    let (offset, device, generation) = (0, (0xfe, 0), 1);
    Region::told(since_ns, Mapping { start, end, offset, device, inode, generation, path })
}

#[test]
fn a_sample_is_found_in_the_program_that_ran_when_it_was_taken() {
    let mut host = told_of();
    let programs = [(10, "alpha"), (20, "bravo"), (30, "charlie")];
    for (at_ns, program) in programs {
        host.processes.execute(2, at_ns);
        host.processes.map(2, told_at(at_ns + 1, 0x1000, 0x2000, program));
    }
    for (at_ns, program) in programs {
        assert_eq!(host.look_at(2, at_ns + 5).ok(), found(2, program));
    }
    // Nothing is known of the process before.
    assert!(matches!(host.look_at(2, 5), Err(NotFound::Unknown(EXECUTED))));
    assert!(matches!(host.look_at(2, 20), Err(NotFound::Unknown(LATER))), "nothing was mapped yet");
}

#[test]
fn a_program_of_another_address_is_found_after_the_process_executes_the_next() {
    let mut host = told_of();
    for (at_ns, start) in [(10, 0x1000), (20, 0x5000), (30, 0x9000)] {
        host.processes.execute(2, at_ns);
        host.processes.map(2, told_at(at_ns, start, start + 0x1000, "program"));
    }
    let mut find = |address, at_ns| host.processes.find(2, address, at_ns, |_| None);
    assert!(find(0x1000, 15).is_ok() && find(0x5000, 25).is_ok() && find(0x9000, 35).is_ok());
    assert!(matches!(find(0x5000, 15), Err(NotFound::Unknown(UNMAPPED))));
    assert!(
        matches!(find(0x5000, 35), Err(NotFound::Unknown(UNMAPPED))),
        "gone, and all that it mapped was reported"
    );
}

#[test]
fn samples_of_before_an_exec_are_found_until_they_have_all_come() {
    let mut host = told_of();
    host.processes.execute(2, 1);
    host.processes.map(2, told_at(1, 0x1000, 0x2000, "shell"));
    host.processes.execute(2, 10);
    host.processes.map(2, told_at(10, 0x5000, 0x6000, "program"));
    assert_eq!(host.look_at(2, 9).ok(), found(2, "shell"));
    assert_eq!(host.look(2), None, "it is another program by then");
    host.processes.drained(11);
    assert_eq!(host.look_at(2, 9).ok(), found(2, "shell"));
    host.processes.drained(12);
    assert!(matches!(host.look_at(2, 9), Err(NotFound::Unknown(EXECUTED))));
    assert!(host.processes.find(2, 0x5000, LATE, |_| None).is_ok());
}

#[test]
fn a_sample_is_found_in_the_library_that_was_mapped_when_it_was_taken() {
    let mut host = told_of();
    host.processes.execute(2, 1);
    for (at_ns, library) in [(10, "one"), (20, "two"), (30, "one"), (40, "three")] {
        host.processes.map(2, told_at(at_ns, 0x0, 0x4000, library));
    }
    for (at_ns, library) in [(15, "one"), (25, "two"), (35, "one"), (45, "three")] {
        assert_eq!(host.look_at(2, at_ns).ok(), found(2, library), "at {at_ns}");
    }
    assert_eq!(host.processes.changes(2, 15, 35), [20, 30]);
    assert_eq!((host.processes.era(2, 5), host.processes.era(2, 29), host.processes.era(2, 30)), (1, 20, 30));
}

#[test]
fn code_that_is_mapped_once_more_has_been_there_all_the_time() {
    let mut host = told_of();
    host.processes.execute(2, 1);
    host.processes.map(2, told_at(10, 0x0, 0x4000, "one"));
    host.processes.locate(2, 0x1000, 15, At::kernel(7));
    host.processes.map(2, told_at(20, 0x0, 0x8000, "one"));
    assert_eq!(host.look_at(2, 15).ok(), found(2, "one"));
    assert!(host.processes.changes(2, 0, LATE).len() == 1, "the program alone");
}

#[test]
fn what_was_mapped_over_what_was_read_is_not_known_before() {
    let mut host = Host::with([(2, "first")]);
    host.processes.are_told = true;
    assert_eq!(host.look(2), found(2, "first"));
    host.processes.map(2, told_at(20, 0x1000, 0x2000, "second"));
    assert_eq!(host.look_at(2, 19).ok(), found(2, "first"));
    assert_eq!(host.look_at(2, 20).ok(), found(2, "second"));
    // As far as is known, nothing was there before.
    host.processes.map(2, told_at(20, 0x7000, 0x8000, "third"));
    assert!(matches!(host.processes.find(2, 0x7000, 10, |_| None), Err(NotFound::Unknown(LATER))));
}

#[test]
fn an_id_that_is_used_again_within_a_drain_has_the_samples_of_both() {
    let mut host = told_of();
    host.processes.execute(2, 1);
    host.processes.map(2, told_at(2, 0x1000, 0x2000, "first"));
    host.processes.end(2, 10);
    host.processes.execute(1, 5);
    host.processes.map(1, told_at(6, 0x1000, 0x2000, "shell"));
    host.processes.fork(1, 2, 20, |_| None);
    assert_eq!(host.look_at(2, 9).ok(), found(2, "first"));
    assert_eq!(host.look_at(2, 21).ok(), found(1, "shell"));
}

#[test]
fn a_map_that_was_read_after_an_exec_is_not_that_of_the_program_before() {
    let mut host = Host::with([(2, "second")]);
    host.processes.are_told = true;
    // The process has already executed it, and the record of the exec comes later.
    assert_eq!(host.look(2), found(2, "second"));
    host.processes.execute(2, 10);
    assert!(matches!(host.look_at(2, 9), Err(NotFound::Unknown(EXECUTED))));
}

#[test]
fn what_was_replaced_takes_no_more_than_it_may() {
    let mut host = told_of();
    host.processes.execute(2, 1);
    for at_ns in 2..20_000 {
        host.processes.map(2, told_at(at_ns, 0x1000, 0x2000, if at_ns % 2 == 0 { "even" } else { "odd" }));
    }
    assert!(host.processes.map_bytes.load(Ordering::Relaxed) < 1 << 18);
    assert!(matches!(host.look_at(2, 3), Err(NotFound::Unknown(_))), "that is forgotten");
    assert_eq!(host.look_at(2, 19_998).ok(), found(2, "even"));
    host.processes.drained(30_000);
    host.processes.drained(30_001);
    assert!(host.processes.map_bytes.load(Ordering::Relaxed) < 1 << 11);
    assert!(host.processes.changed.is_empty());
}
