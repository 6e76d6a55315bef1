//! Ring events: small records for user space, and the conditions of its wake-ups.

use aya_ebpf::{
    bindings::{BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::{bpf_ktime_get_ns, generated::bpf_ringbuf_query},
};
use pmu_common::{loss, ring};

use crate::{cpu::lose, maps::RING};

/// Wake-up flag: user space reads at its next tick.
pub(crate) const AT_TICK: u64 = BPF_RB_NO_WAKEUP as u64;

/// Sends an event of a process. `flags` as for `bpf_ringbuf_submit`.
#[inline(always)]
pub(crate) fn process(kind: u32, tgid: u32, flags: u64) {
    send(ring::Process { kind, tgid }, flags);
}

/// Reports that a process executes another program, from now on.
#[inline(always)]
pub(crate) fn exec(tgid: u32) {
    // SAFETY: the helper has no preconditions.
    let at_ns = unsafe { bpf_ktime_get_ns() };
    send(ring::Exec { kind: ring::EXEC, tgid, at_ns }, AT_TICK);
}

/// Reports that a process begins. User space is woken up for it as for stacks.
#[inline(always)]
pub(crate) fn fork(tgid: u32, parent: u32) {
    // SAFETY: the helper has no preconditions.
    let at_ns = unsafe { bpf_ktime_get_ns() };
    send(ring::Fork { kind: ring::FORK, tgid, parent, reserved: 0, at_ns }, if_half_full());
}

/// Reports the end of a wait with a stack that was sent.
#[inline(always)]
pub(crate) fn unblocked(tid: u32, blocked_ns: u64) {
    send(ring::Unblocked { kind: ring::UNBLOCKED, tid, blocked_ns }, AT_TICK);
}

/// Sends a wait that has no place among its CPU's charges. That occurs where processes are very short-lived:
/// each is a separate pair. Half of the ring buffer is reserved for other records.
#[inline(always)]
pub(crate) fn charge(cpu: u32, pair: u64, wait_ns: u64) {
    let (waiting, size) = waiting_of();
    if waiting <= size / 2 {
        send(ring::Charge { kind: ring::CHARGE, cpu, pair, wait_ns }, wake_if(waiting > size / 4));
    }
}

#[inline(always)]
fn send<T: 'static>(value: T, flags: u64) {
    match RING.reserve::<T>(0) {
        Some(mut record) => {
            record.write(value);
            record.submit(flags);
        }
        None => lose(loss::RING_FULL),
    }
}

/// Returns the flags for frequent records: user space reads them at its tick, or at once if the ring buffer
/// is half full.
#[inline(always)]
pub(crate) fn if_half_full() -> u64 {
    let (waiting, size) = waiting_of();
    wake_if(waiting > size / 2)
}

/// Returns the flags that wake user space up, or let it read at its next tick.
#[inline(always)]
pub(crate) fn wake_if(full: bool) -> u64 {
    if full { u64::from(BPF_RB_FORCE_WAKEUP) } else { AT_TICK }
}

/// Returns the number of bytes that wait in the ring buffer, and its size.
#[inline(always)]
pub(crate) fn waiting_of() -> (u64, u64) {
    let ring = (&raw const RING).cast_mut().cast::<core::ffi::c_void>();
    // `BPF_RB_AVAIL_DATA` and `BPF_RB_RING_SIZE`, include/uapi/linux/bpf.h.
    // SAFETY: the helper only reads the ring's positions.
    let waiting = unsafe { bpf_ringbuf_query(ring, 0) };
    // SAFETY: as above.
    let size = unsafe { bpf_ringbuf_query(ring, 1) };
    (waiting, size)
}
