//! Which slots have changed: reading looks at no others.

use crate::wire;

/// Slots that a CPU tells apart; a power of two. Those that are a multiple of it apart share a mark, and are looked at together.
pub const MARKS: usize = 4096;

wire! {
    /// One row of the map `CHANGED`. Bytes, because a program that marks one slot must not undo the mark of another: neither of one that
    /// it interrupts, nor of user space.
    pub struct Changed {
        /// By slot modulo [`MARKS`]: not 0 if a row of the slot was written on that CPU since user space last cleared this.
        pub slots: [u8; MARKS],
    }
}
