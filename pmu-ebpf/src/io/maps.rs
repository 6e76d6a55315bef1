//! Maps of the objects for I/O: their writers, readers and sizes. Sizes of 1 are set by the loader to the
//! requested size.
//!
//! Rows "by slot and CPU" lie at `slot * cpus + cpu`. Those of requests have one writer, `complete`, which
//! never interrupts itself; those of packets are added to in single instructions. User space reads both
//! through a mapping.

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

/// Counts of each possible CPU, one row each. Written by every program on that CPU.
#[map]
pub(crate) static IO_CPUS: Array<IoCpu> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Results of recent lookups in [`BLOCK_SLOT_OF`], by CPU and place. Written by the programs on block
/// requests.
#[map]
pub(crate) static IO_RECENT: Array<Recent> = Array::with_max_entries(1, 0);
/// Targets by process or cgroup id, or by a cgroup's path ([`pmu_common::target::PathKey`]). Written by user
/// space, before counting starts and for cgroups that match a name later, and by `io_cgroup_create` and
/// `io_cgroup_remove`.
#[map]
pub(crate) static IO_TARGETS: HashMap<u64, u32> = HashMap::with_max_entries(1, 0);
/// Requests in flight, by hash of the request. Written by the programs that start a request, on any CPU: see
/// [`InFlight::seal_of`].
#[map]
pub(crate) static IN_FLIGHT: Array<InFlight> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Last request of each entry to end. Written by the programs that end a request, on any CPU. The map is
/// separate, so that a request's next start does not wait for a cache line that its end has written on
/// another CPU.
#[map]
pub(crate) static IN_FLIGHT_ENDED: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Owners by slot. Written by the program that allocates the slot.
#[map]
pub(crate) static BLOCK_OWNERS: Array<IoOwner> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Counts by slot and CPU. Written by `complete`.
#[map]
pub(crate) static BLOCK_COUNTS: Array<BlockCount> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Latencies by slot, lane and kind. Added to by `complete`, in single instructions where CPUs share a lane.
#[map]
pub(crate) static BLOCK_LATENCIES: Array<BlockBuckets> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Slots by key. Written by the program that allocates a slot. It has room for owners that share a common
/// row, too.
#[map]
pub(crate) static BLOCK_SLOT_OF: HashMap<IoKey, u32> = HashMap::with_max_entries(1, 0);
/// Free slots. Filled by user space, lowest slot on top; popped by the program that allocates one.
#[map]
pub(crate) static BLOCK_FREE: Stack<u32> = Stack::with_max_entries(1, 0);
/// Owners of packets, as [`BLOCK_OWNERS`].
#[map]
pub(crate) static NET_OWNERS: Array<IoOwner> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Counts of packets, by slot and CPU. Written by the programs on packets.
#[map]
pub(crate) static NET_COUNTS: Array<NetCount> = Array::with_max_entries(1, BPF_F_MMAPABLE);
/// Slots of packets, as [`BLOCK_SLOT_OF`].
#[map]
pub(crate) static NET_SLOT_OF: HashMap<IoKey, u32> = HashMap::with_max_entries(1, 0);
/// Free slots of packets, as [`BLOCK_FREE`].
#[map]
pub(crate) static NET_FREE: Stack<u32> = Stack::with_max_entries(1, 0);
/// Words of bios that a limit checks. Written by `bio_limit` and `bio_go`; an entry is removed when a request
/// is made of its bio. Bios that were merged into another request are evicted.
#[map]
pub(crate) static HELD: LruHashMap<u64, u64> = LruHashMap::with_max_entries(1, 0);
/// Number of bios that passed a limit, in one row. Written by `bio_limit`.
#[map]
pub(crate) static LIMITED: Array<u64> = Array::with_max_entries(1, 0);

/// Returns the index of a slot's histogram of a kind, for this CPU.
#[inline(always)]
pub(crate) fn histogram(slot: u32, cpu: u32, kind: u32) -> u32 {
    let lanes = config!(lanes);
    let lane = slot.wrapping_mul(lanes).wrapping_add(cpu & lanes.wrapping_sub(1));
    lane * HISTOGRAMS + kind
}
