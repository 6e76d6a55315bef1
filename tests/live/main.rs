//! pmbpf on this kernel: real programs and real cgroups, against the kernel's own accounting. Needs root, cc
//! and perf.
//!
//! Run by `cargo xtask test`, one test at a time, because two measuring tests would disturb each other.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics says where")]

/// Makes tests of functions that take too long for `cargo xtask test`. Tests in a module of this name run in
/// `cargo xtask nightly` only.
macro_rules! nightly {
    ($($test:ident),+) => {
        mod nightly {
            $(
                #[test]
                fn $test() {
                    super::$test();
                }
            )+
        }
    };
}

#[expect(dead_code, reason = "some of it is for whole files")]
#[path = "../fuzz/chance.rs"]
mod chance;
#[path = "../export/protobuf.rs"]
mod protobuf;
#[path = "../schema.rs"]
mod schema;
mod session;
mod support;
mod workloads;

mod accounts;
mod blind;
mod budget;
mod cgroups;
mod cleanup;
mod collector;
mod command;
mod containers;
mod cost_budget;
mod counting;
mod cpu_time;
mod culprits;
mod database;
mod elf_files;
mod events;
mod findings;
mod flight;
mod following;
mod gap_classes;
mod hostile;
mod interrupts;
mod io;
mod kernel_files;
mod languages;
mod launch;
mod limits;
mod names;
mod names_under_load;
mod off_cpu;
mod output;
mod own_cost;
mod pid_namespaces;
mod podman;
mod privileges;
mod processes;
mod profiles;
mod readers;
mod redacted;
mod rights;
mod samples;
mod scale;
mod serve;
mod situations;
mod stacks;
mod stat;
mod stat_options;
#[cfg(feature = "parquet")]
mod tables;
mod throttling;
mod top;
mod turns;
mod unwind;
mod web;
