//! Records in the ring buffer: rare events, and stacks. The first four bytes are the kind.

use crate::wire;

/// Record of a [`crate::gap::Late`].
pub const GAP: u32 = 1;
/// Record of a [`Stack`], followed by its addresses: kernel first, each innermost first.
pub const STACK: u32 = 2;
/// Record of a [`Process`]: it was sampled, and its address maps should be read while it lives.
pub const SEEN: u32 = 3;
/// Record of an [`Exec`]: address maps of the process are void from then on.
pub const EXEC: u32 = 4;
/// Record of a [`NewCgroup`], followed by its path.
pub const CGROUP: u32 = 5;
/// Record of a [`Process`] with id 0: owner slots run short; drain soon.
pub const PRESSURE: u32 = 6;
/// Record of a [`Fork`].
pub const FORK: u32 = 7;
/// Record of a [`Stack`] and a [`StackCopy`], followed by the addresses of the one and the bytes of the
/// other.
pub const STACK_COPY: u32 = 8;
/// Record of an [`OffCpuStack`] and an [`Entered`], followed by its addresses: kernel first, each innermost
/// first.
pub const OFF_CPU_STACK: u32 = 9;
/// Record of an [`Unblocked`].
pub const UNBLOCKED: u32 = 10;
/// Record of a [`NewCgroup`] that is not a target, followed by its path: a name may match it.
pub const OTHER_CGROUP: u32 = 11;

/// Record of a [`Charge`].
pub const CHARGE: u32 = 12;

/// [`StackCopy::status`]: there is a copy.
pub const COPIED: u32 = 0;
/// [`StackCopy::status`]: the ring buffer was more than half full, and the rest is reserved for smaller
/// records.
pub const COPY_NO_ROOM: u32 = 1;
/// [`StackCopy::status`]: the sample was in the kernel, where the registers of user mode cannot be read, or
/// in a 32-bit program.
pub const COPY_NO_REGISTERS: u32 = 2;
/// [`StackCopy::status`]: the memory at the stack pointer cannot be read without a page fault.
pub const COPY_UNREADABLE: u32 = 3;

/// Number of registers in [`Entered`]: the widest range that an architecture has between the first and the
/// last wanted one.
pub const ENTERED_REGISTERS: usize = 16;
/// Words of the user stack in [`Entered`]. Functions of libc that make system calls, and their callers, take
/// some hundred bytes.
pub const ENTERED_WORDS: usize = 64;

/// Number of stack entries kept, each of kernel and user (perf's default, `kernel.perf_event_max_stack`).
pub const STACK_FRAMES: usize = 127;
/// Largest number of bytes copied from the user stack. Pieces end where pages do, since a piece is either
/// readable as a whole or not at all.
pub const COPY_BYTES_MAX: usize = COPY_PIECES * COPY_PIECE_BYTES;
/// Bytes that wait before user space is woken up for copies. They are unwound while their processes live, and
/// few are left when a run ends.
pub const COPY_WAKE_BYTES: u64 = 128 << 10;
/// Number of pieces of a copied stack.
pub const COPY_PIECES: usize = 4;
/// Largest size of such a piece in bytes: the smallest page.
pub const COPY_PIECE_BYTES: usize = 4096;

/// Bytes kept of a cgroup's path.
pub const PATH_BYTES: usize = 1024;

