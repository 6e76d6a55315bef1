//! Block requests: one row a device, operation and owner, as the programs counted them since counting started.

use pmu_common::io::block::{self, BlockCount};
use serde::{Deserialize, Serialize};

use crate::{
    drain::words,
    machine::cgroup::CgroupId,
    untrusted::{Untrusted, exact},
};

/// A block device, the whole of it: partitions are not told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A read.
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
    /// All of them, by the wire's numbers.
    pub const ALL: [Self; block::OPERATIONS] =
        [Self::Read, Self::Write, Self::Flush, Self::Discard, Self::Other];

    /// Its name in every output.
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

/// Whose requests they are, and how that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// A process that submitted them for itself.
    Process {
        /// Process id.
        pid: u32,
        /// The tick in which it began ([`pmu_common::owner::start_tick`]; older recordings count in units of 2²⁰ ns): it tells two
        /// processes of one id apart.
        born: u32,
    },
    /// A cgroup whose tasks submitted them for themselves.
    Cgroup(CgroupId),
    /// A cgroup that they carry, submitted on its behalf by someone else, as in writeback. Which of its processes
    /// wanted them is not known; and the cgroup is the nearest one upwards in which the `io` controller is enabled.
    OnBehalfOf(CgroupId),
    /// Kernel threads submitted them, and they carry no cgroup.
    Kernel,
    /// Someone who was not asked for.
    Outsider,
    /// They were under way before counting started, or their start was lost; or no program saw their end, and the kernel's own
    /// count of the device says how many there were.
    Unseen,
    /// Owners beyond the limit.
    Many,
}

impl Whose {
    /// The id of the cgroup that they are of, if they are one's.
    #[must_use]
    pub const fn cgroup(self) -> Option<u64> {
        match self {
            Self::Cgroup(id) | Self::OnBehalfOf(id) => Some(id.0),
            _ => None,
        }
    }

    /// Is it known who wanted them, be it that nobody asked for him?
    #[must_use]
    pub const fn is_known(&self) -> bool {
        matches!(self, Self::Process { .. } | Self::Cgroup(_) | Self::OnBehalfOf(_) | Self::Outsider)
    }
}

/// Requests of one device, operation and owner, summed over CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRow {
    /// The device.
    pub device: DeviceNumber,
    /// What was done.
    pub operation: Operation,
    /// For whom.
    pub whose: Whose,
    /// `comm` of the thread that was first seen, if the owner is a process.
    #[serde(with = "exact", default, skip_serializing_if = "Untrusted::is_empty")]
    pub name: Untrusted,
    /// Counts, bytes, sums of latencies. The longest latencies are those of all CPUs.
    #[serde(with = "words")]
    pub count: BlockCount,
    /// Device latencies: buckets of [`pmu_common::histogram::BLOCK`] that are not zero, and their counts modulo 2³².
    pub latency: Vec<(u16, u32)>,
    /// Queue latencies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<(u16, u32)>,
}

/// Requests that have not completed yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlightRow {
    /// The device.
    pub device: DeviceNumber,
    /// What is being done.
    pub operation: Operation,
    /// For whom.
    pub whose: Whose,
    /// Requests that wait in a queue.
    pub queued: u64,
    /// Requests that the device has.
    pub issued: u64,
    /// How long the oldest of those has been at the device, in ns; 0 if there is none.
    pub oldest_ns: u64,
}

/// Counts of two CPUs, or of two rows of one owner. The kernel's numbers wrap, and so does their sum.
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
