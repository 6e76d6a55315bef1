//! Recordings with hostile strings, in each field, in every format.

use std::collections::BTreeSet;

use pmbpf::{untrusted::is_unsafe, view::Format};
use serde_json::Value;

use crate::corpus::{FORMATS, Frames, HOSTILE, report};

/// Asserts that the text contains no terminal escape and no forged line.
pub(crate) fn is_clean(written: &[u8], said: &str) {
    for text in [std::str::from_utf8(written).unwrap(), said] {
        let wrong = text.char_indices().find(|(_, character)| *character != '\n' && is_unsafe(*character));
        let around = |at: usize| text[..at].chars().rev().take(60).collect::<Vec<_>>();
        assert!(wrong.is_none(), "{wrong:?} after {:?}", wrong.map(|(at, _)| around(at)));
        let forged = text.lines().find(|line| line.trim_start().starts_with("FORGED"));
        assert_eq!(forged, None);
    }
}

/// Asserts that no cell is a formula. Numbers may be negative.
fn holds_no_formula(csv: &[u8]) {
    let mut rows = csv::ReaderBuilder::new().flexible(true).from_reader(csv);
    for row in rows.records() {
        for cell in row.unwrap().iter().filter(|cell| cell.parse::<f64>().is_err()) {
            assert!(!cell.starts_with(['=', '+', '-', '@', '\u{ff1d}']), "{cell}");
        }
    }
}

/// Collects the paths of strings in a value, without the indices of lists.
pub(crate) fn places(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::String(_) => drop(found.insert(at.to_owned())),
        Value::Array(items) => items.iter().for_each(|item| places(item, &format!("{at}[]"), found)),
        Value::Object(fields) => {
            fields.iter().for_each(|(key, field)| places(field, &format!("{at}.{key}"), found));
        }
        _ => {}
    }
}

/// Makes the strings at a place hostile.
pub(crate) fn put(value: &mut Value, at: &str, wanted: &str, text: &str) {
    match value {
        Value::String(string) if at == wanted => text.clone_into(string),
        Value::Array(items) => items.iter_mut().for_each(|item| put(item, &format!("{at}[]"), wanted, text)),
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(key, field)| put(field, &format!("{at}.{key}"), wanted, text));
        }
        _ => {}
    }
}

#[test]
fn no_string_of_a_recording_steers_a_terminal_or_is_a_formula() {
    let mut accepted = 0;
    for original in Frames::all() {
        let mut all = BTreeSet::new();
        original.0.iter().for_each(|(_, value)| places(value, "", &mut all));
        // All accepted ones together, at the end.
        let mut together = original.clone();
        for place in &all {
            let mut frames = original.clone();
            for text in [HOSTILE, "\u{ff1d}1", "-1+1"] {
                frames.0.iter_mut().for_each(|(_, value)| put(value, "", place, text));
                let mut refused = false;
                for format in FORMATS {
                    let (written, said) = report(frames.bytes(|_, _| {}), format);
                    is_clean(&written, &said);
                    if format == Format::Csv {
                        holds_no_formula(&written);
                    }
                    refused |= !said.is_empty();
                }
                if !refused && text == HOSTILE {
                    together.0.iter_mut().for_each(|(_, value)| put(value, "", place, text));
                    accepted += 1;
                }
            }
        }
        for format in FORMATS {
            let (written, said) = report(together.bytes(|_, _| {}), format);
            is_clean(&written, &said);
        }
    }
    assert!(accepted > 50, "only {accepted} places take any text");
}
