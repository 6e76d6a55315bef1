//! State of a task, by address: it lies in a hash, and a program on `sched_process_free` removes it.

use aya_ebpf::{macros::map, maps::HashMap};
use pmu_common::count::TaskState;

use crate::{
    access::{Access, Pointer, Probed},
    tracepoint,
};

/// States by address of the task. Written where a task is first seen and at its switches; removed by `free`.
/// Preallocated: before Linux 6.1 a program on a perf event or in the scheduler must not make the kernel
/// allocate.
#[map]
static TASKS_BY_ADDRESS: HashMap<u64, TaskState> = HashMap::with_max_entries(1, 0);

/// Initial state of a task. Not on the stack, where it would take 176 bytes of the 512 that calls share.
static NEW: TaskState = TaskState::ZERO;

impl Access for Probed {
    /// Always: the map is preallocated.
    const CREATES_ANYWHERE: bool = true;

    #[inline(always)]
    fn state(task: Pointer) -> Option<*mut TaskState> {
        TASKS_BY_ADDRESS.get_ptr_mut(task as u64)
    }

    #[inline(always)]
    #[expect(clippy::needless_borrows_for_generic_args, reason = "a copy would be on the stack")]
    fn create_state(task: Pointer) -> Option<*mut TaskState> {
        if let Some(state) = Self::state(task) {
            return Some(state);
        }
        TASKS_BY_ADDRESS.insert(task as u64, &NEW, 0).ok()?;
        Self::state(task)
    }

    /// Returns null: only by type the helper accepts the task, as the verifier checks its type.
    #[inline(always)]
    fn user_registers(_: Pointer) -> Pointer {
        core::ptr::null()
    }
}

tracepoint! {
    /// `trace_sched_process_free(task)`, kernel/exit.c: the task struct's memory may be reused from here on.
    free on "sched_process_free", context => forget(context.arg(0))
}

#[inline(always)]
fn forget(task: Pointer) {
    let _ = TASKS_BY_ADDRESS.remove(task as u64);
}
