//! Functions of a JIT, from its dump (tools/perf/Documentation/jitdump-specification.txt). The dump has
//! records of code that was generated or moved, with times and bytes. So code has a place in the dump, which
//! does not change when other code is put at its address.

use std::collections::{HashMap, HashSet};

use super::wire::{Held, Why};
use crate::{drain::Code, untrusted::Untrusted};

/// Magic number `JiTD` in the byte order of the host.
const MAGIC: u32 = 0x4a69_5444;
/// Bytes of the header that are read here, and of the prefix of every record.
const HEADER_BYTES: usize = 40;
const PREFIX_BYTES: usize = 16;
/// Flag of the header: times are those of a CPU counter.
const ARCH_TIMESTAMP: u64 = 1;
/// Kinds of records.
const LOAD: u32 = 0;
const MOVE: u32 = 1;
/// Records that are read, at most.
const RECORDS_MAX: usize = 1 << 20;
/// Successive code of one address that is kept: the last entries.
const HELD_MAX: usize = 256;
/// Bytes of a name, at most.
const NAME_BYTES_MAX: usize = 4096;

/// A record: its kind, the time of its writing, and its body.
struct Record<'a> {
    kind: u32,
    at_ns: u64,
    /// Start of its body in the file.
    begin: usize,
    body: &'a [u8],
}

/// Code that was generated.
struct Load<'a> {
    address: u64,
    bytes: u64,
    index: u64,
    name: &'a [u8],
    /// Offset of its code in the file.
    code: u64,
}

/// Code that was moved.
struct Move {
    from: u64,
    to: u64,
    bytes: u64,
    index: u64,
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the offset of the first record, and whether times are those of CLOCK_MONOTONIC.
fn header(file: &[u8]) -> Result<(usize, bool), Why> {
    if file.len() < HEADER_BYTES || half(file, 0) != Some(MAGIC) {
        return Err(Why::Damaged);
    }
    let (size, flags) = (half(file, 8).unwrap_or(0) as usize, word(file, 32).unwrap_or(0));
    if size < HEADER_BYTES { Err(Why::Damaged) } else { Ok((size, flags & ARCH_TIMESTAMP == 0)) }
}

/// Returns the records up to the first incomplete one, which is still being written.
fn records(file: &[u8], first: usize) -> impl Iterator<Item = Record<'_>> {
    let mut at = first;
    let next = move || {
        let (kind, size) = (half(file, at)?, half(file, at + 4)? as usize);
        let (at_ns, begin) = (word(file, at + 8)?, at + PREFIX_BYTES);
        let end = at.checked_add(size).filter(|_| size >= PREFIX_BYTES)?;
        let body = file.get(begin..end)?;
        at = end;
        Some(Record { kind, at_ns, begin, body })
    };
    std::iter::from_fn(next).take(RECORDS_MAX)
}

impl<'a> Record<'a> {
    fn load(&self) -> Option<Load<'a>> {
        (self.kind == LOAD).then_some(())?;
        let (address, bytes, index) = (word(self.body, 16)?, word(self.body, 24)?, word(self.body, 32)?);
        let text = self.body.get(40..)?;
        let length = text.iter().position(|&byte| byte == 0)?;
        let code = (self.begin + 40 + length + 1) as u64;
        Some(Load { address, bytes, index, name: &text[..length.min(NAME_BYTES_MAX)], code })
    }

    fn moved(&self) -> Option<Move> {
        (self.kind == MOVE).then_some(())?;
        let field = |index: usize| word(self.body, 16 + 8 * index);
        Some(Move { from: field(0)?, to: field(1)?, bytes: field(2)?, index: field(3)? })
    }
}

