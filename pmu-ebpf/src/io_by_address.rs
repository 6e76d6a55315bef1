//! pmbpf's kernel side for I/O, by address: programs on raw tracepoints, and programs on every packet of a socket. An
//! object of its own, so that nothing of it exists unless I/O is asked for.
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
mod probed;

/// How this object's programs reach kernel objects.
use access::Probed as Way;
use probed::tracepoint;

/// Rows per CPU.
use io::maps::IO_CPUS as CPUS;
/// What the loader tells the programs.
use pmu_common::io::config::IoConfig as Settings;

/// Does the verifier know a tracepoint's arguments as pointers? It forbids arithmetic on those.
const TYPED: bool = false;
