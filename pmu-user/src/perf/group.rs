//! Group of counters that are on the PMU together or not at all, and are read together.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::io::Errno;

use super::{
    attr::{self, Role},
    error::{OpenError, Site},
    sys,
};
use crate::{
    plan::request::Inherit,
    table::event_syntax::{Instance, Selected},
};

/// Start of a group's counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The group starts when it is enabled.
    Held,
    /// The group starts when its task executes a program, or when it is enabled.
    OnExec,
}

/// Way in which the counts of a group are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// All counts in one call, so that they are of one instant.
    Together,
    /// Each count by itself, a few microseconds apart: kernels before 4.12 refuse inherited events that are
    /// read together.
    Apart,
}

/// Reading of one counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of occurrences while it ran.
    pub value: u64,
    /// Enabled time, in ns; for a task, only while the task ran.
    pub enabled_ns: u64,
    /// Running time, in ns: the part of the enabled time on a counter.
    pub running_ns: u64,
}

/// Event of a group to be opened, and the PMU that counts it.
pub(super) type Member<'a> = (&'a Selected, &'a Instance);

/// Target that a group counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whom<'a> {
    pub(super) site: Site,
    /// Directory of the cgroup, if the target is one.
    pub(super) cgroup: Option<BorrowedFd<'a>>,
    pub(super) inherit: Inherit,
    pub(super) start: Start,
}

/// Leader and members of an opened group. Closing them ends the counting.
#[derive(Debug)]
pub struct Group {
    leader: OwnedFd,
    members: Vec<OwnedFd>,
    /// Ids of all events in the kernel, in order.
    ids: Vec<u64>,
    read: Read,
}

impl Group {
    /// Opens the events of a group, disabled.
    pub(super) fn open(events: &[Member<'_>], whom: Whom<'_>) -> Result<Self, OpenError> {
        match Self::open_as(events, whom, Read::Together) {
            // kernel/events/core.c, `perf_event_alloc`: lifted by commit ba5213ae6b88 in 4.12.
            Err(error)
                if whom.inherits() && error.error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) =>
            {
                Self::open_as(events, whom, Read::Apart).map_err(|_| error)
            }
            opened => opened,
        }
    }

    fn open_as(events: &[Member<'_>], whom: Whom<'_>, read: Read) -> Result<Self, OpenError> {
        let mut opened: Vec<OwnedFd> = Vec::with_capacity(events.len());
        let mut ids = Vec::with_capacity(events.len());
        for (index, (event, at)) in events.iter().enumerate() {
            let fail = |error| OpenError::of(event, at, whom.site, index, error);
            let role = Role {
                leads: index == 0,
                grouped: read == Read::Together,
                inherit: whom.inherits(),
                on_exec: whom.start == Start::OnExec,
            };
            let mut attr = attr::counting(at, event.modifiers, role);
            let leader = opened.first().map(|leader| leader.as_fd());
            let descriptor = whom.open(&mut attr, leader).map_err(fail)?;
            ids.push(sys::id(descriptor.as_fd()).map_err(fail)?);
            opened.push(descriptor);
        }
        let members = opened.split_off(1.min(opened.len()));
        let leader = opened.pop().expect("a group has a leader, since the notation knows no empty group");
        Ok(Self { leader, members, ids, read })
    }

    /// Returns the way in which it is read.
    #[must_use]
    pub const fn how_read(&self) -> Read {
        self.read
    }

    /// Starts counting of the group.
    ///
    /// # Errors
    ///
    /// The kernel refused to start it.
    pub fn enable(&self) -> io::Result<()> {
        sys::enable_group(self.leader.as_fd())
    }

    /// Stops counting of the group.
    ///
    /// # Errors
    ///
    /// The kernel refused to stop it.
    pub fn disable(&self) -> io::Result<()> {
        sys::disable_group(self.leader.as_fd())
    }

    /// Sets the counts to 0. The times continue, and counts inherited from ended children stay.
    ///
    /// # Errors
    ///
    /// The kernel refused to reset it.
    pub fn reset(&self) -> io::Result<()> {
        sys::reset_group(self.leader.as_fd())
    }

    /// Reads every counter, in the order of the events. A pinned group that lost its counters reads as if it
    /// had never run.
    ///
    /// # Errors
    ///
    /// The kernel refused, or returned data that is not a reading of this group.
    pub fn read(&self) -> io::Result<Vec<Count>> {
        match self.read {
            Read::Together => {
                let mut counts = Vec::with_capacity(self.ids.len());
                let mut words = Words::default();
                together(words.read(&self.leader, 3 + 2 * self.ids.len())?, &self.ids, &mut counts)?;
                Ok(counts)
            }
            Read::Apart => {
                let (mut words, all) = (Words::default(), std::iter::once(&self.leader).chain(&self.members));
                all.map(|event| apart(words.read(event, 4)?)).collect()
            }
        }
    }
}

impl Whom<'_> {
    fn inherits(&self) -> bool {
        matches!(self.site, Site::Thread(_)) && self.inherit == Inherit::Yes
    }

