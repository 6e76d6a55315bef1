//! Rings of tests, from those that need nothing to those that need a PMU. A ring that cannot run is reported.
//! `PMBPF_REQUIRE=live,hardware` makes that a failure.

pub(crate) mod in_guests;
pub(crate) mod rings;
mod tally;

use std::{
    env, fs,
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context as _, bail};

use self::{
    rings::{GUEST, Kind, RINGS, TestProgram},
    tally::{Program, Tally},
};
use crate::{
    build,
    command::{is_root, output, say, text},
    setup::{self, Tools},
    vm::kernel::{Architecture, Series},
};

/// Choice of rings, and of their tests.
#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// Run only these rings: pure, contract, browser, live, guest, hardware
    #[arg(long, value_delimiter = ',')]
    ring: Vec<String>,
    /// Kernels of guests (5.10,6.1,6.12,7.2,6.12-arm64,7.2-systemd); without --ring, only the tests in guests run
    #[arg(long, value_delimiter = ',', value_name = "KERNEL")]
    kernels: Vec<Series>,
    /// In guests, run only tests with one of these in their names
    #[arg(long, value_delimiter = ',', value_name = "NAME", requires = "kernels")]
    in_guests: Vec<String>,
    /// In guests, run the kernels and tests of this subset in tests/guest/subsets: ci, nightly; without
    /// --ring, only these run
    #[arg(long, value_name = "SUBSET", conflicts_with = "kernels")]
    guests: Option<String>,
    /// Also run tests below modules called `nightly`, which otherwise run in `cargo xtask nightly`
    #[arg(long)]
    nightly: bool,
    /// Run only tests with this in their names
    filter: Option<String>,
    /// Number of times that ordinary programs are examined (tests/live/findings.rs), if not once
    #[arg(skip)]
    rounds: Option<u32>,
}

impl Args {
    /// Returns every ring with the nightly tests, in which ordinary programs are examined this often.
    pub(crate) fn at_night(rounds: u32) -> Self {
        Self { rounds: Some(rounds), nightly: true, ..Self::default() }
    }

    /// Returns the tests in guests with these kernels that have one of these in their names, both with commas
    /// between.
    pub(crate) fn in_guests(kernels: &str, tests: &str) -> anyhow::Result<Self> {
        let series = kernels.split(',').map(|one| one.parse::<Series>().map_err(anyhow::Error::msg));
        Ok(Self {
            kernels: series.collect::<Result<_, _>>()?,
            in_guests: tests.split(',').map(str::to_owned).collect(),
            ..Self::default()
        })
    }

    /// Keeps the rings that open something in the kernel, which is what load changes.
    pub(crate) fn of_kernel(self) -> Self {
        let ring = RINGS.iter().filter(|ring| ring.privileged && ring.name != GUEST);
        Self { ring: ring.map(|ring| ring.name.to_owned()).collect(), ..self }
    }

    fn wants_guests(&self) -> bool {
        !self.kernels.is_empty() || self.guests.is_some()
    }

    fn wants(&self, ring: &str) -> bool {
        match self.ring.is_empty() {
            true => !self.wants_guests() || ring == GUEST,
            false => self.ring.iter().any(|name| name == ring),
        }
    }
}

/// Returns whether it is a nightly test: one below a module called `nightly`.
fn is_nightly(test: &str) -> bool {
    test.contains(NIGHTLY)
}

const NIGHTLY: &str = "nightly::";

/// Returns whether this ring must run.
fn required(ring: &str) -> bool {
    env::var("PMBPF_REQUIRE").is_ok_and(|names| names.split(',').any(|name| name == ring))
}

/// Runs the rings; the exit code is 1 if anything failed.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    if let Some(unknown) = args.ring.iter().find(|name| RINGS.iter().all(|ring| ring.name != **name)) {
        bail!("no ring `{unknown}`; there are {}", rings::names());
    }
    rings::check()?;
    let tools = setup::all()?;
    let programs = TestProgram::all()?;
    let mut tally = Tally::default();
    // The live tests run the binary as users get it.
    let binary = tally.timed("build", |_| build::release(Architecture::HOST))?;
    if args.wants("contract") {
        tally.is_small(fs::metadata(&binary)?.len(), &mut io::stdout().lock())?;
    }
    for ring in RINGS.iter().filter(|ring| args.wants(ring.name)) {
        if ring.name == GUEST && args.wants_guests() {
            tally.timed(GUEST, |tally| in_guests::run(args, tally))?;
            continue;
        }
        if let Some(why) = (ring.unfit)() {
            if required(ring.name) {
                bail!("ring {} is required but cannot run: {why}", ring.name);
            }
            say(&format!("ring {}: SKIPPED: {why}", ring.name));
            tally.skipped_rings += 1;
            continue;
        }
        say(&format!("ring {}", ring.name));
        tally.timed(ring.name, |tally| {
            let mut runs = rings::runs(ring.name, &programs).into_iter();
            runs.try_for_each(|run| ring_run((&tools, &binary), ring, &run, args, tally))
        })?;
    }
    if let (Some(filter), 0) = (&args.filter, tally.matched) {
        tally.fail(format!("no test's name contains `{filter}`, in rings that run here"), "");
    }
    tally.close()
}

