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
    pub fn open(group: &EventGroup, pmu: &str, cpu: Cpu) -> Result<Self, OpenError> {
        let mut events: Vec<OwnedFd> = Vec::with_capacity(group.events.len());
        for (index, event) in group.events.iter().enumerate() {
            let fail = |error| OpenError::planned(&event.name, pmu, cpu, index, error);
            let role = Role { leads: index == 0, grouped: false, inherit: false, on_exec: false };
            let mut attr = attr::planned(event, role);
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
