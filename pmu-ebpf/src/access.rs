//! Two ways to read kernel memory. By type, the verifier has the structs and a field is one load. By address,
//! a helper reads it, for kernels without BTF-typed tracepoints. Each of the two objects is built for one.

use core::mem::MaybeUninit;

use aya_ebpf::helpers::{bpf_get_current_task, generated::bpf_probe_read_kernel};
use pmu_common::{count::TaskState, wire::Wire};

/// Address of a kernel object.
pub(crate) type Pointer = *const u8;

/// Access of a program to fields of kernel objects.
pub(crate) trait Fields {
    /// Returns the task that this program interrupted or runs for.
    fn current() -> Pointer;
    /// Reads the 8 bytes at `base + offset`.
    fn u64(base: Pointer, offset: u32) -> u64;
    /// Reads the 4 bytes at `base + offset`.
    fn u32(base: Pointer, offset: u32) -> u32;
    /// Reads the byte at `base + offset`.
    fn u8(base: Pointer, offset: u32) -> u8;
    /// Reads the pointer at `base + offset`.
    fn pointer(base: Pointer, offset: u32) -> Pointer;
}

/// Access of an object's programs to tasks and to their state.
pub(crate) trait Access: Fields {
    /// Whether a state may be created anywhere, the scheduler included. Where not, `seed` and `fork` create
    /// them all.
    const CREATES_ANYWHERE: bool;
    /// Returns the state of a task, if there is one.
    fn state(task: Pointer) -> Option<*mut TaskState>;
    /// Returns the state of a task and creates it, zeroed, if there is none. Returns `None` if there is no
    /// room.
    fn create_state(task: Pointer) -> Option<*mut TaskState>;
    /// Returns the `pt_regs` that a task entered the kernel with; null where they cannot be found.
    fn user_registers(task: Pointer) -> Pointer;
}

/// Access by address. Typed programs use it where a type does not lead on, and for pointers that are followed
/// seldom. At each typed load of a pointer, on each path to it, the verifier searches all of the kernel's
/// types by name, up to four times. That was a fourth of the start time (kernel/bpf/verifier.c of Linux 6.18,
/// `check_ptr_to_btf_access`).
pub(crate) struct Probed;

impl Probed {
    /// Reads the value at `base + offset`; zero where a load faults, as by type.
    #[inline(always)]
    pub(crate) fn read<T: Wire>(base: Pointer, offset: u32) -> T {
        let mut value = MaybeUninit::<T>::uninit();
        let field = base.wrapping_add(offset as usize);
        // SAFETY: the helper checks the address, and writes exactly that many bytes.
        unsafe { bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, field.cast()) };
        // The result is not checked: a check would be one more path for the verifier behind each read.
        // SAFETY: where the helper fails it has written zeros (kernel/trace/bpf_trace.c,
        // `bpf_probe_read_kernel_common`, since 5.5), and every pattern is a value of a type that goes over
        // the wire.
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
