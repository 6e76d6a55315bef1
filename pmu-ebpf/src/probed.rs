//! Access by address: for `raw_tp` programs, on kernels that do not let `tp_btf` programs keep state in a
//! task.

/// Declares a program on a tracepoint that passes addresses.
macro_rules! tracepoint {
    ($(#[$doc:meta])* $name:ident on $tracepoint:literal, $context:ident => $run:expr) => {
        $(#[$doc])*
        // Inlined into the function that the macro generates: a separate function would take 32 bytes of the
        // 512 that calls share.
        #[aya_ebpf::macros::raw_tracepoint(tracepoint = $tracepoint)]
        #[inline(always)]
        pub(crate) fn $name($context: aya_ebpf::programs::RawTracePointContext) -> i32 {
            $run;
            0
        }
    };
}
pub(crate) use tracepoint;
