//! The only caller of `perf_event_open`: [`Counter`] samples for a BPF program, [`CpuGroup`] counts
//! for one, [`Counting`] counts by itself.

mod attr;
mod counting;
mod cpu_group;
mod error;
mod group;
mod sys;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

pub use self::{
    counting::{CountTarget, Counting},
    cpu_group::{CpuGroup, Stay},
    error::{OpenError, Site},
    group::{Count, Group, Read, Start},
};
use crate::{machine::cpu::Cpu, plan::Sampling};

/// A sampling event on one CPU, opened but not counting.
#[derive(Debug)]
pub struct Counter {
    descriptor: OwnedFd,
}

impl Counter {
    /// Opens the event of `sampling` on `cpu`, for every task there. Needs CAP_PERFMON unless
    /// `kernel.perf_event_paranoid` is below 1.
    ///
    /// The kernel assembles what `sample_type` names before it asks a BPF program, so it is 0; the period is fixed, as
    /// the kernel's frequency mode wanders (kernel/events/core.c, `perf_adjust_period`).
    ///
    /// # Errors
    ///
    /// The kernel refused; the error knows what would help.
    pub fn open(sampling: &Sampling, cpu: Cpu) -> Result<Self, OpenError> {
        let fail = |error| OpenError::new(&sampling.event, None, Site::Cpu(cpu), error);
        let mut attr = attr::sampling(sampling);
        let descriptor = sys::open(&mut attr, -1, Some(cpu.0), None, 0).map_err(fail)?;
        Ok(Self { descriptor })
    }

    /// Runs `program` at every overflow, from now on.
    ///
    /// # Errors
    ///
    /// The kernel refused the program.
    pub fn bind(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        sys::set_bpf(self.descriptor.as_fd(), program)
    }

    /// Starts counting.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn enable(&self) -> io::Result<()> {
        sys::enable(self.descriptor.as_fd())
    }
}
