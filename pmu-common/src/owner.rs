//! Owners that counts belong to. An owner gets a dense slot with a generation the first time it is seen.

use crate::wire;

/// Bytes of a name that the kernel side keeps.
pub const NAME_BYTES: usize = 64;

/// One tick of the start times that the kernel reports (`starttime` in proc_pid_stat(5)), in ns: `USER_HZ` is
/// 100 wherever BPF runs.
pub const START_TICK_NS: u64 = 10_000_000;

/// Returns the tick of a start time (CLOCK_BOOTTIME ns), modulo 2³². It distinguishes two processes with one
/// id.
#[must_use]
#[inline(always)]
pub const fn start_tick(born_ns: u64) -> u32 {
    (born_ns / START_TICK_NS) as u32
}

wire! {
    /// Identity of an owner, the key of the map `SLOT_OF`.
    pub struct OwnerKey {
        /// Process id, cgroup id (`kernfs_node.id`, the inode of the v2 directory), or thread id in the first
        /// PID namespace.
        pub id: u64,
        /// Start time of the thread, or of the process's first one, in ns (CLOCK_BOOTTIME), 0 for a cgroup:
        /// ids are reused.
        pub born_ns: u64,
    }

    /// One row of the map `OWNERS`, by slot. User space frees slots, and counts how often each was used.
    pub struct Owner {
        /// Identity of the owner. `key.id` is 0 while the slot is free.
        pub key: OwnerKey,
        /// Time when the process or thread exited or the cgroup was removed (CLOCK_MONOTONIC), 0 while it
        /// exists.
        pub ended_ns: u64,
        /// Process id of the parent, id of the parent cgroup, or id of the thread's process.
        pub parent: u64,
        /// Number of times that the process executed another program, or its owner changed its name.
        pub execs: u32,
        /// Thread id in user space's PID namespace; 0 where threads do not own the counts.
        pub thread: u32,
        /// `task_struct.comm` of the thread, or of the first one, or the last part of the cgroup's path;
        /// zero-terminated if shorter.
        pub name: [u8; NAME_BYTES],
        /// Counts of events so rare that all CPUs add to one row.
        pub rare: Rare,
    }

    /// Rare events of an owner so far. Every CPU adds to each number in one instruction.
    pub struct Rare {
        /// Number of processes that exited.
        pub exits: u64,
        /// Completed waits for a lock ([`crate::lock`]).
        pub lock_waits: u64,
        /// Sum of their lengths in ns, until the task was able to run again.
        pub lock_wait_ns: u64,
    }
}
