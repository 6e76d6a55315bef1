//! Programs on the life of cgroups: created, removed, entered. Only the v2 hierarchy (id 0) counts.

use aya_ebpf::{EbpfContext, helpers::bpf_ktime_get_ns};
use aya_log_ebpf::warn;
use pmu_common::{
    config::BY_CGROUP,
    count::SLOT_NONE,
    loss,
    owner::OwnerKey,
    ring::{CGROUP, NewCgroup, OTHER_CGROUP, PATH_BYTES},
};

use crate::{
    Way,
    access::{Access, Pointer},
    config::config,
    cpu::lose,
    identity,
    maps::{RING, SLOT_OF},
    moves, owner, ring_event, target, tracepoint,
};

tracepoint! {
    /// `trace_cgroup_mkdir(cgroup, path)`, kernel/cgroup/cgroup.c.
    cgroup_create on "cgroup_mkdir", context => try_create::<Way>(&context, context.arg(0), context.arg(1))
}

/// Makes the cgroup a target if its parent is one or it had been one itself, and sends the path: it may be
/// gone before user space can look it up. A cgroup that is not a target is reported at once where user space
/// may make it one.
#[inline(always)]
fn try_create<A: Access>(context: &impl EbpfContext, cgroup: Pointer, path: Pointer) -> Option<()> {
    if !identity::is_v2::<A>(cgroup) {
        return None;
    }
    let id = identity::cgroup_id::<A>(cgroup);
    // The kernel reports a cgroup before it can be entered (kernel/cgroup/cgroup.c, `cgroup_mkdir`).
    let (kind, flags) = match target::adopt(cgroup, id, path) {
        true if config!(by) == BY_CGROUP => (CGROUP, ring_event::AT_TICK),
        false if config!(follows) != 0 => (OTHER_CGROUP, ring_event::wake_if(true)),
        _ => return None,
    };
    let Some(mut record) = RING.reserve::<Room>(0) else {
        lose(loss::RING_FULL);
        warn!(context, "the ring buffer has no room for cgroup {}", id);
        return None;
    };
    let room = record.as_mut_ptr();
    // SAFETY: the reservation is owned here, writable and as large as `Room`.
    let path_room = unsafe { &mut (*room).path };
    let bytes = owner::read_string(path, path_room).unwrap_or(0);
    // SAFETY: the helper has no preconditions.
    let made_ns = unsafe { bpf_ktime_get_ns() };
    let header = NewCgroup { kind, path_bytes: bytes as u32, id, made_ns };
    // SAFETY: as above.
    unsafe { (*room).header = header };
    record.submit(flags);
    Some(())
}

/// Record of a cgroup. The kernel copies whole reservations, so a short path wastes ring space; cgroups are
/// few.
#[repr(C)]
struct Room {
    header: NewCgroup,
    path: [u8; PATH_BYTES],
}

tracepoint! {
    /// `trace_cgroup_rmdir(cgroup, path)`, kernel/cgroup/cgroup.c.
    cgroup_remove on "cgroup_rmdir", context => try_remove::<Way>(context.arg(0))
}

#[inline(always)]
fn try_remove<A: Access>(cgroup: Pointer) -> Option<()> {
    if !identity::is_v2::<A>(cgroup) {
        return None;
    }
    let id = identity::cgroup_id::<A>(cgroup);
    target::forget(id);
    let key = OwnerKey { id, born_ns: 0 };
    let slot = owner::known(&key)?;
    let _ = SLOT_OF.remove(key);
    if slot == SLOT_NONE || config!(by) != BY_CGROUP { None } else { owner::end(slot) }
}

tracepoint! {
    /// `trace_cgroup_attach_task(cgroup, path, task, threadgroup)`, kernel/cgroup/cgroup.c: after the move.
    cgroup_move on "cgroup_attach_task", context => try_move::<Way>(context.arg(0), context.arg(2), context.arg(3))
}

/// Keeps the move for the running tasks of the process, and gives the cgroup its slot. The kernel reports one
/// of the threads that move together (`threadgroup`).
#[inline(always)]
fn try_move<A: Access>(cgroup: Pointer, task: Pointer, threadgroup: u64) -> Option<()> {
    if !identity::is_v2::<A>(cgroup) {
        return None;
    }
    let slot = owner::of_cgroup(cgroup, identity::cgroup_id::<A>(cgroup));
    moves::keep::<A>(task, threadgroup, slot);
    Some(())
}
