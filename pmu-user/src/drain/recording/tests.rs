//! Tests of recordings: contents of one source and of both, and the rest of a truncated file.

use std::path::Path;

use bytes::Bytes;

use super::{Overwrite, ReadError, Recording, Writer};
use crate::{
    drain::{
        Drain, Ending, Header, Stopped, TasksDrain,
        io::{
            IoDrain,
            testing::{drains, header},
        },
    },
    machine::testing::Tree,
};

/// Returns the bytes of a recording of I/O, with its ending.
fn recorded() -> Vec<u8> {
    let tree = Tree::new(&[("folder", "")]);
    let path = tree.root.join("io.pmbpf");
    let header = header();
    let mut writer = Writer::create(&path, Overwrite::No, &header.clone().into()).unwrap();
    drains(&header).into_iter().for_each(|drain| writer.drain(&drain.into()).unwrap());
    let duration = std::time::Duration::from_secs(5);
    writer.end(&Ending { stopped: Stopped::Signal(2), workload: None, duration, usage: None }).unwrap();
    std::fs::read(&path).unwrap()
}

fn io_of(recording: &Recording) -> Vec<IoDrain> {
    recording.io().cloned().collect()
}

#[test]
fn a_recording_of_io_holds_what_was_written() {
    let read = Recording::parse(Bytes::from(recorded()), "x").unwrap();
    let header = read.header.io.as_ref().unwrap();
    assert!(read.header.tasks.is_none());
    assert_eq!(io_of(&read), drains(header));
    assert_eq!((read.ending.unwrap().stopped, read.lost_bytes), (Stopped::Signal(2), 0));
}

#[test]
fn a_recording_of_both_sources_holds_both() {
    let tree = Tree::new(&[("folder", "")]);
    let path = tree.root.join("both.pmbpf");
    let of_tasks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings/masked.pmbpf");
    let header = Header { io: Some(header()), ..Recording::read(&of_tasks).unwrap().header };
    let mut writer = Writer::create(&path, Overwrite::No, &header).unwrap();
    let io = drains(header.io.as_ref().unwrap());
    for (ticks, io) in io.iter().enumerate() {
        let tasks = TasksDrain { ticks: ticks as u64, at_ns: io.at_ns + 7, ..TasksDrain::default() };
        writer.drain(&Drain { tasks: Some(tasks), io: Some(io.clone()), ..Drain::default() }).unwrap();
    }
    writer.drain(&TasksDrain::default().into()).unwrap();
    let read = Recording::read(&path).unwrap();
    assert!(read.header.tasks.is_some() && read.header.io.is_some() && read.ending.is_none());
    assert_eq!((read.tasks().count(), io_of(&read)), (io.len() + 1, io));
    assert_eq!(read.drains[1].at_ns(), read.drains[1].io.as_ref().unwrap().at_ns + 7);
}

#[test]
fn a_recording_of_io_that_breaks_off_gives_back_every_complete_drain() {
    let whole = recorded();
    let mut seen = std::collections::BTreeSet::new();
    for length in (0..whole.len()).step_by(4_001).chain([whole.len() - 1]) {
        match Recording::parse(Bytes::copy_from_slice(&whole[..length]), "cut") {
            Ok(cut) => {
                assert!(cut.ending.is_none(), "{length} bytes have no ending");
                assert_eq!(io_of(&cut), drains(cut.header.io.as_ref().unwrap())[..cut.drains.len()]);
                seen.insert(cut.drains.len());
            }
            Err(ReadError::Foreign(_) | ReadError::NoHeader(_)) => {}
            Err(error) => panic!("{length} bytes: {error}"),
        }
    }
    assert_eq!(seen.last(), Some(&6), "only the ending is missing from the longest");
    assert!(seen.len() > 1, "{seen:?}");
}

#[test]
fn a_header_of_no_source_is_none() {
    let tree = Tree::new(&[("folder", "")]);
    let path = tree.root.join("nothing.pmbpf");
    drop(Writer::create(&path, Overwrite::No, &Header { io: None, ..header().into() }).unwrap());
    let error = Recording::read(&path).unwrap_err();
    assert!(matches!(error, ReadError::NoHeader(_)), "{error}");
}
