//! Functions by offset in an ELF file, from its symbol tables. For stripped files they come from what cannot
//! be stripped: `.gopclntab`, the small table in `.gnu_debugdata`, and the ranges of `.eh_frame`. Of several
//! symbols at an address perf's choice is taken, so that the two agree (tools/perf/util/symbol.c,
//! `choose_best_symbol`, Linux 6.18).

use std::cmp::Reverse;

use object::{Architecture, Object as _, ObjectSection as _, ObjectSymbol, SymbolFlags, SymbolKind, elf};

use super::{
    elf::{SECTIONS_MAX, addresses, parse},
    go, mini,
    ranges::Ranges,
    stub,
    versions::Versions,
    wire::Why,
};
use crate::drain::Loaded;

/// Symbols of a table that are read: the largest programs have some millions.
const SYMBOLS_MAX: usize = 1 << 24;

/// Returns the names of the functions at offsets of `file`, whose segments were recorded as these. Its debug
/// file may have more of them.
pub(super) fn symbols(
    file: &[u8],
    debug: Option<&[u8]>,
    recorded: &[Loaded],
    offsets: &[u64],
) -> Result<Vec<Result<Vec<u8>, Why>>, Why> {
    let file = parse(file)?;
    let debug = debug.and_then(|debug| parse(debug).ok());
    let unpacked = std::cell::OnceCell::new();
    let addresses = addresses(&file, recorded, offsets);
    let ranges = Ranges::of(&file);
    let wanted = addresses.iter().flatten().map(|&address| Wanted::new(address, ranges.before(address)));
    let mut wanted: Vec<Wanted<'_>> = wanted.collect();
    wanted.sort_unstable_by_key(|wanted| wanted.address);
    wanted.dedup_by_key(|wanted| wanted.address);
    let versions = Versions::of(&file);
    let mut any = false;
    for of in [Some(&file), debug.as_ref()].into_iter().flatten() {
        any |= offer(of.symbols(), &Table::of(of, Some(&versions))?, &mut wanted)?;
    }
    let is_open = |wanted: &[Wanted<'_>]| wanted.iter().any(|wanted| wanted.sized.is_none());
    // The dynamic symbols are a subset of the others, which may have been stripped. Their names are without
    // versions.
    if is_open(&wanted) {
        any |= offer(file.dynamic_symbols(), &Table::of(&file, None)?, &mut wanted)?;
    }
    if is_open(&wanted)
        && let Some(small) = unpacked.get_or_init(|| mini::unpacked(&file))
        && let Ok(small) = parse(small)
    {
        any |= offer(small.symbols(), &Table::of(&small, Some(&versions))?, &mut wanted)?;
    }
    let unnamed: Vec<u64> =
        wanted.iter().filter(|wanted| wanted.name().is_none()).map(|wanted| wanted.address).collect();
    let mut others = go::names(&file, &unnamed);
    others.extend(stub::names(&file, &unnamed));
    let missing = if any || !others.is_empty() { Why::NotFound } else { Why::NoSymbols };
    let name = |(&offset, address): (&u64, &Option<u64>)| {
        let address = address.ok_or(Why::Outside)?;
        let index = wanted.binary_search_by_key(&address, |wanted| wanted.address).map_err(|_| missing)?;
        let known = wanted[index].name().map(<[u8]>::to_vec).or_else(|| others.get(&address).cloned());
        let within = wanted[index].range.filter(|&(_, end)| address < end);
        let begins = within.and_then(|(start, _)| offset.checked_sub(address - start));
        known.ok_or_else(|| begins.map_or(missing, Why::InFunction))
    };
    Ok(offsets.iter().zip(&addresses).map(name).collect())
}

/// Properties of a table by which its symbols are judged.
struct Table<'a, 'data> {
    /// End address of every section, by its index.
    section_ends: Vec<u64>,
    /// The table has marks between code and data.
    has_marks: bool,
    /// Versions with which names may end.
    versions: Option<&'a Versions<'data>>,
}

impl<'a, 'data> Table<'a, 'data> {
    fn of(file: &object::File<'_>, versions: Option<&'a Versions<'data>>) -> Result<Self, Why> {
        let mut section_ends = Vec::new();
        for section in file.sections() {
            let index = section.index().0;
            if index >= SECTIONS_MAX {
                return Err(Why::TooLarge);
            }
            section_ends.resize(section_ends.len().max(index + 1), 0);
            section_ends[index] = section.address().saturating_add(section.size());
        }
        let has_marks = matches!(file.architecture(), Architecture::Aarch64 | Architecture::Arm);
        Ok(Self { section_ends, has_marks, versions })
    }

    /// Returns the name of a symbol that stands for code: a function, or a label of assembly.
    fn code_name<'of>(&self, symbol: &impl ObjectSymbol<'of>) -> Option<&'of [u8]> {
        let is_code = match symbol.kind() {
            SymbolKind::Text => true,
            SymbolKind::Label | SymbolKind::Unknown => match symbol.flags() {
                // A label that is visible, as in perf (`elf_sym__is_label`).
                SymbolFlags::Elf { st_info, st_other } => {
                    st_info & 0xf == elf::STT_NOTYPE
                        && !matches!(st_other & 3, elf::STV_HIDDEN | elf::STV_INTERNAL)
                        && symbol.section_index().is_some()
                }
                _ => false,
            },
            _ => false,
        };
        let name = symbol.name_bytes().ok().filter(|name| !name.is_empty())?;
        let is_name = is_code && !symbol.is_undefined() && !(self.has_marks && is_mark(name));
        is_name.then(|| self.versions.map_or(name, |versions| versions.without(name)))
    }
}

