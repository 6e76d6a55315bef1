//! Block requests: one row per device, operation and owner, as the programs counted them since counting
//! started.

use pmu_common::io::block::{self, BlockCount};
use serde::{Deserialize, Serialize};

use crate::{
    drain::words,
    machine::cgroup::CgroupId,
    untrusted::{Untrusted, exact},
};

/// Number of a whole block device. Partitions are not distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceNumber {
    /// Major device number.
    pub major: u32,
    /// Minor device number.
    pub minor: u32,
}

/// Operation of a block request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A read request.
    Read,
    /// A write, appends to zones included.
    Write,
    /// A flush of the device's cache.
    Flush,
    /// A discard, secure erasure included.
    Discard,
    /// Zeroes written by the device, zone management, commands passed through.
    Other,
}

impl Operation {
    /// Operations in the order of the wire's numbers.
    pub const ALL: [Self; block::OPERATIONS] =
        [Self::Read, Self::Write, Self::Flush, Self::Discard, Self::Other];

    /// Returns the name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::Other => "other",
        }
    }
}

/// Owner of block requests, and how it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// A process that submitted them for itself.
    Process {
        /// Id of the process.
        pid: u32,
        /// Tick in which it began ([`pmu_common::owner::start_tick`]; older recordings count in units of 2²⁰
        /// ns). It distinguishes two processes with one id.
        born: u32,
    },
    /// A cgroup whose tasks submitted them for themselves.
    Cgroup(CgroupId),
    /// A cgroup that the requests carry, submitted on its behalf by another task, as in writeback. The
    /// process that caused them is not known. The cgroup is the nearest one upwards in which the `io`
    /// controller is enabled.
    OnBehalfOf(CgroupId),
    /// Kernel threads submitted them, and they carry no cgroup.
    Kernel,
    /// An owner outside the targets.
    Outsider,
    /// Requests that were in flight before counting started, or with a lost start. Also requests that
    /// completed without a program's notice: the kernel's own count of the device gives their number.
    Unseen,
    /// Owners beyond the limit.
    Many,
}

impl Whose {
    /// Returns the id of the cgroup that owns the requests, if a cgroup does.
    #[must_use]
    pub const fn cgroup(self) -> Option<u64> {
        match self {
            Self::Cgroup(id) | Self::OnBehalfOf(id) => Some(id.0),
            _ => None,
        }
    }

    /// Returns whether the owner is known, even if it is outside the targets.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        matches!(self, Self::Process { .. } | Self::Cgroup(_) | Self::OnBehalfOf(_) | Self::Outsider)
    }
}

/// Requests of one device, operation and owner, summed over CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRow {
    /// Device of the requests.
    pub device: DeviceNumber,
    /// Operation of the requests.
    pub operation: Operation,
    /// Owner of the requests.
    pub whose: Whose,
    /// `comm` of the first thread seen, if the owner is a process.
    #[serde(with = "exact", default, skip_serializing_if = "Untrusted::is_empty")]
    pub name: Untrusted,
    /// Counts, bytes, sums of latencies. The maximum latencies are those of all CPUs.
    #[serde(with = "words")]
    pub count: BlockCount,
    /// Device latencies: nonzero buckets of [`pmu_common::histogram::BLOCK`], with their counts modulo 2³².
    pub latency: Vec<(u16, u32)>,
    /// Queue latencies, in the same form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<(u16, u32)>,
}

/// Requests that have not completed yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlightRow {
    /// Device of the requests.
    pub device: DeviceNumber,
    /// Operation of the requests.
    pub operation: Operation,
    /// Owner of the requests.
    pub whose: Whose,
    /// Requests that wait in a queue.
    pub queued: u64,
    /// Requests at the device.
    pub issued: u64,
    /// Time that the oldest of those has been at the device, in ns; 0 if there is none.
    pub oldest_ns: u64,
}

/// Returns the sum of the counts of two CPUs, or of two rows of one owner. The kernel's numbers wrap, and so
/// does the sum.
#[must_use]
pub fn sum(left: &BlockCount, right: &BlockCount) -> BlockCount {
    BlockCount {
        requests: left.requests.wrapping_add(right.requests),
        bytes: left.bytes.wrapping_add(right.bytes),
        latency_ns: left.latency_ns.wrapping_add(right.latency_ns),
        latency_max_ns: left.latency_max_ns.max(right.latency_max_ns),
        latency_filled: left.latency_filled | right.latency_filled,
        queued: left.queued.wrapping_add(right.queued),
        queue_ns: left.queue_ns.wrapping_add(right.queue_ns),
        queue_max_ns: left.queue_max_ns.max(right.queue_max_ns),
        queue_filled: left.queue_filled | right.queue_filled,
        unstarted: left.unstarted.wrapping_add(right.unstarted),
        errors: left.errors.wrapping_add(right.errors),
        requeued: left.requeued.wrapping_add(right.requeued),
        partial: left.partial.wrapping_add(right.partial),
        changes: left.changes.wrapping_add(right.changes),
        reserved: [0; 2],
    }
}
