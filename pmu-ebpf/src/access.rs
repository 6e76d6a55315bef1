//! Two ways to read kernel memory: by type, where the verifier knows the structs and a field is one load, and by
//! address through a helper, for kernels without BTF-typed tracepoints. Each of the two objects is built for one.

use core::mem::MaybeUninit;

use aya_ebpf::helpers::{bpf_get_current_task, generated::bpf_probe_read_kernel};
use pmu_common::{count::TaskState, wire::Wire};

/// Address of a kernel object.
pub(crate) type Pointer = *const u8;

/// How a program reaches fields of kernel objects.
pub(crate) trait Fields {
    /// The task this program interrupted or runs for.
    fn current() -> Pointer;
    /// The 8 bytes at `base + offset`.
    fn u64(base: Pointer, offset: u32) -> u64;
    /// The 4 bytes at `base + offset`.
    fn u32(base: Pointer, offset: u32) -> u32;
    /// The byte at `base + offset`.
    fn u8(base: Pointer, offset: u32) -> u8;
    /// The pointer at `base + offset`.
    fn pointer(base: Pointer, offset: u32) -> Pointer;
}

/// How the programs of an object reach tasks and what is remembered of them.
pub(crate) trait Access: Fields {
    /// May a state be created anywhere, the scheduler included? Where not, `seed` and `fork` create them all.
    const CREATES_ANYWHERE: bool;
    /// What is remembered of a task, if anything.
    fn state(task: Pointer) -> Option<*mut TaskState>;
    /// What is remembered of a task, from now on; zero if nothing was. `None` if there is no room.
    fn create_state(task: Pointer) -> Option<*mut TaskState>;
    /// The `pt_regs` that a task entered the kernel with; null where they cannot be found.
    fn user_registers(task: Pointer) -> Pointer;
}

/// By address. Typed programs use it where a type does not lead on, and to follow pointers wherever that is seldom done: at
/// each typed load of one, on each path to it, the verifier searches all of the kernel's types by name, up to four times
/// (kernel/bpf/verifier.c of Linux 6.18, `check_ptr_to_btf_access`): a fourth of what a start took.
pub(crate) struct Probed;

impl Probed {
    /// The value at `base + offset`; zero where a load faults, as by type.
    #[inline(always)]
    pub(crate) fn read<T: Wire>(base: Pointer, offset: u32) -> T {
        let mut value = MaybeUninit::<T>::uninit();
        let field = base.wrapping_add(offset as usize);
        // SAFETY: the helper checks the address, and writes exactly that many bytes.
        unsafe { bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, field.cast()) };
        // Whether it failed is not asked: that would be one path more for the verifier behind each read.
        // SAFETY: where the helper fails it has written zeros (kernel/trace/bpf_trace.c, `bpf_probe_read_kernel_common`, since 5.5),
        // and every pattern is a value of a type that goes over the wire.
        unsafe { value.assume_init() }
    }
}

impl Fields for Probed {
    #[inline(always)]
    fn current() -> Pointer {
        // SAFETY: the helper has no preconditions.
        unsafe { bpf_get_current_task() as Pointer }
    }

    #[inline(always)]
    fn u64(base: Pointer, offset: u32) -> u64 {
        Self::read(base, offset)
    }

    #[inline(always)]
    fn u32(base: Pointer, offset: u32) -> u32 {
        Self::read(base, offset)
    }

    #[inline(always)]
    fn u8(base: Pointer, offset: u32) -> u8 {
        Self::read(base, offset)
    }

    #[inline(always)]
    fn pointer(base: Pointer, offset: u32) -> Pointer {
        Self::read::<u64>(base, offset) as Pointer
    }
}
