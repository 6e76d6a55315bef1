//! Slots: rows of the maps that count for an owner.

use aya_ebpf::{
    bindings::{BPF_NOEXIST, BPF_RB_FORCE_WAKEUP},
    helpers::{bpf_ktime_get_ns, bpf_probe_read_kernel_str_bytes, generated::bpf_probe_read_kernel},
};
use pmu_common::{
    config::{ABSENT, BY_CGROUP, BY_THREAD, KEEPS_SLOT, OWNER_IS_EXE},
    count::{SLOT_NONE, SLOT_OTHER},
    loss,
    owner::{Owner, OwnerKey},
    ring,
};

use crate::{
    access::{Access, Fields as _, Pointer, Probed},
    changed,
    config::config,
    cpu::{lose, this_cpu},
    identity,
    maps::{FREE_SLOTS, OWNERS, SLOT_OF},
    process, ring_event, target, task,
};

/// Value in `SLOT_OF` for a wanted cgroup with processes that own the counts.
const MEMBER: u32 = SLOT_OTHER;

/// Bytes of `task_struct.comm`.
pub(crate) const COMM_BYTES: u32 = 16;

/// Returns the slot of a task that is now in `cgroup` with this `id` ([`task::cgroup_and_id`]; both ignored
/// where cgroups do not matter).
#[inline(always)]
pub(crate) fn resolve<A: Access>(task: Pointer, cgroup: Pointer, id: u64) -> u32 {
    if task::cgroups_matter() {
        let slot = slot_of_cgroup(cgroup as u64, id) as u32;
        if slot == SLOT_NONE || config!(by) == BY_CGROUP {
            return slot;
        }
    }
    if config!(by) == BY_THREAD {
        of_thread::<A>(task)
    } else {
        slot_of_process(identity::leader(task) as u64, task::process_of::<A>(task).into()) as u32
    }
}

/// Calls [`of_cgroup`] as a separate function, on numbers only, like [`slot_of_process`]. Slots are looked up
/// seldom, and the verifier visits it once per program. Inlined, the verifier followed all later code for
/// each path through it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn slot_of_cgroup(cgroup: u64, id: u64) -> u64 {
    of_cgroup(cgroup as Pointer, id).into()
}

/// Returns the slot of the process with this first thread and this id.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn slot_of_process(leader: u64, process: u64) -> u64 {
    of_process(leader as Pointer, process as u32).into()
}

/// Returns the slot of a task as a thread. A thread that has exited has one: `process::exit` ensures that.
#[inline(always)]
fn of_thread<A: Access>(task: Pointer) -> u32 {
    let key = task::thread_key::<A>(task);
    known(&key).unwrap_or_else(|| {
        allocate(&key, |owner| {
            // SAFETY: `owner` is a live row with one writer until it is published.
            let owner = unsafe { &mut *owner };
            owner.parent = u64::from(task::process_of::<A>(task));
            owner.thread = task::thread::<A>(task);
            read_comm(task, &mut owner.name);
        })
    })
}

#[inline(always)]
fn of_process(leader: Pointer, process: u32) -> u32 {
    let key = task::key_of_process(leader, process);
    if let Some(slot) = known(&key) {
        return slot;
    }
    let slot = begin(leader, &key, |name| read_name(leader, name));
    // A process that ran from its fork to its end without a switch has its first switch after its exit. The
    // exit found no slot.
    if task::is_over(leader) {
        if config!(names) != KEEPS_SLOT {
            let _ = process::count_exit(slot);
        }
        forget(&key, slot);
    }
    slot
}

/// Gives the process of a first thread a slot, with the name that `describe` writes.
#[inline(always)]
pub(crate) fn begin(leader: Pointer, key: &OwnerKey, describe: impl FnOnce(&mut [u8])) -> u32 {
    allocate(key, |owner| {
        let parent = Probed::pointer(leader, config!(offsets.task_real_parent));
        // SAFETY: `owner` is a live row with one writer until it is published.
        let owner = unsafe { &mut *owner };
        owner.parent = u64::from(identity::process::<Probed>(parent));
        describe(&mut owner.name);
    })
}

/// Ends a process. Its slot stays for its last counts, until user space frees it.
#[inline(always)]
pub(crate) fn forget(key: &OwnerKey, slot: u32) {
    let _ = SLOT_OF.remove(key);
    let _ = end(slot);
}

/// Marks an owner as ended.
#[inline(always)]
pub(crate) fn end(slot: u32) -> Option<()> {
    if slot == SLOT_OTHER {
        return None;
    }
    let owner = OWNERS.get_ptr_mut(slot)?;
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    // SAFETY: the lookup gave a live row, and an owner ends once.
    unsafe { (*owner).ended_ns = now_ns };
    changed::mark(slot, this_cpu());
    Some(())
}

