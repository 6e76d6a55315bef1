//! An event that counts nothing: how long it has been enabled says whether its CPU still has the events that were opened on it.

use std::{io, os::fd::OwnedFd};

use super::{attr, group::Words, sys};
use crate::machine::cpu::Cpu;

/// perf's dummy event on a CPU, enabled. When a CPU goes offline the kernel takes every event off it, and puts none back when it
/// returns (kernel/events/core.c, `perf_event_exit_cpu_context`, 6.12): their time stands still from then on.
#[derive(Debug)]
pub struct Dummy {
    descriptor: OwnedFd,
}

impl Dummy {
    /// Opens it. Needs CAP_PERFMON unless `kernel.perf_event_paranoid` is below 1.
    ///
    /// # Errors
    ///
    /// The kernel refused, or the CPU is offline.
    pub fn open(cpu: Cpu) -> io::Result<Self> {
        Ok(Self { descriptor: sys::open(&mut attr::dummy(), -1, Some(cpu.0), None, 0)? })
    }

    /// How long it has been enabled, in ns. Interrupts its CPU for a moment.
    ///
    /// # Errors
    ///
    /// The kernel refused, or said something that is no reading.
    pub fn enabled_ns(&self) -> io::Result<u64> {
        match *Words::default().read(&self.descriptor, 2)? {
            [_, enabled_ns] => Ok(enabled_ns),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
