//! Tests of streams without a reader.

use std::io::Write as _;

use super::{Ascii, ReaderGone, Results, Unread};

#[test]
fn our_own_characters_become_ascii_and_names_stay() {
    let mut bytes = Vec::new();
    Ascii(&mut bytes).write_all("1 µs – größe…".as_bytes()).unwrap();
    assert_eq!(String::from_utf8(bytes).unwrap(), "1 us - größe...");
}

/// Returns a pipe without a reader.
fn unread(reader_gone: ReaderGone) -> Results {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Results { into: Box::new(writer), reader_gone, unread: false }
}

#[test]
fn a_reader_that_goes_away_ends_what_only_he_wanted_and_nothing_else() {
    let mut ends = unread(ReaderGone::Ends);
    assert!(Unread::is(&ends.write_all(b"x").unwrap_err()));
    assert!(Unread::is(&ends.flush().unwrap_err()), "and it stays so");
    let mut ignored = unread(ReaderGone::Ignored);
    ignored.write_all(b"x").and_then(|()| ignored.flush()).unwrap();
    let mut rows = csv::Writer::from_writer(unread(ReaderGone::Ends));
    let long = "x".repeat(1 << 20);
    let error: std::io::Error = rows.write_record([&long]).unwrap_err().into();
    assert!(Unread::is(&error), "through rows of CSV, too");
    assert!(!Unread::is(&std::io::ErrorKind::BrokenPipe.into()), "another pipe is another matter");
}
