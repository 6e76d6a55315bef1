//! Detection of instructions that enable interrupts. Code that was masked ends right behind such an
//! instruction.
//!
//! Detection reads bytes, so it also matches one in some thirty other places by chance. A match shows what is
//! likely and is not a disassembly.

/// Returns whether 16 bytes of x86-64 code end with `popf`, or with `sti` and one instruction, which still
/// comes before the interrupt (Intel SDM vol. 2, STI). The code is passed as its `first` and `last` eight
/// bytes (little-endian).
#[must_use]
#[inline(always)]
pub const fn x86_64(first: u64, last: u64) -> bool {
    const POPF: u64 = 0x9d;
    const STI: u64 = 0xfb;
    if last >> 56 == POPF {
        return true;
    }
    // The following instruction is at most nine bytes long.
    let mut at = 6;
    while at < 16 {
        let [earlier, before, byte] =
            [byte(first, last, at - 2), byte(first, last, at - 1), byte(first, last, at)];
        if byte == STI && !takes_registers(earlier, before) {
            return true;
        }
        at += 1;
    }
    false
}

#[inline(always)]
const fn byte(first: u64, last: u64, at: u32) -> u64 {
    if at < 8 { first >> (at * 8) & 0xff } else { last >> ((at - 8) * 8) & 0xff }
}

/// Returns whether these two bytes begin an instruction with registers in its third byte. There 0xfb is RBX
/// and RDI. It has a REX prefix, or is one of the usual operations without it: `cmp`, `test`, `mov`.
#[inline(always)]
const fn takes_registers(earlier: u64, before: u64) -> bool {
    earlier & 0xf0 == 0x40 || before == 0x83 || before == 0x85 || before == 0x89 || before == 0x8b
}

/// Returns whether one of two arm64 instructions is `msr daifclr, #n`, `msr daif, x` or `msr icc_pmr_el1, x`.
/// A barrier may follow (Arm ARM, C5.2 and C6.2; arch/arm64/include/asm/irqflags.h).
#[must_use]
#[inline(always)]
pub const fn aarch64(last: u64) -> bool {
    const fn is(instruction: u64) -> bool {
        instruction & 0xffff_f0ff == 0xd503_40ff
            || instruction & 0xffff_ffe0 == 0xd51b_4220
            || instruction & 0xffff_ffe0 == 0xd518_4600
    }
    is(last & 0xffff_ffff) || is(last >> 32)
}

#[cfg(test)]
mod tests {
    use super::{aarch64, x86_64};

    /// Returns whether code that ends with these bytes, behind meaningless ones, enables interrupts.
    fn ends_with(bytes: &[u8]) -> bool {
        let mut code = [0xcc; 16];
        code[16 - bytes.len()..].copy_from_slice(bytes);
        let word = |at: usize| u64::from_le_bytes(code[at..at + 8].try_into().unwrap());
        x86_64(word(0), word(8))
    }

    #[test]
    fn an_interrupt_comes_one_instruction_behind_sti() {
        // movl $0, (%rdi); sti; nop
        assert!(ends_with(&[0xc7, 0x07, 0, 0, 0, 0, 0xfb, 0x90]));
        // sti; nopw 0(%rax,%rax,1), as the kernel fills what paravirt calls leave
        assert!(ends_with(&[0x00, 0xfb, 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00]));
        // sti; decl %gs:…(%rip)
        assert!(ends_with(&[0xfb, 0x65, 0xff, 0x0d, 1, 2, 3, 4]));
    }

    #[test]
    fn an_interrupt_comes_right_behind_popf() {
        assert!(ends_with(&[0x57, 0x9d]), "push %rdi; popf");
        assert!(!ends_with(&[0x57, 0x9d, 0x90]));
    }

    #[test]
    fn registers_are_no_instruction() {
        assert!(!ends_with(&[0x48, 0x89, 0xfb]), "mov %rdi, %rbx");
        assert!(!ends_with(&[0x89, 0xfb]), "mov %edi, %ebx");
        assert!(!ends_with(&[0x48, 0x83, 0xfb, 0x01]), "cmp $1, %rbx");
        assert!(!ends_with(&[0x4c, 0x39, 0xfb]), "cmp %r15, %rbx");
        assert!(!ends_with(&[0x90; 16]));
    }

    #[test]
    fn arms_masks_are_cleared_by_number_and_by_register() {
        let pair = |earlier: u32, last: u32| u64::from(last) << 32 | u64::from(earlier);
        const NOP: u32 = 0xd503_201f;
        assert!(aarch64(pair(NOP, 0xd503_42ff)), "msr daifclr, #2");
        assert!(aarch64(pair(0xd51b_4220, NOP)), "msr daif, x0");
        assert!(aarch64(pair(NOP, 0xd518_4601)), "msr icc_pmr_el1, x1");
        assert!(!aarch64(pair(NOP, 0xd503_42df)), "msr daifset, #2 masks");
        assert!(!aarch64(pair(NOP, NOP)));
    }
}
