//! Dynamic code of the kernel. BPF programs and trampolines are reported by the kernel
//! (`PERF_RECORD_KSYMBOL`), modules are not. Their functions are named when a sample first hits them, and
//! again when the list of modules has changed. Where one address had several functions, those after the first
//! have separate offsets ([`At::later`]).

use std::collections::HashMap;

use super::Tracker;
use crate::{
    drain::{At, Code},
    perf::side_band::KernelSymbol,
    symbol::child::{Why, without_lines},
};

/// Symbols whose time spans are kept.
const SYMBOLS_MAX: usize = 4096;
/// Addresses of modules that are named early.
const ADDRESSES_MAX: usize = 1 << 14;
/// Functions of one address that are kept. After that it gets no more names.
const FUNCTIONS_MAX: usize = 64;
/// Number for a sample whose function is not known, because it was replaced at about that time.
const UNKNOWN: u16 = At::LATER_MAX;
/// Lowest address of modules and BPF programs on x86-64 (Documentation/arch/x86/x86_64/mm.rst): this one
/// without KASLR, 0xffffffffc0000000 with it. On other architectures every address may be one of theirs.
const MODULES: u64 = if cfg!(target_arch = "x86_64") { 0xffff_ffff_a000_0000 } else { 1 << 63 };

/// A symbol that the kernel reported, with its start and end time.
#[derive(Debug)]
struct Symbol {
    start: u64,
    end: u64,
    name: Vec<u8>,
    from_ns: u64,
    until_ns: u64,
}

/// Successive names of an address in a module. `None` where it had none.
#[derive(Debug, Default)]
struct Early {
    names: Vec<Option<Vec<u8>>>,
    /// Number of the module list at the last look-up.
    of_list: u64,
    /// Drain in which the name had changed.
    unsure_in: u64,
}

/// Dynamic code of the kernel, with its history.
#[derive(Debug, Default)]
pub(in crate::symbol) struct KernelCode {
    /// Symbols in order of report.
    symbols: Vec<Symbol>,
    early: HashMap<u64, Early>,
    /// /proc/modules as last read, the drain of that read, and the number of changes.
    list: Vec<u8>,
    list_of: u64,
    lists: u64,
    changed_in: u64,
    drains: u64,
}

impl KernelCode {
    /// Adds a symbol that the kernel has reported.
    pub(super) fn reported(&mut self, at_ns: u64, symbol: KernelSymbol) {
        let KernelSymbol { start, bytes, name, is_registered } = symbol;
        let end = start.saturating_add(u64::from(bytes));
        let open = |known: &&mut Symbol| known.until_ns == u64::MAX && known.start < end && start < known.end;
        let overlapped = self.symbols.iter_mut().filter(open);
        let mut ended = false;
        overlapped.for_each(|known| {
            ended |= known.start == start && known.name == name;
            known.until_ns = at_ns;
        });
        let (from_ns, until_ns) = if is_registered { (at_ns, u64::MAX) } else { (0, at_ns) };
        if (is_registered || !ended) && self.symbols.len() < SYMBOLS_MAX {
            self.symbols.push(Symbol { start, end, name, from_ns, until_ns });
        }
    }

    /// Marks the start of another drain.
    pub(super) const fn begin_drain(&mut self) {
        self.drains += 1;
    }

    /// Returns how many reported symbols had come or gone by a time.
    pub(super) fn era(&self, at_ns: u64) -> usize {
        let times_ns = self.symbols.iter().flat_map(|symbol| [symbol.from_ns, symbol.until_ns]);
        times_ns.filter(|&time_ns| time_ns <= at_ns).count()
    }

    fn symbols_at(&self, address: u64) -> impl Iterator<Item = &Symbol> {
        self.symbols.iter().filter(move |symbol| (symbol.start..symbol.end).contains(&address))
    }

    /// Returns the code at an address from `first_ns` to `last_ns`. Returns `None` if no symbol was reported
    /// there.
    fn reported_at(&self, address: u64, (first_ns, last_ns): (u64, u64)) -> Option<At> {
        let mut spans = self.symbols_at(address).enumerate().peekable();
        spans.peek()?;
        let held = |symbol: &Symbol| symbol.from_ns <= first_ns && last_ns < symbol.until_ns;
        let number = spans.find(|(_, symbol)| held(symbol)).map_or(UNKNOWN, |(number, _)| number as u16);
        Some(At::later(address, number))
    }

