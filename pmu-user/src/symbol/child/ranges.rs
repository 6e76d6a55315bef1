//! Start and end of functions by the call frame information of an ELF file (`.eh_frame`), which strip(1) does
//! not remove. The table in `.eh_frame_hdr` is sorted by start. Without it, all entries are read.

use addr2line::gimli::{
    BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, EndianSlice, ParsedEhFrameHdr, RunTimeEndian,
    UnwindSection as _,
};
use object::{Object as _, ObjectSection as _};

/// Entries that are read of a file without a table.
const ENTRIES_MAX: usize = 1 << 19;

type Slice<'data> = EndianSlice<'data, RunTimeEndian>;

/// Functions with call frame information.
pub(super) struct Ranges<'data>(Option<Kept<'data>>);

enum Kept<'data> {
    Sorted {
        table: Box<ParsedEhFrameHdr<Slice<'data>>>,
        entries: EhFrame<Slice<'data>>,
        bases: Box<BaseAddresses>,
    },
    /// Start and end of each function, in order.
    All(Vec<(u64, u64)>),
}

impl<'data> Ranges<'data> {
    /// Reads the functions of a file.
    pub(super) fn of(file: &object::File<'data>) -> Self {
        Self(kept(file))
    }

    /// Returns the start and end of the last function that begins at or before an address.
    pub(super) fn before(&self, address: u64) -> Option<(u64, u64)> {
        match self.0.as_ref()? {
            Kept::All(all) => all[..all.partition_point(|&(begins, _)| begins <= address)].last().copied(),
            Kept::Sorted { table, entries, bases } => {
                let table = table.table()?;
                let place = table.pointer_to_offset(table.lookup(address, bases).ok()?).ok()?;
                let entry = entries.fde_from_offset(bases, place, EhFrame::cie_from_offset).ok()?;
                let begins = entry.initial_address();
                (begins <= address).then(|| (begins, begins.saturating_add(entry.len())))
            }
        }
    }
}

fn kept<'data>(file: &object::File<'data>) -> Option<Kept<'data>> {
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let word_bytes = if file.is_64() { 8 } else { 4 };
    let section = file.section_by_name(".eh_frame")?;
    let mut bases = BaseAddresses::default().set_eh_frame(section.address());
    for (name, set) in [
        (".eh_frame_hdr", BaseAddresses::set_eh_frame_hdr as fn(_, _) -> _),
        (".text", BaseAddresses::set_text),
        (".got", BaseAddresses::set_got),
    ] {
        if let Some(section) = file.section_by_name(name) {
            bases = set(bases, section.address());
        }
    }
    let data = section.data().ok().filter(|data| !data.is_empty())?;
    let mut entries = EhFrame::new(data, endian);
    entries.set_address_size(word_bytes);
    let header = file.section_by_name(".eh_frame_hdr").and_then(|header| header.data().ok());
    let table = header.and_then(|header| EhFrameHdr::new(header, endian).parse(&bases, word_bytes).ok());
    Some(match table.filter(|table| table.table().is_some()) {
        Some(table) => Kept::Sorted { table: Box::new(table), entries, bases: Box::new(bases) },
        None => Kept::All(all(&entries, &bases)),
    })
}

/// Returns all functions of a file without a table.
fn all(entries: &EhFrame<Slice<'_>>, bases: &BaseAddresses) -> Vec<(u64, u64)> {
    let (mut all, mut read) = (Vec::new(), entries.entries(bases));
    while all.len() < ENTRIES_MAX
        && let Ok(Some(entry)) = read.next()
    {
        let CieOrFde::Fde(entry) = entry else { continue };
        let Ok(entry) = entry.parse(EhFrame::cie_from_offset) else { continue };
        let begins = entry.initial_address();
        all.push((begins, begins.saturating_add(entry.len())));
    }
    all.sort_unstable();
    all
}
