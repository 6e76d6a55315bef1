//! Recordings that are reviewed like code, as mutable JSON frames.

use std::{
    io::{self, Cursor, Read as _, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use flate2::read::DeflateDecoder;
use pmbpf::{
    command::{Naming, words, write_report},
    drain::recording::Opened,
    view::Format,
};
use serde_json::Value;

use crate::{chance::Chance, schema};

pub(crate) const FORMATS: [Format; 3] = [Format::Text, Format::Json, Format::Csv];

/// Returns a folder of tests/.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests").join(name)
}

/// Frames of a recording: their kinds and contents.
#[derive(Clone)]
pub(crate) struct Frames(pub(crate) Vec<(u8, Value)>);

impl Frames {
    /// Reads a file, keeping the first drains and the last, so that it is quick to report.
    fn read(name: &str) -> Self {
        let bytes = std::fs::read(folder("recordings").join(name)).unwrap();
        let (mut frames, mut rest) = (Vec::new(), &bytes[8..]);
        while let Some((header, after)) = rest.split_at_checked(12) {
            let length = u32::from_le_bytes(header[..4].try_into().unwrap()) as usize;
            let (is_deflated, mut json) = (header[5] == 1, after[..length].to_vec());
            if is_deflated {
                json.clear();
                DeflateDecoder::new(&after[..length]).read_to_end(&mut json).unwrap();
            }
            frames.push((header[4], serde_json::from_slice(&json).unwrap()));
            rest = &after[length..];
        }
        let drains: Vec<usize> = (0..frames.len())
            .filter(|&at| frames[at].0.eq_ignore_ascii_case(&b'D') || frames[at].0 == b's')
            .collect();
        let unwanted = drains.get(3..drains.len().saturating_sub(1)).unwrap_or_default().to_vec();
        let mut at = 0..;
        frames.retain(|_| !unwanted.contains(&at.next().unwrap()));
        Self(frames)
    }

    pub(crate) fn all() -> Vec<Self> {
        ["cgroups.pmbpf", "counts.pmbpf", "io.pmbpf", "masked.pmbpf"].map(Self::read).to_vec()
    }

    /// Returns the file with every frame sound. `damage` may change a frame's content before its checksum is
    /// computed.
    pub(crate) fn bytes(&self, mut damage: impl FnMut(usize, &mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = b"pmbpf\x01\r\n".to_vec();
        for (at, (kind, value)) in self.0.iter().enumerate() {
            let mut payload = serde_json::to_vec(value).unwrap();
            damage(at, &mut payload);
            let mut frame = (payload.len() as u32).to_le_bytes().to_vec();
            frame.extend([*kind, 0, 0, 0]);
            let sum = crc32c::crc32c_append(crc32c::crc32c(&frame), &payload);
            bytes.extend(frame);
            bytes.extend(sum.to_le_bytes());
            bytes.extend(payload);
        }
        bytes
    }
}

/// Returns the output of a report, and its error if it failed.
pub(crate) fn report(bytes: Vec<u8>, format: Format) -> (Vec<u8>, String) {
    report_of(bytes, Naming::Plain, format)
}

/// Returns the output of a report, with names or without.
pub(crate) fn report_of(bytes: Vec<u8>, naming: Naming, format: Format) -> (Vec<u8>, String) {
    let seen = Shared::default();
    let name = "file.pmbpf";
    let result = Opened::read(Cursor::new(bytes), name)
        .map_err(Into::into)
        .and_then(|opened| write_report(opened, naming, format, Box::new(seen.clone())));
    let written = std::mem::take(&mut *seen.0.lock().unwrap());
    if format == Format::Json {
        schema::rows(std::str::from_utf8(&written).unwrap());
    }
    (written, result.err().map(|error| words(&error)).unwrap_or_default())
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Text with terminal escapes, fake lines and a formula.
pub(crate) const HOSTILE: &str =
    "=1\u{1b}]52;c;\u{7}\nFORGED\r\t\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{e0041}\"',;";

/// Returns a value that has broken arithmetic, or text that has broken terminals.
fn special(chance: &mut Chance) -> Value {
    let values = [
        Value::Null,
        0.into(),
        1.into(),
        (-1).into(),
        255.into(),
        65_535.into(),
        (u64::from(u32::MAX)).into(),
        (1_u64 << 32).into(),
        i64::MAX.into(),
        (1_u64 << 63).into(),
        u64::MAX.into(),
        1e308.into(),
        (-1e308).into(),
        5e-324.into(),
        0.5.into(),
        "".into(),
        HOSTILE.into(),
        "x".repeat(5_000).into(),
        Value::Array(Vec::new()),
        Value::Object(serde_json::Map::new()),
        true.into(),
    ];
    chance.one(&values).clone()
}

/// Changes a random part of a value.
pub(crate) fn mutate(value: &mut Value, chance: &mut Chance) {
    let down = chance.below(8) != 0;
    match value {
        Value::Array(items) if !items.is_empty() && down => {
            let at = chance.below(items.len());
            match chance.below(12) {
                0 => drop(items.remove(at)),
                1 => items.insert(at, items[at].clone()),
                2 => {
                    let other = chance.below(items.len());
                    items.swap(at, other);
                }
                3 => {
                    let again = std::iter::repeat_n(items[at].clone(), chance.below(300));
                    items.extend(again.collect::<Vec<_>>());
                }
                _ => mutate(&mut items[at], chance),
            }
        }
        Value::Object(fields) if !fields.is_empty() && down => {
            let key = fields.keys().nth(chance.below(fields.len())).unwrap().clone();
            match chance.below(16) {
                0 => drop(fields.remove(&key)),
                1 => {
                    let field = fields.remove(&key).unwrap();
                    fields.insert(HOSTILE.to_owned(), field);
                }
                _ => mutate(&mut fields[&key], chance),
            }
        }
        other => *other = special(chance),
    }
}
