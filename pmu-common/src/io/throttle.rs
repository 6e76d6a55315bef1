//! Time that a limit of I/O (`io.max`) holds a bio back, before there is a request. Each bio that is checked
//! against a limit has one word.

/// Flag of a word that holds the time held back; other words hold the start.
const HELD: u64 = 1 << 63;
/// Time in ns below which a bio was not held back: the time between the check of its limit and the kernel's
/// next step. Bios that are held back wait for a timer, in ticks.
pub const HELD_LEAST_NS: u64 = 100_000;

/// Returns the word of a bio with a limit that is checked at `now_ns` (CLOCK_MONOTONIC).
#[must_use]
#[inline(always)]
pub const fn since(now_ns: u64) -> u64 {
    now_ns & !HELD
}

/// Returns the word of a bio that continues at `now_ns`; 0 if it was not held back, or the word is left over
/// from another bio at the same address.
#[must_use]
#[inline(always)]
pub const fn let_go(word: u64, now_ns: u64) -> u64 {
    let held_ns = now_ns.wrapping_sub(word);
    if word & HELD != 0 || held_ns < HELD_LEAST_NS || held_ns & HELD != 0 { 0 } else { HELD | held_ns }
}

/// Returns the time that the bio was held back; 0 while it still is.
#[must_use]
#[inline(always)]
pub const fn held_ns(word: u64) -> u64 {
    if word & HELD == 0 { 0 } else { word & !HELD }
}

#[cfg(test)]
mod tests {
    use super::{HELD_LEAST_NS, held_ns, let_go, since};

    #[test]
    fn a_bio_that_is_held_back_says_for_how_long() {
        let word = let_go(since(1_000_000), 63_000_000);
        assert_eq!(held_ns(word), 62_000_000);
        assert_eq!(held_ns(since(1_000_000)), 0, "it still is");
    }

    #[test]
    fn what_goes_on_at_once_was_not_held_back_nor_was_what_another_one_left() {
        assert_eq!(let_go(since(1_000_000), 1_000_000 + HELD_LEAST_NS - 1), 0);
        let left = let_go(since(1_000_000), 63_000_000);
        assert_eq!(let_go(left, 99_000_000), 0);
        assert_eq!(let_go(since(1_000_000), 900_000), 0, "a clock that is behind");
    }
}
