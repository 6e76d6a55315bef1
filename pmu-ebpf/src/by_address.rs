//! pmbpf's kernel side by address: programs on raw tracepoints, with what is remembered of a task in a hash. One file
//! per program, as in `by_type`.
#![no_std]
#![no_main]
#![cfg_attr(
    target_arch = "bpf",
    feature(core_intrinsics, asm_experimental_arch),
    expect(internal_features, reason = "see atomic::add and opaque")
)]

mod access;
mod account;
#[expect(dead_code, reason = "some of it is for the objects for I/O")]
mod atomic;
mod cgroup;
mod config;
mod counter;
mod flush;
mod free;
mod interrupted;
mod maps;
mod meet;
mod object;
mod opaque;
mod owner;
mod pid_namespace;
mod place;
mod probed;
mod process;
mod sample;
mod stack_copy;
mod switch;
mod table;
mod target;
mod task;
mod tell;
mod timer;
mod wake;

/// How this object's programs reach tasks.
use access::Probed as Way;
use probed::tracepoint;