/// Returns the code that each address held, with start times, in order.
pub(super) fn held(file: &[u8], addresses: &[u64]) -> Result<Vec<Vec<Held>>, Why> {
    let (first, has_times) = header(file)?;
    let mut order: Vec<usize> = (0..addresses.len()).collect();
    order.sort_unstable_by_key(|&index| addresses[index]);
    let within = |start: u64, bytes: u64| {
        let end = start.saturating_add(bytes);
        let begin = order.partition_point(|&index| addresses[index] < start);
        order[begin..].iter().copied().take_while(move |&index| addresses[index] < end)
    };
    let moved: HashSet<u64> = records(file, first).filter_map(|record| Some(record.moved()?.index)).collect();
    let mut places: HashMap<u64, u64> = HashMap::new();
    let mut found: Vec<Vec<Held>> = vec![Vec::new(); addresses.len()];
    let mut add = |index: usize, held: Held| {
        if found[index].len() >= HELD_MAX {
            found[index].remove(0);
        }
        found[index].push(held);
    };
    for record in records(file, first) {
        let from_ns = if has_times { record.at_ns } else { 0 };
        if let Some(load) = record.load() {
            if moved.contains(&load.index) {
                places.insert(load.index, load.code);
            }
            for index in within(load.address, load.bytes) {
                add(index, Held { from_ns, code: Some(load.code + (addresses[index] - load.address)) });
            }
        } else if let Some(moved) = record.moved() {
            for index in within(moved.from, moved.bytes) {
                add(index, Held { from_ns, code: None });
            }
            for index in within(moved.to, moved.bytes) {
                let place = places.get(&moved.index).map(|code| code + (addresses[index] - moved.to));
                add(index, Held { from_ns, code: place });
            }
        }
    }
    found.iter_mut().for_each(|held| held.sort_by_key(|held| held.from_ns));
    if !has_times {
        // The time of each is not known.
        found.iter_mut().filter(|held| held.len() > 1).for_each(Vec::clear);
    }
    Ok(found)
}

/// Returns the names of the code at places in the dump.
pub(super) fn names(file: &[u8], places: &[u64]) -> Result<Vec<Result<Code, Why>>, Why> {
    let (first, _) = header(file)?;
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_unstable_by_key(|&index| places[index]);
    let mut found: Vec<Result<Code, Why>> = vec![Err(Why::NotFound); places.len()];
    // Places ascend like records.
    let mut order = order.into_iter().peekable();
    for load in records(file, first).filter_map(|record| record.load()) {
        while order.next_if(|&index| places[index] < load.code).is_some() {}
        while let Some(index) = order.next_if(|&index| places[index] < load.code.saturating_add(load.bytes)) {
            found[index] = Ok(code(load.name));
        }
    }
    Ok(found)
}

/// Returns the names of the code at addresses without sample times, of addresses that held one function only.
pub(super) fn only(file: &[u8], addresses: &[u64]) -> Result<Vec<Result<Code, Why>>, Why> {
    let (first, _) = header(file)?;
    let mut order: Vec<usize> = (0..addresses.len()).collect();
    order.sort_unstable_by_key(|&index| addresses[index]);
    let mut found: Vec<Option<Result<&[u8], Why>>> = vec![None; addresses.len()];
    for load in records(file, first).filter_map(|record| record.load()) {
        let end = load.address.saturating_add(load.bytes);
        let begin = order.partition_point(|&index| addresses[index] < load.address);
        for &index in order[begin..].iter().take_while(|&&index| addresses[index] < end) {
            found[index] = Some(match found[index] {
                None => Ok(load.name),
                Some(Ok(name)) if name == load.name => Ok(name),
                Some(_) => Err(Why::Replaced),
            });
        }
    }
    let named = |found: Option<Result<&[u8], Why>>| found.unwrap_or(Err(Why::NotFound)).map(code);
    Ok(found.into_iter().map(named).collect())
}

fn code(name: &[u8]) -> Code {
    // A JIT's name for its code is not a mangled symbol.
    Code { function: Untrusted::new(name), ..Code::default() }
}

#[cfg(test)]
mod tests {
    use super::{Held, Why, held, names, only};

    /// A dump of these records.
    struct Dump(Vec<u8>);

    impl Dump {
        fn new(flags: u64) -> Self {
            let mut bytes = Vec::new();
            for half in [0x4a69_5444_u32, 1, 40, 62, 0, 7] {
                bytes.extend(half.to_ne_bytes());
            }
            bytes.extend([1_u64, flags].into_iter().flat_map(u64::to_ne_bytes));
            Self(bytes)
        }

