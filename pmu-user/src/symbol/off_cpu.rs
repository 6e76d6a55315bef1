//! Waits of blocked tasks: their stacks, and the state in which the tasks entered the kernel. The state is
//! the registers, and the part of the stack that the frame pointer chain skips.

use bytes::Bytes;
use pmu_common::ring;

use crate::drain::{OffCpuTime, SlotId};

/// Waits of blocked tasks with one stack, by address.
#[derive(Debug)]
pub struct OffCpuStack {
    /// Slot of the owner.
    pub slot: SlotId,
    /// Process id of the tasks.
    pub tgid: u32,
    /// Kernel addresses, innermost first.
    pub kernel: Vec<u64>,
    /// User addresses by frame pointers, innermost first.
    pub user: Vec<u64>,
    /// State at the entry to the kernel, where it is known.
    pub entered: Option<Entered>,
    /// Start time of each wait (CLOCK_MONOTONIC, ns), and its duration.
    pub waits: Vec<(u64, OffCpuSum)>,
}

/// Sum of sampled waits, each of which may stand for more.
#[derive(Clone, Copy, Debug, Default)]
pub struct OffCpuSum {
    /// Waits with a recorded stack.
    pub waits: u64,
    /// Time of these waits in ns, and of the waits that they stand for.
    pub ns: f64,
    /// Variance of that time due to sampling.
    pub variance: f64,
}

impl OffCpuSum {
    /// Adds other waits.
    pub fn add(&mut self, other: &Self) {
        self.waits += other.waits;
        self.ns += other.ns;
        self.variance += other.variance;
    }

    /// Returns the sum in whole ns.
    #[must_use]
    pub fn time(&self) -> OffCpuTime {
        OffCpuTime { waits: self.waits, ns: self.ns as u64, deviation_ns: self.variance.sqrt() as u64 }
    }
}

/// State of a task at its entry to the kernel, where unwinding begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entered {
    /// Registers as in [`pmu_common::ring::StackCopy::registers`].
    pub registers: [u64; 4],
    /// User stack from the stack pointer on, up to the first frame that has a frame pointer.
    pub stack: Bytes,
}

impl Entered {
    /// Converts what the kernel saved. Returns `None` for a 32-bit program, whose stack has another layout.
    pub fn of(entered: &ring::Entered) -> Option<Self> {
        let registers = registers(&entered.registers)?;
        let [_, stack_pointer, frame_pointer, _] = registers;
        // The frame pointer chain covers the part above its first frame.
        let to_frame = usize::try_from(frame_pointer.wrapping_sub(stack_pointer)).unwrap_or(usize::MAX);
        let bytes = to_frame.saturating_add(2 * size_of::<u64>()).min(size_of_val(&entered.stack));
        let stack = entered.stack.iter().flat_map(|word| word.to_ne_bytes()).take(bytes);
        Some(Self { registers, stack: stack.collect() })
    }
}

/// Returns instruction, stack and frame pointer of the registers saved from rbp to rsp
/// (arch/x86/include/asm/ptrace.h). `__USER32_CS` is 0x23.
#[cfg(target_arch = "x86_64")]
const fn registers(saved: &[u64; ring::ENTERED_REGISTERS]) -> Option<[u64; 4]> {
    let (frame, instruction, segment, stack) = (saved[0], saved[12], saved[13], saved[15]);
    if segment & 3 == 0 || segment == 0x23 { None } else { Some([instruction, stack, frame, 0]) }
}

/// Returns the same of x29, x30, sp, pc and pstate (arch/arm64/include/uapi/asm/ptrace.h). Bit 4 of pstate
/// marks a 32-bit program.
#[cfg(target_arch = "aarch64")]
const fn registers(saved: &[u64; ring::ENTERED_REGISTERS]) -> Option<[u64; 4]> {
    let [frame, link, stack, instruction, state, ..] = *saved;
    if state & 0x1f != 0 { None } else { Some([instruction, stack, frame, link]) }
}
