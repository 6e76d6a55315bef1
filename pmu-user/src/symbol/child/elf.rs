//! Who an ELF file is, and where its code is loaded.

use object::{Object as _, ObjectSection as _, ObjectSegment, SectionFlags, SegmentFlags, elf};

use super::wire::{Identity, SEGMENTS_MAX, Why};
use crate::drain::Loaded;

/// Sections of a file that are looked at.
pub(super) const SECTIONS_MAX: usize = 1 << 16;
/// A page, which what is loaded begins with.
const PAGE_BYTES: u64 = 4096;

/// Build id and links of a file, and what of it is loaded to be executed.
pub(super) fn identity(file: &[u8]) -> Result<Identity, Why> {
    let file = parse(file)?;
    let own = |bytes: &[u8]| bytes.to_vec();
    let debug_link = file.gnu_debuglink().ok().flatten().map(|(name, _)| own(name));
    let shared_link = file.gnu_debugaltlink().ok().flatten().map(|(path, _)| own(path));
    let holds_no_code = holds_no_code(&file);
    let code = file.segments().filter(is_code).map(|segment| loaded(&segment));
    let loaded = if holds_no_code { Vec::new() } else { code.take(SEGMENTS_MAX).collect() };
    let build_id = file.build_id().ok().flatten().map(own);
    Ok(Identity { build_id, debug_link, shared_link, loaded, holds_no_code })
}

/// Reads the headers of a file.
pub(super) fn parse(file: &[u8]) -> Result<object::File<'_>, Why> {
    object::File::parse(file).map_err(|_| Why::Damaged)
}

/// The addresses that offsets of a file are loaded at: by what was `recorded` of its segments, else by its own headers. Those of a debug
/// file say nothing about offsets (objcopy(1), `--only-keep-debug`): linkers lay a file out as it is loaded, from its first address on.
pub(super) fn addresses(file: &object::File<'_>, recorded: &[Loaded], offsets: &[u64]) -> Vec<Option<u64>> {
    let own = || match holds_no_code(file) {
        true => as_laid_out(file),
        false => file.segments().map(|segment| loaded(&segment)).collect(),
    };
    let segments = if recorded.is_empty() { own() } else { recorded.to_vec() };
    let address = |&wanted: &u64| segments.iter().find_map(|segment| segment.address_of(wanted));
    offsets.iter().map(address).collect()
}

fn loaded<'data>(segment: &impl ObjectSegment<'data>) -> Loaded {
    let (offset, bytes) = segment.file_range();
    Loaded { offset, bytes, address: segment.address() }
}

/// Is it loaded to be executed?
fn is_code<'data>(segment: &impl ObjectSegment<'data>) -> bool {
    matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & elf::PF_X != 0)
}

/// Where the segments of a debug file's program lie in that, as far as it can be said.
fn as_laid_out(file: &object::File<'_>) -> Vec<Loaded> {
    let Some(base) = file.segments().map(|segment| segment.address() / PAGE_BYTES * PAGE_BYTES).min() else {
        return Vec::new();
    };
    let laid_out = |address: u64, bytes: u64| Loaded { offset: address - base, bytes, address };
    file.segments().filter(is_code).map(|code| laid_out(code.address(), code.size())).collect()
}

/// Is it a debug file, which has its program's sections without what is in them?
fn holds_no_code(file: &object::File<'_>) -> bool {
    let mut code = file.sections().take(SECTIONS_MAX).filter(|section| match section.flags() {
        SectionFlags::Elf { sh_flags } => sh_flags & u64::from(elf::SHF_EXECINSTR) != 0,
        _ => false,
    });
    let first = code.next();
    let is_empty = |section: &object::Section<'_, '_>| section.file_range().is_none();
    first.is_some_and(|first| is_empty(&first)) && code.all(|section| is_empty(&section))
}