        fn record(&mut self, kind: u32, at_ns: u64, body: &[u8]) -> usize {
            let begin = self.0.len() + 16;
            self.0.extend(kind.to_ne_bytes());
            self.0.extend((body.len() as u32 + 16).to_ne_bytes());
            self.0.extend(at_ns.to_ne_bytes());
            self.0.extend(body);
            begin
        }

        /// Adds code of 16 bytes. Returns its offset in the file.
        fn load(&mut self, at_ns: u64, address: u64, index: u64, name: &str) -> u64 {
            let mut body: Vec<u8> =
                [7, address, address, 16, index].into_iter().flat_map(u64::to_ne_bytes).collect();
            body.extend(name.as_bytes());
            body.extend([0; 17]);
            self.record(0, at_ns, &body) as u64 + 40 + name.len() as u64 + 1
        }

        fn relocate(&mut self, at_ns: u64, from: u64, to: u64, index: u64) {
            let words = [7, to, from, to, 16, index];
            let body: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
            self.record(1, at_ns, &body);
        }
    }

    fn name(found: &Result<crate::drain::Code, Why>) -> Result<String, Why> {
        found
            .as_ref()
            .map(|code| String::from_utf8(code.function.as_bytes().to_vec()).unwrap())
            .map_err(|why| *why)
    }

    #[test]
    fn an_address_has_the_code_that_was_put_there_last() {
        let mut dump = Dump::new(0);
        let first = dump.load(10, 0x1000, 0, "first");
        let second = dump.load(20, 0x1008, 1, "second");
        let at = |from_ns, code: u64| Held { from_ns, code: Some(code) };
        let found = held(&dump.0, &[0x1009, 0x1001, 0x2000]).unwrap();
        assert_eq!(found, [vec![at(10, first + 9), at(20, second + 1)], vec![at(10, first + 1)], vec![]]);
        let named = names(&dump.0, &[second + 1, first + 9, first, second + 16, 3]).unwrap();
        let named: Vec<_> = named.iter().map(name).collect();
        let is = |name: &str| Ok(name.to_owned());
        assert_eq!(named, [is("second"), is("first"), is("first"), Err(Why::NotFound), Err(Why::NotFound)]);
    }

    #[test]
    fn code_that_is_moved_is_where_it_was_moved_to_from_then_on() {
        let mut dump = Dump::new(0);
        let code = dump.load(10, 0x1000, 5, "moved");
        dump.relocate(20, 0x1000, 0x3000, 5);
        let found = held(&dump.0, &[0x1001, 0x3001]).unwrap();
        let at = |from_ns, code| Held { from_ns, code };
        assert_eq!(found[0], [at(10, Some(code + 1)), at(20, None)]);
        assert_eq!(found[1], [at(20, Some(code + 1))]);
    }

    #[test]
    fn without_a_time_only_what_was_there_alone_has_a_name() {
        let mut dump = Dump::new(1);
        dump.load(10, 0x1000, 0, "first");
        dump.load(20, 0x1000, 1, "second");
        dump.load(20, 0x2000, 2, "alone");
        let found = held(&dump.0, &[0x1000, 0x2000]).unwrap();
        assert_eq!((found[0].len(), found[1].len()), (0, 1));
        let named: Vec<_> = only(&dump.0, &[0x1000, 0x2000, 0x3000]).unwrap().iter().map(name).collect();
        assert_eq!(named, [Err(Why::Replaced), Ok("alone".to_owned()), Err(Why::NotFound)]);
    }

    #[test]
    fn a_dump_that_is_cut_off_anywhere_ends_before() {
        let mut dump = Dump::new(0);
        dump.load(10, 0x1000, 0, "first");
        let whole = dump.0.len();
        dump.load(20, 0x1000, 1, "second");
        for length in 0..dump.0.len() {
            let found = held(&dump.0[..length], &[0x1000]);
            match length {
                0..40 => assert!(found.is_err()),
                _ => assert_eq!(found.unwrap()[0].len(), usize::from(length >= whole), "{length}"),
            }
        }
        // Invalid sizes of records.
        for size in [0_u32, 15, u32::MAX] {
            let mut bytes = dump.0.clone();
            bytes[44..48].copy_from_slice(&size.to_ne_bytes());
            assert!(held(&bytes, &[0x1000]).unwrap()[0].is_empty());
        }
    }
}
