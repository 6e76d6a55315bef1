//! Kernel data of a request, and the table of requests in flight.

use aya_ebpf::helpers::bpf_get_current_comm;
use pmu_common::{
    config::{ABSENT, BY_PROCESS, FILTER_NONE},
    io::{
        IoKey, IoOwner, RECENT, Recent, SLOT_OTHER,
        block::{
            BY_MANY, BY_NOBODY_SEEN, BY_OUTSIDER, BY_REQUEST, BY_TASK, InFlight, PROBES, device_word, hash,
            on_basis, operation,
        },
        loss, recent_place,
    },
};

use super::{
    maps::{BLOCK_FREE, BLOCK_OWNERS, BLOCK_SLOT_OF, IN_FLIGHT, IN_FLIGHT_ENDED, IO_RECENT},
    owner::{self, Whose},
    slot::Slots,
};
use crate::{
    TYPED,
    access::{Fields, Pointer},
    config::{CONFIG, config},
    cpu::{lose, this_cpu},
    intrinsics::opaque,
};

const SLOTS: Slots = Slots { of: &BLOCK_SLOT_OF, free: &BLOCK_FREE, owners: &BLOCK_OWNERS };

/// Returns a number for the request that is unique while the request lives. It is the address, or for typed
/// programs a distance: the verifier makes a plain number only of the difference of two pointers.
#[inline(always)]
pub(crate) fn identity(request: Pointer) -> u64 {
    let distance =
        if TYPED { (request as u64).wrapping_sub(&raw const CONFIG as u64) } else { request as u64 };
    // The compiler must not move the subtraction elsewhere.
    opaque(distance)
}

/// Returns the request's entry in the table of requests in flight, and its place there.
#[inline(always)]
pub(crate) fn find(identity: u64) -> Option<(u32, *mut InFlight)> {
    for probe in 0..PROBES {
        let place = place(identity, probe);
        let entry = IN_FLIGHT.get_ptr_mut(place)?;
        // SAFETY: the lookup gave a live row.
        if unsafe { (*entry).request } == identity {
            return Some((place, entry));
        }
    }
    None
}

/// Returns the request's entry, or a free one that no request in flight uses.
#[inline(always)]
pub(crate) fn find_or_free(identity: u64) -> Option<*mut InFlight> {
    if let Some((_, entry)) = find(identity) {
        return Some(entry);
    }
    for probe in 0..PROBES {
        let place = place(identity, probe);
        let entry = IN_FLIGHT.get_ptr_mut(place)?;
        let ended = ended(place)?;
        // SAFETY: the lookup gave a live row.
        let unused = unsafe { (*entry).request } == 0;
        // SAFETY: as above.
        let ended = unsafe { *ended };
        // SAFETY: as above.
        if unused || unsafe { (*entry).has_ended(ended) } {
            return Some(entry);
        }
    }
    lose(loss::IN_FLIGHT_FULL);
    None
}

/// Returns the word of the last request of an entry to end.
#[inline(always)]
pub(crate) fn ended(place: u32) -> Option<*mut u64> {
    IN_FLIGHT_ENDED.get_ptr_mut(place)
}

#[inline(always)]
fn place(identity: u64, probe: u32) -> u32 {
    hash(identity).wrapping_add(probe) & config!(in_flight_mask)
}

/// Returns the operation of a request.
#[inline(always)]
pub(crate) fn operation_of<A: Fields>(request: Pointer) -> u32 {
    operation(A::u32(request, config!(offsets.request_flags)))
}

/// Returns the device and operation of a request, without a basis.
#[inline(always)]
pub(crate) fn device_of<A: Fields>(request: Pointer) -> u64 {
    let disk = if config!(offsets.request_disk) == ABSENT {
        let queue = A::pointer(request, config!(offsets.request_queue));
        A::pointer(queue, config!(offsets.queue_disk))
    } else {
        A::pointer(request, config!(offsets.request_disk))
    };
    device_word_of::<A>(disk, operation_of::<A>(request))
}

/// Returns the same for a disk.
#[inline(always)]
pub(crate) fn device_word_of<A: Fields>(disk: Pointer, operation: u32) -> u64 {
    let major = A::u32(disk, config!(offsets.disk_major));
    let minor = A::u32(disk, config!(offsets.disk_minor));
    device_word(major, minor, operation, 0)
}

/// Returns the slot of the row of a request that is being submitted.
#[inline(always)]
pub(crate) fn slot_of<A: Fields>(request: Pointer) -> u32 {
    slot_for::<A>(A::pointer(request, config!(offsets.request_bio)), device_of::<A>(request))
}

/// Returns the slot of the row of a bio, or of a request made of it, that is being submitted to a device.
#[inline(always)]
pub(crate) fn slot_for<A: Fields>(bio: Pointer, device: u64) -> u32 {
    let task = A::current();
    let whose = owner::whose::<A>(bio, task);
    let key = IoKey { device: on_basis(device, whose.basis), owner: whose.id };
    let recent = IO_RECENT.get_ptr_mut(this_cpu() * RECENT + recent_place(&key));
    let Some(recent) = recent else { return SLOT_OTHER };
    // SAFETY: the lookup gave a live row.
    if let Some(slot) = unsafe { (*recent).slot_for(&key) } {
        return slot;
    }
    let slot = SLOTS.known(&key).unwrap_or_else(|| new_slot(&key, &whose, task));
    // SAFETY: as above; a concurrent write by another program is detected by the seal.
    unsafe { *recent = Recent::sealed(key, slot) };
    slot
}

/// Returns the slot of an owner that is seen for the first time.
#[inline(always)]
fn new_slot(key: &IoKey, whose: &Whose, task: Pointer) -> u32 {
    if config!(filter) != FILTER_NONE && !owner::wants(whose, task) {
        return common(key, BY_OUTSIDER);
    }
    match whose.basis {
        BY_TASK | BY_REQUEST => SLOTS.allocate(key, config!(block_owner_slots), name).unwrap_or_else(|| {
            lose(loss::OWNER_LIMIT);
            common(key, BY_MANY)
        }),
        basis => common(key, basis),
    }
}

/// Writes the name of the process that submits a request. Cgroups have names in user space.
#[inline(always)]
fn name(owner: *mut IoOwner) {
    if config!(by) == BY_PROCESS
        && let Ok(name) = bpf_get_current_comm()
    {
        // SAFETY: `owner` is a live row with one writer until it is published.
        unsafe { (*owner).name = name };
    }
}

/// Returns the slot of the row for a device's requests without a known start.
#[inline(always)]
pub(crate) fn slot_of_unseen(device: u64) -> u32 {
    let key = IoKey { device: on_basis(device, BY_NOBODY_SEEN), owner: 0 };
    SLOTS.known(&key).unwrap_or_else(|| common(&key, BY_NOBODY_SEEN))
}

/// Returns the slot of a device's common row.
#[inline(always)]
fn common(key: &IoKey, basis: u32) -> u32 {
    let common = IoKey { device: on_basis(key.device, basis), owner: 0 };
    SLOTS.share(key, &common, |_| {})
}
