//! Functions by address in text lists: `/proc/kallsyms` (kernel/kallsyms.c, `s_show`) and a JIT's
//! `perf-PID.map` (tools/perf/Documentation/jit-interface.txt). The lists are read once, in pieces, and only
//! requested entries are kept.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt as _,
    time::Duration,
};

use super::{
    symbols::{Binding, Rank},
    wire::Why,
};
use crate::machine::{duration_ns, own_cpu_ns};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 16;
/// Bytes of a line that are parsed.
const LINE_BYTES_MAX: usize = 8192;
/// Bytes of a `perf-PID.map` that are read: some 400,000 functions.
const PERF_MAP_BYTES_MAX: u64 = 32 << 20;
/// CPU time for reading one `perf-PID.map`, at most.
const PERF_MAP: Duration = Duration::from_millis(200);

/// Reader of a file from its beginning, independent of the file's shared offset: several requests may refer
/// to one file.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl<'a> FromStart<'a> {
    const fn of(file: &'a File) -> Self {
        Self { file, at: 0 }
    }
}

impl Read for FromStart<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Returns the names of the kernel's functions at `addresses`, from its list.
pub(super) fn kernel(file: &File, addresses: &[u64]) -> Result<Vec<Result<Vec<u8>, Why>>, Why> {
    kernel_in(FromStart::of(file), addresses)
}

/// Returns the names of the kernel's functions at `addresses`. A symbol ends where the next one begins,
/// whatever its kind.
fn kernel_in(file: impl Read, addresses: &[u64]) -> Result<Vec<Result<Vec<u8>, Why>>, Why> {
    let mut wanted = sorted::<Option<Best>>(addresses);
    let mut visible = false;
    for_each_line(file, None, |line| {
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        let start = fields.next().and_then(hexadecimal);
        let (Some(start), Some(&[kind]), Some(name)) = (start, fields.next(), fields.next()) else { return };
        visible |= start != 0;
        let first = wanted.partition_point(|(address, _)| *address < start);
        // The entry of the next address is propagated to those after it at the end.
        let Some((_, best)) = wanted.get_mut(first) else { return };
        let is_code = matches!(kind, b't' | b'T' | b'w' | b'W');
        let binding = match kind {
            b'w' | b'W' => Binding::Weak,
            b'a'..=b'z' => Binding::Local,
            _ => Binding::Global,
        };
        let rank = Rank::of(start, binding, name);
        if best.as_ref().is_none_or(|(known, _)| rank > *known) {
            *best = Some((rank, is_code.then(|| name.to_vec())));
        }
    })?;
    for index in 1..wanted.len() {
        if wanted[index].1.is_none() {
            wanted[index].1 = wanted[index - 1].1.clone();
        }
    }
    let name = |best: &Option<Best>| best.as_ref().and_then(|(_, name)| name.clone());
    if visible { Ok(in_order(addresses, &wanted, Why::NotFound, name)) } else { Err(Why::Hidden) }
}

/// Entries of a JIT's map for an address, for samples taken at a least and a greatest length of the map.
#[derive(Clone, Debug, Default)]
struct Written {
    at_least: u64,
    at_most: u64,
    /// Last function in the part that all samples saw.
    before: Option<Vec<u8>>,
    /// Function in the part that only some may have seen, and in the part after that.
    within: Option<Vec<u8>>,
    behind: Option<Vec<u8>>,
    /// The middle part has several functions.
    several: bool,
}

impl Written {
    /// Adds the next line that holds the address. `end` is the end of the line in the map.
    fn add(&mut self, name: &[u8], end: u64) {
        let known = if end <= self.at_least {
            self.before = None;
            &mut self.before
        } else if end <= self.at_most {
            self.several |= self.within.as_deref().is_some_and(|known| known != name);
            &mut self.within
        } else {
            &mut self.behind
        };
        known.get_or_insert_with(|| name.to_vec());
    }

    fn name(self, missing: Why) -> Result<Vec<u8>, Why> {
        match (self.before, self.within) {
            _ if self.several => Err(Why::Replaced),
            (Some(before), Some(within)) if before != within => Err(Why::Replaced),
            // A JIT may write a function to the map after it has begun to run.
            (before, within) => before.or(within).or(self.behind).ok_or(missing),
        }
    }
}

