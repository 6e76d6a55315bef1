//! Program that runs on each CPU before a drain. It accounts the running task, so that a task without
//! switches counts too, begins the next slice if one is wanted, and classifies late timers that wait.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::raw_tracepoint, programs::RawTracePointContext};
use pmu_common::{
    config::KEEPS_SLOT,
    count::{DIVIDES, SLOT_NONE},
};

use crate::{
    Way, access::Access, account::account, config::config, counter, cpu::this_cpu, cpu_time, maps::CPUS,
    moves, task, timer,
};

/// Never attached: user space runs it on a CPU through `BPF_PROG_TEST_RUN`, which interrupts that CPU. It is
/// inlined into the function that the macro generates, as programs on tracepoints are.
#[raw_tracepoint(tracepoint = "sched_switch")]
#[inline(always)]
pub(crate) fn flush(_: RawTracePointContext) -> i32 {
    let _ = try_flush::<Way>();
    0
}

#[inline(always)]
fn try_flush<A: Access>() -> Option<()> {
    let cpu = this_cpu();
    // SAFETY: the lookup gave a live row, and only this CPU writes it, with interrupts off.
    let counts = unsafe { &mut *CPUS.get_ptr_mut(cpu)? };
    let task = A::current();
    if config!(names) != KEEPS_SLOT
        && let Some(state) = A::state(task)
    {
        // SAFETY: the state is the running task's own.
        if unsafe { (*state).flags } & DIVIDES != 0 {
            // The program that this one interrupted accounts the task at this moment.
            return None;
        }
    }
    timer::settle_all(cpu, timer::stolen_ns(task));
    let tid = task::tid::<A>(task);
    let (slot, given_ns) = if tid == 0 {
        (SLOT_NONE, 0)
    } else {
        let accounted = account::<A>((task, tid), cpu, counts, |counts| {
            // SAFETY: the helper has no preconditions.
            let now_ns = unsafe { bpf_ktime_get_ns() };
            moves::accounted_until::<A>(counts, task, now_ns - config!(tick_period_ns), now_ns)
        });
        (accounted.slot, accounted.sum_exec_ns)
    };
    cpu_time::flush::<A>(counts, task, given_ns);
    if counter::are_read() && counts.counted != 0 {
        counter::flush(cpu, slot);
    }
    Some(())
}
