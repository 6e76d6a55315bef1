//! Memory limits of this process, compared with the need of a command. Where a limit is reached an allocation
//! fails, and with it the process, in the middle of a run.

use rustix::process::{Resource, getrlimit};

const MIB: u64 = 1 << 20;

/// Address space that reading a recording or a host's tables needs at most, in bytes: see `tests/report.rs`.
pub const READING_BYTES: u64 = 256 * MIB;

/// Returns the address space that measuring needs at most, in bytes, on a host with `cpus` CPUs. It covers
/// what a run keeps (`model::fold`) twice, for an interval and the whole. It also covers the data of a tick,
/// the files read at the start, arenas and stacks of three threads, and mapped rows.
pub const fn measuring_bytes(cpus: u32) -> u64 {
    384 * MIB + 2 * MIB * cpus as u64
}

/// Part of that which is data, at most: without unused parts of arenas and without mapped files and rows.
const DATA_BYTES_MAX: u64 = 256 * MIB;

/// Error for a limit that is lower than the need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is limited to {} MiB, and {} MiB may be needed", .limit_bytes / MIB, .needed_bytes.div_ceil(MIB))]
pub struct TooLittle {
    what: &'static str,
    limit_bytes: u64,
    needed_bytes: u64,
    fix: &'static str,
}

impl TooLittle {
    /// Returns how to raise the limit.
    pub const fn hint(&self) -> &'static str {
        self.fix
    }
}

/// Checks the soft limits of this process.
///
/// # Errors
///
/// A limit is lower than `needed_bytes` of address space need.
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