    fn open(
        &self,
        attr: &mut perf_event_open_sys::bindings::perf_event_attr,
        leader: Option<BorrowedFd<'_>>,
    ) -> io::Result<OwnedFd> {
        use std::os::fd::AsRawFd as _;
        let flag = perf_event_open_sys::bindings::PERF_FLAG_PID_CGROUP;
        match (self.site, self.cgroup) {
            (Site::Thread(id), _) => {
                sys::open(attr, i32::try_from(id).map_err(io::Error::other)?, None, leader, 0)
            }
            (Site::Cgroup(cpu), Some(folder)) => {
                sys::open(attr, folder.as_raw_fd(), Some(cpu.0), leader, flag)
            }
            (Site::Cpu(cpu) | Site::Cgroup(cpu), _) => sys::open(attr, -1, Some(cpu.0), leader, 0),
        }
    }
}

/// Buffer that a counter is read into, reused from read to read.
#[derive(Debug, Default)]
pub struct Words {
    bytes: Vec<u8>,
    words: Vec<u64>,
}

impl Words {
    /// Reads up to `count` words.
    pub(super) fn read(&mut self, event: &OwnedFd, count: usize) -> io::Result<&[u64]> {
        self.bytes.resize(count * size_of::<u64>(), 0);
        let length = rustix::io::read(event, &mut self.bytes[..])?;
        let words = self.bytes[..length].as_chunks().0.iter();
        self.words.clear();
        self.words.extend(words.map(|word| u64::from_ne_bytes(*word)));
        Ok(&self.words)
    }
}

/// Parses `nr, enabled, running, (value, id)…` (`perf_event_read_group`) and replaces `into` by the counts of
/// `ids`.
pub(super) fn together(words: &[u64], ids: &[u64], into: &mut Vec<Count>) -> io::Result<()> {
    into.clear();
    let [count, enabled_ns, running_ns, values @ ..] = words else {
        // End of file: the group is pinned and in error.
        into.resize(ids.len(), Count::default());
        return if words.is_empty() { Ok(()) } else { Err(torn()) };
    };
    if *count != ids.len() as u64 || values.len() != 2 * ids.len() {
        return Err(torn());
    }
    for id in ids {
        let pair = values.chunks_exact(2).find(|pair| pair[1] == *id).ok_or_else(torn)?;
        into.push(Count { value: pair[0], enabled_ns: *enabled_ns, running_ns: *running_ns });
    }
    Ok(())
}

/// Parses `value, enabled, running, id`.
pub(super) fn apart(words: &[u64]) -> io::Result<Count> {
    match *words {
        [] => Ok(Count::default()),
        [value, enabled_ns, running_ns, _] => Ok(Count { value, enabled_ns, running_ns }),
        _ => Err(torn()),
    }
}

fn torn() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's reading is not of this group")
}

#[cfg(test)]
mod tests {
    use super::{Count, apart, together};

    #[test]
    fn values_are_told_apart_by_their_numbers() {
        let words = [2, 500, 300, 70, 12, 80, 11];
        let count = |value| Count { value, enabled_ns: 500, running_ns: 300 };
        let mut counts = vec![count(7)];
        together(&words, &[11, 12], &mut counts).unwrap();
        assert_eq!(counts, [count(80), count(70)]);
        assert!(together(&words, &[11, 13], &mut counts).is_err());
        assert!(together(&words, &[11], &mut counts).is_err());
        assert!(together(&words[..6], &[11, 12], &mut counts).is_err());
    }

    #[test]
    fn a_group_in_error_has_not_run() {
        let mut counts = Vec::new();
        together(&[], &[7, 8], &mut counts).unwrap();
        assert_eq!(counts, [Count::default(); 2]);
        assert_eq!(apart(&[]).unwrap(), Count::default());
        assert!(apart(&[1, 2]).is_err());
    }
}
