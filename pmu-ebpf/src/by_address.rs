//! pmbpf's kernel side by address: programs on raw tracepoints, with the state of a task in a hash. The files are those of
//! `by_type`.
#![no_std]
#![no_main]
#![cfg_attr(
    target_arch = "bpf",
    feature(core_intrinsics, asm_experimental_arch),
    expect(internal_features, reason = "see intrinsics")
)]

mod access;
mod account;
mod cgroup;
mod changed;
mod config;
mod counter;
mod cpu;
mod cpu_time;
mod culprit;
mod divide;
mod flush;
mod identity;
mod interrupt;
#[expect(dead_code, reason = "some of it is for the objects for I/O")]
mod intrinsics;
mod lock;
mod maps;
mod moves;
mod object;
mod off_cpu;
mod off_cpu_stack;
mod owner;
mod probed;
mod process;
mod registers;
mod ring_event;
mod sample;
mod scheduler;
mod stack_copy;
mod table;
mod target;
mod task;
mod throttle;
mod throttling;
mod timer;
mod wait;

/// How this object's programs reach tasks.
use access::Probed as Way;
use probed::tracepoint;

/// Rows per CPU.
use maps::CPUS;
/// What the loader tells the programs.
use pmu_common::config::Config as Settings;
