//! Planned group of counters, opened at once and started together: on one CPU, for BPF programs to read, or
//! on one uncore PMU, with counts that follow no task.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use perf_event_open_sys::bindings::perf_event_attr;

use super::{
    attr::{self, Role},
    error::OpenError,
    group::{Count, Words, together},
    sys,
};
use crate::{
    machine::cpu::Cpu,
    plan::{io::UncoreInstance, multiplexing::EventGroup},
};

/// Priority of a group for its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// The group comes before groups that are not pinned. If it does not fit, it stops until it is enabled
    /// again.
    Pinned,
    /// The kernel multiplexes the counters. One group that never fits keeps others of its kind from counting
    /// for half of the time (kernel/events/core.c, `merge_sched_in`).
    IfItFits,
}

/// Events of a group, opened at one place for all tasks there. Closing it ends the counting, unless a BPF map
/// holds its events.
#[derive(Debug)]
pub struct PlannedGroup {
    /// Descriptors of the events, the leader first.
    events: Vec<OwnedFd>,
    /// Ids of the events in the kernel, in order, where they are read together.
    ids: Vec<u64>,
}

impl PlannedGroup {
    /// Opens `group`, of the PMU with the name `pmu`, on `cpu`, disabled. Needs CAP_PERFMON unless
    /// `kernel.perf_event_paranoid` is below 1.
    ///
    /// # Errors
    ///
    /// The kernel refused; the error names the event and has advice.
    pub fn on_cpu(group: &EventGroup, pmu: &str, cpu: Cpu, stay: Stay) -> Result<Self, OpenError> {
        let mut opened = Self { events: Vec::with_capacity(group.events.len()), ids: Vec::new() };
        for (index, event) in group.events.iter().enumerate() {
            let role = Role { leads: index == 0, grouped: false, inherit: false, on_exec: false };
            let mut attr = attr::planned(event, role);
            attr.set_pinned((role.leads && stay == Stay::Pinned).into());
            let added = opened.add(&mut attr, cpu);
            added.map_err(|error| OpenError::planned(&event.name, pmu, cpu, index, error))?;
        }
        Ok(opened)
    }

    /// Opens `group` on one uncore PMU, as [`PlannedGroup::on_cpu`]: it counts for all tasks.
    ///
    /// # Errors
    ///
    /// The kernel refused; the error names the event and the PMU, and has advice.
    pub fn on_box(group: &EventGroup, site: &UncoreInstance) -> Result<Self, OpenError> {
        let mut opened = Self { events: Vec::with_capacity(group.events.len()), ids: Vec::new() };
        for (index, event) in group.events.iter().enumerate() {
            let role = Role { leads: index == 0, grouped: true, inherit: false, on_exec: false };
            let mut attr = attr::planned(event, role);
            // Every uncore PMU is a separate PMU; those of one kind differ in nothing else.
            attr.type_ = site.kind;
            let added = opened.add(&mut attr, site.cpu).and_then(sys::id);
            let fail = |error| OpenError::planned(&event.name, &site.pmu, site.cpu, index, error);
            let id = added.map_err(fail)?;
            opened.ids.push(id);
        }
        Ok(opened)
    }

    fn add(&mut self, attr: &mut perf_event_attr, cpu: Cpu) -> io::Result<BorrowedFd<'_>> {
        let leader = self.events.first().map(|leader| leader.as_fd());
        let event = sys::open(attr, -1, Some(cpu.0), leader, 0)?;
        Ok((*self.events.push_mut(event)).as_fd())
    }

    /// Returns its events, the leader first.
    pub fn events(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.events.iter().map(|event| event.as_fd())
    }

    /// Starts counting, with one interrupt of the CPU: the members follow their leader.
    ///
    /// # Errors
    ///
    /// The kernel refused to start it.
    pub fn enable(&self) -> io::Result<()> {
        self.events.first().map_or(Ok(()), |leader| sys::enable(leader.as_fd()))
    }

    /// Stops counting, in the same way as [`PlannedGroup::enable`] starts it.
    ///
    /// # Errors
    ///
    /// The kernel refused to stop it.
    pub fn disable(&self) -> io::Result<()> {
        self.events.first().map_or(Ok(()), |leader| sys::disable(leader.as_fd()))
    }

    /// Reads every counter of an uncore PMU since it was opened, in the order of the events, all of one
    /// instant. Replaces the contents of `into`.
    ///
    /// # Errors
    ///
    /// The kernel refused, or returned data that is not a reading of this group.
    pub fn read(&self, words: &mut Words, into: &mut Vec<Count>) -> io::Result<()> {
        let Some(leader) = self.events.first() else {
            into.clear();
            return Ok(());
        };
        together(words.read(leader, 3 + 2 * self.ids.len())?, &self.ids, into)
    }
}
