//! `cargo xtask`: tasks around pmbpf's code. Sets up what is missing, builds, runs, tests, checks, benches.

mod bench;
mod build;
mod check;
mod command;
mod dist;
mod exports;
mod nightly;
mod scrape;
mod setup;
mod soak;
mod tables;
mod test;
mod vm;

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::vm::kernel::Architecture;

/// Build, run, test and check pmbpf
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install the tools that a build needs: rust-src, bpf-linker
    Setup,
    /// Build target/release/pmbpf, with the BPF programs inside
    Build {
        /// Processor to build for; the binary for another one is static and in a separate folder
        #[arg(long, value_name = "PROCESSOR")]
        arch: Option<Architecture>,
    },
    /// Build the files that are published, below target/dist: static binaries, deb, rpm, archives, container
    /// images
    Dist(dist::Args),
    /// Build pmbpf, and run it with these arguments, as root
    Run {
        /// Arguments of pmbpf
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run every ring of tests that can run here, except nightly tests, which it lists
    Test(test::Args),
    /// Run tests that take long or need load: tens of thousands of damaged files through everything that
    /// reads files, and at the same time every ring that can run here three times; tests in guests; exports
    /// and scrapes; a soak of an hour (of `PMBPF_SOAK` seconds)
    Nightly(nightly::Args),
    /// Run only the soak
    Soak,
    /// Run `pmbpf serve` with 200 cgroups, and 50 a second that come and go, for half an hour (`PMBPF_CHURN`
    /// seconds)
    Churn,
    /// Read exports with other programs, which are installed below target
    Exports,
    /// Scrape `pmbpf serve` with Prometheus and VictoriaMetrics while cgroups come and go, for ten minutes
    /// (`PMBPF_SCRAPE` seconds)
    Scrape,
    /// Check formatting, lints, documentation, architecture and dependencies
    Check,
    /// Write tables of CPU models
    Tables {
        #[command(subcommand)]
        tables: tables::Tables,
    },
    /// Run a command in a guest with another kernel, under emulation
    Vm(vm::Args),
    /// Measure the cost of pmbpf here, side by side with perf; needs root
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Setup => setup::all().map(|_| 0),
        Task::Build { arch } => build::release(arch.unwrap_or(Architecture::HOST)).map(|_| 0),
        Task::Dist(args) => dist::run(&args).map(|()| 0),
        Task::Run { arguments } => build::run(&arguments),
        Task::Test(args) => test::run(&args),
        Task::Nightly(args) => nightly::run(&args).map(|()| 0),
        Task::Soak => soak::run().map(|()| 0),
        Task::Churn => soak::churn().map(|()| 0),
        Task::Exports => exports::run().map(|()| 0),
        Task::Scrape => scrape::run(scrape::LENGTH).map(|()| 0),
        Task::Check => check::all().map(|()| 0),
        Task::Tables { tables } => tables::run(&tables).map(|()| 0),
        Task::Vm(args) => vm::run(&args),
        Task::Bench(args) => bench::run(&args).map(|()| 0),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            command::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
