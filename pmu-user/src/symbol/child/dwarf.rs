//! Functions, lines and inlined calls by offset in an ELF file, from its DWARF or that of its debug file.
//!
//! Mangled names (C++, Rust) are made readable. One that does not begin as a mangled name does is shown as it is: `f` is a function of C,
//! not the type `float`.

use std::{
    borrow::Cow,
    fmt::Write,
    time::{Duration, Instant},
};

use addr2line::{
    Context, Frame,
    gimli::{self, EndianSlice, RunTimeEndian, SectionId},
};
use object::{Object as _, ObjectSection as _};

use super::{
    elf::{addresses, parse},
    wire::Why,
};
use crate::{
    drain::{Code, Line, Word},
    untrusted::Untrusted,
};

/// Bytes of compressed sections that are unpacked. What they claim is all that is known before.
const UNPACKED_BYTES_MAX: u64 = 96 << 20;
/// How long looking up the lines of a file may take, once its units are known. What is first asked for is looked up first.
const LINES: Duration = Duration::from_millis(250);
/// Inlined calls that an address keeps.
const INLINED_MAX: usize = 64;
/// Bytes of a source file's path that are kept.
const PATH_BYTES_MAX: usize = 4096;

type Slice<'data> = EndianSlice<'data, RunTimeEndian>;

/// What DWARF says of the code at offsets of `file`; `None` where it says nothing. `shared` is the file that the debug
/// file shares with others.
pub(super) fn lines(
    file: &[u8],
    debug: Option<&[u8]>,
    shared: Option<&[u8]>,
    offsets: &[u64],
) -> Result<Vec<Option<Code>>, Why> {
    let file = parse(file)?;
    let debug = debug.map(parse).transpose()?;
    let shared = shared.map(parse).transpose()?;
    let addresses = addresses(&file, offsets);
    let debug = debug.as_ref().unwrap_or(&file);
    let budget = &mut { UNPACKED_BYTES_MAX };
    let sections = Sections::of(debug, budget)?;
    let shared_sections = shared.as_ref().map(|shared| Sections::of(shared, budget)).transpose()?;
    let mut dwarf = sections.dwarf();
    dwarf.sup = shared_sections.as_ref().map(|shared| std::sync::Arc::new(shared.dwarf()));
    let context = Context::from_dwarf(dwarf).map_err(|_| Why::Damaged)?;
    let until = Instant::now() + LINES;
    let in_time = |address| (Instant::now() < until).then(|| code(&context, address))?;
    Ok(addresses.into_iter().map(|address| in_time(address?)).collect())
}

/// The debug sections of a file, unpacked.
struct Sections<'data> {
    sections: gimli::DwarfSections<Cow<'data, [u8]>>,
    endian: RunTimeEndian,
}

impl<'data> Sections<'data> {
    /// Reads them as long as the `budget` of unpacked bytes lasts.
    fn of(file: &object::File<'data>, budget: &mut u64) -> Result<Self, Why> {
        let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let sections = gimli::DwarfSections::load(|id| section(file, id, budget))?;
        Ok(Self { sections, endian })
    }

    fn dwarf(&self) -> gimli::Dwarf<Slice<'_>> {
        self.sections.borrow(|section| EndianSlice::new(section, self.endian))
    }
}

fn section<'data>(
    file: &object::File<'data>,
    id: SectionId,
    budget: &mut u64,
) -> Result<Cow<'data, [u8]>, Why> {
    let Some(section) = file.section_by_name(id.name()) else { return Ok(Cow::Borrowed(&[])) };
    let data = section.compressed_data().map_err(|_| Why::Damaged)?;
    if data.format != object::CompressionFormat::None {
        *budget = budget.checked_sub(data.uncompressed_size).ok_or(Why::TooLarge)?;
    }
    data.decompress().map_err(|_| Why::Damaged)
}

/// The outermost function at an address, the line that is executed in it, and the calls inlined there.
fn code(context: &Context<Slice<'_>>, address: u64) -> Option<Code> {
    let mut frames = context.find_frames(address).skip_all_loads().ok()?;
    let mut inlined: Vec<Word> = Vec::new();
    let mut outermost: Option<(Untrusted, Option<Line>)> = None;
    while let Ok(Some(frame)) = frames.next() {
        let here = (name(&frame)?, line(&frame));
        if let Some((inner, _)) = outermost.replace(here) {
            inlined.push(Word(inner));
        }
        if inlined.len() > INLINED_MAX {
            return None;
        }
    }
    inlined.reverse();
    let (function, line) = outermost?;
    Some(Code { function, line, inlined })
}

/// The function's name; empty if DWARF has only the line.
fn name(frame: &Frame<'_, Slice<'_>>) -> Option<Untrusted> {
    match &frame.function {
        Some(function) => Some(Untrusted::new(demangle(function.raw_name().ok()?.as_bytes()))),
        None => Some(Untrusted::default()),
    }
}

fn line(frame: &Frame<'_, Slice<'_>>) -> Option<Line> {
    let location = frame.location.as_ref()?;
    let file = location.file?.as_bytes();
    Some(Line { file: Untrusted::new(&file[..file.len().min(PATH_BYTES_MAX)]), line: location.line? })
}

/// Bytes of a name that are kept.
const NAME_BYTES_MAX: usize = 4096;

/// Code of which only the symbol's name is known.
pub(in crate::symbol) fn without_lines(name: &[u8]) -> Code {
    Code { function: Untrusted::new(demangle(name)), line: None, inlined: Vec::new() }
}

/// A readable name.
fn demangle(name: &[u8]) -> Vec<u8> {
    let readable = match std::str::from_utf8(name) {
        Ok(text) if text.starts_with("_R") || text.starts_with("_Z") => mangled(text),
        _ => None,
    };
    let mut readable = readable.map_or_else(|| name.to_vec(), String::into_bytes);
    readable.truncate(NAME_BYTES_MAX);
    readable
}

fn mangled(name: &str) -> Option<String> {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // Without the hash that tells two versions of a crate apart.
        return Some(format!("{rust:#}"));
    }
    let mut readable = Bounded(String::new());
    let symbol = cpp_demangle::Symbol::new(name).ok()?;
    symbol.structured_demangle(&mut readable, &cpp_demangle::DemangleOptions::default()).ok()?;
    Some(readable.0)
}

/// Text that stops growing: a short mangled name may stand for a very long one.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.push_str(text);
        if self.0.len() > NAME_BYTES_MAX { Err(std::fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{NAME_BYTES_MAX, demangle};

    #[test]
    fn a_function_of_c_is_called_as_its_source_calls_it() {
        for name in
            ["f", "i", "d", "h", "Ss", "St", "PKc", "w", "main", "_start", "__GI_getpid", "Z3foov", "RNv"]
        {
            assert_eq!(demangle(name.as_bytes()), name.as_bytes());
        }
    }

    #[test]
    fn mangled_names_are_readable() {
        assert_eq!(demangle(b"_ZN3std2io5Write9write_all17h0123456789abcdefE"), b"std::io::Write::write_all");
        assert_eq!(demangle(b"_RNvC6_123foo3bar"), b"123foo::bar");
        assert_eq!(demangle(b"_Z3addii"), b"add(int, int)");
        assert_eq!(demangle(b"_Z"), b"_Z");
    }

    #[test]
    fn a_name_is_no_longer_than_it_may_be() {
        assert_eq!(demangle(&[b'n'; 100_000]).len(), NAME_BYTES_MAX);
    }
}
