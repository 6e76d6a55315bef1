//! Identity of an ELF file, and the load addresses of its code.

use object::{Object as _, ObjectSection as _, ObjectSegment, SectionFlags, SegmentFlags, elf};

use super::wire::{Identity, SEGMENTS_MAX, Why};
use crate::drain::Loaded;

/// Sections of a file that are examined, at most.
pub(super) const SECTIONS_MAX: usize = 1 << 16;
/// Page size, to which the first load address is aligned.
const PAGE_BYTES: u64 = 4096;

/// Returns build id and links of a file, and the segments that are loaded for execution.
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

/// Parses the headers of a file.
pub(super) fn parse(file: &[u8]) -> Result<object::File<'_>, Why> {
    object::File::parse(file).map_err(|_| Why::Damaged)
}

/// Returns the load addresses of offsets of a file: by its `recorded` segments, else by its own headers. The
/// headers of a debug file say nothing about offsets (objcopy(1), `--only-keep-debug`). Linkers lay a file
/// out as it is loaded, from its first address on.
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

/// Returns whether a segment is loaded for execution.
fn is_code<'data>(segment: &impl ObjectSegment<'data>) -> bool {
    matches!(segment.flags(), SegmentFlags::Elf { p_flags } if p_flags & elf::PF_X != 0)
}

/// Returns the segments of a debug file's program, as far as their offsets can be inferred.
fn as_laid_out(file: &object::File<'_>) -> Vec<Loaded> {
    let Some(base) = file.segments().map(|segment| segment.address() / PAGE_BYTES * PAGE_BYTES).min() else {
        return Vec::new();
    };
    let laid_out = |address: u64, bytes: u64| Loaded { offset: address - base, bytes, address };
    file.segments().filter(is_code).map(|code| laid_out(code.address(), code.size())).collect()
}

/// Returns whether this is a debug file, which has its program's sections without their contents.
fn holds_no_code(file: &object::File<'_>) -> bool {
    let mut code = file.sections().take(SECTIONS_MAX).filter(|section| match section.flags() {
        SectionFlags::Elf { sh_flags } => sh_flags & u64::from(elf::SHF_EXECINSTR) != 0,
        _ => false,
    });
    let first = code.next();
    let is_empty = |section: &object::Section<'_, '_>| section.file_range().is_none();
    first.is_some_and(|first| is_empty(&first)) && code.all(|section| is_empty(&section))
}
