//! Code, wherever it is mapped, and what it is called.

use serde::{Deserialize, Serialize};

use crate::untrusted::{Untrusted, exact};

/// Code, whichever process has it mapped, and wherever. Written as a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u32, u64)", into = "(u32, u64)")]
pub struct At {
    /// Number of the source that it is part of.
    pub source: u32,
    /// Offset in the file; an address where there is none.
    pub offset: u64,
}

impl At {
    /// The source that is the kernel: its offsets are addresses.
    pub const KERNEL: u32 = 0;

    /// An address of the kernel.
    #[must_use]
    pub const fn kernel(address: u64) -> Self {
        Self { source: Self::KERNEL, offset: address }
    }

    /// Is it kernel code?
    #[must_use]
    pub const fn is_kernel(self) -> bool {
        self.source == Self::KERNEL
    }
}

impl From<(u32, u64)> for At {
    fn from((source, offset): (u32, u64)) -> Self {
        Self { source, offset }
    }
}

impl From<At> for (u32, u64) {
    fn from(at: At) -> Self {
        (at.source, at.offset)
    }
}

/// What code is part of: the kernel, a mapped file, what a JIT made, or nothing that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRow {
    /// Its number.
    pub source: u32,
    /// Path in its process's view, or `[vdso]` and the like; none for the kernel, and where nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Word>,
    /// Build id in hexadecimal, if it is a file that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// Why its code has no name while none has been looked up.
    pub unnamed: String,
}

/// The name of code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// The code.
    pub at: At,
    /// Function and source line, if they are known; else why not.
    pub code: Result<Code, String>,
}

/// A file and an offset in it, enough to look code up later, elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Module {
    /// Path in its process's view, or `[vdso]` and the like.
    #[serde(with = "exact")]
    pub path: Untrusted,
    /// Build id in hexadecimal, if the file has one.
    pub build_id: Option<String>,
    /// Offset of the code in the file.
    pub offset: u64,
}

/// What an instruction is part of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// Function, demangled.
    #[serde(with = "exact")]
    pub function: Untrusted,
    /// Source line.
    pub line: Option<Line>,
    /// Functions inlined there, outermost first.
    pub inlined: Vec<Word>,
}

/// A name that others chose, in a list or where there may be none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Word(#[serde(with = "exact")] pub Untrusted);

/// A source line.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Line {
    /// File.
    #[serde(with = "exact")]
    pub file: Untrusted,
    /// Line number.
    pub line: u32,
}
