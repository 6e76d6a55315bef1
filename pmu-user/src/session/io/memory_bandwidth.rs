//! The memory-bandwidth benchmark: the most that memory can move. Every CPU at once computes `a = b + 3·c`
//! over arrays that no cache holds. This is STREAM's triad (McCalpin, "Memory Bandwidth and Machine Balance
//! in Current High Performance Computers", 1995).

use std::{
    hint::black_box,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::machine::cpu::{Cpu, set_affinity};

/// Numbers in each of a thread's three arrays: 32 MiB each, more than a core's share of any cache.
const NUMBERS: usize = 4 << 20;
/// Numbers between two readings of the clock.
const STEP: usize = 1 << 16;
/// Bytes that are read and written per number. The read that precedes a write, where there is one, is not
/// counted, as in STREAM.
const BYTES: u64 = 24;
/// Length of the measurement: long enough for every core to get up to speed.
const LENGTH: Duration = Duration::from_millis(500);

/// Returns the bytes per second that all of `cpus` read and write together. Takes about half a second and 96
/// MiB per CPU, and slows down everything else that runs.
#[must_use]
pub fn bytes_per_second(cpus: &[Cpu]) -> f64 {
    let (ready, over) = (&Barrier::new(cpus.len() + 1), &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let started =
            cpus.iter().map(|&cpu| scope.spawn(move || triad(cpu, ready, over))).collect::<Vec<_>>();
        ready.wait();
        let begun = Instant::now();
        std::thread::sleep(LENGTH);
        over.store(true, Ordering::Relaxed);
        // A thread may have to wait for its CPU: the time is that of the last thread.
        let moved: u64 = started.into_iter().filter_map(|thread| thread.join().ok()).sum();
        moved as f64 / begun.elapsed().as_secs_f64()
    })
}

/// Returns the bytes that one CPU moved.
fn triad(cpu: Cpu, ready: &Barrier, over: &AtomicBool) -> u64 {
    // If the thread may not move there, it computes elsewhere.
    let _ = set_affinity(&[cpu]);
    // Written here, so that the memory is local to this CPU.
    let (mut a, b, c) = (vec![0.5_f64; NUMBERS], vec![1.5; NUMBERS], vec![2.5; NUMBERS]);
    ready.wait();
    let mut moved = 0;
    'all: loop {
        let parts = a.chunks_exact_mut(STEP).zip(b.chunks_exact(STEP).zip(c.chunks_exact(STEP)));
        for (a, (b, c)) in parts {
            for (a, (b, c)) in a.iter_mut().zip(b.iter().zip(c)) {
                *a = b + 3.0 * c;
            }
            moved += STEP as u64 * BYTES;
            if over.load(Ordering::Relaxed) {
                break 'all;
            }
        }
        black_box(&a);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::bytes_per_second;
    use crate::machine::cpu::Cpu;

    #[test]
    fn memory_moves_at_a_rate_that_memory_has() {
        let rate = bytes_per_second(&[Cpu(0)]);
        assert!((1e7..1e12).contains(&rate), "{rate}");
    }
}
