//! The only caller of `perf_event_open`.

mod sys;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use crate::{
    machine::{cpu::Cpu, privilege::Privileges},
    plan::{Class, Sampling},
};

/// A sampling event on one CPU, opened but not counting.
#[derive(Debug)]
pub struct Counter {
    descriptor: OwnedFd,
}

/// Why an event could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open event `{event}` on cpu {cpu}: {call}: {error}", cpu = .cpu.0)]
pub struct OpenError {
    /// Event.
    pub event: String,
    /// CPU.
    pub cpu: Cpu,
    /// The system call that failed.
    pub call: &'static str,
    /// What it said.
    pub error: io::Error,
}

impl OpenError {
    /// What kind of failure it is.
    #[must_use]
    pub fn class(&self) -> Class {
        match self.error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => Class::NotPermitted,
            Some(rustix::io::Errno::NOENT | rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NODEV) => {
                Class::Unsupported
            }
            _ => Class::Failed,
        }
    }

    /// What would make it work.
    #[must_use]
    pub fn hint(&self, privileges: &Privileges) -> Option<String> {
        match self.error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::MFILE) => {
                let (soft, hard) = privileges.open_files;
                Some(format!(
                    "this process may open {soft} files (hard limit {hard}); raise it with `ulimit -n`"
                ))
            }
            _ if self.class() == Class::NotPermitted => Some(privileges.advice()),
            _ if self.class() == Class::Unsupported => {
                Some("this host has no such event; try cpu-clock".to_owned())
            }
            _ => None,
        }
    }
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
        let fail = |error| OpenError { event: sampling.event.clone(), cpu, call: "perf_event_open", error };
        let descriptor = sys::open(sampling.kind, sampling.config, sampling.period, cpu.0).map_err(fail)?;
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
