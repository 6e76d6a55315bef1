//! Access by type: for `tp_btf` and iterator programs, and tasks from `bpf_get_current_task_btf`.

use aya_ebpf::helpers::generated::bpf_get_current_task_btf;

use crate::access::{Fields, Pointer};

/// Declares a program on a tracepoint that passes typed arguments.
macro_rules! tracepoint {
    ($(#[$doc:meta])* $name:ident on $tracepoint:literal, $context:ident => $run:expr) => {
        $(#[$doc])*
        // Inlined into the function that the macro generates: a separate function would take 32 bytes of the
        // 512 that calls share.
        #[aya_ebpf::macros::btf_tracepoint(function = $tracepoint)]
        #[inline(always)]
        pub(crate) fn $name($context: aya_ebpf::programs::BtfTracePointContext) -> i32 {
            $run;
            0
        }
    };
}
pub(crate) use tracepoint;

/// Access by type.
pub(crate) struct Typed;

impl Fields for Typed {
    #[inline(always)]
    fn current() -> Pointer {
        // SAFETY: the helper has no preconditions.
        unsafe { bpf_get_current_task_btf() }.cast_const().cast()
    }

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
    fn u8(base: Pointer, offset: u32) -> u8 {
        // SAFETY: as for `u64`.
        unsafe { *base.wrapping_add(offset as usize) }
    }

    #[inline(always)]
    fn pointer(base: Pointer, offset: u32) -> Pointer {
        let field = base.wrapping_add(offset as usize).cast::<Pointer>();
        // SAFETY: as for `u64`.
        unsafe { *field }
    }
}
