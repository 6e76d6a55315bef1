//! Functions by offset in an ELF file, from its symbol tables and, where they were stripped, from what cannot be: `.gopclntab`, the small
//! table in `.gnu_debugdata`, and the ranges of `.eh_frame`. Of several symbols at an address the one names it that perf would take, so
//! that the two agree (tools/perf/util/symbol.c, `choose_best_symbol`, Linux 6.18).

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

/// Symbols of a table that are looked at: the largest programs have some millions.
const SYMBOLS_MAX: usize = 1 << 24;

/// Names of the functions at offsets of `file`, whose segments were recorded as these; its debug file may know more of them.
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
    // The dynamic symbols are a part of the others, which may have been stripped. Their names are without versions.
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

/// What symbols of a table are judged by.
struct Table<'a, 'data> {
    /// The address that every section ends at, by its index.
    section_ends: Vec<u64>,
    /// Has it marks between code and data?
    has_marks: bool,
    /// Versions that names may end with, if they do.
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

    /// The name of a symbol that stands for code: a function, or a label of assembly.
    fn code_name<'of>(&self, symbol: &impl ObjectSymbol<'of>) -> Option<&'of [u8]> {
        let is_code = match symbol.kind() {
            SymbolKind::Text => true,
            SymbolKind::Label | SymbolKind::Unknown => match symbol.flags() {
                // A label that is visible, as perf has it (`elf_sym__is_label`).
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

/// Is it no name, but a mark between code and data on Arm (AAELF64, 5.5.5; AAELF32, 5.5.5)?
fn is_mark(name: &[u8]) -> bool {
    matches!(name, [b'$', b'a' | b'd' | b't' | b'x'] | [b'$', b'a' | b'd' | b't' | b'x', b'.', ..])
}

/// An address, and the symbols that may hold it.
struct Wanted<'data> {
    address: u64,
    /// The best symbol with a size that holds it.
    sized: Option<(Rank, &'data [u8])>,
    /// The last symbol without a size at or before it, in the same section: a label, which ends where the next symbol
    /// begins.
    label: Option<Label<'data>>,
    /// Where the last symbol at or before it begins.
    last: u64,
    /// The last function at or before it that has call frame information: where it begins and ends.
    range: Option<(u64, u64)>,
}

/// A symbol without a size.
#[derive(Clone, Copy)]
struct Label<'data> {
    rank: Rank,
    /// Where its section ends.
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

    /// Is it known to be a label's own? Between the two neither its section ends, nor does a function begin or end that has lost its
    /// symbol.
    const fn is_of(&self, label: &Label<'_>) -> bool {
        let (start, address) = (label.rank.start, self.address);
        let is_one = match self.range {
            Some((begins, ends)) => begins <= start && (address < ends || ends <= start),
            None => true,
        };
        is_one && address < label.end
    }
}

/// Offers symbols to the addresses that they hold. Was there any function among them?
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
        // The next address stands for those behind it.
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

/// Who sees a symbol, the better ones last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Binding {
    /// Another definition may replace it.
    Weak,
    /// Its own object file.
    Local,
    /// Everybody.
    Global,
}

/// How good a symbol is for an address behind its start: better ones are larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Where it begins: the later the better.
    pub(super) start: u64,
    binding: Binding,
    /// Underscores that it begins with: the fewer the better.
    underscores: Reverse<usize>,
    name_bytes: usize,
}

impl Rank {
    /// Of a symbol.
    pub(super) fn of(start: u64, binding: Binding, name: &[u8]) -> Self {
        let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
        Self { start, binding, underscores: Reverse(underscores), name_bytes: name.len() }
    }
}

#[cfg(test)]
mod tests;