    /// Returns the code at an address of a module. `name` looks up the function that the address has now.
    fn module_at(
        &mut self,
        address: u64,
        read_list: impl FnOnce() -> Vec<u8>,
        name: impl FnOnce() -> Option<Vec<u8>>,
    ) -> At {
        if self.list_of != self.drains {
            let list = read_list();
            if list != self.list {
                self.lists += 1;
                self.changed_in = self.drains;
                self.list = list;
            }
            self.list_of = self.drains;
        }
        let room = self.early.len() < ADDRESSES_MAX;
        let known = match self.early.get_mut(&address) {
            Some(known) => known,
            None if !room => return At::kernel(address),
            None => {
                let first = Early { names: vec![name()], of_list: self.lists, unsure_in: 0 };
                self.early.insert(address, first);
                return At::kernel(address);
            }
        };
        if known.of_list != self.lists {
            known.of_list = self.lists;
            let now = name();
            if known.names.last() != Some(&now) && known.names.len() < FUNCTIONS_MAX {
                known.names.push(now);
                known.unsure_in = self.changed_in;
            }
        }
        let is_unsure = known.unsure_in == self.drains;
        At::later(address, if is_unsure { UNKNOWN } else { known.names.len() as u16 - 1 })
    }

    /// Returns the name of code at an offset, if it is known here.
    pub(in crate::symbol) fn name(&self, offset: u64) -> Option<Result<Code, Why>> {
        let (address, number) = At::kernel(offset).address_and_number();
        if number == UNKNOWN {
            return Some(Err(Why::Replaced));
        }
        if let Some(symbol) = self.symbols_at(address).nth(usize::from(number)) {
            return Some(Ok(without_lines(&symbol.name)));
        }
        let name = self.early.get(&address)?.names.get(usize::from(number))?.as_ref()?;
        Some(Ok(without_lines(name)))
    }
}

impl Tracker {
    /// Returns the code at an address of the kernel from `first_ns` to `last_ns`.
    pub(super) fn kernel_place(&mut self, address: u64, times_ns: (u64, u64)) -> At {
        if address < MODULES {
            return At::kernel(address);
        }
        let Self { kernel_code, kernel, .. } = self;
        kernel_code.reported_at(address, times_ns).unwrap_or_else(|| {
            let list = || std::fs::read("/proc/modules").unwrap_or_default();
            kernel_code.module_at(address, list, || kernel.function(address))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{KernelCode, KernelSymbol};
    use crate::{drain::At, symbol::child::Why};

    const ADDRESS: u64 = 0xffff_ffff_c012_3450;

    fn reported(start: u64, name: &str, is_registered: bool) -> KernelSymbol {
        KernelSymbol { start, bytes: 0x100, name: name.as_bytes().to_vec(), is_registered }
    }

    fn name(code: &KernelCode, at: At) -> Option<Result<String, Why>> {
        assert!(at.is_kernel() && at.address() == ADDRESS, "{at:?}");
        code.name(at.offset).map(|name| name.map(|code| code.function.terminal().into_owned()))
    }

    #[test]
    fn programs_at_one_address_keep_their_own_names() {
        let mut code = KernelCode::default();
        code.reported(10, reported(ADDRESS - 0x10, "before_us", false));
        code.reported(20, reported(ADDRESS - 0x10, "first", true));
        code.reported(30, reported(ADDRESS - 0x10, "first", false));
        code.reported(40, reported(ADDRESS - 0x20, "second", true));
        for (at_ns, expected) in [(5, "before_us"), (25, "first"), (40, "second"), (99, "second")] {
            let at = code.reported_at(ADDRESS, (at_ns, at_ns)).unwrap();
            assert_eq!(name(&code, at), Some(Ok(expected.to_owned())), "{at_ns}");
        }
        // At these times there was nothing, or one function after the other.
        for times_ns in [(15, 15), (35, 36), (25, 45)] {
            let at = code.reported_at(ADDRESS, times_ns).unwrap();
            assert_eq!(name(&code, at), Some(Err(Why::Replaced)), "{times_ns:?}");
        }
        assert_eq!(code.reported_at(ADDRESS + 0x100, (25, 25)), None);
    }

    #[test]
    fn a_module_is_named_when_it_is_first_hit_and_after_another_took_its_place() {
        let mut code = KernelCode::default();
        let mut hit = |list: &str, function: Option<&str>| {
            code.begin_drain();
            let function = function.map(|name| name.as_bytes().to_vec());
            let at = code.module_at(ADDRESS, || list.as_bytes().to_vec(), || function);
            name(&code, at)
        };
        let named = |name: &str| Some(Ok(name.to_owned()));
        assert_eq!(hit("one", Some("of_one")), named("of_one"));
        // There is no other look-up while the list is unchanged.
        assert_eq!(hit("one", Some("never asked")), named("of_one"));
        // It changed since the last drain: before or after the sample?
        assert_eq!(hit("two", Some("of_two")), Some(Err(Why::Replaced)));
        assert_eq!(hit("two", None), named("of_two"));
        // Other modules came and went.
        assert_eq!(hit("two three", Some("of_two")), named("of_two"));
    }
}
