//! Why something was not counted. Codes are permanent: a number is never used for another reason.

/// An owner beyond the limit: its counts went to the common slot.
pub const OWNER_LIMIT: usize = 0;
/// A task that the programs do not know switched: its counts since then are not attributed.
pub const TASK_UNKNOWN: usize = 1;
/// A record did not fit the ring buffer.
pub const RING_FULL: usize = 2;
/// A sample counted, but its address did not fit the hot-address table.
pub const HOT_FULL: usize = 3;
/// A sample counted, but its stack could not be read.
pub const STACK_FAILED: usize = 4;
/// A sample hit a task whose owner was not known yet.
pub const SAMPLE_UNOWNED: usize = 5;
/// A task moved to another cgroup and the time of the move is not known: its open slice was not split.
pub const MOVE_UNTIMED: usize = 6;
/// A map had no room for an owner's identity: it was looked up again and again, or counted in the common slot. Or for a run queue: what a
/// limit of CPU time took there is in its tasks' waits for a CPU.
pub const MAP_FULL: usize = 7;
/// Two threads of a process reached a map at once; one of them gave way.
pub const RACE: usize = 8;
/// A counter could not be read at a switch: what it counted goes to whoever runs when it can be read again.
pub const COUNTER_UNREAD: usize = 9;

/// Number of reasons.
pub const REASONS: usize = 10;

/// The reasons' names in every output, by code.
pub const NAMES: [&str; REASONS] = [
    "owner_limit",
    "task_unknown",
    "ring_full",
    "hot_full",
    "stack_failed",
    "sample_unowned",
    "move_untimed",
    "map_full",
    "race",
    "counter_unread",
];
