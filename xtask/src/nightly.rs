//! What takes long or needs load: many files that nobody sound would write, through everything that reads files, and many simulated
//! recordings compared; beside them every ring of tests that can run here, and those that open something in the kernel three times in a
//! row; then tests in guests; exports and scrapes, read by others; and then a soak. What the tests have as load is two other runs of
//! pmbpf, 100 programs executed a second, and a build. The soak comes alone: some of the tests are storms, and it sees every process.

use std::{
    io::Write as _,
    process::{Output, Stdio},
    thread::{self, ScopedJoinHandle},
};

use anyhow::{Context as _, bail};

use crate::{
    build,
    command::say,
    exports, scrape,
    setup::{self, Tools},
    soak,
    test::{
        self,
        in_guests::{Selection, subset},
    },
    vm::kernel::Architecture,
};

/// A test that tries as many files, or compares as many pairs, as it is told.
struct Long {
    /// Arguments of `cargo test` that name its program.
    program: &'static [&'static str],
    /// Which of its tests: those whose name contains this.
    test: &'static str,
    /// What tells it how many.
    variable: &'static str,
    count: u32,
}

const fn fuzz(test: &'static str, count: u32) -> Long {
    Long { program: &["--test", "fuzz"], test, variable: "PMBPF_FUZZ", count }
}

const LONG: [Long; 5] = [
    fuzz("recordings::every_recording_is_reported_or_refused", 50_000),
    fuzz("perfmon::every_perfmon_directory_is_read_or_refused", 3_000),
    fuzz("btf::every_btf_is_read_or_refused", 3_000),
    fuzz("symbols::every_elf_file_and_perf_map_has_names_or_reasons", 20_000),
    Long { program: &["--lib"], test: "metric::diff::tests", variable: "PMBPF_PAIRS", count: 200 },
];

/// How often the rings run that load can change; the others run in the first pass.
const PASSES: u32 = 3;
/// How often ordinary programs are looked at in each pass, that nothing of theirs stands out.
const ROUNDS: u32 = 5;

/// What runs in guests (tests/guest/subsets): the rest of what a kernel can change, with the oldest and the newest one; some of all with
/// those between; and what only a system with systemd has.
const SUBSET: &str = "nightly";

/// Parts of a night.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Damaged files and long comparisons, and beside them every ring.
    Rings,
    /// Tests in guests, and the binary for arm64.
    Guests,
    /// Exports, read by programs of others.
    Exports,
    /// Scrapes by servers.
    Scrape,
    /// The soak.
    Soak,
}

/// Which parts.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these, for a night that has to be had in pieces
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
}

/// Runs all parts that are wanted, whatever fails; an error at the end that names what did.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let tools = setup::all()?;
    build::release(Architecture::HOST)?;
    let mut failed = Vec::new();
    let wants = |part: Part| args.only.is_empty() || args.only.contains(&part);
    if wants(Part::Rings) {
        failed.extend(beside_load(&tools));
    }
    if wants(Part::Guests) {
        match subset(SUBSET) {
            Ok(lines) => failed.extend(lines.iter().filter_map(in_guests)),
            Err(error) => failed.push(format!("guests: {error:#}")),
        }
    }
    let mut ended = |part: &str, result: anyhow::Result<()>| {
        failed.extend(result.err().map(|error| format!("{part}: {error:#}")));
    };
    if wants(Part::Guests) {
        // What arm64 has otherwise, nobody else compiles.
        ended("arm64", build::release(Architecture::Arm).map(drop));
    }
    if wants(Part::Exports) {
        ended("exports", exports::run());
    }
    if wants(Part::Scrape) {
        ended("scrape", scrape::run(scrape::LENGTH_AT_NIGHT));
    }
    if wants(Part::Soak) {
        ended("soak", soak::run());
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join("; "));
    }
    say("all passed");
    Ok(())
}

/// Long tests and rings on a machine in use; what failed.
fn beside_load(tools: &Tools) -> Vec<String> {
    thread::scope(|scope| {
        let long = scope.spawn(|| all_long(tools));
        let rings = soak::beside(|| (1..=PASSES).filter_map(rings).collect());
        let mut failed: Vec<String> = rings.unwrap_or_else(|error| vec![format!("load: {error:#}")]);
        failed.extend(ended(long));
        failed
    })
}

/// These tests in guests with these kernels; what failed.
fn in_guests(Selection { kernels, tests }: &Selection) -> Option<String> {
    say(&format!("tests in guests with {kernels}"));
    let result = test::Args::in_guests(kernels, tests).and_then(|args| test::run(&args));
    match result {
        Ok(0) => None,
        Ok(_) => Some(format!("tests in guests with {kernels}")),
        Err(error) => Some(format!("tests in guests with {kernels}: {error:#}")),
    }
}

/// One pass of the rings; what failed.
fn rings(pass: u32) -> Option<String> {
    say(&format!("tests beside load, pass {pass} of {PASSES}"));
    let all = test::Args::at_night(ROUNDS);
    match test::run(&if pass == 1 { all } else { all.of_kernel() }) {
        Ok(0) => None,
        Ok(_) => Some(format!("tests, pass {pass}")),
        Err(error) => Some(format!("tests, pass {pass}: {error:#}")),
    }
}

/// Runs the tests of [`LONG`], whichever fail; an error that names those.
fn all_long(tools: &Tools) -> anyhow::Result<()> {
    let failed = LONG.iter().filter_map(|long| long.run(tools).err());
    let failed: Vec<String> = failed.map(|error| format!("{error:#}")).collect();
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join(", ")) }
}

impl Long {
    /// Runs it; what it prints comes in one piece, between what others print.
    fn run(&self, tools: &Tools) -> anyhow::Result<()> {
        let Self { program, test, variable, count } = self;
        say(&format!("{test}: {variable}={count}"));
        let mut cargo = tools.cargo();
        // Fast, and yet with the checks that find overflows (`profile.fuzz` in Cargo.toml).
        cargo.args(["test", "--locked", "--profile", "fuzz", "--package", "pmu-user"]).args(*program);
        cargo.args(["--", test, "--nocapture"]).env(variable, count.to_string());
        let Output { status, stdout, stderr } =
            cargo.stdin(Stdio::null()).output().context("cannot run cargo test")?;
        std::io::stdout().lock().write_all(&[stdout, stderr].concat())?;
        if !status.success() {
            bail!("{test}: {status}");
        }
        Ok(())
    }
}

/// What the files failed with, if they did.
fn ended(part: ScopedJoinHandle<'_, anyhow::Result<()>>) -> Option<String> {
    match part.join() {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("long tests: {error:#}")),
        Err(_) => Some("long tests: they panicked".to_owned()),
    }
}
