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

    /// Most of [`At::later`].
    pub const LATER_MAX: u16 = 0x7fff;

    /// Code of the kernel that was the `number`th at an address, the first being 0: those after it have offsets that are no addresses.
    #[must_use]
    pub const fn later(address: u64, number: u16) -> Self {
        if number == 0 || address >> ADDRESS_BITS != KERNEL_HALF {
            return Self::kernel(address);
        }
        Self::kernel(address & !(KERNEL_HALF << ADDRESS_BITS) | (number as u64) << ADDRESS_BITS)
    }

    /// Code of a process at an address in one of the numbered spans of time of its source.
    #[must_use]
    pub const fn in_span(source: u32, address: u64, span: u16) -> Self {
        Self { source, offset: address | IN_SPAN | (span as u64) << ADDRESS_BITS }
    }

    /// The offset, or the address where that stands for code of one time, and the number of that time; 0 if it stands for itself.
    #[must_use]
    pub const fn address_and_number(self) -> (u64, u16) {
        let (low, high) = (self.offset & !(KERNEL_HALF << ADDRESS_BITS), self.offset >> ADDRESS_BITS);
        let is_marked = self.offset & IN_SPAN != 0;
        match (self.is_kernel(), is_marked) {
            (true, false) if high != 0 => (low | KERNEL_HALF << ADDRESS_BITS, high as u16),
            (false, true) => (low, high as u16 & Self::LATER_MAX),
            _ => (self.offset, 0),
        }
    }

    /// The offset, or the address where that stands for code of one time.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.address_and_number().0
    }

    /// Is it kernel code?
    #[must_use]
    pub const fn is_kernel(self) -> bool {
        self.source == Self::KERNEL
    }
}

/// Bits of an address that number code of one time stands above.
const ADDRESS_BITS: u32 = 48;
/// What stands there in an address of the kernel.
const KERNEL_HALF: u64 = 0xffff;
/// No address of a process has it.
const IN_SPAN: u64 = 1 << 63;

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

/// Where a stack lacks frames, and why. It stands in the stack as if it were code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cut {
    /// There are more frames than were taken, which is this many.
    Deep(u32),
    /// What returns here is not known: the next return address is in no mapping.
    Broken,
    /// By frame pointers, the caller of a function that keeps none is passed over.
    Skipped,
}

impl Cut {
    /// Sources that no code is part of: from this one down, but for that of code which is not kept apart.
    const SOURCES: [u32; 3] = [u32::MAX - 1, u32::MAX - 2, u32::MAX - 3];

    /// It, in a stack.
    #[must_use]
    pub fn at(self) -> At {
        let [deep, broken, skipped] = Self::SOURCES;
        match self {
            Self::Deep(frames) => At { source: deep, offset: frames.into() },
            Self::Broken => At { source: broken, offset: 0 },
            Self::Skipped => At { source: skipped, offset: 0 },
        }
    }

    /// What a frame stands for; `None` if it is code.
    #[must_use]
    pub fn of(at: At) -> Option<Self> {
        let [deep, broken, skipped] = Self::SOURCES;
        match at.source {
            source if source == deep => Some(Self::Deep(u32::try_from(at.offset).unwrap_or(u32::MAX))),
            source if source == broken => Some(Self::Broken),
            source if source == skipped => Some(Self::Skipped),
            _ => None,
        }
    }

    /// Its name in outputs for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deep(_) => "deep",
            Self::Broken => "broken",
            Self::Skipped => "skipped",
        }
    }

    /// What stands for the frames.
    #[must_use]
    pub fn in_words(self) -> String {
        match self {
            Self::Deep(frames) => format!("(cut at {frames} frames)"),
            Self::Broken => "(callers not known)".to_owned(),
            Self::Skipped => "(a caller may be missing)".to_owned(),
        }
    }
}

/// What code is part of: the kernel, a mapped file, what a JIT made, or nothing that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// What of it is loaded to be executed, if it is a file: so that names can be looked up in its debug file alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loaded: Vec<Loaded>,
}

/// A part of an ELF file that is loaded: a program header (elf(5), `PT_LOAD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u64)", into = "(u64, u64, u64)")]
pub struct Loaded {
    /// Where it begins in the file.
    pub offset: u64,
    /// Bytes of it there.
    pub bytes: u64,
    /// The address that it is loaded at, in the file's own terms.
    pub address: u64,
}

impl Loaded {
    /// The address that an offset in the file is loaded at, if it is in this part.
    #[must_use]
    pub fn address_of(self, offset: u64) -> Option<u64> {
        let within = offset.checked_sub(self.offset).filter(|&within| within < self.bytes)?;
        self.address.checked_add(within)
    }
}

impl From<(u64, u64, u64)> for Loaded {
    fn from((offset, bytes, address): (u64, u64, u64)) -> Self {
        Self { offset, bytes, address }
    }
}

impl From<Loaded> for (u64, u64, u64) {
    fn from(loaded: Loaded) -> Self {
        (loaded.offset, loaded.bytes, loaded.address)
    }
}

/// Reasons why code has no name that another look can bring, with more time.
pub mod in_time {
    /// It was not looked up: the run did not come to that.
    pub const NOT_YET: &str = "not looked up";
    /// Its file took longer than one may.
    pub const SLOW: &str = "names: file took too long";
    /// The time for names was over.
    pub const NO_TIME: &str = "names: no time was left";
    /// Finding its file took too long.
    pub const LATE: &str = "names: finding out what is mapped took too long";
    /// Reading its process's address map took too long.
    pub const SLOW_MAP: &str = "names: its address map took too long";

    /// Is it one of them?
    #[must_use]
    pub fn is(why: &str) -> bool {
        [NOT_YET, SLOW, NO_TIME, LATE, SLOW_MAP].contains(&why)
    }
}

/// The name of code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// The code.
    pub at: At,
    /// Function and source line, if they are known; else why not.
    pub code: Result<Code, String>,
    /// Where its function begins, if that is known although its name is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins: Option<u64>,
}

impl Name {
    /// Of code.
    #[must_use]
    pub const fn new(at: At, code: Result<Code, String>) -> Self {
        Self { at, code, begins: None }
    }
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
    /// What of the file is loaded to be executed, if that was recorded.
    #[serde(skip)]
    pub loaded: Vec<Loaded>,
}

/// What an instruction is part of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// Function, demangled.
    #[serde(with = "exact")]
    pub function: Untrusted,
    /// Source line; where functions are inlined, the one that calls the outermost of them.
    pub line: Option<Line>,
    /// Functions inlined there, outermost first.
    pub inlined: Vec<Word>,
    /// The line in each of them, in their order; none at all in older recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inlined_lines: Vec<Option<Line>>,
}

impl Code {
    /// The functions that an instruction is part of, outermost first, each with the line in it.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = (&Untrusted, Option<&Line>)> {
        (0..=self.inlined.len()).map(|index| match index.checked_sub(1) {
            None => (&self.function, self.line.as_ref()),
            Some(index) => (&self.inlined[index].0, self.inlined_lines.get(index).and_then(Option::as_ref)),
        })
    }
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
