//! Functions, lines and inlined calls by offset in an ELF file, from its DWARF or that of its debug file.

use std::{
    borrow::Cow,
    time::{Duration, Instant},
};

use addr2line::{
    Context, Frame,
    gimli::{self, EndianSlice, RunTimeEndian, SectionId},
};
use object::{Object as _, ObjectSection as _};

use super::{
    demangle::demangle,
    elf::{addresses, parse},
    wire::Why,
};
use crate::{
    drain::{Code, Line, Loaded, Word},
    untrusted::Untrusted,
};

/// Bytes of compressed sections that are unpacked. Only the size that they claim is known before.
const UNPACKED_BYTES_MAX: u64 = 96 << 20;
/// Longest time for looking up the lines of a file, once its units are read. Addresses are looked up in the
/// order of the request.
const LINES: Duration = Duration::from_millis(250);
/// Inlined calls that are kept for an address.
const INLINED_MAX: usize = 64;
/// Bytes of a source file's path that are kept.
const PATH_BYTES_MAX: usize = 4096;

type Slice<'data> = EndianSlice<'data, RunTimeEndian>;

/// Returns the DWARF data of the code at offsets of `file`, whose segments were `recorded`. Reads its debug
/// file, and the file that this shares with others. An entry is `None` where DWARF has no data.
pub(super) fn lines(
    file: &[u8],
    (debug, shared): (Option<&[u8]>, Option<&[u8]>),
    recorded: &[Loaded],
    offsets: &[u64],
) -> Result<Vec<Option<Code>>, Why> {
    let file = parse(file)?;
    let debug = debug.map(parse).transpose()?;
    let shared = shared.map(parse).transpose()?;
    let addresses = addresses(&file, recorded, offsets);
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

/// Debug sections of a file, unpacked.
struct Sections<'data> {
    sections: gimli::DwarfSections<Cow<'data, [u8]>>,
    endian: RunTimeEndian,
}

impl<'data> Sections<'data> {
    /// Reads the sections within the `budget` of unpacked bytes.
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

/// Returns the outermost function at an address, the line that is executed in it, and the calls inlined
/// there, each with its line.
fn code(context: &Context<Slice<'_>>, address: u64) -> Option<Code> {
    let mut frames = context.find_frames(address).skip_all_loads().ok()?;
    let mut inner: Vec<(Untrusted, Option<Line>)> = Vec::new();
    let mut outermost: Option<(Untrusted, Option<Line>)> = None;
    while let Ok(Some(frame)) = frames.next() {
        let here = (name(&frame)?, line(&frame));
        inner.extend(outermost.replace(here));
        if inner.len() > INLINED_MAX {
            return None;
        }
    }
    let (function, line) = outermost?;
    let (inlined, inlined_lines) = inner.into_iter().rev().map(|(name, line)| (Word(name), line)).unzip();
    Some(Code { function, line, inlined, inlined_lines })
}

/// Returns the name of the function. Empty if DWARF has only the line.
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

/// Returns code of which only the symbol's name is known.
pub(in crate::symbol) fn without_lines(name: &[u8]) -> Code {
    Code { function: Untrusted::new(demangle(name)), ..Code::default() }
}
