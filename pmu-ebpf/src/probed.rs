//! By address: for `raw_tp` programs, on kernels that do not let `tp_btf` programs keep something in a task.

/// Makes a program on a tracepoint, which hands it addresses.
macro_rules! tracepoint {
    ($(#[$doc:meta])* $name:ident on $tracepoint:literal, $context:ident => $run:expr) => {
        $(#[$doc])*
        #[aya_ebpf::macros::raw_tracepoint(tracepoint = $tracepoint)]
        pub(crate) fn $name($context: aya_ebpf::programs::RawTracePointContext) -> i32 {
            $run;
            0
        }
    };
}
pub(crate) use tracepoint;
