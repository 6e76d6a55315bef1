//! Division of a process where owners are names (`--by exe`, `--by comm`): a process that executes another
//! program, or changes its name, is another owner from then on. Its counts until then belong to its old
//! owner.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use pmu_common::{
    config::{BY_PROCESS, OWNER_IS_COMM, OWNER_IS_EXE},
    count::{DIVIDES, SLOT_NONE, SLOT_OTHER, SLOT_UNRESOLVED, WAITS_FOR_EXEC},
};

use crate::{
    access::{Access, Pointer},
    account::account,
    config::config,
    counter,
    cpu::this_cpu,
    culprit, identity,
    maps::CPUS,
    moves, owner, task,
};

/// Returns whether owners are names of executable files.
#[inline(always)]
pub(crate) fn by_program() -> bool {
    config!(by) == BY_PROCESS && config!(names) == OWNER_IS_EXE
}

/// Returns whether owners are names of processes.
#[inline(always)]
pub(crate) fn by_name() -> bool {
    config!(by) == BY_PROCESS && config!(names) == OWNER_IS_COMM
}

/// Returns whether `task`, which runs this, is the only thread of its process. Another thread would continue
/// in the old owner's slot.
#[inline(always)]
pub(crate) fn is_alone<A: Access>(task: Pointer) -> bool {
    A::current() == task && identity::leader(task) == task && task::is_single(task)
}

/// Gives the process of `task`, which runs this as its only thread, a separate slot from here on; `describe`
/// writes its name. Switches cannot come here, and [`flush`](crate::flush) leaves such a task alone.
#[inline(always)]
pub(crate) fn divide<A: Access>(task: Pointer, describe: impl FnOnce(&mut [u8])) -> Option<()> {
    let cpu = this_cpu();
    let state = A::state(task)?;
    // SAFETY: the lookup gave a live row, and only this CPU writes it while no program interrupts this one
    // that does.
    let counts = unsafe { &mut *CPUS.get_ptr_mut(cpu)? };
    let key = task::process_key::<A>(task);
    {
        // SAFETY: the state is the running task's own, and no other code accesses it here.
        let state = unsafe { &mut *state };
        let has_run = task::reading::<A>(task).cpu_time_ns != state.last.cpu_time_ns;
        // A launched command has no counts before; a sample may have given it a slot.
        let is_new = state.slot == SLOT_UNRESOLVED && !has_run && owner::known(&key).is_none();
        if state.flags & WAITS_FOR_EXEC != 0 || is_new {
            return None;
        }
        state.flags |= DIVIDES;
    }
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let accounted = account::<A>((task, task::tid::<A>(task)), cpu, counts, |counts| {
        moves::accounted_until::<A>(counts, task, now_ns - config!(tick_period_ns), now_ns)
    });
    if accounted.slot < SLOT_NONE && accounted.slot != SLOT_OTHER {
        if counter::are_read() {
            counter::flush(cpu, accounted.slot);
        }
        let _ = culprit::switch(cpu, false, accounted.slot, now_ns);
        owner::forget(&key, accounted.slot);
        // SAFETY: as above.
        unsafe { (*state).slot = owner::begin(identity::leader(task), &key, describe) };
    }
    // SAFETY: as above.
    unsafe { (*state).flags &= !DIVIDES };
    Some(())
}

/// Resolves the owner of a task with a process that is about to execute another program: its counts since the
/// fork do not belong to that program.
#[inline(always)]
pub(crate) fn resolve_before<A: Access>(task: Pointer) {
    if let Some(state) = A::state(task) {
        // SAFETY: the state is the running task's own.
        let state = unsafe { &mut *state };
        if state.slot == SLOT_UNRESOLVED && state.flags & WAITS_FOR_EXEC == 0 {
            let (cgroup, id) = if task::cgroups_matter() {
                task::cgroup_and_id(task)
            } else {
                (core::ptr::null(), state.cgroup)
            };
            if id == state.cgroup {
                state.slot = owner::resolve::<A>(task, cgroup, id);
            }
        }
    }
}
