//! Records in the ring buffer: rare facts, and stacks. The first four bytes say which.

use crate::wire;

/// A [`crate::gap::Late`].
pub const GAP: u32 = 1;
/// A [`Stack`], followed by its addresses: kernel first, each innermost first.
pub const STACK: u32 = 2;
/// A [`Process`]: it was sampled, and its address maps should be read while it lives.
pub const SEEN: u32 = 3;
/// A [`Process`]: it executed another program, so what is known of its address maps is void.
pub const EXEC: u32 = 4;
/// A [`NewCgroup`], followed by its path.
pub const CGROUP: u32 = 5;
/// A [`Process`] with id 0: owner slots run short; drain soon.
pub const PRESSURE: u32 = 6;
/// A [`Fork`].
pub const FORK: u32 = 7;

/// Stack entries kept, each of kernel and user (perf's default, `kernel.perf_event_max_stack`).
pub const STACK_FRAMES: usize = 127;
/// Bytes of a cgroup's path kept.
pub const PATH_BYTES: usize = 1024;

wire! {
    /// Header of a sample with its stacks.
    pub struct Stack {
        /// [`STACK`].
        pub kind: u32,
        /// Owner's slot.
        pub slot: u32,
        /// Process. Not the thread: samples of all its threads with one stack are one record, byte for byte.
        pub tgid: u32,
        /// Event that overflowed: its place in the plan.
        pub event: u32,
        /// Bytes of kernel addresses that follow.
        pub kernel_bytes: u32,
        /// Bytes of user addresses that follow those.
        pub user_bytes: u32,
    }

    /// A fact about a process.
    pub struct Process {
        /// [`SEEN`], [`EXEC`] or [`PRESSURE`].
        pub kind: u32,
        /// Process.
        pub tgid: u32,
    }

    /// A process that begins, with the address map of another.
    pub struct Fork {
        /// [`FORK`].
        pub kind: u32,
        /// Process that begins.
        pub tgid: u32,
        /// Process that forked it.
        pub parent: u32,
    }

    /// Header of a cgroup's creation.
    pub struct NewCgroup {
        /// [`CGROUP`].
        pub kind: u32,
        /// Bytes of the path that follows, without the final zero.
        pub path_bytes: u32,
        /// Its id.
        pub id: u64,
    }
}