wire! {
    /// Header of a sample with its stacks.
    pub struct Stack {
        /// Record kind [`STACK`].
        pub kind: u32,
        /// Slot of the owner.
        pub slot: u32,
        /// Process id. It is not the thread id: samples of all threads of a process with one stack are one
        /// record except for its time, byte for byte.
        pub tgid: u32,
        /// Event that overflowed, by its place in the plan.
        pub event: u32,
        /// Bytes of kernel addresses that follow.
        pub kernel_bytes: u32,
        /// Bytes of user addresses that follow those.
        pub user_bytes: u32,
        /// Time when the sample was taken (CLOCK_MONOTONIC, ns).
        pub at_ns: u64,
    }

    /// Start of the unwinding of a user stack.
    pub struct StackCopy {
        /// Instruction pointer, stack pointer, frame pointer and (arm64) link register of user mode.
        pub registers: [u64; 4],
        /// Number of bytes from the stack pointer on, behind the addresses.
        pub bytes: u32,
        /// [`COPIED`], or the reason why there are none.
        pub status: u32,
    }

    /// Header of the stack of a task that blocks.
    pub struct OffCpuStack {
        /// Record kind [`OFF_CPU_STACK`].
        pub kind: u32,
        /// Slot of the owner.
        pub slot: u32,
        /// Id of the process.
        pub tgid: u32,
        /// Id of the thread in the first PID namespace.
        pub tid: u32,
        /// Exponent k: the stack was taken with a probability of 2^-k.
        pub thinning: u32,
        /// Bytes of kernel addresses that follow.
        pub kernel_bytes: u32,
        /// Bytes of user addresses that follow those.
        pub user_bytes: u32,
        /// Bytes of [`Entered::stack`] that were copied: all of them, or none.
        pub copied: u32,
        /// Time when it left its CPU (CLOCK_MONOTONIC, ns).
        pub since_ns: u64,
    }

    /// User state of a blocking task at its entry to the kernel: enough to unwind functions without a frame
    /// pointer up to the first with one.
    pub struct Entered {
        /// Registers of user mode, from the frame pointer on as the kernel saves them: on x86-64 rbp to rsp
        /// (arch/x86/include/asm/ptrace.h, `struct pt_regs`), on arm64 x29, x30, sp, pc and pstate
        /// (arch/arm64/include/uapi/asm/ptrace.h).
        pub registers: [u64; ENTERED_REGISTERS],
        /// User stack from its stack pointer on.
        pub stack: [u64; ENTERED_WORDS],
    }

    /// End of a wait with a stack that was taken.
    pub struct Unblocked {
        /// Record kind [`UNBLOCKED`].
        pub kind: u32,
        /// Thread, as in [`OffCpuStack`].
        pub tid: u32,
        /// Time that it was blocked until it was able to run, in ns.
        pub blocked_ns: u64,
    }

    /// Wait for a CPU that has no place in [`crate::culprit::Culprits::charges`].
    pub struct Charge {
        /// Record kind [`CHARGE`].
        pub kind: u32,
        /// CPU that the task waited for.
        pub cpu: u32,
        /// [`crate::culprit::pair`] of victim and culprit.
        pub pair: u64,
        /// Length of the wait in ns.
        pub wait_ns: u64,
    }

    /// Event of a process.
    pub struct Process {
        /// [`SEEN`] or [`PRESSURE`].
        pub kind: u32,
        /// Id of the process.
        pub tgid: u32,
    }

    /// Event of a process that executed another program.
    pub struct Exec {
        /// Record kind [`EXEC`].
        pub kind: u32,
        /// Id of the process.
        pub tgid: u32,
        /// Time of the exec (CLOCK_MONOTONIC, ns).
        pub at_ns: u64,
    }

    /// Start of a process, with the address map of another one.
    pub struct Fork {
        /// Record kind [`FORK`].
        pub kind: u32,
        /// Id of the new process.
        pub tgid: u32,
        /// Id of the process that forked it.
        pub parent: u32,
        /// Keeps the alignment.
        pub reserved: u32,
        /// Time of the fork (CLOCK_MONOTONIC, ns).
        pub at_ns: u64,
    }

    /// Header of a cgroup's creation.
    pub struct NewCgroup {
        /// [`CGROUP`] or [`OTHER_CGROUP`].
        pub kind: u32,
        /// Bytes of the path that follows, without the final zero.
        pub path_bytes: u32,
        /// Id of the cgroup.
        pub id: u64,
        /// Time when it was created, in ns of CLOCK_MONOTONIC.
        pub made_ns: u64,
    }
}
