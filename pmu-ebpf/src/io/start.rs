//! Programs on the events of a request before it completes: it enters a queue, goes to its device, is
//! requeued, or is merged into another one. They write only the table of requests in flight.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use pmu_common::io::block::{INSERTED, ISSUED, InFlight};

use super::{
    limit::held_back_ns,
    request::{ended, find, find_or_free, identity, slot_of},
};
use crate::{
    TYPED, Way,
    access::{Fields, Pointer},
    config::config,
    intrinsics::opaque,
    tracepoint,
};

/// Reads the request among a tracepoint's arguments. Before Linux 5.11 the queue came first; typed programs
/// do not run there. A program that may read an argument too many is not attached, so each argument is read
/// where the verifier sees that it exists.
macro_rules! request {
    ($context:ident) => {
        if TYPED || config!(request_argument) == 0 {
            opaque($context.arg(0)) as Pointer
        } else {
            opaque($context.arg(1)) as Pointer
        }
    };
}

tracepoint! {
    /// `trace_block_rq_insert(request)`, block/blk-mq.c and the schedulers: the request waits.
    block_insert on "block_rq_insert", context => try_insert::<Way>(request!(context))
}

#[inline(always)]
fn try_insert<A: Fields>(request: Pointer) -> Option<()> {
    let identity = identity(request);
    let entry = find_or_free(identity)?;
    let held_ns = held_back_ns::<A>(request);
    let inserted = InFlight::inserted(identity, slot_of::<A>(request), now_ns(), held_ns);
    // SAFETY: the lookup gave a live row; a concurrent write for another request is detected by the seal.
    unsafe { *entry = inserted };
    Some(())
}

tracepoint! {
    /// `trace_block_rq_issue(request)`, block/blk-mq.c: the device gets the request.
    block_issue on "block_rq_issue", context => try_issue::<Way>(request!(context))
}

#[inline(always)]
fn try_issue<A: Fields>(request: Pointer) -> Option<()> {
    let identity = identity(request);
    let now_ns = now_ns();
    let entry = find_or_free(identity)?;
    // SAFETY: the lookup gave a live row.
    let before = unsafe { *entry };
    let issued = if before.request == identity && waits::<A>(request, &before) {
        before.issued(now_ns)
    } else {
        let held_ns = held_back_ns::<A>(request);
        InFlight::issued_directly(identity, slot_of::<A>(request), now_ns, held_ns)
    };
    // SAFETY: as in `try_insert`.
    unsafe { *entry = issued };
    Some(())
}

/// Returns whether an entry holds the start of this request's wait. It does not if it is left over from an
/// earlier use of the request with a missed end: that began before this one was allocated.
#[inline(always)]
fn waits<A: Fields>(request: Pointer, entry: &InFlight) -> bool {
    entry.state & INSERTED != 0
        && entry.seal == entry.seal_of()
        && entry.at_ns >= A::u64(request, config!(offsets.request_start))
}

tracepoint! {
    /// `trace_block_rq_requeue(request)`, block/blk-mq.c: the device returns the request, to get it again
    /// later.
    block_requeue on "block_rq_requeue", context => try_requeue(request!(context))
}

#[inline(always)]
fn try_requeue(request: Pointer) -> Option<()> {
    let (_, entry) = find(identity(request))?;
    // SAFETY: the lookup gave a live row.
    let before = unsafe { *entry };
    if before.state & ISSUED != 0 && before.seal == before.seal_of() {
        // SAFETY: as in `try_insert`.
        unsafe { *entry = before.given_back(now_ns()) };
    }
    Some(())
}

tracepoint! {
    /// `trace_block_rq_merge(request)`, block/blk-merge.c: the request is merged into another one.
    block_merge on "block_rq_merge", context => try_merge(request!(context))
}

#[inline(always)]
fn try_merge(request: Pointer) -> Option<()> {
    let (place, entry) = find(identity(request))?;
    let ended = ended(place)?;
    // SAFETY: the lookup gave a live row.
    let at_ns = unsafe { (*entry).at_ns };
    // SAFETY: as above.
    unsafe { *ended = at_ns };
    Some(())
}

#[inline(always)]
fn now_ns() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}
