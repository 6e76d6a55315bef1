//! Limits of this process's memory, held against what a command takes: where they are reached an allocation fails, and with it the
//! process, in the middle of a run.

use rustix::process::{Resource, getrlimit};

const MIB: u64 = 1 << 20;

/// What reading a recording or a host's tables takes at most, in bytes of address space: see `tests/report.rs`.
pub const READING_BYTES: u64 = 256 * MIB;

/// What measuring takes at most, in bytes of address space, on a host with so many CPUs: what a run keeps (`model::fold`) twice, for an
/// interval and the whole, what a tick brings, what is read to begin, arenas and stacks of three threads, and rows that are mapped.
pub const fn measuring_bytes(cpus: u32) -> u64 {
    384 * MIB + 2 * MIB * cpus as u64
}

/// Of that the most which is data: it neither holds arenas that are not filled nor files and rows that are mapped.
const DATA_BYTES_MAX: u64 = 256 * MIB;

/// A limit is lower than what is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is limited to {} MiB, and {} MiB may be needed", .limit_bytes / MIB, .needed_bytes.div_ceil(MIB))]
pub struct TooLittle {
    what: &'static str,
    limit_bytes: u64,
    needed_bytes: u64,
    fix: &'static str,
}

impl TooLittle {
    /// What raises the limit.
    pub const fn hint(&self) -> &'static str {
        self.fix
    }
}

/// Checks the soft limits of this process.
///
/// # Errors
///
/// One of them is lower than what `needed_bytes` of address space take.
pub fn check(needed_bytes: u64) -> Result<(), TooLittle> {
    let limits = [
        (
            Resource::As,
            "address space (RLIMIT_AS)",
            needed_bytes,
            "raise it: ulimit -v unlimited (systemd: LimitAS=infinity)",
        ),
        (
            Resource::Data,
            "data (RLIMIT_DATA)",
            needed_bytes.min(DATA_BYTES_MAX),
            "raise it: ulimit -d unlimited (systemd: LimitDATA=infinity)",
        ),
    ];
    for (resource, what, needed_bytes, fix) in limits {
        if let Some(limit_bytes) = getrlimit(resource).current.filter(|limit| *limit < needed_bytes) {
            return Err(TooLittle { what, limit_bytes, needed_bytes, fix });
        }
    }
    Ok(())
}
