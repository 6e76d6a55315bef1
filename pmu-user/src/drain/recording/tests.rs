//! Recordings of I/O: what was written, cut off, and read by whoever wants another.

use bytes::Bytes;

use super::{IoRecording, Kind, Opened, Overwrite, ReadError, Recording, Writer};
use crate::{
    drain::{
        Ending, Stopped,
        io::testing::{drains, header},
    },
    machine::testing::Tree,
};

/// Bytes of a recording of I/O, with its ending.
fn recorded() -> Vec<u8> {
    let tree = Tree::new(&[("folder", "")]);
    let path = tree.root.join("io.pmbpf");
    let header = header();
    let mut writer = Writer::create(&path, Overwrite::No, &header).unwrap();
    drains(&header).iter().for_each(|drain| writer.drain(drain).unwrap());
    let duration = std::time::Duration::from_secs(5);
    writer.end(&Ending { stopped: Stopped::Signal(2), workload: None, duration }).unwrap();
    std::fs::read(&path).unwrap()
}

#[test]
fn a_recording_of_io_holds_what_was_written() {
    let bytes = Bytes::from(recorded());
    assert_eq!(Opened::read(std::io::Cursor::new(bytes.clone()), "x").unwrap().kind(), Kind::Io);
    let read = IoRecording::parse(bytes, "x").unwrap();
    assert_eq!(read.drains, drains(&read.header));
    assert_eq!((read.ending.unwrap().stopped, read.lost_bytes), (Stopped::Signal(2), 0));
}

#[test]
fn whoever_reads_what_another_command_wrote_is_told_which() {
    let error = Recording::parse(Bytes::from(recorded()), "x.pmbpf").unwrap_err();
    assert!(matches!(error, ReadError::Other { kind: Kind::Io, .. }), "{error}");
    assert_eq!(error.to_string(), "x.pmbpf is a recording of `pmbpf io`");
}

#[test]
fn a_recording_of_io_that_breaks_off_gives_back_every_complete_drain() {
    let whole = recorded();
    let mut seen = std::collections::BTreeSet::new();
    for length in (0..whole.len()).step_by(4_001).chain([whole.len() - 1]) {
        match IoRecording::parse(Bytes::copy_from_slice(&whole[..length]), "cut") {
            Ok(cut) => {
                assert!(cut.ending.is_none(), "{length} bytes have no ending");
                assert_eq!(cut.drains, drains(&cut.header)[..cut.drains.len()]);
                seen.insert(cut.drains.len());
            }
            Err(ReadError::Foreign(_) | ReadError::NoHeader(_)) => {}
            Err(error) => panic!("{length} bytes: {error}"),
        }
    }
    assert_eq!(seen.last(), Some(&6), "only the ending is missing from the longest");
    assert!(seen.len() > 1, "{seen:?}");
}
