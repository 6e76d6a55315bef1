//! Marks of the slots that changed. Reading skips all other slots.

use crate::wire;

/// Number of marks per CPU; a power of two. Slots a multiple of it apart share a mark and are read together.
pub const MARKS: usize = 4096;

wire! {
    /// One row of the map `CHANGED`. The marks are bytes, because a program that marks one slot must not undo
    /// the mark of another. That mark may come from a program that it interrupts, or from user space.
    pub struct Changed {
        /// Mark by slot modulo [`MARKS`]: not 0 if a row of the slot was written on that CPU since user space
        /// last cleared it.
        pub slots: [u8; MARKS],
    }
}
