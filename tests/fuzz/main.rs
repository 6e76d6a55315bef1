//! Malformed files, through every reader of files: no panic, no hang, little memory, and no terminal escape.
//!
//! `PMBPF_FUZZ=N` tries N of each kind instead of a few, as `cargo xtask nightly` does. A failing number is
//! reported and reproduces its file: `PMBPF_FUZZ_FROM=NUMBER PMBPF_FUZZ=1`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics says where")]
#![expect(clippy::print_stderr, reason = "it says which file it was")]

mod btf;
mod chance;
mod corpus;
mod counts;
mod perfmon;
mod recordings;
mod redacted;
#[path = "../schema.rs"]
mod schema;
mod strings;
mod symbols;

use std::{env, thread};

use rustix::{
    thread::ClockId,
    time::{Timespec, clock_gettime},
};

/// CPU time limit of one file, beyond which it counts as a hang. It is much more than any takes, however slow
/// the machine is.
const CPU_SECONDS_MAX: f64 = 30.0;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}: {text} is not a number")))
}

/// Tries numbered files on every CPU, a few unless more are requested. A panic reports the number.
fn each(few: u64, attempt: impl Fn(u64) + Sync) {
    let (from, count) = (number("PMBPF_FUZZ_FROM").unwrap_or(0), number("PMBPF_FUZZ").unwrap_or(few));
    let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64).min(count.max(1));
    let attempt = &attempt;
    let worker = |first: u64| {
        for file in (from + first..from + count).step_by(threads as usize) {
            let named = Named(file);
            let before = cpu_seconds();
            attempt(file);
            let took = cpu_seconds() - before;
            assert!(took < CPU_SECONDS_MAX, "took {took} s of CPU time");
            drop(named);
        }
    };
    thread::scope(|scope| {
        for first in 0..threads {
            thread::Builder::new().stack_size(8 << 20).spawn_scoped(scope, move || worker(first)).unwrap();
        }
    });
    let peak = peak_kib();
    assert!(peak < 1 << 20, "{} MiB were in memory at the most", peak >> 10);
}

/// Guard that reports the number of the file at a panic.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the file was number {}: PMBPF_FUZZ_FROM={} PMBPF_FUZZ=1", self.0, self.0);
        }
    }
}

/// Returns the CPU time of this thread.
fn cpu_seconds() -> f64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
    tv_sec as f64 + tv_nsec as f64 / 1e9
}

/// Returns the peak memory of this process.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
