//! State of a task, by type: it lies in the task itself, and an iterator over tasks seeds it.

use core::marker::PhantomData;

use aya_ebpf::{
    bindings::{BPF_F_NO_PREALLOC, bpf_map_type::BPF_MAP_TYPE_TASK_STORAGE},
    helpers::generated::{bpf_task_pt_regs, bpf_task_storage_get},
    macros::btf_map,
    programs::BtfTracePointContext,
};
use pmu_common::{
    config::TARGET_FROM_EXEC,
    count::{TaskState, WAITS_FOR_EXEC},
};

use crate::{
    Way,
    access::{Access, Pointer},
    target, task,
    typed::Typed,
    waiting,
};

/// States in the tasks themselves, freed with them. Created by `seed` and `fork`, written at the task's
/// switches.
#[btf_map]
static TASKS: TaskStorage<TaskState> = TaskStorage::new();

/// Map of type `BPF_MAP_TYPE_TASK_STORAGE`, which aya-ebpf does not have. The fields are never read: the
/// loader takes type, key and value from their types.
#[repr(C)]
struct TaskStorage<T> {
    r#type: *const [i32; BPF_MAP_TYPE_TASK_STORAGE as usize],
    key: *const i32,
    value: *const T,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; BPF_F_NO_PREALLOC as usize],
    owns: PhantomData<T>,
}

// SAFETY: the pointers are placeholders that are never followed.
unsafe impl<T> Sync for TaskStorage<T> {}

impl<T> TaskStorage<T> {
    const fn new() -> Self {
        Self {
            r#type: core::ptr::null(),
            key: core::ptr::null(),
            value: core::ptr::null(),
            max_entries: core::ptr::null(),
            map_flags: core::ptr::null(),
            owns: PhantomData,
        }
    }
}

/// Flag `BPF_LOCAL_STORAGE_GET_F_CREATE`, `include/uapi/linux/bpf.h`.
const CREATE: u64 = 1;

impl Access for Typed {
    /// Never: task storage is allocated, which may need the lock that the scheduler holds.
    const CREATES_ANYWHERE: bool = false;

    #[inline(always)]
    fn state(task: Pointer) -> Option<*mut TaskState> {
        storage(task, 0)
    }

    #[inline(always)]
    fn create_state(task: Pointer) -> Option<*mut TaskState> {
        storage(task, CREATE)
    }

    #[inline(always)]
    fn user_registers(task: Pointer) -> Pointer {
        // SAFETY: the verifier accepts only a trusted task pointer here.
        unsafe { bpf_task_pt_regs(task.cast_mut().cast()) as Pointer }
    }
}

#[inline(always)]
fn storage(task: Pointer, flags: u64) -> Option<*mut TaskState> {
    let map = (&raw const TASKS).cast_mut().cast();
    // SAFETY: the verifier accepts only a trusted task pointer here; a null value means "all zero".
    let state = unsafe { bpf_task_storage_get(map, task.cast_mut().cast(), core::ptr::null_mut(), flags) };
    (!state.is_null()).then_some(state.cast())
}

/// Runs once over every task before counting starts: earlier counts of a task do not belong to this run. By
/// address, a task's state begins when it is first seen.
///
/// The context is `struct bpf_iter__task { meta, task }`, kernel/bpf/task_iter.c. aya-ebpf has no macro for
/// iterators.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub(crate) extern "C" fn seed(context: *mut core::ffi::c_void) -> i32 {
    let context = BtfTracePointContext::new(context);
    let task: Pointer = context.arg(1);
    if !task.is_null() {
        try_seed::<Way>(task);
    }
    0
}

#[inline(always)]
fn try_seed<A: Access>(task: Pointer) {
    if let Some(flags) = target::existing_task::<A>(task) {
        task::init::<A>(task, if flags & TARGET_FROM_EXEC != 0 { WAITS_FOR_EXEC } else { 0 });
        waiting::seed::<A>(task);
    }
}

/// Runs over every task at a drain, where time off the CPU counts: waits that still last are not yet in their
/// owners' rows.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub(crate) extern "C" fn waits(context: *mut core::ffi::c_void) -> i32 {
    let context = BtfTracePointContext::new(context);
    let task: Pointer = context.arg(1);
    if !task.is_null() {
        let _ = waiting::add::<Way>(task);
    }
    0
}
