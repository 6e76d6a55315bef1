//! Events of the kernel. No other module calls `perf_event_open`. [`Counter`] samples for a BPF program,
//! [`PlannedGroup`] counts for one, [`Counting`] counts by itself, and [`side_band`] reports address spaces.

mod attr;
mod busy_loop;
mod counting;
mod dummy;
mod error;
mod group;
mod planned_group;
pub mod probe;
mod ring;
pub mod self_test;
pub mod side_band;
mod sys;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

pub use self::{
    counting::{CountTarget, Counting, Unopened, WithoutRights},
    dummy::Dummy,
    error::{OpenError, Site},
    group::{Count, Group, Read, Start, Words},
    planned_group::{PlannedGroup, Stay},
};
use crate::{
    drain::Usage,
    machine::cpu::Cpu,
    plan::{Precision, Sampling},
    table::event_syntax::Precise,
};

/// Highest value of `precise_ip`.
const PRECISE_MAX: u8 = 3;

/// Sampling event on one CPU, opened but not counting.
#[derive(Debug)]
pub struct Counter {
    descriptor: OwnedFd,
}

impl Counter {
    /// Opens the event of `sampling` on `cpu`, for every task there, in the group of `leader`. Needs
    /// CAP_PERFMON unless `kernel.perf_event_paranoid` is below 1.
    ///
    /// The kernel assembles the fields of `sample_type` before it runs a BPF program, so it is 0. The period
    /// is fixed, as the kernel's frequency mode wanders (kernel/events/core.c, `perf_adjust_period`).
    ///
    /// # Errors
    ///
    /// The kernel refused; the error has advice.
    pub fn open(sampling: &Sampling, cpu: Cpu, leader: Option<&Self>) -> Result<Self, OpenError> {
        let level = match (&sampling.precision, sampling.precise) {
            (Some(precision), _) => precision.level,
            (None, Precise::Level(level)) => level,
            (None, Precise::Max) => 0,
        };
        Self::open_as(sampling, cpu, leader, level)
    }

    /// Opens a tracepoint to hold its program, which then runs at every hit, on every CPU and in every task.
    /// It survives the removal of a CPU, and a second event must not have the same program
    /// (kernel/trace/bpf_trace.c, `perf_event_attach_bpf_prog`). It does not count. Needs CAP_PERFMON.
    ///
    /// # Errors
    ///
    /// The kernel refused; the error has advice.
    pub fn anchor(sampling: &Sampling) -> Result<Self, OpenError> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let fail = |error| OpenError::sampling(sampling, 0, Site::Thread(thread), error);
        let mut attr = attr::sampling(sampling, 0);
        attr.set_disabled(1);
        let descriptor = sys::open(&mut attr, 0, None, None, 0).map_err(fail)?;
        Ok(Self { descriptor })
    }

    fn open_as(sampling: &Sampling, cpu: Cpu, leader: Option<&Self>, level: u8) -> Result<Self, OpenError> {
        let fail = |error| OpenError::sampling(sampling, level, Site::Cpu(cpu), error);
        let mut attr = attr::sampling(sampling, level);
        let leader = leader.map(|leader| leader.descriptor.as_fd());
        let descriptor = sys::open(&mut attr, -1, Some(cpu.0), leader, 0).map_err(fail)?;
        Ok(Self { descriptor })
    }

    /// Returns the precision that the kernel allows for the event's samples: the requested one, or the
    /// highest that it grants on `cpu`.
    #[must_use]
    pub fn precision(sampling: &Sampling, cpu: Cpu) -> Precision {
        match sampling.precise {
            Precise::Level(level) => Precision { level, why: None },
            Precise::Max if !sampling.is_hardware() => Precision { level: 0, why: None },
            Precise::Max => {
                let mut why = None;
                for level in (1..=PRECISE_MAX).rev() {
                    match Self::open_as(sampling, cpu, None, level) {
                        Ok(_) => return Precision { level, why: None },
                        Err(error) => why = Some(error.error.to_string()),
                    }
                }
                Precision { level: 0, why }
            }
        }
    }

    /// Reads its count and its times.
    ///
    /// # Errors
    ///
    /// The kernel refused, or returned data that is not a reading.
    pub fn read(&self) -> io::Result<Count> {
        group::apart(Words::default().read(&self.descriptor, 4)?)
    }

    /// Runs `program` at every overflow, from now on.
    ///
    /// # Errors
    ///
    /// The kernel refused the program.
    pub fn bind(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        sys::set_bpf(self.descriptor.as_fd(), program)
    }

    /// Starts counting of the event.
    ///
    /// # Errors
    ///
    /// The kernel refused to start it.
    pub fn enable(&self) -> io::Result<()> {
        sys::enable(self.descriptor.as_fd())
    }

    /// Stops counting of the event. The count can still be read.
    ///
    /// # Errors
    ///
    /// The kernel refused to stop it.
    pub fn disable(&self) -> io::Result<()> {
        sys::disable(self.descriptor.as_fd())
    }
}

/// Returns the CPU time of the children that this process has waited for, to 1 µs.
///
/// # Errors
///
/// The kernel refused to report it.
pub fn children_usage() -> io::Result<Usage> {
    Ok(usage_of(&sys::children_usage()?))
}

/// Returns the CPU time of this process, to 1 µs.
///
/// # Errors
///
/// The kernel refused to report it.
pub fn own_usage() -> io::Result<Usage> {
    Ok(usage_of(&sys::own_usage()?))
}

/// Returns the CPU time in a `rusage`.
pub(crate) fn usage_of(usage: &libc::rusage) -> Usage {
    let duration = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Usage { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
}

/// Returns the bytes that ended children of this process read from storage, in blocks of 512 (getrusage(2)).
/// It must have waited for them.
///
/// # Errors
///
/// The kernel refused to report it.
pub fn children_bytes_read() -> io::Result<u64> {
    const BLOCK_BYTES: u64 = 512;
    let blocks = u64::try_from(sys::children_usage()?.ru_inblock).unwrap_or(0);
    Ok(blocks.saturating_mul(BLOCK_BYTES))
}