/// Runs one `cargo test`, passes its output on and adds up its summaries. `binary` is the release binary that
/// was built.
fn ring_run(
    (tools, binary): (&Tools, &Path),
    ring: &Kind,
    run: &[String],
    args: &Args,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let Some(left_out) = names(tools, run, args, tally)? else {
        tally.fail(format!("ring {}: its tests cannot be listed", ring.name), "");
        return Ok(());
    };
    let program = || programs_of(tools, binary, ring, run, args);
    let mut cargo = program()?;
    cargo.args(&args.filter);
    if !left_out.is_empty() {
        say(&format!("ring {}: {} tests left to `cargo xtask nightly`:", ring.name, left_out.len()));
        left_out.iter().for_each(|name| say(&format!("  {name}")));
        tally.left_to_the_night += left_out.len();
        cargo.args(["--skip", NIGHTLY]);
    }
    let from = tally.failures();
    let (status, summaries) = passed_on(&mut cargo, tally)?;
    if !status.success() && (summaries == 0 || tally.failures() == from) {
        // The ring did not build, or a test ended the whole process.
        tally.fail(format!("ring {}: {status} without a summary", ring.name), "");
    } else if ring.privileged {
        tally.again(from, |name| {
            say(&format!("ring {}: a second attempt of {name}", ring.name));
            let mut once = Tally::default();
            passed_on(program()?.args(["--exact", name]), &mut once)?;
            Ok((once.passed, once.failed) == (1, 0))
        })?;
    }
    Ok(())
}

/// Returns `cargo test` for the programs of a run, with the path of the binary.
fn programs_of(
    tools: &Tools,
    binary: &Path,
    ring: &Kind,
    run: &[String],
    args: &Args,
) -> anyhow::Result<Command> {
    let mut cargo = cargo_test(tools, run);
    if env::var_os("PMBPF_BIN").is_none() {
        cargo.env("PMBPF_BIN", binary);
    }
    cargo.envs(args.rounds.map(|rounds| ("PMBPF_ROUNDS", rounds.to_string())));
    if ring.privileged {
        // They measure, and two at a time would measure each other.
        cargo.arg("--test-threads=1");
        if !is_root() {
            cargo.env(
                runner_variable()?,
                "sudo --preserve-env=PATH,CARGO_BIN_EXE_pmbpf,PMBPF_BIN,PMBPF_ROUNDS",
            );
        }
    }
    Ok(cargo)
}

/// Runs it, passes its output on and adds up its summaries. Returns its exit status, and the number of
/// summaries.
fn passed_on(cargo: &mut Command, tally: &mut Tally) -> anyhow::Result<(ExitStatus, u32)> {
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("cannot run cargo test")?;
    let stdout = child.stdout.take().context("cargo test has no output")?;
    let mut summaries = 0;
    let mut program = Program::default();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        writeln!(io::stdout().lock(), "{line}")?;
        summaries += u32::from(program.take(&line, tally));
    }
    Ok((child.wait()?, summaries))
}

fn cargo_test(tools: &Tools, run: &[String]) -> Command {
    let mut cargo = tools.cargo();
    cargo.args(["test", "--locked", "--no-fail-fast"]).args(run).arg("--");
    cargo
}

/// Builds the programs of a run, and lists those of the requested tests that are nightly; `None` if they do
/// not build.
fn names(
    tools: &Tools,
    run: &[String],
    args: &Args,
    tally: &mut Tally,
) -> anyhow::Result<Option<Vec<String>>> {
    let mut list = cargo_test(tools, run);
    list.args(&args.filter).args(["--list", "--format", "terse"]).stderr(Stdio::inherit());
    let listed = list.output().context("cannot run cargo test")?;
    let text = text(&listed.stdout);
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let (nightly, others): (Vec<&str>, Vec<&str>) = names.partition(|name| !args.nightly && is_nightly(name));
    tally.matched += others.len();
    let nightly = nightly.into_iter().map(str::to_owned).collect();
    Ok(listed.status.success().then_some(nightly))
}

/// Returns cargo's variable for the program that runs test binaries.
fn runner_variable() -> anyhow::Result<String> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host =
        version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    Ok(format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace('-', "_")))
}
