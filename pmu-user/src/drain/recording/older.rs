//! Frames of older recordings: headers in which each source says for itself what is said of the whole run now, and headers and drains of a
//! single source, whose frames hold that part alone and are of kinds of their own.

use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};

use super::{HEADER, frame::decode};
use crate::{
    drain::{
        Absent, CountsHeader, Drain, Header, TasksDrain, TasksHeader,
        io::{IoDrain, IoHeader},
    },
    machine::Machine,
};

/// Kinds of the frame with the header of `pmbpf run`, and of those with drains.
const TASKS_HEADER: u8 = b'H';
const TASKS_DRAIN: u8 = b'D';
/// The same of `pmbpf io`.
const IO_HEADER: u8 = b'h';
const IO_DRAIN: u8 = b'd';

/// Whether a header says of the whole run what is said once.
#[derive(Deserialize)]
struct Shape {
    version: Option<IgnoredAny>,
}

/// What each source of a run said for itself.
#[derive(Deserialize)]
struct Said {
    version: String,
    started_unix_ns: u64,
    machine: Machine,
    #[serde(default)]
    missing: Vec<Absent>,
}

/// Something of each source that a run has.
#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned, I: DeserializeOwned, C: DeserializeOwned")]
struct Sources<T, I, C> {
    tasks: Option<T>,
    io: Option<I>,
    counts: Option<C>,
}

type Parts = Sources<TasksHeader, IoHeader, CountsHeader>;

/// The header in a frame of this kind; `None` if the frame holds something else, or the header of no source.
pub(super) fn header(kind: u8, payload: &[u8]) -> serde_json::Result<Option<Header>> {
    let none = Parts { tasks: None, io: None, counts: None };
    let header = match kind {
        HEADER if decode::<Shape>(payload)?.version.is_some() => Some(decode(payload)?),
        HEADER => {
            let Sources { tasks, io, counts } = decode::<Sources<Said, Said, Said>>(payload)?;
            together([tasks, io, counts], decode(payload)?)
        }
        TASKS_HEADER => together([Some(decode(payload)?)], Parts { tasks: Some(decode(payload)?), ..none }),
        IO_HEADER => together([Some(decode(payload)?)], Parts { io: Some(decode(payload)?), ..none }),
        _ => None,
    };
    Ok(header.filter(|header| !header.is_empty()))
}

/// The header of a run whose sources said this; `None` if there are none.
fn together(said: impl IntoIterator<Item = Option<Said>>, parts: Parts) -> Option<Header> {
    let mut said = said.into_iter().flatten();
    let Said { version, started_unix_ns, machine, mut missing } = said.next()?;
    missing.extend(said.flat_map(|other| other.missing));
    let Parts { tasks, io, counts } = parts;
    let begins_midway = false;
    Some(Header { version, started_unix_ns, machine, missing, tasks, io, counts, begins_midway })
}

/// The drain of a single source in a frame of this kind; `None` if the frame holds something else.
pub(super) fn drain(kind: u8, payload: &[u8]) -> serde_json::Result<Option<Drain>> {
    Ok(match kind {
        TASKS_DRAIN => Some(decode::<TasksDrain>(payload)?.into()),
        IO_DRAIN => Some(decode::<IoDrain>(payload)?.into()),
        _ => None,
    })
}
