//! Locks of user space: classification of futex waits as waits for a lock. A condition variable, a join and
//! an idle worker wait for a futex as well, and no holder keeps them from running.

/// Flags `FUTEX_PRIVATE_FLAG` and `FUTEX_CLOCK_REALTIME` (include/uapi/linux/futex.h): they modify an
/// operation and do not select it.
const HOW: u32 = 128 | 256;
/// Operations `FUTEX_WAIT` and `FUTEX_WAIT_BITSET`.
const WAIT: u32 = 0;
const WAIT_BITSET: u32 = 9;
/// Operations `FUTEX_LOCK_PI` and `FUTEX_LOCK_PI2`: the kernel itself hands over the lock.
const LOCK_PI: u32 = 6;
const LOCK_PI2: u32 = 13;

/// Value that a waiter expects in the futex of a contended lock: 2 in the mutexes of glibc, Rust's standard
/// library and Go's runtime, 2 or 3 in glibc's rwlocks (`PTHREAD_RWLOCK_FUTEX_USED`). Condition variables,
/// semaphores and notes expect 0 or a sequence number, a join expects a thread id, and a parked thread of
/// Rust -1.
const CONTENDED: u32 = 2;
/// Bit that musl's mutexes hold together with the owner's thread id.
const CONTENDED_BIT: u32 = 1 << 31;

/// Returns whether the system call `futex` with this operation and this expected value waits for a lock.
/// Java's monitors and Python's interpreter lock wait on condition variables. Those are not recognised.
#[must_use]
#[inline(always)]
pub const fn is_lock(operation: u32, expected: u32) -> bool {
    match operation & !HOW {
        WAIT => expected & !1 == CONTENDED || (expected & CONTENDED_BIT != 0 && expected != u32::MAX),
        WAIT_BITSET => expected & !1 == CONTENDED,
        LOCK_PI | LOCK_PI2 => true,
        _ => false,
    }
}

/// Returns whether an operation is on a lock with priority inheritance.
#[must_use]
#[inline(always)]
pub const fn inherits_priority(operation: u32) -> bool {
    matches!(operation & !HOW, LOCK_PI | LOCK_PI2)
}

#[cfg(test)]
mod tests {
    use super::{inherits_priority, is_lock};

    /// Operations: `FUTEX_WAIT_PRIVATE`; that of condition variables; that of a join.
    const WAIT_PRIVATE: u32 = 128;
    const WAIT_BITSET_REALTIME: u32 = 9 | 128 | 256;
    const WAIT_BITSET_SHARED: u32 = 9 | 256;

    #[test]
    fn locks_of_c_rust_go_and_musl_are_locks() {
        assert!(is_lock(WAIT_PRIVATE, 2) && is_lock(0, 2), "glibc, Go, shared mutexes");
        assert!(is_lock(9 | 128, 2) && is_lock(WAIT_BITSET_REALTIME, 3), "Rust, rwlocks");
        assert!(is_lock(WAIT_PRIVATE, 4242 | 1 << 31), "musl");
        assert!(is_lock(6 | 128, 0) && is_lock(13, 0), "priority inheritance");
        assert!(inherits_priority(6 | 128) && inherits_priority(13) && !inherits_priority(WAIT_PRIVATE));
    }

    #[test]
    fn what_waits_for_work_or_for_an_end_does_not_wait_for_a_lock() {
        assert!(!is_lock(WAIT_BITSET_REALTIME, 0), "a condition variable or a semaphore");
        assert!(!is_lock(WAIT_BITSET_SHARED, 4242), "a join");
        assert!(!is_lock(WAIT_PRIVATE, 0), "a note of Go's runtime");
        assert!(!is_lock(9 | 128, u32::MAX) && !is_lock(WAIT_PRIVATE, u32::MAX), "a parked thread");
        assert!(!is_lock(1 | 128, 2), "a wake-up");
    }
}
