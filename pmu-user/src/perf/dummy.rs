//! Dummy event: its enabled time shows whether its CPU still has the events that were opened on it.

use std::{io, os::fd::OwnedFd};

use super::{attr, group::Words, sys};
use crate::machine::cpu::Cpu;

/// Dummy event of perf on a CPU, enabled. When a CPU goes offline the kernel removes every event from it, and
/// restores none when it returns (kernel/events/core.c, `perf_event_exit_cpu_context`, 6.12). Their time
/// stands still from then on.
#[derive(Debug)]
pub struct Dummy {
    descriptor: OwnedFd,
}

impl Dummy {
    /// Opens the event. Needs CAP_PERFMON unless `kernel.perf_event_paranoid` is below 1.
    ///
    /// # Errors
    ///
    /// The kernel refused, or the CPU is offline.
    pub fn open(cpu: Cpu) -> io::Result<Self> {
        Ok(Self { descriptor: sys::open(&mut attr::dummy(), -1, Some(cpu.0), None, 0)? })
    }

    /// Returns its enabled time, in ns. Interrupts its CPU for a moment.
    ///
    /// # Errors
    ///
    /// The kernel refused, or returned data that is not a reading.
    pub fn enabled_ns(&self) -> io::Result<u64> {
        match *Words::default().read(&self.descriptor, 2)? {
            [_, enabled_ns] => Ok(enabled_ns),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
