//! Locations of code, independent of where it is mapped, and names of code.

use serde::{Deserialize, Serialize};

use crate::untrusted::{Untrusted, exact};

/// Location of code, independent of the process and the address that map it. Serialized as a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u32, u64)", into = "(u32, u64)")]
pub struct At {
    /// Number of the source that contains the code.
    pub source: u32,
    /// Offset in the file, or an address if there is no file.
    pub offset: u64,
}

impl At {
    /// Source number of the kernel. Its offsets are addresses.
    pub const KERNEL: u32 = 0;

    /// Returns the location of a kernel address.
    #[must_use]
    pub const fn kernel(address: u64) -> Self {
        Self { source: Self::KERNEL, offset: address }
    }

    /// Largest number for [`At::later`].
    pub const LATER_MAX: u16 = 0x7fff;

    /// Returns the location of the `number`th kernel code at an address, counted from 0. From number 1 on,
    /// the offset is not an address.
    #[must_use]
    pub const fn later(address: u64, number: u16) -> Self {
        if number == 0 || address >> ADDRESS_BITS != KERNEL_HALF {
            return Self::kernel(address);
        }
        Self::kernel(address & !(KERNEL_HALF << ADDRESS_BITS) | (number as u64) << ADDRESS_BITS)
    }

    /// Returns the location of process code at an address in one of the numbered time spans of its source.
    #[must_use]
    pub const fn in_span(source: u32, address: u64, span: u16) -> Self {
        Self { source, offset: address | IN_SPAN | (span as u64) << ADDRESS_BITS }
    }

    /// Returns the offset, or the address if the offset stands for code of one time, and the number of that
    /// time. The number is 0 if the offset stands for itself.
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

    /// Returns the offset, or the address if the offset stands for code of one time.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.address_and_number().0
    }

    /// Returns whether this is kernel code.
    #[must_use]
    pub const fn is_kernel(self) -> bool {
        self.source == Self::KERNEL
    }
}

/// Bits of an address. The number for code of one time is stored above them.
const ADDRESS_BITS: u32 = 48;
/// Value of these upper bits in a kernel address.
const KERNEL_HALF: u64 = 0xffff;
/// Bit that no process address has.
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

/// Place in a stack where frames are missing, with the reason. It stands in the stack as if it were code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cut {
    /// The stack has more frames than were taken. The number of frames taken is given.
    Deep(u32),
    /// The caller is not known: the next return address is in no mapping.
    Broken,
    /// Frame pointers skip the caller of a function that keeps no frame pointer.
    Skipped,
}

impl Cut {
    /// Source numbers that no code is part of. The number above them is for code that is not kept apart.
    const SOURCES: [u32; 3] = [u32::MAX - 1, u32::MAX - 2, u32::MAX - 3];

    /// Returns the location that stands for the cut in a stack.
    #[must_use]
    pub fn at(self) -> At {
        let [deep, broken, skipped] = Self::SOURCES;
        match self {
            Self::Deep(frames) => At { source: deep, offset: frames.into() },
            Self::Broken => At { source: broken, offset: 0 },
            Self::Skipped => At { source: skipped, offset: 0 },
        }
    }

    /// Returns the cut that a frame stands for, or `None` if the frame is code.
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

    /// Returns the name in machine-readable outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deep(_) => "deep",
            Self::Broken => "broken",
            Self::Skipped => "skipped",
        }
    }

    /// Returns the text that stands for the missing frames.
    #[must_use]
    pub fn in_words(self) -> String {
        match self {
            Self::Deep(frames) => format!("(cut at {frames} frames)"),
            Self::Broken => "(callers not known)".to_owned(),
            Self::Skipped => "(a caller may be missing)".to_owned(),
        }
    }
}

/// Source of code: the kernel, a mapped file, the output of a JIT, or unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRow {
    /// Number of the source.
    pub source: u32,
    /// Path in the view of its process, or `[vdso]` and the like. `None` for the kernel, and if nothing is
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Word>,
    /// Build id in hexadecimal, if the source is a file that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// Reason why its code has no name as long as no name has been looked up.
    pub unnamed: String,
    /// Parts of the file that are loaded for execution, if the source is a file. With them, names can be
    /// looked up in its debug file alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loaded: Vec<Loaded>,
}

/// A part of an ELF file that is loaded: a program header (elf(5), `PT_LOAD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u64)", into = "(u64, u64, u64)")]
pub struct Loaded {
    /// Offset of the part in the file.
    pub offset: u64,
    /// Bytes of the part in the file.
    pub bytes: u64,
    /// Load address, in the file's own terms.
    pub address: u64,
}

impl Loaded {
    /// Returns the load address of an offset in the file, if the offset is in this part.
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

/// Reasons for a missing name that another lookup with more time can find.
pub mod in_time {
    /// Code that was not looked up, because the run did not come to that.
    pub const NOT_YET: &str = "not looked up";
    /// File that took longer than one file may.
    pub const SLOW: &str = "names: file took too long";
    /// No time left for names.
    pub const NO_TIME: &str = "names: no time was left";
    /// Finding the mapped file took too long.
    pub const LATE: &str = "names: finding out what is mapped took too long";
    /// Reading the address map of its process took too long.
    pub const SLOW_MAP: &str = "names: its address map took too long";

    /// Returns whether the reason is one of these.
    #[must_use]
    pub fn is(why: &str) -> bool {
        [NOT_YET, SLOW, NO_TIME, LATE, SLOW_MAP].contains(&why)
    }
}

/// The name of code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// Location of the code.
    pub at: At,
    /// Function and source line if they are known, or the reason why not.
    pub code: Result<Code, String>,
    /// Start of the function, if it is known although the name is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins: Option<u64>,
}

impl Name {
    /// Returns the name of code without the start of its function.
    #[must_use]
    pub const fn new(at: At, code: Result<Code, String>) -> Self {
        Self { at, code, begins: None }
    }
}

/// A file and an offset in it, enough to look code up later, elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Module {
    /// Path in the view of its process, or `[vdso]` and the like.
    #[serde(with = "exact")]
    pub path: Untrusted,
    /// Build id in hexadecimal, if the file has one.
    pub build_id: Option<String>,
    /// Offset of the code in the file.
    pub offset: u64,
    /// Parts of the file that are loaded for execution, if they were recorded.
    #[serde(skip)]
    pub loaded: Vec<Loaded>,
}

/// Function and source line that an instruction belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// Demangled function name.
    #[serde(with = "exact")]
    pub function: Untrusted,
    /// Source line. If functions are inlined, the line that calls the outermost of them.
    pub line: Option<Line>,
    /// Functions inlined there, outermost first.
    pub inlined: Vec<Word>,
    /// Source line in each of these functions, in the same order. Empty in older recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inlined_lines: Vec<Option<Line>>,
}

impl Code {
    /// Returns the functions that contain an instruction, outermost first, each with the line in it.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = (&Untrusted, Option<&Line>)> {
        (0..=self.inlined.len()).map(|index| match index.checked_sub(1) {
            None => (&self.function, self.line.as_ref()),
            Some(index) => (&self.inlined[index].0, self.inlined_lines.get(index).and_then(Option::as_ref)),
        })
    }
}

/// Name chosen by others, in a list or in an optional field.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Word(#[serde(with = "exact")] pub Untrusted);

/// A source line.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Line {
    /// Name of the file.
    #[serde(with = "exact")]
    pub file: Untrusted,
    /// Number of the line.
    pub line: u32,
}
