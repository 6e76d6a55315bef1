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

/// Frames of a file: kind, encoding, payload.
fn frames(file: &[u8]) -> Vec<(u8, u8, Vec<u8>)> {
    let (mut frames, mut rest) = (Vec::new(), &file[8..]);
    while let Some((header, after)) = rest.split_at_checked(12) {
        let length = u32::from_le_bytes(header[..4].try_into().unwrap()) as usize;
        frames.push((header[4], header[5], after[..length].to_vec()));
        rest = &after[length..];
    }
    frames
}

fn file(format: u8, frames: &[(u8, u8, Vec<u8>)]) -> Bytes {
    let mut file = vec![b'p', b'm', b'b', b'p', b'f', format, b'\r', b'\n'];
    for (kind, encoding, payload) in frames {
        let mut start = (payload.len() as u32).to_le_bytes().to_vec();
        start.extend([*kind, *encoding, 0, 0]);
        let sum = crc32c::crc32c_append(crc32c::crc32c(&start), payload);
        file.extend(start.into_iter().chain(sum.to_le_bytes()).chain(payload.iter().copied()));
    }
    Bytes::from(file)
}

fn deflated(json: &[u8]) -> Vec<u8> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    flate2::read::DeflateEncoder::new(json, flate2::Compression::best()).read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn frames_are_compressed_each_by_itself_where_that_makes_them_shorter() {
    let recorded = recorded();
    let frames = frames(&recorded);
    assert!(frames.iter().any(|(_, encoding, _)| *encoding == 1));
    for (_, encoding, payload) in &frames {
        match encoding {
            0 => assert!(payload.starts_with(b"{")),
            _ => assert!(!payload.starts_with(b"{")),
        }
    }
    // Each is read without the others before it.
    let (header, last) = (frames[0].clone(), frames[frames.len() - 2].clone());
    let read = IoRecording::parse(file(2, &[header, last]), "x").unwrap();
    assert_eq!(read.drains.as_slice(), &drains(&read.header)[5..]);
}

#[test]
fn a_recording_of_the_format_before_is_read() {
    let header = header();
    let drains = drains(&header);
    let mut frames = vec![(b'h', 0, serde_json::to_vec(&header).unwrap())];
    // What an encoding is now said nothing then.
    frames.extend(drains.iter().map(|drain| (b'd', 1, serde_json::to_vec(drain).unwrap())));
    assert_eq!(IoRecording::parse(file(1, &frames), "x").unwrap().drains, drains);
    let error = IoRecording::parse(file(3, &frames), "x").unwrap_err();
    assert!(matches!(error, ReadError::Format { format: 3, .. }), "{error}");
}

#[test]
fn what_is_compressed_is_bounded_and_what_is_not_known_is_said() {
    let header = (b'h', 0, serde_json::to_vec(&header()).unwrap());
    let spaces = deflated(&vec![b' '; (32 << 20) + 1]);
    assert!(spaces.len() < 1 << 20);
    for (encoding, payload, says) in [
        (1, spaces, "is too large"),
        (1, b"no such thing".to_vec(), "is damaged"),
        (2, b"{}".to_vec(), "does not know"),
    ] {
        let error =
            IoRecording::parse(file(2, &[header.clone(), (b'd', encoding, payload)]), "x").unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}
