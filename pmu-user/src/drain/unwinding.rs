//! Outcomes of unwinding user stacks with DWARF's call frame information.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::At;

/// First functions of threads: those of glibc, musl, the loader and Go.
const ROOTS: [&[u8]; 15] = [
    b"_start",
    b"_dl_start",
    b"_dl_start_user",
    b"__libc_start_main",
    b"__libc_start_main_impl",
    b"__libc_start_call_main",
    b"start_thread",
    b"start",
    b"clone",
    b"__clone",
    b"clone3",
    b"__clone3",
    b"runtime.goexit",
    b"runtime.mstart",
    b"runtime.mcall",
];

/// Returns whether a thread begins with a function of this name, or the code that it runs on a separate
/// stack. Go's linker appends the calling convention of its assembly to the name (`runtime.goexit.abi0`).
#[must_use]
pub fn begins_a_thread(function: &[u8]) -> bool {
    ROOTS.contains(&function.strip_suffix(b".abi0").unwrap_or(function))
}

/// Numbers of samples by the outcome for their user stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unwinding {
    /// Samples with an unwound user stack, up to its end or not.
    #[serde(default)]
    pub unwound: u64,
    /// Samples that keep the stack from frame pointers, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept: BTreeMap<Kept, u64>,
    /// Code of the functions that threads begin with, where call frame information ends. Each is reported
    /// once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<At>,
}

impl Unwinding {
    /// Returns whether nothing was to be unwound.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.unwound == 0 && self.kept.is_empty() && self.first.is_empty()
    }

    /// Adds a sample that keeps its stack.
    pub fn keep(&mut self, why: Kept) {
        let count = self.kept.entry(why).or_default();
        *count = count.saturating_add(1);
    }

    /// Adds later outcomes.
    pub fn append(&mut self, mut later: Self) {
        self.unwound = self.unwound.saturating_add(later.unwound);
        for (why, count) in later.kept {
            let kept = self.kept.entry(why).or_default();
            *kept = kept.saturating_add(count);
        }
        self.first.append(&mut later.first);
    }
}

/// Reason why a user stack is the one from frame pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// The ring buffer had no room for a copy of the stack.
    RingFull,
    /// The sample was in the kernel, where the registers of user mode are out of reach, or in a 32-bit program.
    NoRegisters,
    /// The stack could not be read.
    Unreadable,
    /// Too many stacks waited.
    Behind,
    /// Unwinding had used up its share of time.
    NoTime,
    /// The unwinding process ended, or took too long, on the program's files.
    Failed,
    /// Frame pointers led further.
    Shorter,
    /// Reason of a later version.
    #[serde(other)]
    Other,
}

impl Kept {
    /// Returns the name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RingFull => "ring_full",
            Self::NoRegisters => "no_registers",
            Self::Unreadable => "unreadable",
            Self::Behind => "behind",
            Self::NoTime => "no_time",
            Self::Failed => "failed",
            Self::Shorter => "shorter",
            Self::Other => "other",
        }
    }

    /// Returns the text for a sentence.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::RingFull => "no room in the ring buffer",
            Self::NoRegisters => {
                "in the kernel, where user registers are out of reach, or in a 32-bit program"
            }
            Self::Unreadable => "the stack could not be read",
            Self::Behind => "too many waited",
            Self::NoTime => "unwinding had used up its time",
            Self::Failed => "the unwinding process ended or hung on the program's files",
            Self::Shorter => "frame pointers led further",
            Self::Other => "other reasons",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Kept, Unwinding, begins_a_thread};

    #[test]
    fn a_function_of_go_s_assembly_has_its_calling_convention_behind_its_name() {
        assert!(begins_a_thread(b"runtime.goexit") && begins_a_thread(b"runtime.goexit.abi0"));
        assert!(!begins_a_thread(b"main.main") && !begins_a_thread(b".abi0"));
    }

    #[test]
    fn reasons_are_written_by_their_names_and_later_ones_are_read() {
        let mut unwinding = Unwinding { unwound: 5, ..Unwinding::default() };
        let all = [
            Kept::RingFull,
            Kept::NoRegisters,
            Kept::Unreadable,
            Kept::Behind,
            Kept::NoTime,
            Kept::Failed,
            Kept::Shorter,
        ];
        for why in all {
            unwinding.keep(why);
            assert_eq!(serde_json::to_value(why).unwrap(), why.name());
        }
        let text = serde_json::to_string(&unwinding).unwrap();
        assert_eq!(serde_json::from_str::<Unwinding>(&text).unwrap(), unwinding);
        let later: Unwinding = serde_json::from_str(r#"{"kept":{"of_tomorrow":3}}"#).unwrap();
        assert_eq!(later.kept[&Kept::Other], 3);
    }
}
