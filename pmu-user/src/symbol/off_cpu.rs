//! Waits of blocked tasks: their stacks, and what the tasks entered the kernel with, registers and the part of the stack that frame pointers do
//! not lead through.

use bytes::Bytes;
use pmu_common::ring;

use crate::drain::{OffCpuTime, SlotId};

/// Waits of blocked tasks with one stack, by address.
#[derive(Debug)]
pub struct OffCpuStack {
    /// The owner's slot.
    pub slot: SlotId,
    /// Process.
    pub tgid: u32,
    /// Kernel addresses, innermost first.
    pub kernel: Vec<u64>,
    /// User addresses by frame pointers, innermost first.
    pub user: Vec<u64>,
    /// What it entered the kernel with, where that is known.
    pub entered: Option<Entered>,
    /// When each began (CLOCK_MONOTONIC, ns), and how long it was.
    pub waits: Vec<(u64, OffCpuSum)>,
}

/// Sum of waits, of which each may stand for more.
#[derive(Clone, Copy, Debug, Default)]
pub struct OffCpuSum {
    /// Waits whose stack was taken.
    pub waits: u64,
    /// Their time in ns, and that of the waits which they stand for.
    pub ns: f64,
    /// Variance of that time, by which waits were taken.
    pub variance: f64,
}

impl OffCpuSum {
    /// Adds other waits.
    pub fn add(&mut self, other: &Self) {
        self.waits += other.waits;
        self.ns += other.ns;
        self.variance += other.variance;
    }

    /// It in whole ns.
    #[must_use]
    pub fn time(&self) -> OffCpuTime {
        OffCpuTime { waits: self.waits, ns: self.ns as u64, deviation_ns: self.variance.sqrt() as u64 }
    }
}

/// What a task entered the kernel with: where unwinding begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entered {
    /// As [`pmu_common::ring::StackCopy::registers`].
    pub registers: [u64; 4],
    /// The user stack from its pointer on, up to the first frame that has a frame pointer.
    pub stack: Bytes,
}

impl Entered {
    /// What the kernel saved; none of a program of 32 bits, whose stack is another.
    pub fn of(entered: &ring::Entered) -> Option<Self> {
        let registers = registers(&entered.registers)?;
        let [_, stack_pointer, frame_pointer, _] = registers;
        // What lies above the first frame by frame pointers is what those lead to.
        let to_frame = usize::try_from(frame_pointer.wrapping_sub(stack_pointer)).unwrap_or(usize::MAX);
        let bytes = to_frame.saturating_add(2 * size_of::<u64>()).min(size_of_val(&entered.stack));
        let stack = entered.stack.iter().flat_map(|word| word.to_ne_bytes()).take(bytes);
        Some(Self { registers, stack: stack.collect() })
    }
}

/// Instruction, stack and frame pointer of what was saved from rbp to rsp (arch/x86/include/asm/ptrace.h); `__USER32_CS` is 0x23.
#[cfg(target_arch = "x86_64")]
const fn registers(saved: &[u64; ring::ENTERED_REGISTERS]) -> Option<[u64; 4]> {
    let (frame, instruction, segment, stack) = (saved[0], saved[12], saved[13], saved[15]);
    if segment & 3 == 0 || segment == 0x23 { None } else { Some([instruction, stack, frame, 0]) }
}

/// The same of x29, x30, sp, pc and pstate (arch/arm64/include/uapi/asm/ptrace.h), where bit 4 of pstate is a program of 32 bits.
#[cfg(target_arch = "aarch64")]
const fn registers(saved: &[u64; ring::ENTERED_REGISTERS]) -> Option<[u64; 4]> {
    let [frame, link, stack, instruction, state, ..] = *saved;
    if state & 0x1f != 0 { None } else { Some([instruction, stack, frame, link]) }
}
