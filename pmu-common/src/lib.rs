//! Wire format between pmbpf's BPF programs and its user side.
//!
//! Only two things belong here: the records that cross (maps, ring buffer, read-only configuration), and the
//! arithmetic that both sides must agree on. It has no dependencies, no features and no I/O, so every line
//! can be tested on the host and compiled for the kernel.
#![no_std]

pub mod changed;
pub mod config;
pub mod count;
pub mod cpu;
pub mod culprit;
pub mod enable;
pub mod gap;
pub mod histogram;
pub mod interrupt;
pub mod io;
pub mod lock;
pub mod loss;
pub mod moves;
pub mod name;
pub mod off_cpu;
pub mod off_cpu_stack;
pub mod owner;
pub mod ring;
pub mod sample;
pub mod target;
pub mod throttling;
pub mod turn;
pub mod wire;
