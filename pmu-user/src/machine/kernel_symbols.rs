//! Addresses of a few kernel functions, from `/proc/kallsyms`, or from an earlier run since the kernel
//! started.

mod kept;

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader},
    ops::Range,
    path::Path,
};

/// Names of the periodic tick's timer function: before Linux 6.8, and since (kernel/time/tick-sched.c).
/// Before, the second belonged to another function, so the first is preferred.
pub const TICK: [&str; 2] = ["tick_sched_timer", "tick_nohz_handler"];
/// Name of the sampling clock's timer function (kernel/events/core.c).
pub const CLOCK: [&str; 1] = ["perf_swevent_hrtimer"];

/// Returns the addresses as [`find`] does, from the cache of an earlier run if there is one. Otherwise finds
/// them, and keeps them for the next run.
///
/// # Errors
///
/// The errors are those of [`find`].
pub fn find_or_recall<const N: usize>(root: &Path, lists: [&[&str]; N]) -> io::Result<[u64; N]> {
    let Some(place) = kept::Place::of(root) else { return find(root, lists) };
    if let Some(found) = place.recall(&lists) {
        return Ok(found);
    }
    let found = find(root, lists)?;
    if !found.contains(&0) {
        place.keep(&lists, &found);
    }
    Ok(found)
}

/// Returns the address of the first of `alternatives` that the kernel has, for each list. Returns 0 if it has
/// none, or hides addresses.
///
/// # Errors
///
/// The file cannot be read.
pub fn find<const N: usize>(root: &Path, lists: [&[&str]; N]) -> io::Result<[u64; N]> {
    let mut found = [0; N];
    let mut ranks = [usize::MAX; N];
    let mut file = BufReader::with_capacity(1 << 16, File::open(root.join("proc/kallsyms"))?);
    let mut line = Vec::with_capacity(128);
    // The file is generated as it is read, so the read stops once everything is found. Alternatives are in
    // one source file, so they are close together. The sampling clock, which is far after them, is searched
    // for in the same pass.
    while found.contains(&0) && file.read_until(b'\n', &mut line)? > 0 {
        if let Some((address, name)) = symbol(&line) {
            for (index, list) in lists.iter().enumerate() {
                let rank = list.iter().position(|wanted| wanted.as_bytes() == name);
                if let Some(rank) = rank.filter(|&rank| rank < ranks[index]) {
                    (found[index], ranks[index]) = (address, rank);
                }
            }
        }
        line.clear();
    }
    Ok(found)
}

/// Longest function whose end is not the start of the next symbol: that of a module, whose symbols are not in
/// order.
const EXTENT_MAX: u64 = 512;

/// Returns the start and end of each of these functions, by the next symbol of the list. Returns an empty
/// range where the kernel has none, or hides addresses.
///
/// # Errors
///
/// The file cannot be read.
pub fn extents(root: &Path, names: &[String]) -> io::Result<Vec<Range<u64>>> {
    let mut extents = vec![0..0; names.len()];
    let mut file = BufReader::with_capacity(1 << 16, File::open(root.join("proc/kallsyms"))?);
    let mut line = Vec::with_capacity(128);
    let mut open: Option<usize> = None;
    while file.read_until(b'\n', &mut line)? > 0 {
        if let Some((address, name)) = symbol(&line) {
            if let Some(function) = open.take() {
                let begin = extents[function].start;
                let bytes = address.checked_sub(begin).filter(|&bytes| bytes > 0).unwrap_or(EXTENT_MAX);
                extents[function].end = begin.saturating_add(bytes.min(EXTENT_MAX));
            }
            if let Some(function) = names.iter().position(|wanted| wanted.as_bytes() == name) {
                extents[function] = address..address;
                open = (address > 0).then_some(function);
            }
        }
        line.clear();
    }
    Ok(extents)
}

/// Parses a line `address type name [module]`.
fn symbol(line: &[u8]) -> Option<(u64, &[u8])> {
    let mut words = line.trim_ascii_end().split(|byte| matches!(byte, b' ' | b'\t'));
    let address = std::str::from_utf8(words.next()?).ok()?;
    let name = words.nth(1)?;
    Some((u64::from_str_radix(address, 16).ok()?, name))
}

#[cfg(test)]
mod tests {
    use super::{CLOCK, EXTENT_MAX, TICK, extents, find, symbol};
    use crate::machine::testing::Tree;

    /// Returns the addresses that are found in a folder whose kallsyms has these symbols, at addresses 1, 2,
    /// 3.
    fn found(name: &str, symbols: &[&str]) -> [u64; 2] {
        let root = std::env::temp_dir().join(format!("pmbpf-{}-{name}", std::process::id()));
        std::fs::create_dir_all(root.join("proc")).unwrap();
        let lines = symbols.iter().zip(1..).map(|(symbol, address)| format!("{address:016x} t {symbol}\n"));
        std::fs::write(root.join("proc/kallsyms"), lines.collect::<String>()).unwrap();
        let lists: [&[&str]; 2] = [&TICK, &CLOCK];
        let found = find(&root, lists).unwrap();
        std::fs::remove_dir_all(root).unwrap();
        found
    }

    #[test]
    fn the_tick_is_found_under_its_name_on_every_kernel() {
        let old = ["tick_nohz_handler", "tick_sched_timer", "perf_swevent_hrtimer"];
        assert_eq!(found("old", &old), [2, 3]);
        let new = ["tick_nohz_lowres_handler", "tick_nohz_handler", "perf_swevent_hrtimer"];
        assert_eq!(found("new", &new), [2, 3]);
        assert_eq!(found("none", &["perf_swevent_hrtimer"]), [0, 1]);
    }

    #[test]
    fn a_function_ends_where_the_next_symbol_begins() {
        let list = "ffffffff81000010 T __traceiter_a\nffffffff81000070 T __pfx_b\n\
                    ffffffffc0009000 t __traceiter_m\t[m]\nffffffffc0001000 t other\t[m]\n\
                    0000000000000000 T __traceiter_hidden\n0000000000000000 T next\n";
        let tree = Tree::new(&[("proc/kallsyms", list)]);
        let names = ["__traceiter_a", "", "__traceiter_m", "__traceiter_hidden", "__traceiter_none"];
        let (core, module) = (0xffff_ffff_8100_0010, 0xffff_ffff_c000_9000);
        assert_eq!(
            extents(&tree.root, &names.map(str::to_owned)).unwrap(),
            [core..core + 0x60, 0..0, module..module + EXTENT_MAX, 0..0, 0..0]
        );
    }

    #[test]
    fn a_line_gives_address_and_name() {
        assert_eq!(
            symbol(b"ffffffff81000000 t tick_nohz_handler\n"),
            Some((0xffff_ffff_8100_0000, &b"tick_nohz_handler"[..]))
        );
        assert_eq!(
            symbol(b"ffffffffc0000000 t helper\t[module]\n"),
            Some((0xffff_ffff_c000_0000, &b"helper"[..]))
        );
        assert_eq!(symbol(b"not a symbol"), None);
    }
}