/// Returns the names of the functions at addresses in a JIT's map, each with the least and the greatest
/// length of the map at its samples.
pub(super) fn perf_map(file: &File, addresses: &[(u64, u64, u64)]) -> Result<Vec<Result<Vec<u8>, Why>>, Why> {
    let mut wanted: Vec<(usize, u64, Written)> = addresses
        .iter()
        .enumerate()
        .map(|(index, &(address, at_least, at_most))| {
            (index, address, Written { at_least, at_most, ..Written::default() })
        })
        .collect();
    wanted.sort_by_key(|(_, address, _)| *address);
    let mut end_of_line = 0;
    let whole = for_each_line(
        FromStart::of(file).take(PERF_MAP_BYTES_MAX),
        Some(own_cpu_ns() + duration_ns(PERF_MAP)),
        |line| {
            end_of_line += line.len() as u64 + 1;
            let mut fields = line.splitn(3, |&byte| byte == b' ');
            let range = (fields.next().and_then(hexadecimal), fields.next().and_then(hexadecimal));
            let (Some(start), Some(bytes)) = range else { return };
            let name = fields.next().unwrap_or_default();
            let end = start.saturating_add(bytes);
            let first = wanted.partition_point(|(_, address, _)| *address < start);
            let held = wanted[first..].iter_mut().take_while(|(_, address, _)| *address < end);
            held.for_each(|(_, _, written)| written.add(name, end_of_line));
        },
    )?;
    let read = file.metadata().is_ok_and(|metadata| metadata.len() <= PERF_MAP_BYTES_MAX);
    let missing = if whole == Whole::Yes && read { Why::NotFound } else { Why::TooLarge };
    wanted.sort_by_key(|(index, _, _)| *index);
    Ok(wanted.into_iter().map(|(_, _, written)| written.name(missing)).collect())
}

/// Returns the addresses in order, each once, with an empty entry.
fn sorted<T: Default>(addresses: &[u64]) -> Vec<(u64, T)> {
    let mut sorted: Vec<u64> = addresses.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.into_iter().map(|address| (address, T::default())).collect()
}

/// Returns the entry of every address, in the order of the request.
fn in_order<T>(
    addresses: &[u64],
    sorted: &[(u64, T)],
    missing: Why,
    name: impl Fn(&T) -> Option<Vec<u8>>,
) -> Vec<Result<Vec<u8>, Why>> {
    let find = |address: &u64| {
        let index = sorted.binary_search_by_key(address, |(address, _)| *address).ok()?;
        name(&sorted[index].1)
    };
    addresses.iter().map(|address| find(address).ok_or(missing)).collect()
}

/// Parses a hexadecimal number, which the JVM writes with `0x`.
fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// Best symbol for an address so far, with its name if it stands for code.
type Best = (Rank, Option<Vec<u8>>);

/// Result of reading a list: whole or in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole {
    Yes,
    No,
}

