//! A planned group of counters on one box outside the cores: it is stopped, read and started, but never follows a task.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use super::{
    attr::{self, Role},
    error::OpenError,
    group::{Count, Words, together},
    sys,
};
use crate::plan::{io::BoxSite, turns::EventGroup};

/// The events of a group on one box. Closing it ends the counting.
#[derive(Debug)]
pub struct BoxGroup {
    /// The leader first.
    events: Vec<OwnedFd>,
    /// The kernel's numbers of them, in order.
    ids: Vec<u64>,
}

impl BoxGroup {
    /// Opens `group` on the box `site`, held back. Needs CAP_PERFMON unless `kernel.perf_event_paranoid` is below 1: a box
    /// counts for everybody.
    ///
    /// # Errors
    ///
    /// The kernel refused; the error names the event and the box, and knows what would help.
    pub fn open(group: &EventGroup, site: &BoxSite) -> Result<Self, OpenError> {
        let mut events: Vec<OwnedFd> = Vec::with_capacity(group.events.len());
        let mut ids = Vec::with_capacity(group.events.len());
        for (index, event) in group.events.iter().enumerate() {
            let fail = |error| OpenError::planned(&event.name, &site.pmu, site.cpu, index, error);
            let role = Role { leads: index == 0, grouped: true, inherit: false, on_exec: false };
            let mut attr = attr::planned(event, role);
            // Every box is a PMU of its own; a kind's boxes differ in nothing else.
            attr.type_ = site.kind;
            let leader = events.first().map(|leader| leader.as_fd());
            let descriptor = sys::open(&mut attr, -1, Some(site.cpu.0), leader, 0).map_err(fail)?;
            ids.push(sys::id(descriptor.as_fd()).map_err(fail)?);
            events.push(descriptor);
        }
        Ok(Self { events, ids })
    }

    /// Starts counting: the members follow their leader.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn enable(&self) -> io::Result<()> {
        self.events.first().map_or(Ok(()), |leader| sys::enable(leader.as_fd()))
    }

    /// Stops counting.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn disable(&self) -> io::Result<()> {
        self.events.first().map_or(Ok(()), |leader| sys::disable(leader.as_fd()))
    }

    /// Reads every counter since it was opened, in the order of the events, all of one instant, instead of what is in `into`.
    ///
    /// # Errors
    ///
    /// The kernel refused, or said something that is no reading of this group.
    pub fn read(&self, words: &mut Words, into: &mut Vec<Count>) -> io::Result<()> {
        let Some(leader) = self.events.first() else {
            into.clear();
            return Ok(());
        };
        together(words.read(leader, 3 + 2 * self.ids.len())?, &self.ids, into)
    }
}
