//! By address: for `raw_tp` programs, on kernels that do not let `tp_btf` programs keep something in a task.

/// Makes a program on a tracepoint, which hands it addresses.
macro_rules! tracepoint {
    ($(#[$doc:meta])* $name:ident on $tracepoint:literal, $context:ident => $run:expr) => {
        $(#[$doc])*
        // Called by what the macro makes of it: a function of its own would take 32 bytes of the 512 that calls have together.
        #[aya_ebpf::macros::raw_tracepoint(tracepoint = $tracepoint)]
        #[inline(always)]
        pub(crate) fn $name($context: aya_ebpf::programs::RawTracePointContext) -> i32 {
            $run;
            0
        }
    };
}
pub(crate) use tracepoint;
