//! Tests that take long or need load. Many damaged files go through everything that reads files, and many
//! simulated recordings are compared. At the same time every ring of tests runs that can run here. The rings
//! that open something in the kernel run three times in a row. Tests in guests follow, then exports and
//! scrapes, read by other programs, and then a soak. The load of the tests is two other runs of pmbpf, 100
//! programs executed a second, and a build. The soak runs alone: some of the tests are storms, and it sees
//! every process.

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

/// A test that tries a given number of files, or compares a given number of pairs.
struct Long {
    /// Arguments of `cargo test` that name its program.
    program: &'static [&'static str],
    /// Part of the names of its tests.
    test: &'static str,
    /// Variable that sets the number.
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

/// Number of passes of the rings that load can change; the others run in the first pass.
const PASSES: u32 = 3;
/// Number of times that ordinary programs are examined in each pass, so that nothing of theirs stands out.
const ROUNDS: u32 = 5;

/// Subset of tests that run in guests (tests/guest/subsets): the rest of what a kernel can change, with the
/// oldest and the newest one; some of all with those between. It also has what only a system with systemd
/// has.
const SUBSET: &str = "nightly";

/// Parts of a nightly run.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Damaged files and long comparisons, and every ring at the same time.
    Rings,
    /// Tests in guests, and the binary for arm64.
    Guests,
    /// Exports, read by other programs.
    Exports,
    /// Scrapes by servers.
    Scrape,
    /// The soak, which runs alone.
    Soak,
}

/// Arguments of `cargo xtask nightly`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these parts, for a night that has to be split
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
}

/// Runs all requested parts, whatever fails. Returns an error at the end that names what did.
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
        // Code that only arm64 has is compiled by nothing else.
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

/// Runs long tests and rings on a machine in use, and returns what failed.
fn beside_load(tools: &Tools) -> Vec<String> {
    thread::scope(|scope| {
        let long = scope.spawn(|| all_long(tools));
        let rings = soak::beside(|| (1..=PASSES).filter_map(rings).collect());
        let mut failed: Vec<String> = rings.unwrap_or_else(|error| vec![format!("load: {error:#}")]);
        failed.extend(ended(long));
        failed
    })
}

/// Runs these tests in guests with these kernels, and returns what failed.
fn in_guests(Selection { kernels, tests }: &Selection) -> Option<String> {
    say(&format!("tests in guests with {kernels}"));
    let result = test::Args::in_guests(kernels, tests).and_then(|args| test::run(&args));
    match result {
        Ok(0) => None,
        Ok(_) => Some(format!("tests in guests with {kernels}")),
        Err(error) => Some(format!("tests in guests with {kernels}: {error:#}")),
    }
}

/// Runs one pass of the rings, and returns what failed.
fn rings(pass: u32) -> Option<String> {
    say(&format!("tests beside load, pass {pass} of {PASSES}"));
    let all = test::Args::at_night(ROUNDS);
    match test::run(&if pass == 1 { all } else { all.of_kernel() }) {
        Ok(0) => None,
        Ok(_) => Some(format!("tests, pass {pass}")),
        Err(error) => Some(format!("tests, pass {pass}: {error:#}")),
    }
}

/// Runs the tests of [`LONG`], whichever fail. Returns an error that names those.
fn all_long(tools: &Tools) -> anyhow::Result<()> {
    let failed = LONG.iter().filter_map(|long| long.run(tools).err());
    let failed: Vec<String> = failed.map(|error| format!("{error:#}")).collect();
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join(", ")) }
}

impl Long {
    /// Runs the test. Its output comes in one piece, between that of others.
    fn run(&self, tools: &Tools) -> anyhow::Result<()> {
        let Self { program, test, variable, count } = self;
        say(&format!("{test}: {variable}={count}"));
        let mut cargo = tools.cargo();
        // Fast, but with the checks that find overflows (`profile.fuzz` in Cargo.toml).
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

/// Returns the error of the long tests, if they failed.
fn ended(part: ScopedJoinHandle<'_, anyhow::Result<()>>) -> Option<String> {
    match part.join() {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("long tests: {error:#}")),
        Err(_) => Some("long tests: they panicked".to_owned()),
    }
}