/// Returns whether this is a mark between code and data on Arm, not a name (AAELF64, 5.5.5; AAELF32, 5.5.5).
fn is_mark(name: &[u8]) -> bool {
    matches!(name, [b'$', b'a' | b'd' | b't' | b'x'] | [b'$', b'a' | b'd' | b't' | b'x', b'.', ..])
}

/// An address, and the symbols that may hold it.
struct Wanted<'data> {
    address: u64,
    /// Best symbol with a size that holds the address.
    sized: Option<(Rank, &'data [u8])>,
    /// Last symbol without a size at or before the address, in the same section: a label, which ends where
    /// the next symbol begins.
    label: Option<Label<'data>>,
    /// Start of the last symbol at or before the address.
    last: u64,
    /// Last function at or before the address that has call frame information: its start and end.
    range: Option<(u64, u64)>,
}

/// A symbol without a size.
#[derive(Clone, Copy)]
struct Label<'data> {
    rank: Rank,
    /// End of the symbol's section.
    end: u64,
    name: &'data [u8],
}

impl<'data> Wanted<'data> {
    const fn new(address: u64, range: Option<(u64, u64)>) -> Self {
        Self { address, sized: None, label: None, last: 0, range }
    }

    fn name(&self) -> Option<&'data [u8]> {
        match (&self.sized, &self.label) {
            (Some((_, name)), _) => Some(name),
            (None, Some(label)) if label.rank.start == self.last && self.is_of(label) => Some(label.name),
            _ => None,
        }
    }

    /// Returns whether the address is known to belong to a label. Between the two no section may end, and no
    /// function that has lost its symbol may begin or end.
    const fn is_of(&self, label: &Label<'_>) -> bool {
        let (start, address) = (label.rank.start, self.address);
        let is_one = match self.range {
            Some((begins, ends)) => begins <= start && (address < ends || ends <= start),
            None => true,
        };
        is_one && address < label.end
    }
}

/// Offers symbols to the addresses that they hold. Returns whether any of them is a function.
fn offer<'data>(
    symbols: impl Iterator<Item = impl ObjectSymbol<'data>>,
    table: &Table<'_, '_>,
    wanted: &mut [Wanted<'data>],
) -> Result<bool, Why> {
    let mut any = false;
    for (index, symbol) in symbols.enumerate() {
        if index == SYMBOLS_MAX {
            return Err(Why::TooLarge);
        }
        let Some(name) = table.code_name(&symbol) else { continue };
        any = true;
        let (start, size) = (symbol.address(), symbol.size());
        let binding = match (symbol.is_weak(), symbol.is_global()) {
            (true, _) => Binding::Weak,
            (false, true) => Binding::Global,
            (false, false) => Binding::Local,
        };
        let rank = Rank::of(start, binding, name);
        let first = wanted.partition_point(|wanted| wanted.address < start);
        let end = start.saturating_add(size);
        for wanted in wanted[first..].iter_mut().take_while(|wanted| wanted.address < end) {
            if wanted.sized.as_ref().is_none_or(|(best, _)| rank > *best) {
                wanted.sized = Some((rank, name));
            }
        }
        // The entry of the next address is propagated to those after it.
        let Some(next) = wanted.get_mut(first) else { continue };
        next.last = next.last.max(start);
        if size == 0 && next.label.as_ref().is_none_or(|label| rank > label.rank) {
            let section = symbol.section_index().and_then(|index| table.section_ends.get(index.0));
            next.label = section.map(|&end| Label { end, rank, name });
        }
    }
    for index in 1..wanted.len() {
        let (last, label) = (wanted[index - 1].last, wanted[index - 1].label);
        let here = &mut wanted[index];
        here.last = here.last.max(last);
        here.label = [here.label, label].into_iter().flatten().max_by_key(|label| label.rank);
    }
    Ok(any)
}

/// Visibility of a symbol, in ascending order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Binding {
    /// Another definition may replace the symbol.
    Weak,
    /// The symbol is visible in its own object file.
    Local,
    /// The symbol is visible everywhere.
    Global,
}

/// Rank of a symbol for an address after its start: better ones are larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Start address: the later the better.
    pub(super) start: u64,
    binding: Binding,
    /// Leading underscores: the fewer the better.
    underscores: Reverse<usize>,
    name_bytes: usize,
}

impl Rank {
    /// Returns the rank of a symbol.
    pub(super) fn of(start: u64, binding: Binding, name: &[u8]) -> Self {
        let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
        Self { start, binding, underscores: Reverse(underscores), name_bytes: name.len() }
    }
}

#[cfg(test)]
mod tests;
