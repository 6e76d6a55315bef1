//! Limits of I/O (`io.max`): the time that they hold bios back. The kernel checks a bio's limit, and holds
//! back a bio above it, before `block_bio_queue` and before there is a request (block/blk-core.c,
//! `submit_bio_noacct`). Attached only where a cgroup has such a limit.

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::fentry, programs::FEntryContext};
use pmu_common::io::throttle::{held_ns, let_go, since};

use super::{
    bio::bio,
    maps::{HELD, LIMITED},
    request::identity,
};
use crate::{
    TYPED,
    access::{Fields, Pointer, Probed},
    config::config,
    intrinsics::opaque,
    tracepoint,
};

/// `BIO_THROTTLED` (include/linux/blk_types.h, before Linux 5.19).
const THROTTLED: u32 = 1 << 7;

/// Program on `__blk_throtl_bio(bio)`, block/blk-throttle.c; before Linux 5.19 on `blk_throtl_bio(bio)`,
/// which sees a bio that it held back once more.
#[fentry(function = "__blk_throtl_bio")]
#[expect(clippy::needless_pass_by_value, reason = "the macro hands over the context")]
pub(crate) fn bio_limit(context: FEntryContext) -> i32 {
    let _ = check(opaque(context.arg(0)) as Pointer);
    0
}

#[inline(always)]
fn check(bio: Pointer) -> Option<()> {
    if config!(throttled_again) != 0 && Probed::u32(bio, config!(offsets.bio_state)) & THROTTLED != 0 {
        return None;
    }
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    // The oldest entry is evicted: the insertion fails only where two CPUs write the same one.
    let _ = HELD.insert(identity(bio), since(now_ns), 0);
    let limited = LIMITED.get_ptr_mut(0)?;
    // Any number but 0 means that there is an entry to look up: two concurrent CPUs may count one.
    // SAFETY: the lookup gave a live row.
    let before = unsafe { *limited };
    // SAFETY: as above; it is written by words.
    unsafe { *limited = before.wrapping_add(1) };
    Some(())
}

tracepoint! {
    /// `trace_block_bio_queue(bio)`, block/blk-core.c: the bio is no longer held back.
    bio_go on "block_bio_queue", context => go_on(bio!(context))
}

#[inline(always)]
fn go_on(bio: Pointer) -> Option<()> {
    if !has_any()? {
        return None;
    }
    let identity = identity(bio);
    let word = HELD.get_ptr_mut(identity)?;
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    // SAFETY: the lookup gave a live entry, which is written by words.
    let held = let_go(unsafe { *word }, now_ns);
    if held == 0 {
        let _ = HELD.remove(identity);
    } else {
        // SAFETY: as above.
        unsafe { *word = held };
    }
    Some(())
}

/// Returns the time that a limit held back the bio of a request, in ns. It can be read once.
#[inline(always)]
pub(crate) fn held_back_ns<A: Fields>(request: Pointer) -> u64 {
    if config!(times_throttling) == 0 {
        return 0;
    }
    of_request::<A>(request).unwrap_or(0)
}

#[inline(always)]
fn of_request<A: Fields>(request: Pointer) -> Option<u64> {
    if !has_any()? {
        return None;
    }
    let bio = A::pointer(request, config!(offsets.request_bio));
    if bio.is_null() {
        return None;
    }
    let identity = identity(bio);
    // SAFETY: the value is copied at once.
    let word = *unsafe { HELD.get(identity) }?;
    let _ = HELD.remove(identity);
    Some(held_ns(word))
}

/// Returns whether any bio has passed a limit.
#[inline(always)]
fn has_any() -> Option<bool> {
    // SAFETY: the lookup gave the live row, which is written by words.
    LIMITED.get_ptr(0).map(|limited| unsafe { *limited } != 0)
}
