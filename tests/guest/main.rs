//! pmbpf against PMUs with known counts: the simulated ones of `tests/vm/pmusim`, and the emulated one of
//! arm64.
//!
//! Runs only in guests, each test in a fresh one: `cargo xtask test --kernels 6.12`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics says where")]

#[path = "../schema.rs"]
mod schema;
#[cfg(target_arch = "x86_64")]
#[path = "../live/session.rs"]
#[expect(dead_code, reason = "the live ring needs more of it")]
mod session;
#[path = "../live/support.rs"]
#[expect(dead_code, reason = "the live ring needs more of it")]
mod support;
#[path = "../live/workloads.rs"]
mod workloads;

#[cfg(target_arch = "aarch64")]
mod arm;
#[cfg(target_arch = "x86_64")]
mod cores;
#[cfg(target_arch = "x86_64")]
mod counts;
#[cfg(target_arch = "x86_64")]
mod events;
#[cfg(target_arch = "x86_64")]
mod half;
#[cfg(target_arch = "x86_64")]
mod hotplug;
#[cfg(target_arch = "x86_64")]
mod io;
#[cfg(target_arch = "x86_64")]
mod masked;
#[cfg(target_arch = "x86_64")]
mod runs;
#[cfg(target_arch = "x86_64")]
mod samples;
mod scraped;
#[cfg(target_arch = "x86_64")]
mod simulated;
#[cfg(target_arch = "x86_64")]
mod stat;
#[cfg(target_arch = "x86_64")]
mod systemd;
#[cfg(target_arch = "x86_64")]
mod threads;
#[cfg(target_arch = "x86_64")]
mod topdown;
#[cfg(target_arch = "x86_64")]
mod turns;
#[cfg(target_arch = "x86_64")]
mod writeback;