/// Calls `each` with every line that is read until this process has taken `deadline_ns` of CPU time. A long
/// line is cut off.
fn for_each_line(
    mut file: impl Read,
    deadline_ns: Option<u64>,
    mut each: impl FnMut(&[u8]),
) -> Result<Whole, Why> {
    let mut room = vec![0; PIECE_BYTES + LINE_BYTES_MAX];
    let (mut filled, mut skips) = (0, false);
    loop {
        if deadline_ns.is_some_and(|deadline_ns| own_cpu_ns() >= deadline_ns) {
            return Ok(Whole::No);
        }
        let got = match file.read(&mut room[filled..]) {
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(Why::Unreadable),
        };
        filled += got;
        let mut begin = 0;
        while let Some(length) = room[begin..filled].iter().position(|&byte| byte == b'\n') {
            if !std::mem::take(&mut skips) {
                each(&room[begin..begin + length]);
            }
            begin += length + 1;
        }
        let rest = filled - begin;
        if got == 0 || rest > LINE_BYTES_MAX {
            if rest > 0 && !skips {
                each(&room[begin..begin + rest.min(LINE_BYTES_MAX)]);
            }
            if got == 0 {
                return Ok(Whole::Yes);
            }
            (filled, skips) = (0, true);
            continue;
        }
        room.copy_within(begin..filled, 0);
        filled = rest;
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _};

    use super::{LINE_BYTES_MAX, PIECE_BYTES, Whole, Why, for_each_line, kernel_in, perf_map};

    fn named(name: &str) -> Result<Vec<u8>, Why> {
        Ok(name.as_bytes().to_vec())
    }

    /// A private file with this content.
    fn file(content: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!("pmbpf-map-{}-{:p}", std::process::id(), content));
        File::create(&path).unwrap().write_all(content).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    #[test]
    fn a_kernel_address_is_the_symbol_s_that_began_last() {
        let list = "ffff00 T first\nffff20 t second\t[module]\nffff40 d data\nffff20 T global\nffff60 t __x\nffff60 t y\n";
        let found = kernel_in(list.as_bytes(), &[0xffff24, 0xffff00, 0xffff50, 0xfffe00, 0xffff1f, 0xffff61])
            .unwrap();
        let none = || Err(Why::NotFound);
        let expected = [named("global"), named("first"), none(), none(), named("first"), named("y")];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_list_of_zeros_is_hidden() {
        let list = "0000000000000000 T first\n0000000000000000 t second\n";
        assert_eq!(kernel_in(list.as_bytes(), &[0xffff24]), Err(Why::Hidden));
    }

    #[test]
    fn a_perf_map_is_read_with_and_without_0x() {
        let map =
            file(b"1000 20 with blanks (int)\n0x0000000000002000 0x20 long Hot.fib(int)\nzz\n1010 8 later\n");
        let found =
            perf_map(&map, &[0x1000, 0x2010, 0x1012, 0x1020].map(|at| (at, u64::MAX, u64::MAX))).unwrap();
        let expected =
            [named("with blanks (int)"), named("long Hot.fib(int)"), named("later"), Err(Why::NotFound)];
        assert_eq!(found, expected);
    }

    #[test]
    fn code_over_other_code_is_named_by_how_long_the_map_was() {
        // Each line has 14 bytes.
        let map = file(b"1000 20 one__\n1000 20 two__\n1000 20 three\n1000 20 three\n");
        let names = [
            ((14, 14), named("one__")),
            ((28, 28), named("two__")),
            ((14, 28), Err(Why::Replaced)),
            ((0, 14), named("one__")),
            ((0, 28), Err(Why::Replaced)),
            ((42, 56), named("three")),
            ((28, 56), Err(Why::Replaced)),
            // The function was written later.
            ((0, 0), named("one__")),
            ((0, u64::MAX), Err(Why::Replaced)),
        ];
        for ((at_least, at_most), expected) in names {
            let found = perf_map(&map, &[(0x1010, at_least, at_most)]).unwrap();
            assert_eq!(found, [expected], "{at_least} {at_most}");
        }
    }

    #[test]
    fn sizes_that_wrap_around_hold_everything_above() {
        let map = file(b"1000 ffffffffffffffff wide\nffffffffffffffff ffffffffffffffff top\n");
        assert_eq!(
            perf_map(&map, &[(0xfff, 0, u64::MAX), (0x2000, 0, u64::MAX)]).unwrap(),
            [Err(Why::NotFound), named("wide")]
        );
    }

    #[test]
    fn lines_of_every_length_come_whole_or_cut_short() {
        for length in [0, 1, LINE_BYTES_MAX, LINE_BYTES_MAX + 1, PIECE_BYTES, 3 * PIECE_BYTES + 7] {
            let text = format!("a\n{}\nb\nlast", "x".repeat(length));
            let mut lines = Vec::new();
            assert_eq!(
                for_each_line(text.as_bytes(), None, |line| lines.push(line.to_vec())),
                Ok(Whole::Yes)
            );
            assert_eq!(lines.len(), 4, "{length}");
            assert!(lines[1].len() == length || length > LINE_BYTES_MAX && !lines[1].is_empty(), "{length}");
            assert_eq!([&lines[0][..], &lines[2], &lines[3]], [&b"a"[..], b"b", b"last"]);
        }
    }
}
