//! A planned group of counters on one CPU, for BPF programs to read.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use super::{
    attr::{self, Role},
    error::OpenError,
    sys,
};
use crate::{machine::cpu::Cpu, plan::turns::EventGroup};

/// Has a group a right to its counters?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// It comes before groups that have none. If it does not fit, it stops until it is enabled again.
    Pinned,
    /// The kernel shares counters out in turn. One group that never fits keeps others of its kind from counting for half
    /// of the time (kernel/events/core.c, `merge_sched_in`).
    IfItFits,
}

/// The events of a group on one CPU, for every task there. Closing it ends the counting, unless a BPF map holds on to
/// its events.
#[derive(Debug)]
pub struct CpuGroup {
    /// The leader first.
    events: Vec<OwnedFd>,
}

impl CpuGroup {
    /// Opens `group`, whose PMU is called `pmu`, on `cpu`, held back. Needs CAP_PERFMON unless
    /// `kernel.perf_event_paranoid` is below 1.
    ///
    /// # Errors
    ///
    /// The kernel refused; the error names the event, and knows what would help.
    pub fn open(group: &EventGroup, pmu: &str, cpu: Cpu, stay: Stay) -> Result<Self, OpenError> {
        let mut events: Vec<OwnedFd> = Vec::with_capacity(group.events.len());
        for (index, event) in group.events.iter().enumerate() {
            let fail = |error| OpenError::planned(&event.name, pmu, cpu, index, error);
            let role = Role { leads: index == 0, grouped: false, inherit: false, on_exec: false };
            let mut attr = attr::planned(event, role);
            attr.set_pinned((role.leads && stay == Stay::Pinned).into());
            let leader = events.first().map(|leader| leader.as_fd());
            events.push(sys::open(&mut attr, -1, Some(cpu.0), leader, 0).map_err(fail)?);
        }
        Ok(Self { events })
    }

    /// Its events, the leader first.
    pub fn events(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.events.iter().map(|event| event.as_fd())
    }

    /// Starts counting, by one interrupt of the CPU: the members follow their leader.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn enable(&self) -> io::Result<()> {
        self.events.first().map_or(Ok(()), |leader| sys::enable(leader.as_fd()))
    }

    /// Stops counting, as [`CpuGroup::enable`] starts it.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn disable(&self) -> io::Result<()> {
        self.events.first().map_or(Ok(()), |leader| sys::disable(leader.as_fd()))
    }
}
