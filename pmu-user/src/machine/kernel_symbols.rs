//! Addresses of a few kernel functions, from `/proc/kallsyms`.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader},
    path::Path,
};

/// The periodic tick's timer function: its name since Linux 6.8, and before (kernel/time/tick-sched.c).
pub const TICK: [&str; 2] = ["tick_nohz_handler", "tick_sched_timer"];
/// The sampling clock's timer function (kernel/events/core.c).
pub const CLOCK: [&str; 1] = ["perf_swevent_hrtimer"];

/// Address of the first of `alternatives` that the kernel has, for each list. 0 if it has none, or hides addresses.
///
/// # Errors
///
/// The file cannot be read.
pub fn find<const N: usize>(root: &Path, lists: [&[&str]; N]) -> io::Result<[u64; N]> {
    let mut found = [0; N];
    let mut file = BufReader::with_capacity(1 << 16, File::open(root.join("proc/kallsyms"))?);
    let mut line = Vec::with_capacity(128);
    // The file is generated as it is read, so stop once everything is found.
    while found.contains(&0) && file.read_until(b'\n', &mut line)? > 0 {
        if let Some((address, name)) = symbol(&line) {
            for (index, list) in lists.iter().enumerate() {
                if list.iter().any(|wanted| wanted.as_bytes() == name) {
                    found[index] = address;
                }
            }
        }
        line.clear();
    }
    Ok(found)
}

/// `address type name [module]`
fn symbol(line: &[u8]) -> Option<(u64, &[u8])> {
    let mut words = line.trim_ascii_end().split(|byte| matches!(byte, b' ' | b'\t'));
    let address = std::str::from_utf8(words.next()?).ok()?;
    let name = words.nth(1)?;
    Some((u64::from_str_radix(address, 16).ok()?, name))
}

#[cfg(test)]
mod tests {
    use super::symbol;

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
