//! Counters in force: reads them and adds their counts to the row of the owner that ran, at a switch to
//! another owner, and at a flush. Where nothing is counted per owner the verifier drops all of it.

use core::mem::MaybeUninit;

use aya_ebpf::{
    bindings::bpf_perf_event_value,
    helpers::{
        bpf_ktime_get_ns,
        generated::{bpf_perf_event_read, bpf_perf_event_read_value},
    },
};
use pmu_common::{
    count::{SLOT_NONE, SLOT_UNRESOLVED, TaskState},
    loss,
    turn::{PLACES, Slice, Turn, since},
};

use crate::{
    access::{Access, Pointer},
    config::config,
    cpu::{lose, row},
    identity,
    maps::{COUNTERS, SLICES, TURNS},
    task,
};

/// Largest error number of the kernel: a plain read returns its errors as the highest values
/// (include/linux/err.h).
const ERRNO_MAX: u64 = 4095;

/// Returns whether anything is counted per owner.
#[inline(always)]
pub(crate) fn are_read() -> bool {
    config!(counters) != 0
}

/// Handles a switch from the owner in slot `leaving` to `next`, with state `arriving`, null if there is none.
/// Nothing is read between tasks of one owner.
#[inline(always)]
pub(crate) fn switch<A: Access>(
    cpu: u32,
    leaving: u32,
    next: Pointer,
    arriving: *mut TaskState,
    now_ns: u64,
) {
    if slot_of::<A>(leaving, next, arriving) != leaving {
        let _ = account(cpu, leaving, now_ns);
    }
}

/// Returns the slot of the task that arrives, if it is certain.
#[inline(always)]
fn slot_of<A: Access>(leaving: u32, next: Pointer, arriving: *mut TaskState) -> u32 {
    if arriving.is_null() {
        return SLOT_NONE;
    }
    // SAFETY: the state is live while its task is, and its task is about to run here.
    let state = unsafe { &*arriving };
    // It may have moved to another cgroup since it was last accounted.
    if state.slot == leaving
        && task::cgroups_matter()
        && identity::cgroup_id::<A>(task::cgroup::<A>(next)) != state.cgroup
    {
        return SLOT_UNRESOLVED;
    }
    state.slot
}

/// Accounts the owner that runs on `cpu` now, and begins the next slice there if one is wanted. Call with
/// interrupts off, on that CPU.
#[inline(always)]
pub(crate) fn flush(cpu: u32, slot: u32) {
    // SAFETY: the helper has no preconditions.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let _ = account(cpu, slot, now_ns);
    let _ = begin(cpu, now_ns);
}

/// Adds the counts since the last reading of the counters in force to a slot's row.
#[inline(always)]
fn account(cpu: u32, slot: u32, now_ns: u64) -> Option<()> {
    // SAFETY: the lookup gave a live row, and only this CPU writes it, with interrupts off.
    let turn = unsafe { &mut *TURNS.get_ptr_mut(cpu)? };
    if turn.slice == 0 {
        return None;
    }
    let slots = config!(slots);
    let slot = if slot < SLOT_NONE { slot } else { slots };
    // SAFETY: as above.
    let slice = unsafe { &mut *SLICES.get_ptr_mut(row(slot, cpu) * 2 + (turn.slice & 1) as u32)? };
    let keep = slice.enter(turn.slice);
    if keep == 0 && slot != slots {
        // User space finds the rows of a slice by this chain, without reading all of them.
        let head = &mut turn.heads[(turn.slice & 1) as usize];
        slice.next = *head;
        *head = u64::from(slot);
    }
    read(turn, slice, cpu, 0, keep, now_ns);
    Some(())
}

/// Begins the wanted slice, unless it is already in force.
#[inline(always)]
fn begin(cpu: u32, now_ns: u64) -> Option<()> {
    // SAFETY: as in `account`.
    let turn = unsafe { &mut *TURNS.get_ptr_mut(cpu)? };
    if turn.wanted_slice == turn.slice {
        return None;
    }
    let from = turn.begin();
    // Counts of the group in force before now do not belong to any owner.
    let nobody = row(config!(slots), cpu) * 2 + (turn.slice & 1) as u32;
    // SAFETY: as in `account`.
    let slice = unsafe { &mut *SLICES.get_ptr_mut(nobody)? };
    read(turn, slice, cpu, from, 0, now_ns);
    Some(())
}

/// Reads every event in force from place `from` on and adds the differences to `slice`. The bits in `keep` of
/// its old places are kept. Each group takes one timed read. Its members have the same times, and a plain
/// read saves reading the clock.
#[inline(always)]
fn read(turn: &mut Turn, slice: &mut Slice, cpu: u32, from: usize, keep: u64, now_ns: u64) {
    let first = u64::from(cpu) * u64::from(config!(counters));
    let (leaders, members) = (turn.leaders, turn.members);
    // A leader takes a place and the one that follows.
    for place in 0..PLACES - 1 {
        let rest = (leaders | members) >> place;
        if rest == 0 {
            break;
        }
        if rest & 1 == 0 || place < from {
            continue;
        }
        let shift = if place as u64 >= turn.always { turn.shift } else { 0 };
        let index = first + shift + place as u64;
        if (leaders >> place) & 1 == 0 {
            let value = plain(index).unwrap_or(turn.last[place]);
            slice.places[place] =
                (slice.places[place] & keep).wrapping_add(since(&mut turn.last[place], value));
            continue;
        }
        let (running_ns, value) = match timed(index) {
            Some(read) => {
                if place == 0 {
                    slice.time_ns = slice.time_ns.wrapping_add(turn.time_since(read.enabled, now_ns));
                }
                (read.running, read.counter)
            }
            None => {
                if place == 0 {
                    slice.time_ns = slice.time_ns.wrapping_add(turn.time_unread(now_ns));
                }
                (turn.last[place], turn.last[place + 1])
            }
        };
        slice.places[place] =
            (slice.places[place] & keep).wrapping_add(since(&mut turn.last[place], running_ns));
        slice.places[place + 1] =
            (slice.places[place + 1] & keep).wrapping_add(since(&mut turn.last[place + 1], value));
    }
}

/// Returns value and times of an event of this CPU.
#[inline(always)]
fn timed(index: u64) -> Option<bpf_perf_event_value> {
    let mut value = MaybeUninit::<bpf_perf_event_value>::uninit();
    let counters = (&raw const COUNTERS).cast_mut().cast();
    let size = size_of::<bpf_perf_event_value>() as u32;
    // SAFETY: the helper writes exactly `size` bytes, whether it succeeds or not.
    let failed = unsafe { bpf_perf_event_read_value(counters, index, value.as_mut_ptr(), size) };
    if failed != 0 {
        lose(loss::COUNTER_UNREAD);
        return None;
    }
    // SAFETY: written by the helper.
    Some(unsafe { value.assume_init() })
}

/// Returns the value of an event of this CPU. A counter within 4095 of its wrap at 2⁶⁴ would look like an
/// error, but does not live that long.
#[inline(always)]
fn plain(index: u64) -> Option<u64> {
    let counters = (&raw const COUNTERS).cast_mut().cast();
    // SAFETY: the helper only reads.
    let value = unsafe { bpf_perf_event_read(counters, index) };
    if value >= ERRNO_MAX.wrapping_neg() {
        lose(loss::COUNTER_UNREAD);
        return None;
    }
    Some(value)
}