/// Returns the slot of a cgroup. Where processes own the counts, returns [`MEMBER`] if it is wanted,
/// [`SLOT_NONE`] if not.
#[inline(always)]
pub(crate) fn of_cgroup(cgroup: Pointer, id: u64) -> u32 {
    let key = OwnerKey { id, born_ns: 0 };
    if let Some(slot) = known(&key) {
        return slot;
    }
    let wanted = target::cgroup(id);
    if wanted && config!(by) == BY_CGROUP {
        return allocate(&key, |owner| {
            let parent = Probed::pointer(cgroup, config!(offsets.cgroup_parent));
            // SAFETY: as in `of_process`.
            let owner = unsafe { &mut *owner };
            owner.parent = if parent.is_null() { 0 } else { identity::cgroup_id::<Probed>(parent) };
        });
    }
    let answer = if wanted { MEMBER } else { SLOT_NONE };
    if SLOT_OF.insert(key, answer, 0).is_err() {
        lose(loss::MAP_FULL);
    }
    answer
}

/// Returns the slot of an owner that has been seen before.
#[inline(always)]
pub(crate) fn known(key: &OwnerKey) -> Option<u32> {
    // SAFETY: the value is copied at once; an entry is removed only after its owner has ended.
    unsafe { SLOT_OF.get(key) }.copied()
}

/// Gives `key` a slot. `describe` fills the row before it is published.
#[inline(always)]
fn allocate(key: &OwnerKey, describe: impl FnOnce(*mut Owner)) -> u32 {
    let Ok(Some(slot)) = FREE_SLOTS.pop() else {
        lose(loss::OWNER_LIMIT);
        return SLOT_OTHER;
    };
    let Some(owner) = OWNERS.get_ptr_mut(slot) else {
        return SLOT_OTHER;
    };
    describe(owner);
    // SAFETY: the lookup gave a live row; the id is written last, because it marks the slot as used.
    unsafe { (*owner).key.born_ns = key.born_ns };
    // SAFETY: as above.
    unsafe { (*owner).key.id = key.id };
    changed::mark(slot, this_cpu());
    match SLOT_OF.insert(key, slot, u64::from(BPF_NOEXIST)) {
        Ok(()) => {
            if slot >= config!(slots) - config!(slots) / 4 {
                // Forced, because records that wait for the tick would suppress an ordinary wake-up.
                ring_event::process(ring::PRESSURE, 0, u64::from(BPF_RB_FORCE_WAKEUP));
            }
            slot
        }
        Err(_) => give_back(key, slot, owner),
    }
}

/// Returns the slot to the free ones: another CPU gave the owner a slot first, or the map is full.
#[inline(always)]
fn give_back(key: &OwnerKey, slot: u32, owner: *mut Owner) -> u32 {
    // SAFETY: the row was never published.
    unsafe { (*owner).key.id = 0 };
    if FREE_SLOTS.push(slot, 0).is_err() {
        lose(loss::RACE);
    }
    known(key).unwrap_or_else(|| {
        lose(loss::MAP_FULL);
        SLOT_OTHER
    })
}

/// Copies a thread's `comm`.
#[inline(always)]
pub(crate) fn read_comm(task: Pointer, name: &mut [u8]) {
    let comm = task.wrapping_add(config!(offsets.task_comm) as usize);
    // SAFETY: the helper checks the address; `name` has at least COMM_BYTES bytes at every caller.
    unsafe { bpf_probe_read_kernel(name.as_mut_ptr().cast(), COMM_BYTES, comm.cast()) };
}

/// Copies the name of a process: its executable file where requested and present, else its first thread's
/// name.
#[inline(always)]
pub(crate) fn read_name(leader: Pointer, name: &mut [u8]) {
    if config!(names) != OWNER_IS_EXE || !read_executable(leader, name) {
        read_comm(leader, name);
    }
}

/// Copies the name of the file that a task executes. Returns whether it has one: kernel threads and exited
/// tasks have none.
#[inline(always)]
fn read_executable(task: Pointer, name: &mut [u8]) -> bool {
    let way = [
        config!(offsets.task_mm),
        config!(offsets.mm_exe_file),
        config!(offsets.file_dentry),
        config!(offsets.dentry_name),
    ];
    let mut at = task;
    for offset in way {
        if offset == ABSENT {
            return false;
        }
        at = Probed::pointer(at, offset);
        if at.is_null() {
            return false;
        }
    }
    read_string(at, name).is_some_and(|bytes| bytes > 0)
}

/// Copies a zero-terminated kernel string. Returns its bytes without the zero.
#[inline(always)]
pub(crate) fn read_string(string: Pointer, into: &mut [u8]) -> Option<usize> {
    // SAFETY: the helper checks the address and never writes more than `into` holds.
    let bytes = unsafe { bpf_probe_read_kernel_str_bytes(string, into) };
    bytes.ok().map(<[u8]>::len)
}
