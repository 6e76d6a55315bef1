//! Programs at the places of those on block requests that read the clock and do nothing else. No latency
//! measurement can cost less.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::raw_tracepoint, programs::RawTracePointContext};

/// Program on `trace_block_rq_issue`: a request goes to its device.
#[raw_tracepoint(tracepoint = "block_rq_issue")]
pub(crate) fn clock_issue(_: RawTracePointContext) -> i32 {
    look()
}

/// Program on `trace_block_rq_complete`: a request completes.
#[raw_tracepoint(tracepoint = "block_rq_complete")]
pub(crate) fn clock_complete(_: RawTracePointContext) -> i32 {
    look()
}

#[inline(always)]
fn look() -> i32 {
    // SAFETY: the helper has no preconditions.
    let _ = unsafe { bpf_ktime_get_ns() };
    0
}
