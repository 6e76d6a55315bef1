//! Frames of older recordings. In their headers, each source states for itself what now stands once for the
//! whole run. Headers and drains of a single source hold that part alone, in frames of separate kinds.

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
/// The same kinds for `pmbpf io`.
const IO_HEADER: u8 = b'h';
const IO_DRAIN: u8 = b'd';

/// Shape of a header: whether facts of the whole run stand once.
#[derive(Deserialize)]
struct Shape {
    version: Option<IgnoredAny>,
}

/// Facts that each source of a run states for itself.
#[derive(Deserialize)]
struct Said {
    version: String,
    started_unix_ns: u64,
    machine: Machine,
    #[serde(default)]
    missing: Vec<Absent>,
}

/// One value for each source of a run.
#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned, I: DeserializeOwned, C: DeserializeOwned")]
struct Sources<T, I, C> {
    tasks: Option<T>,
    io: Option<I>,
    counts: Option<C>,
}

type Parts = Sources<TasksHeader, IoHeader, CountsHeader>;

/// Returns the header in a frame of this kind, or `None` if the frame holds something else or the header of
/// no source.
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

/// Returns the header of a run whose sources state this, or `None` if there are none.
fn together(said: impl IntoIterator<Item = Option<Said>>, parts: Parts) -> Option<Header> {
    let mut said = said.into_iter().flatten();
    let Said { version, started_unix_ns, machine, mut missing } = said.next()?;
    missing.extend(said.flat_map(|other| other.missing));
    let Parts { tasks, io, counts } = parts;
    let begins_midway = false;
    Some(Header { version, started_unix_ns, machine, missing, tasks, io, counts, begins_midway })
}

/// Returns the drain of a single source in a frame of this kind, or `None` if the frame holds something else.
pub(super) fn drain(kind: u8, payload: &[u8]) -> serde_json::Result<Option<Drain>> {
    Ok(match kind {
        TASKS_DRAIN => Some(decode::<TasksDrain>(payload)?.into()),
        IO_DRAIN => Some(decode::<IoDrain>(payload)?.into()),
        _ => None,
    })
}
