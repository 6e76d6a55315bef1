//! Two ways to read kernel memory: by type, where the verifier knows the structs and a field is one load, and by
//! address through a helper, for kernels without BTF-typed tracepoints. Every program exists once for each.

use aya_ebpf::helpers::{
    bpf_get_current_task, bpf_probe_read_kernel,
    generated::{bpf_get_current_task_btf, bpf_task_storage_get},
};
use pmu_common::count::TaskState;

use crate::maps::{TASKS, TASKS_BY_ADDRESS};

/// Address of a kernel object.
pub(crate) type Pointer = *const u8;

/// `BPF_LOCAL_STORAGE_GET_F_CREATE`, `include/uapi/linux/bpf.h`.
const CREATE: u64 = 1;

/// How a program reaches fields of kernel objects and the state of a task.
pub(crate) trait Access {
    /// May a state be created anywhere, the scheduler included? Where not, `prime` and `fork` create them all.
    const CREATES_ANYWHERE: bool;
    /// The 8 bytes at `base + offset`.
    fn u64(base: Pointer, offset: u32) -> u64;
    /// The 4 bytes at `base + offset`.
    fn u32(base: Pointer, offset: u32) -> u32;
    /// The pointer at `base + offset`.
    fn pointer(base: Pointer, offset: u32) -> Pointer;
    /// The task this program interrupted or runs for.
    fn current() -> Pointer;
    /// What is remembered of a task, if anything.
    fn state(task: Pointer) -> Option<*mut TaskState>;
    /// What is remembered of a task, from now on; zero if nothing was. `None` if there is no room.
    fn create_state(task: Pointer) -> Option<*mut TaskState>;
}

/// By type: for `tp_btf` and iterator programs, and tasks from `bpf_get_current_task_btf`.
pub(crate) struct Typed;

impl Access for Typed {
    /// Task storage is allocated, which may need the lock that the scheduler holds.
    const CREATES_ANYWHERE: bool = false;

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

/// By address: for `raw_tp` programs on kernels without BTF of their own.
pub(crate) struct Probed;

impl Probed {
    #[inline(always)]
    fn read<T: pmu_common::wire::Wire + Default>(base: Pointer, offset: u32) -> T {
        let field = base.wrapping_add(offset as usize).cast::<T>();
        // SAFETY: the helper checks the address; a fault is an error, read as zero like a typed load's.
        unsafe { bpf_probe_read_kernel(field) }.unwrap_or_default()
    }
}

impl Access for Probed {
    /// The map is preallocated.
    const CREATES_ANYWHERE: bool = true;

    #[inline(always)]
    fn u64(base: Pointer, offset: u32) -> u64 {
        Self::read(base, offset)
    }

    #[inline(always)]
    fn u32(base: Pointer, offset: u32) -> u32 {
        Self::read(base, offset)
    }

    #[inline(always)]
    fn pointer(base: Pointer, offset: u32) -> Pointer {
        Self::read::<u64>(base, offset) as Pointer
    }

    #[inline(always)]
    fn current() -> Pointer {
        // SAFETY: the helper has no preconditions.
        unsafe { bpf_get_current_task() as Pointer }
    }

    #[inline(always)]
    fn state(task: Pointer) -> Option<*mut TaskState> {
        TASKS_BY_ADDRESS.get_ptr_mut(task as u64)
    }

    #[inline(always)]
    fn create_state(task: Pointer) -> Option<*mut TaskState> {
        if let Some(state) = Self::state(task) {
            return Some(state);
        }
        TASKS_BY_ADDRESS.insert(task as u64, TaskState::ZERO, 0).ok()?;
        Self::state(task)
    }
}
