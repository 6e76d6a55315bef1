//! pmbpf's kernel side by type: programs on BTF-typed tracepoints, with what is remembered of a task in the task. One
//! file per program. The same files make `by_address`, for older kernels; arithmetic is in pmu-common.
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
mod interrupted;
mod maps;
mod meet;
mod object;
mod opaque;
mod owner;
mod pid_namespace;
mod place;
mod prime;
mod process;
mod sample;
mod stack_copy;
mod storage;
mod switch;
mod target;
mod task;
mod tell;
mod timer;
mod typed;
mod wake;

/// How this object's programs reach tasks.
use typed::{Typed as Way, tracepoint};
