//! Times of throttled run queues, for kernels that keep no clock of them (Linux 5.19 to 6.5, and some
//! before). The programs are on the functions that the kernel calls for each run queue below a cgroup at its
//! limit, with that CPU's run queue locked.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::fentry, programs::FEntryContext};
use pmu_common::{loss, throttling::Throttled};

use crate::{
    access::{Fields as _, Pointer, Probed},
    config::config,
    cpu::lose,
    intrinsics::opaque,
    maps::{THROTTLED, THROTTLES},
};

/// Program on `tg_throttle_down(tg, rq)`, kernel/sched/fair.c: one more limit holds back the group's tasks on
/// that CPU.
#[fentry(function = "tg_throttle_down")]
#[expect(clippy::needless_pass_by_value, reason = "the macro hands over the context")]
pub(crate) fn throttle(context: FEntryContext) -> i32 {
    let _ = begin(opaque(context.arg(0)), opaque(context.arg(1)));
    0
}

/// Program on `tg_unthrottle_up(tg, rq)`: one limit less holds them back.
#[fentry(function = "tg_unthrottle_up")]
#[expect(clippy::needless_pass_by_value, reason = "the macro hands over the context")]
pub(crate) fn unthrottle(context: FEntryContext) -> i32 {
    let _ = end(opaque(context.arg(0)), opaque(context.arg(1)));
    0
}

#[inline(always)]
fn begin(group: u64, rq: u64) -> Option<()> {
    let (cfs_rq, count) = of_group(group, rq);
    if count != 0 {
        return None;
    }
    // SAFETY: the helper has no preconditions.
    let since_ns = unsafe { bpf_ktime_get_ns() };
    if let Some(entry) = THROTTLED.get_ptr_mut(cfs_rq) {
        // SAFETY: the lookup gave a live entry, and the run queue is locked.
        unsafe { (*entry).since_ns = since_ns };
    } else if THROTTLED.insert(cfs_rq, Throttled { ended_ns: 0, since_ns }, 0).is_err() {
        lose(loss::MAP_FULL);
        return None;
    }
    // Any number but 0 means that there is an entry to look up: two concurrent CPUs may count one.
    let throttles = THROTTLES.get_ptr_mut(0)?;
    // SAFETY: the lookup gave a live row.
    let before = unsafe { *throttles };
    // SAFETY: as above; it is written by words.
    unsafe { *throttles = before.wrapping_add(1) };
    Some(())
}

#[inline(always)]
fn end(group: u64, rq: u64) -> Option<()> {
    let (cfs_rq, count) = of_group(group, rq);
    if count != 1 {
        return None;
    }
    let entry = THROTTLED.get_ptr_mut(cfs_rq)?;
    // SAFETY: as in `begin`.
    let entry = unsafe { &mut *entry };
    if entry.since_ns != 0 {
        // SAFETY: the helper has no preconditions.
        let now_ns = unsafe { bpf_ktime_get_ns() };
        entry.ended_ns = entry.ended_ns.wrapping_add(now_ns.wrapping_sub(entry.since_ns));
        entry.since_ns = 0;
    }
    Some(())
}

/// Returns the address of the group's run queue on a CPU, and the number of limits that already hold it back.
/// By address: the verifier does not follow an array of pointers.
#[inline(always)]
fn of_group(group: u64, rq: u64) -> (u64, u32) {
    let cpu = Probed::u32(rq as Pointer, config!(offsets.rq_cpu));
    let of_cpus = Probed::pointer(group as Pointer, config!(offsets.task_group_cfs_rq));
    let cfs_rq = Probed::u64(of_cpus.wrapping_add(cpu as usize * 8), 0);
    (cfs_rq, Probed::u32(cfs_rq as Pointer, config!(offsets.cfs_rq_throttle_count)))
}
