//! Functions by offset in an ELF file, from its symbol tables. Of several symbols at an address the one names it that perf would take, so
//! that the two agree (tools/perf/util/symbol.c, `choose_best_symbol`, Linux 6.18).

use std::cmp::Reverse;

use object::{
    Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol, SymbolFlags, SymbolKind, elf,
};

use super::{
    stub,
    wire::{Identity, Why},
};

/// Symbols of a table that are looked at: the largest programs have some millions.
const SYMBOLS_MAX: usize = 1 << 24;
/// Sections of a file that are looked at.
const SECTIONS_MAX: usize = 1 << 16;

/// Build id and links of a file.
pub(super) fn identity(file: &[u8]) -> Result<Identity, Why> {
    let file = parse(file)?;
    let own = |bytes: &[u8]| bytes.to_vec();
    let debug_link = file.gnu_debuglink().ok().flatten().map(|(name, _)| own(name));
    let shared_link = file.gnu_debugaltlink().ok().flatten().map(|(path, _)| own(path));
    Ok(Identity { build_id: file.build_id().ok().flatten().map(own), debug_link, shared_link })
}

/// Reads the headers of a file.
pub(super) fn parse(file: &[u8]) -> Result<object::File<'_>, Why> {
    object::File::parse(file).map_err(|_| Why::Damaged)
}

/// The addresses that offsets of a file are loaded at.
pub(super) fn addresses(file: &object::File<'_>, offsets: &[u64]) -> Vec<Option<u64>> {
    let loaded: Vec<(u64, u64, u64)> = file
        .segments()
        .map(|segment| {
            let (offset, bytes) = segment.file_range();
            (offset, bytes, segment.address())
        })
        .collect();
    let address = |&wanted: &u64| {
        let &(offset, _, address) =
            loaded.iter().find(|(offset, bytes, _)| wanted >= *offset && wanted - offset < *bytes)?;
        address.checked_add(wanted - offset)
    };
    offsets.iter().map(address).collect()
}

/// Names of the functions at offsets of `file`; its debug file may know more of them.
pub(super) fn symbols(
    file: &[u8],
    debug: Option<&[u8]>,
    offsets: &[u64],
) -> Result<Vec<Result<Vec<u8>, Why>>, Why> {
    let file = parse(file)?;
    let debug = debug.and_then(|debug| parse(debug).ok());
    let addresses = addresses(&file, offsets);
    let mut wanted: Vec<Wanted<'_>> =
        addresses.iter().flatten().map(|&address| Wanted::new(address)).collect();
    wanted.sort_unstable_by_key(|wanted| wanted.address);
    wanted.dedup_by_key(|wanted| wanted.address);
    let mut any = false;
    for file in [Some(&file), debug.as_ref()].into_iter().flatten() {
        any |= offer(file.symbols(), &section_ends(file)?, &mut wanted)?;
    }
    // The dynamic symbols are a part of the others, which may have been stripped.
    if !any {
        any = offer(file.dynamic_symbols(), &section_ends(&file)?, &mut wanted)?;
    }
    let missing = if any { Why::NotFound } else { Why::NoSymbols };
    let unnamed: Vec<u64> =
        wanted.iter().filter(|wanted| wanted.name().is_none()).map(|wanted| wanted.address).collect();
    let stubs = stub::names(&file, &unnamed);
    let name = |address: Option<u64>| {
        let address = address.ok_or(Why::Outside)?;
        let index = wanted.binary_search_by_key(&address, |wanted| wanted.address).map_err(|_| missing)?;
        let known = wanted[index].name().map(<[u8]>::to_vec);
        known.or_else(|| stubs.get(&address).cloned()).ok_or(missing)
    };
    Ok(addresses.into_iter().map(name).collect())
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
    const fn new(address: u64) -> Self {
        Self { address, sized: None, label: None, last: 0 }
    }

    fn name(&self) -> Option<&'data [u8]> {
        match (&self.sized, &self.label) {
            (Some((_, name)), _) => Some(name),
            (None, Some(label)) if label.rank.start == self.last && self.address < label.end => {
                Some(label.name)
            }
            _ => None,
        }
    }
}

/// The address that every section ends at, by its index.
fn section_ends(file: &object::File<'_>) -> Result<Vec<u64>, Why> {
    let mut ends = Vec::new();
    for section in file.sections() {
        let index = section.index().0;
        if index >= SECTIONS_MAX {
            return Err(Why::TooLarge);
        }
        ends.resize(ends.len().max(index + 1), 0);
        ends[index] = section.address().saturating_add(section.size());
    }
    Ok(ends)
}

