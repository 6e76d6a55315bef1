//! Program run once over every task before counting starts: what a task did until then is not ours to count. Only the
//! typed object has it; by address, a task is met when it is first seen.

use aya_ebpf::programs::BtfTracePointContext;
use pmu_common::{config::TARGET_FROM_EXEC, count::WAITS_FOR_EXEC};

use crate::{
    Way,
    access::{Access, Pointer},
    meet::start,
    target,
};

/// `struct bpf_iter__task { meta, task }`, kernel/bpf/task_iter.c. aya-ebpf has no macro for iterators.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub(crate) extern "C" fn prime(context: *mut core::ffi::c_void) -> i32 {
    let context = BtfTracePointContext::new(context);
    let task: Pointer = context.arg(1);
    if !task.is_null() {
        try_prime::<Way>(task);
    }
    0
}

#[inline(always)]
fn try_prime<A: Access>(task: Pointer) {
    if let Some(flags) = target::existing_task::<A>(task) {
        start::<A>(task, if flags & TARGET_FROM_EXEC != 0 { WAITS_FOR_EXEC } else { 0 });
    }
}
