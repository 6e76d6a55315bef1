//! By type: for `tp_btf` and iterator programs, and tasks from `bpf_get_current_task_btf`. What is remembered of a task
//! lies in the task itself.

use core::marker::PhantomData;

use aya_ebpf::{
    bindings::{BPF_F_NO_PREALLOC, bpf_map_type::BPF_MAP_TYPE_TASK_STORAGE},
    helpers::generated::{bpf_get_current_task_btf, bpf_task_storage_get},
    macros::btf_map,
};
use pmu_common::count::TaskState;

use crate::access::{Access, Fields, Pointer};

/// Makes a program on a tracepoint, which hands it typed arguments.
macro_rules! tracepoint {
    ($(#[$doc:meta])* $name:ident on $tracepoint:literal, $context:ident => $run:expr) => {
        $(#[$doc])*
        #[aya_ebpf::macros::btf_tracepoint(function = $tracepoint)]
        pub(crate) fn $name($context: aya_ebpf::programs::BtfTracePointContext) -> i32 {
            $run;
            0
        }
    };
}
pub(crate) use tracepoint;

/// In the task itself, freed with it. Created by `prime` and `fork`, written at the task's switches.
#[btf_map]
static TASKS: TaskStorage<TaskState> = TaskStorage::new();

/// A map of type `BPF_MAP_TYPE_TASK_STORAGE`, which aya-ebpf does not have. The fields are never read: the loader
/// takes type, key and value from their types.
#[repr(C)]
struct TaskStorage<T> {
    r#type: *const [i32; BPF_MAP_TYPE_TASK_STORAGE as usize],
    key: *const i32,
    value: *const T,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; BPF_F_NO_PREALLOC as usize],
    owns: PhantomData<T>,
}

// SAFETY: the pointers are placeholders that nothing follows.
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

/// `BPF_LOCAL_STORAGE_GET_F_CREATE`, `include/uapi/linux/bpf.h`.
const CREATE: u64 = 1;

/// By type.
pub(crate) struct Typed;

impl Fields for Typed {
    #[inline(always)]
    fn u64(base: Pointer, offset: u32) -> u64 {
        let field = base.wrapping_add(offset as usize).cast::<u64>();
        // SAFETY: the verifier checks type and offset of the load, and faults read as zero.
        unsafe { *field }
    }

    #[inline(always)]
    fn u32(base: Pointer, offset: u32) -> u32 {
        let field = base.wrapping_add(offset as usize).cast::<u32>();
        // SAFETY: as for `u64`.
        unsafe { *field }
    }

    #[inline(always)]
    fn pointer(base: Pointer, offset: u32) -> Pointer {
        let field = base.wrapping_add(offset as usize).cast::<Pointer>();
        // SAFETY: as for `u64`.
        unsafe { *field }
    }
}

impl Access for Typed {
    /// Task storage is allocated, which may need the lock that the scheduler holds.
    const CREATES_ANYWHERE: bool = false;

    #[inline(always)]
    fn current() -> Pointer {
        // SAFETY: the helper has no preconditions.
        unsafe { bpf_get_current_task_btf() }.cast_const().cast()
    }

    #[inline(always)]
    fn state(task: Pointer) -> Option<*mut TaskState> {
        storage(task, 0)
    }

    #[inline(always)]
    fn create_state(task: Pointer) -> Option<*mut TaskState> {
        storage(task, CREATE)
    }
}

#[inline(always)]
fn storage(task: Pointer, flags: u64) -> Option<*mut TaskState> {
    let map = (&raw const TASKS).cast_mut().cast();
    // SAFETY: the verifier accepts only a trusted task pointer here; a null value means "all zero".
    let state = unsafe { bpf_task_storage_get(map, task.cast_mut().cast(), core::ptr::null_mut(), flags) };
    (!state.is_null()).then_some(state.cast())
}
