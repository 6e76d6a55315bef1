//! Programs on bios, for devices that take them as they are and make no requests: dm, md, zram. A bio is
//! accounted as a request that goes straight to its device. Attached only where there are such devices.
//!
//! Bios of other devices arrive here too and are skipped: their requests count. So no row has two programs
//! that write it.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use pmu_common::{
    config::ABSENT,
    io::{
        BIOS,
        block::{FLUSH, InFlight, WRITE, operation},
    },
};

use super::{
    complete::{Progress, alone, end, is_known, seen},
    maps::BLOCK_COUNTS,
    request::{device_word_of, find_or_free, identity, slot_for, slot_of_unseen},
};
use crate::{
    TYPED, Way,
    access::{Fields, Pointer, Probed},
    config::config,
    cpu::row,
    intrinsics::opaque,
    tracepoint,
};

/// Reads the bio among a tracepoint's arguments: see `start`.
macro_rules! bio {
    ($context:ident) => {
        if TYPED || config!(bio_argument) == 0 {
            opaque($context.arg(0)) as Pointer
        } else {
            opaque($context.arg(1)) as Pointer
        }
    };
}
pub(super) use bio;

tracepoint! {
    /// `trace_block_bio_queue(bio)`, block/blk-core.c: a bio is submitted, before its device gets it.
    bio_queue on "block_bio_queue", context => try_queue::<Way>(bio!(context))
}

#[inline(always)]
fn try_queue<A: Fields>(bio: Pointer) -> Option<()> {
    let disk = disk::<A>(bio);
    if makes_requests::<A>(disk) {
        return None;
    }
    let identity = identity(bio);
    let entry = find_or_free(identity)?;
    let bytes = A::u32(bio, config!(offsets.bio_bytes));
    let slot = slot_for::<A>(bio, device_word_of::<A>(disk, operation_of::<A>(bio, bytes)));
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    // SAFETY: the lookup gave a live row; a concurrent write for another request is detected by the seal.
    unsafe { *entry = InFlight::bio(identity, slot, now_ns, bytes) };
    Some(())
}

tracepoint! {
    /// `trace_block_bio_complete(queue, bio)`, block/bio.c: all of the bio is done, or it has failed.
    bio_complete on "block_bio_complete", context => alone(BIOS, |cpu| account::<Way>(context.arg(1), cpu))
}

#[inline(always)]
fn account<A: Fields>(bio: Pointer, cpu: u32) -> Option<()> {
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let seen = seen(identity(bio), Progress::Ended);
    let slot = if is_known(&seen) {
        seen.slot()
    } else {
        let disk = disk::<A>(bio);
        if makes_requests::<A>(disk) {
            return None;
        }
        // Its number of bytes is no longer known.
        slot_of_unseen(device_word_of::<A>(disk, operation_of::<A>(bio, u32::MAX)))
    };
    // SAFETY: the lookup gave a live row of this CPU, which has one writer (see `complete`).
    let count = unsafe { &mut *BLOCK_COUNTS.get_ptr_mut(row(slot, cpu))? };
    count.bytes += seen.waited_ns;
    // A byte, which typed loads of words do not reach.
    let error = u32::from(Probed::read::<u8>(bio, config!(offsets.bio_status)));
    end(count, cpu, &seen, error, now_ns)
}

/// Returns the operation of a bio of `bytes`. A bio without any only flushes.
#[inline(always)]
fn operation_of<A: Fields>(bio: Pointer, bytes: u32) -> u32 {
    match operation(A::u32(bio, config!(offsets.bio_flags))) {
        WRITE if bytes == 0 => FLUSH,
        operation => operation,
    }
}

#[inline(always)]
fn disk<A: Fields>(bio: Pointer) -> Pointer {
    if config!(offsets.bio_disk) == ABSENT {
        let device = A::pointer(bio, config!(offsets.bio_device));
        A::pointer(device, config!(offsets.device_disk))
    } else {
        A::pointer(bio, config!(offsets.bio_disk))
    }
}

#[inline(always)]
fn makes_requests<A: Fields>(disk: Pointer) -> bool {
    let queue = A::pointer(disk, config!(offsets.disk_queue));
    !A::pointer(queue, config!(offsets.queue_operations)).is_null()
}