/// Offers symbols to the addresses that they hold. Was there any function among them?
fn offer<'data>(
    symbols: impl Iterator<Item = impl ObjectSymbol<'data>>,
    section_ends: &[u64],
    wanted: &mut [Wanted<'data>],
) -> Result<bool, Why> {
    let mut any = false;
    for (index, symbol) in symbols.enumerate() {
        if index == SYMBOLS_MAX {
            return Err(Why::TooLarge);
        }
        let Some(name) = code_name(&symbol) else { continue };
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
            let section = symbol.section_index().and_then(|index| section_ends.get(index.0));
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

/// The name of a symbol that stands for code: a function, or a label of assembly.
fn code_name<'data>(symbol: &impl ObjectSymbol<'data>) -> Option<&'data [u8]> {
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
    // Marks between code and data on arm64 (AAELF64, 5.5.5) are no names.
    let name = symbol.name_bytes().ok().filter(|name| !name.is_empty() && name[0] != b'$')?;
    // A version (`clock_gettime@@GLIBC_2.17`) is no part of the name.
    let end = name.iter().skip(1).position(|&byte| byte == b'@').map_or(name.len(), |at| at + 1);
    (is_code && !symbol.is_undefined()).then_some(&name[..end])
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
mod tests {
    use std::collections::HashMap;

    use object::{Object as _, ObjectSection as _, ObjectSymbol as _, read::Symbol};

    use super::{Binding, Rank, SymbolKind, Why, identity, parse, symbols};

    /// This very program.
    fn program() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn an_offset_is_the_function_s_around_it() {
        let program = program();
        let file = parse(&program).unwrap();
        let text = file.section_by_name(".text").unwrap();
        let (start, _) = text.file_range().unwrap();
        let is_function = |symbol: &Symbol<'_, '_>| symbol.kind() == SymbolKind::Text && symbol.size() > 16;
        let functions = file.symbols().filter(is_function);
        let functions: Vec<_> =
            functions.filter(|symbol| symbol.section_index() == Some(text.index())).take(200).collect();
        assert!(functions.len() > 100);
        let ends = |symbol: &Symbol<'_, '_>| {
            let offset = symbol.address() - text.address() + start;
            [offset, offset + symbol.size() - 1]
        };
        let found = symbols(&program, None, &functions.iter().flat_map(ends).collect::<Vec<_>>()).unwrap();
        // Several symbols may begin at one address.
        let mut names: HashMap<u64, Vec<&[u8]>> = HashMap::new();
        for symbol in file.symbols() {
            names.entry(symbol.address()).or_default().push(symbol.name_bytes().unwrap());
        }
        for (symbol, found) in functions.iter().zip(found.chunks(2)) {
            let known = &names[&symbol.address()];
            let is_known = found.iter().all(|name| known.contains(&&name.as_ref().unwrap()[..]));
            assert!(is_known, "{found:?} is not {:?}", symbol.name());
        }
    }

    #[test]
    fn what_is_no_elf_file_is_damaged() {
        for bytes in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", &program()[..100]] {
            assert!(matches!(symbols(bytes, None, &[0]), Err(Why::Damaged)) && identity(bytes).is_err());
        }
    }

    #[test]
    fn an_offset_outside_of_every_segment_has_no_function() {
        let program = program();
        assert_eq!(symbols(&program, None, &[u64::MAX]).unwrap(), [Err(Why::Outside)]);
    }

    #[test]
    fn the_later_the_more_visible_and_the_plainer_the_better() {
        let best = |names: [(u64, Binding, &'static str); 2]| {
            names.into_iter().max_by_key(|&(start, binding, name)| Rank::of(start, binding, name.as_bytes()))
        };
        use Binding::{Global, Local, Weak};
        assert_eq!(best([(8, Weak, "inner"), (0, Global, "outer")]).unwrap().2, "inner");
        assert_eq!(best([(0, Weak, "getpid"), (0, Local, "__GI_getpid")]).unwrap().2, "__GI_getpid");
        assert_eq!(best([(0, Global, "__getpid"), (0, Local, "__GI_getpid")]).unwrap().2, "__getpid");
        assert_eq!(best([(0, Global, "_exit"), (0, Global, "exit")]).unwrap().2, "exit");
    }
}
