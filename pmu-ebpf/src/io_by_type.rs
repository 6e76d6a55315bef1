//! Kernel side of pmbpf for I/O, by type: programs on BTF-typed tracepoints, and programs on every packet of
//! a socket. It is a separate object, so that nothing of it exists unless I/O is requested.
#![no_std]
#![no_main]
#![cfg_attr(
    target_arch = "bpf",
    feature(core_intrinsics, asm_experimental_arch),
    expect(internal_features, reason = "see intrinsics")
)]

#[expect(dead_code, reason = "what is remembered of tasks is the other objects' matter")]
mod access;
mod config;
mod cpu;
mod identity;
mod intrinsics;
mod io;
mod object;
mod typed;

/// Access of this object's programs to kernel objects.
use typed::{Typed as Way, tracepoint};

/// Rows of each CPU.
use io::maps::IO_CPUS as CPUS;
/// Configuration that the loader passes to the programs.
use pmu_common::io::config::IoConfig as Settings;

/// Whether the verifier has a tracepoint's arguments as pointers. It forbids arithmetic on those.
const TYPED: bool = true;
