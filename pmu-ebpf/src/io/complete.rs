//! Program on `block_rq_complete`: accounts a request in its owner's row.
//!
//! A completion may come in an interrupt while another one is accounted on its CPU, in a task or a softirq.
//! Since Linux 6.1 the kernel does not run a tracepoint's program inside itself; before, `IoCpu::busy` has
//! the same effect. So a row has one writer at a time, and skipped completions are counted either way.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use pmu_common::{
    histogram::BLOCK,
    io::{
        REQUESTS,
        block::{BlockCount, DEVICE, FLUSH, ISSUED, InFlight, QUEUE, REQUEUED, WAITED},
        loss,
    },
};

use super::{
    maps::{BLOCK_COUNTS, BLOCK_LATENCIES, IO_CPUS, histogram},
    request::{device_of, ended, find, identity, operation_of, slot_of_unseen},
};
use crate::{
    Way,
    access::{Fields, Pointer},
    config::config,
    cpu::{lose, row, this_cpu},
    intrinsics::add_u32,
    intrinsics::{masked, opaque},
    tracepoint,
};

tracepoint! {
    /// `trace_block_rq_complete(request, error, bytes)`, block/blk-mq.c: some or all of a request is done, or
    /// has failed.
    block_complete on "block_rq_complete", context => alone(REQUESTS, |cpu| account::<Way>(&Completion {
        request: context.arg(0),
        error: context.arg::<u64>(1) as u32,
        bytes: context.arg::<u64>(2) as u32,
    }, cpu))
}

/// Progress of a request.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Progress {
    /// A part of the request is done.
    Partial,
    /// The whole request is done, or has failed.
    Ended,
}

/// Arguments of a completion.
struct Completion {
    request: Pointer,
    /// Error status, 0 on success.
    error: u32,
    bytes: u32,
}

/// Runs `run` with this CPU, unless the same accounting already runs here; `what` is [`REQUESTS`] or bios.
/// The kernel may ensure that itself.
#[inline(always)]
pub(crate) fn alone(what: usize, run: impl FnOnce(u32) -> Option<()>) -> Option<()> {
    let cpu = this_cpu();
    if config!(kept_apart) != 0 {
        return run(cpu);
    }
    let state = IO_CPUS.get_ptr_mut(cpu)?;
    // SAFETY: the lookup gave a live row.
    let busy = unsafe { &raw mut (*state).busy };
    // Every caller passes a constant.
    let busy = busy.cast::<u64>().wrapping_add(what);
    // SAFETY: as above. Only programs on this CPU use the word, and each leaves it as it was.
    if unsafe { busy.read_volatile() } != 0 {
        lose(loss::NESTED);
        return None;
    }
    // SAFETY: as above.
    unsafe { busy.write_volatile(1) };
    let done = run(cpu);
    // The compiler must not move a row's store past this write, where another completion may already run. It
    // cannot track a pointer that went through `opaque`.
    let busy = opaque(busy as u64) as *mut u64;
    // SAFETY: as above.
    unsafe { busy.write_volatile(0) };
    done
}

#[inline(always)]
fn account<A: Fields>(completion: &Completion, cpu: u32) -> Option<()> {
    let request = completion.request;
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let progress = if completion.bytes >= A::u32(request, config!(offsets.request_bytes)) {
        Progress::Ended
    } else {
        Progress::Partial
    };
    let seen = seen(identity(request), progress);
    let slot = if is_known(&seen) {
        seen.slot()
    } else if completion.bytes == 0 && operation_of::<A>(request) != FLUSH {
        // A write with a flush completes once more when the flush is done, with nothing left to do.
        return None;
    } else {
        slot_of_unseen(device_of::<A>(request))
    };
    // SAFETY: the lookup gave a live row of this CPU, which has one writer (see above).
    let count = unsafe { &mut *BLOCK_COUNTS.get_ptr_mut(row(slot, cpu))? };
    count.bytes += u64::from(completion.bytes);
    if progress == Progress::Ended {
        end(count, cpu, &seen, completion.error, now_ns)
    } else {
        count.changes += 1;
        count.partial += 1;
        Some(())
    }
}

/// Accounts the end of a request or bio in its row, except its bytes.
#[inline(always)]
pub(crate) fn end(count: &mut BlockCount, cpu: u32, seen: &InFlight, error: u32, now_ns: u64) -> Option<()> {
    count.changes += 1;
    count.requests += 1;
    if error != 0 {
        count.errors += 1;
    }
    if seen.state & ISSUED == 0 {
        count.unstarted += 1;
        return Some(());
    }
    account_times(seen, count, cpu, now_ns)
}

/// Returns whether the request's start was seen.
#[inline(always)]
pub(crate) const fn is_known(seen: &InFlight) -> bool {
    seen.request != 0
}

/// Returns the state of the request since its start, or a free entry. An `Option` would leave its bytes
/// unwritten where there is none, and verifiers before Linux 5.12 do not allow copying those. The state is
/// dropped when the request has ended.
#[inline(always)]
pub(crate) fn seen(identity: u64, progress: Progress) -> InFlight {
    let Some((place, entry)) = find(identity) else { return InFlight::ZERO };
    let Some(ended) = ended(place) else { return InFlight::ZERO };
    // SAFETY: the lookup gave a live row.
    let known = unsafe { *entry };
    // SAFETY: as above.
    if known.has_ended(unsafe { *ended }) {
        return InFlight::ZERO;
    }
    let whole = known.seal == known.seal_of();
    if progress == Progress::Ended || !whole {
        // SAFETY: as above.
        unsafe { *ended = known.at_ns };
    }
    if whole {
        known
    } else {
        lose(loss::TORN);
        InFlight::ZERO
    }
}

#[inline(always)]
fn account_times(entry: &InFlight, count: &mut BlockCount, cpu: u32, now_ns: u64) -> Option<()> {
    if entry.state & REQUEUED != 0 {
        count.requeued += 1;
    }
    let bucket = count.add_latency(now_ns.wrapping_sub(entry.at_ns));
    bump(histogram(entry.slot(), cpu, DEVICE), bucket)?;
    if entry.state & WAITED != 0 {
        let bucket = count.add_wait(entry.waited_ns);
        bump(histogram(entry.slot(), cpu, QUEUE), bucket)?;
    }
    Some(())
}

/// Adds 1 to a bucket.
#[inline(always)]
fn bump(histogram: u32, bucket: u32) -> Option<()> {
    let buckets = BLOCK_LATENCIES.get_ptr_mut(histogram)?.cast::<u32>();
    // `masked` keeps the index below their number, so this is inside a live row.
    let bucket = buckets.wrapping_add(masked(bucket, BLOCK.buckets));
    if config!(lanes) < config!(cpus) {
        add_u32(bucket, 1);
    } else {
        // SAFETY: see above. A lane that is not shared has one writer, like the row.
        let count = unsafe { *bucket };
        // SAFETY: as above.
        unsafe { *bucket = count.wrapping_add(1) };
    }
    Some(())
}
