//! Records in the ring buffer: rare facts, and stacks. The first four bytes say which.

use crate::wire;

/// A [`crate::gap::Late`].
pub const GAP: u32 = 1;
/// A [`Stack`], followed by its addresses: kernel first, each innermost first.
pub const STACK: u32 = 2;
/// A [`Process`]: it was sampled, and its address maps should be read while it lives.
pub const SEEN: u32 = 3;
/// An [`Exec`]: what is known of the process's address maps is void from then on.
pub const EXEC: u32 = 4;
/// A [`NewCgroup`], followed by its path.
pub const CGROUP: u32 = 5;
/// A [`Process`] with id 0: owner slots run short; drain soon.
pub const PRESSURE: u32 = 6;
/// A [`Fork`].
pub const FORK: u32 = 7;
/// A [`Stack`] and a [`StackCopy`], followed by the addresses of the one and the bytes of the other.
pub const STACK_COPY: u32 = 8;
/// An [`OffCpuStack`] and an [`Entered`], followed by its addresses: kernel first, each innermost first.
pub const OFF_CPU_STACK: u32 = 9;
/// An [`Unblocked`].
pub const UNBLOCKED: u32 = 10;
/// A [`NewCgroup`] that is no target, followed by its path: a name may mean it.
pub const OTHER_CGROUP: u32 = 11;

/// A [`Charge`].
pub const CHARGE: u32 = 12;

/// [`StackCopy::status`]: there is a copy.
pub const COPIED: u32 = 0;
/// [`StackCopy::status`]: the ring buffer was more than half full, and the rest is for what is smaller.
pub const COPY_NO_ROOM: u32 = 1;
/// [`StackCopy::status`]: the sample was in the kernel, where the registers of user mode are out of reach, or in a 32-bit
/// program.
pub const COPY_NO_REGISTERS: u32 = 2;
/// [`StackCopy::status`]: what the stack pointer points to cannot be read without a page fault.
pub const COPY_UNREADABLE: u32 = 3;

/// Registers of [`Entered`]: as many as the widest architecture has between the first and the last that are wanted.
pub const ENTERED_REGISTERS: usize = 16;
/// Words of the user stack in [`Entered`]: functions of libc that make system calls, and their callers, take some hundred bytes.
pub const ENTERED_WORDS: usize = 64;

/// Stack entries kept, each of kernel and user (perf's default, `kernel.perf_event_max_stack`).
pub const STACK_FRAMES: usize = 127;
/// Bytes of the user stack copied at most. Pieces end where pages do, since a whole piece is readable or nothing of it.
pub const COPY_BYTES_MAX: usize = COPY_PIECES * COPY_PIECE_BYTES;
/// Bytes that wait when user space is woken up for copies: they are unwound while their processes live, and a run that ends has
/// few of them left.
pub const COPY_WAKE_BYTES: u64 = 128 << 10;
/// Pieces of a copied stack.
pub const COPY_PIECES: usize = 4;
/// Bytes of such a piece at most: the smallest page.
pub const COPY_PIECE_BYTES: usize = 4096;

/// Bytes of a cgroup's path kept.
pub const PATH_BYTES: usize = 1024;

wire! {
    /// Header of a sample with its stacks.
    pub struct Stack {
        /// [`STACK`].
        pub kind: u32,
        /// Owner's slot.
        pub slot: u32,
        /// Process. Not the thread: samples of all its threads with one stack are one record but for its time, byte for byte.
        pub tgid: u32,
        /// Event that overflowed: its place in the plan.
        pub event: u32,
        /// Bytes of kernel addresses that follow.
        pub kernel_bytes: u32,
        /// Bytes of user addresses that follow those.
        pub user_bytes: u32,
        /// When the sample was taken (CLOCK_MONOTONIC, ns).
        pub at_ns: u64,
    }

    /// What unwinding a user stack begins from.
    pub struct StackCopy {
        /// Instruction pointer, stack pointer, frame pointer and (arm64) link register of user mode.
        pub registers: [u64; 4],
        /// Bytes from the stack pointer on, behind the addresses.
        pub bytes: u32,
        /// [`COPIED`], or why there are none.
        pub status: u32,
    }

    /// Header of the stack of a task that blocks.
    pub struct OffCpuStack {
        /// [`OFF_CPU_STACK`].
        pub kind: u32,
        /// Owner's slot.
        pub slot: u32,
        /// Process.
        pub tgid: u32,
        /// Thread, by its id in the first PID namespace.
        pub tid: u32,
        /// k: the stack was taken with a probability of 2^-k.
        pub thinning: u32,
        /// Bytes of kernel addresses that follow.
        pub kernel_bytes: u32,
        /// Bytes of user addresses that follow those.
        pub user_bytes: u32,
        /// Bytes of [`Entered::stack`] that were copied: all of them, or none.
        pub copied: u32,
        /// When it left its CPU (CLOCK_MONOTONIC, ns).
        pub since_ns: u64,
    }

    /// What a task that blocks entered the kernel with: enough to unwind functions that keep no frame pointer up to the first that does.
    pub struct Entered {
        /// Registers of user mode, from the frame pointer on as the kernel saves them: on x86-64 rbp to rsp
        /// (arch/x86/include/asm/ptrace.h, `struct pt_regs`), on arm64 x29, x30, sp, pc and pstate (arch/arm64/include/uapi/asm/ptrace.h).
        pub registers: [u64; ENTERED_REGISTERS],
        /// The user stack from its pointer on.
        pub stack: [u64; ENTERED_WORDS],
    }

    /// A wait is over whose stack was taken.
    pub struct Unblocked {
        /// [`UNBLOCKED`].
        pub kind: u32,
        /// Thread, as in [`OffCpuStack`].
        pub tid: u32,
        /// How long it was blocked, in ns: until it was able to run.
        pub blocked_ns: u64,
    }

    /// A wait for a CPU that finds no place among [`crate::culprit::Culprits::charges`].
    pub struct Charge {
        /// [`CHARGE`].
        pub kind: u32,
        /// CPU that was waited for.
        pub cpu: u32,
        /// [`crate::culprit::pair`] of victim and culprit.
        pub pair: u64,
        /// How long, in ns.
        pub wait_ns: u64,
    }

    /// A fact about a process.
    pub struct Process {
        /// [`SEEN`] or [`PRESSURE`].
        pub kind: u32,
        /// Process.
        pub tgid: u32,
    }

    /// A process that executed another program.
    pub struct Exec {
        /// [`EXEC`].
        pub kind: u32,
        /// Process.
        pub tgid: u32,
        /// When (CLOCK_MONOTONIC, ns).
        pub at_ns: u64,
    }

    /// A process that begins, with the address map of another.
    pub struct Fork {
        /// [`FORK`].
        pub kind: u32,
        /// Process that begins.
        pub tgid: u32,
        /// Process that forked it.
        pub parent: u32,
        /// Keeps the alignment.
        pub reserved: u32,
        /// When (CLOCK_MONOTONIC, ns).
        pub at_ns: u64,
    }

    /// Header of a cgroup's creation.
    pub struct NewCgroup {
        /// [`CGROUP`] or [`OTHER_CGROUP`].
        pub kind: u32,
        /// Bytes of the path that follows, without the final zero.
        pub path_bytes: u32,
        /// Its id.
        pub id: u64,
        /// When it was made, in ns of CLOCK_MONOTONIC.
        pub made_ns: u64,
    }
}
