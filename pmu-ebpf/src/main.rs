//! pmbpf's kernel side. One file per program; every map in `maps.rs`; arithmetic in pmu-common.
#![no_std]
#![no_main]
#![cfg_attr(
    target_arch = "bpf",
    feature(core_intrinsics),
    expect(internal_features, reason = "see maps::add")
)]
#![expect(clippy::needless_pass_by_value, reason = "aya's program macros hand contexts over by value")]

mod access;
mod account;
mod cgroup;
mod config;
mod flush;
mod maps;
mod owner;
mod prime;
mod process;
mod sample;
mod switch;
mod target;
mod task;
mod timer;
mod wake;

/// Lets the kernel call the GPL-only helpers; the crate's licence is in Cargo.toml.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier rejects a program from which this can be reached.
    loop {}
}
