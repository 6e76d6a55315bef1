//! Reasons why something was not counted. Codes are permanent: a number is never reused for another reason.

/// An owner beyond the limit: its counts went to the common slot.
pub const OWNER_LIMIT: usize = 0;
/// A task without state switched: its counts since then are not attributed.
pub const TASK_UNKNOWN: usize = 1;
/// A record did not fit the ring buffer.
pub const RING_FULL: usize = 2;
/// A sample counted, but its address did not fit the hot-address table.
pub const HOT_FULL: usize = 3;
/// A sample counted, but its stack could not be read.
pub const STACK_FAILED: usize = 4;
/// A sample hit a task with an owner that was not known yet.
pub const SAMPLE_UNOWNED: usize = 5;
/// A task moved to another cgroup at an unknown time: its open slice was not split.
pub const MOVE_UNTIMED: usize = 6;
/// A map had no room for an owner's identity: it was looked up repeatedly, or counted in the common slot. If
/// the map is of run queues, the time that a limit of CPU time took there is in the tasks' waits for a CPU.
pub const MAP_FULL: usize = 7;
/// Two threads of a process accessed a map at once; one of them gave way.
pub const RACE: usize = 8;
/// A counter could not be read at a switch: its count goes to the task that runs when it can be read again.
pub const COUNTER_UNREAD: usize = 9;

/// Number of reasons.
pub const REASONS: usize = 10;

/// Names of the reasons in every output, by code.
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
