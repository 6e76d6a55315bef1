//! Three functions that take 6, 3 and 1 parts of the time, for two seconds.
use std::{
    hint::black_box,
    time::{Duration, Instant},
};

#[inline(never)]
fn burn_most(rounds: u64) -> u64 {
    (0..rounds * 6).fold(1, |sum, k| black_box(sum ^ k))
}
#[inline(never)]
fn burn_some(rounds: u64) -> u64 {
    (0..rounds * 3).fold(1, |sum, k| black_box(sum ^ k))
}
#[inline(never)]
fn burn_least(rounds: u64) -> u64 {
    (0..rounds).fold(1, |sum, k| black_box(sum ^ k))
}

fn main() {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        black_box(burn_most(10_000) ^ burn_some(10_000) ^ burn_least(10_000));
    }
}
