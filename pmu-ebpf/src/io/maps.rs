//! The maps: who writes them, who reads them, how large. Sizes of 1 are set by the loader to what is asked for.
//!
//! Rows "by slot and CPU" lie at `slot * cpus + cpu`. Those of requests have one writer, `complete`, which never
//! interrupts itself; those of packets are added to in single instructions. User space reads both through a mapping.

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    macros::map,
    maps::{Array, HashMap, LruHashMap, Stack},
};
use pmu_common::{
    histogram::BlockBuckets,
    io::{
        IoCpu, IoKey, IoOwner, Recent,
        block::{BlockCount, HISTOGRAMS, InFlight},
        net::NetCount,
    },
};

use crate::config::config;

/// Written by every program on that CPU. One row per possible CPU.
#[map]
pub(crate) static IO_CPUS: Array<IoCpu> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by the programs on block requests: what [`BLOCK_SLOT_OF`] said last. By CPU and place.
#[map]
pub(crate) static IO_RECENT: Array<Recent> = Array::with_max_entries(1, 0);
/// Written by user space, before counting starts and for cgroups that a name means later, and by `io_cgroup_create` and
/// `io_cgroup_remove`. By process or cgroup id, or by a cgroup's path ([`pmu_common::target::PathKey`]).
#[map]
pub(crate) static IO_TARGETS: HashMap<u64, u32> = HashMap::with_max_entries(1, 0);
/// Written by the programs that start a request, on any CPU: see [`InFlight::seal_of`]. By hash of the request.
#[map]
pub(crate) static IN_FLIGHT: Array<InFlight> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by the programs that end a request, on any CPU: which of its entry's was the last to end. A map of its own, so
/// that a request's next start does not have to wait for a cache line that its end has written on another CPU.
#[map]
pub(crate) static IN_FLIGHT_ENDED: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by whoever allocates a slot. By slot.
#[map]
pub(crate) static BLOCK_OWNERS: Array<IoOwner> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by `complete`. By slot and CPU.
#[map]
pub(crate) static BLOCK_COUNTS: Array<BlockCount> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Added to by `complete`, in single instructions where CPUs share a lane. By slot, lane and which latency.
#[map]
pub(crate) static BLOCK_LATENCIES: Array<BlockBuckets> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by whoever allocates a slot. Room for owners that share a common row, too.
#[map]
pub(crate) static BLOCK_SLOT_OF: HashMap<IoKey, u32> = HashMap::with_max_entries(1, 0);
/// Filled by user space, lowest slot on top; popped by whoever allocates.
#[map]
pub(crate) static BLOCK_FREE: Stack<u32> = Stack::with_max_entries(1, 0);
/// As [`BLOCK_OWNERS`], of packets.
#[map]
pub(crate) static NET_OWNERS: Array<IoOwner> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Written by the programs on packets. By slot and CPU.
#[map]
pub(crate) static NET_COUNTS: Array<NetCount> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// As [`BLOCK_SLOT_OF`], of packets.
#[map]
pub(crate) static NET_SLOT_OF: HashMap<IoKey, u32> = HashMap::with_max_entries(1, 0);
/// As [`BLOCK_FREE`], of packets.
#[map]
pub(crate) static NET_FREE: Stack<u32> = Stack::with_max_entries(1, 0);
/// Written by `bio_limit` and `bio_go`; an entry is removed by what makes a request of its bio. Bios that became part of another's request
/// give way.
#[map]
pub(crate) static HELD: LruHashMap<u64, u64> = LruHashMap::with_max_entries(1, 0);
/// Written by `bio_limit`: how many bios came by. One row.
#[map]
pub(crate) static LIMITED: Array<u64> = Array::with_max_entries(1, 0);

/// Index of a slot's histogram of a kind, for this CPU.
#[inline(always)]
pub(crate) fn histogram(slot: u32, cpu: u32, kind: u32) -> u32 {
    let lanes = config!(lanes);
    let lane = slot.wrapping_mul(lanes).wrapping_add(cpu & lanes.wrapping_sub(1));
    lane * HISTOGRAMS + kind
}
