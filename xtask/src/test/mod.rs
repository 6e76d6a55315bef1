//! The rings of tests, from those that need nothing to those that need a PMU. A ring that cannot run says so aloud;
//! `PMBPF_REQUIRE=live,hardware` makes that a failure.

mod tally;

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

use self::tally::{Program, Tally};
use crate::{
    build,
    command::{exists, is_root, output, say},
    setup::{self, Tools},
    vm::{
        Beds,
        kernel::{Architecture, Series},
        ring::Ring,
    },
};

/// Which rings, and which tests of them.
#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// Only these rings: pure, contract, browser, live, guest, hardware
    #[arg(long, value_delimiter = ',')]
    ring: Vec<String>,
    /// Kernels of guests (5.10,6.1,6.12,7.2,6.12-arm64,7.2-systemd); without --ring, only the tests in guests run
    #[arg(long, value_delimiter = ',', value_name = "KERNEL")]
    kernels: Vec<Series>,
    /// In guests, only tests whose name contains one of these
    #[arg(long, value_delimiter = ',', value_name = "NAME", requires = "kernels")]
    in_guests: Vec<String>,
    /// In the live ring, no tests whose name contains one of these
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    not_live: Vec<String>,
    /// Only tests whose name contains this
    filter: Option<String>,
    /// How often ordinary programs are looked at (tests/live/findings.rs), if not once
    #[arg(skip)]
    rounds: Option<u32>,
}

impl Args {
    /// Every ring, in which ordinary programs are looked at so often.
    pub(crate) fn with_rounds(rounds: u32) -> Self {
        Self { rounds: Some(rounds), ..Self::default() }
    }

    /// Tests in guests with these kernels, whose names contain one of these, both with commas between.
    pub(crate) fn in_guests(kernels: &str, tests: &str) -> anyhow::Result<Self> {
        let series = kernels.split(',').map(|one| one.parse::<Series>().map_err(anyhow::Error::msg));
        Ok(Self {
            kernels: series.collect::<Result<_, _>>()?,
            in_guests: tests.split(',').map(str::to_owned).collect(),
            ..Self::default()
        })
    }

    /// Of those rings, the ones that open something in the kernel: what load changes.
    pub(crate) fn of_kernel(self) -> Self {
        let ring = RINGS.iter().filter(|ring| ring.privileged && ring.name != GUEST);
        Self { ring: ring.map(|ring| ring.name.to_owned()).collect(), ..self }
    }

    fn wants(&self, ring: &str) -> bool {
        match self.ring.is_empty() {
            true => self.kernels.is_empty() || ring == GUEST,
            false => self.ring.iter().any(|name| name == ring),
        }
    }

    fn wants_in_guests(&self, test: &str) -> bool {
        let named = self.in_guests.is_empty() || self.in_guests.iter().any(|part| test.contains(part));
        named && self.filter.as_ref().is_none_or(|part| test.contains(part))
    }
}

/// A ring: what it runs, and why it cannot run here.
struct Kind {
    name: &'static str,
    /// Arguments of `cargo test`, one run each.
    runs: &'static [&'static [&'static str]],
    privileged: bool,
    unfit: fn() -> Option<String>,
}

const RINGS: [Kind; 6] = [
    Kind {
        name: "pure",
        runs: &[
            &["--package", "pmu-common", "--lib"],
            &[
                "--package",
                "pmu-user",
                "--lib",
                "--test",
                "architecture",
                "--test",
                "cores",
                "--test",
                "diff",
                "--test",
                "docs",
                "--test",
                "export",
                "--test",
                "formulas",
                "--test",
                "fuzz",
                "--test",
                "golden",
                "--test",
                "machines",
                "--test",
                "page",
                "--test",
                "replay",
                "--test",
                "report",
                "--test",
                "tables",
                "--test",
                "tasks",
                "--test",
                "top",
                "--test",
                "width",
            ],
        ],
        privileged: false,
        unfit: || None,
    },
    Kind {
        name: "contract",
        runs: &[&["--package", "pmu-user", "--test", "contract"]],
        privileged: false,
        unfit: || None,
    },
    Kind {
        name: "browser",
        runs: &[&["--package", "pmu-user", "--test", "browser"]],
        privileged: false,
        unfit: unfit_for_browser,
    },
    Kind {
        name: LIVE,
        runs: &[&["--package", "pmu-user", "--test", "live"]],
        privileged: true,
        unfit: unfit_for_live,
    },
    Kind {
        name: GUEST,
        runs: &[],
        privileged: true,
        unfit: || Some("name kernels for it: --kernels 5.10,6.1,6.12,7.2".to_owned()),
    },
    Kind {
        name: "hardware",
        runs: &[&["--package", "pmu-user", "--test", "hardware"]],
        privileged: true,
        unfit: unfit_for_hardware,
    },
];

/// The ring whose tests count on this machine.
const LIVE: &str = "live";
/// The ring whose tests run under other kernels.
const GUEST: &str = "guest";

fn unfit_for_browser() -> Option<String> {
    let browsers = ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"];
    if !exists("node") {
        return Some("there is no node".to_owned());
    }
    if env::var_os("CHROMIUM").is_none() && !browsers.iter().any(|name| exists(name)) {
        return Some("there is no Chromium; CHROMIUM=PATH names one".to_owned());
    }
    let packages =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/browser/node_modules/playwright-core");
    let install = "its packages are missing: npm install --no-package-lock --prefix tests/browser";
    (!packages.exists()).then(|| install.to_owned())
}

fn unfit_for_live() -> Option<String> {
    if !is_root() && !exists("sudo") {
        return Some("it loads BPF programs: run it as root".to_owned());
    }
    let types = Path::new("/sys/kernel/btf/vmlinux").exists();
    (!types).then(|| "this kernel has no BTF".to_owned())
}

fn unfit_for_hardware() -> Option<String> {
    let devices = Path::new("/sys/bus/event_source/devices");
    let core = ["cpu", "cpu_core", "armv8_pmuv3_0", "armv8_pmuv3"];
    let exposed = core.iter().any(|pmu| devices.join(pmu).exists());
    if exposed { unfit_for_live() } else { Some("this machine exposes no hardware PMU".to_owned()) }
}

/// Must this ring run?
fn required(ring: &str) -> bool {
    env::var("PMBPF_REQUIRE").is_ok_and(|names| names.split(',').any(|name| name == ring))
}

/// Runs the rings; the exit code is 1 if anything failed.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    if let Some(unknown) = args.ring.iter().find(|name| RINGS.iter().all(|ring| ring.name != **name)) {
        bail!("no ring `{unknown}`; there are pure, contract, browser, live, guest and hardware");
    }
    let tools = setup::all()?;
    let mut tally = Tally::default();
    // The live tests run the binary as users get it.
    let binary = tally.timed("build", |_| build::release(Architecture::HOST))?;
    if args.wants("contract") {
        tally.is_small(fs::metadata(&binary)?.len())?;
    }
    for ring in RINGS.iter().filter(|ring| args.wants(ring.name)) {
        if ring.name == GUEST && !args.kernels.is_empty() {
            tally.timed(GUEST, |tally| in_guests(args, tally))?;
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
            ring.runs.iter().try_for_each(|run| ring_run((&tools, &binary), ring, run, args, tally))
        })?;
    }
    tally.close()
}

/// Programs of tests that run in guests.
const IN_GUESTS: [&str; 2] = ["live", "guest"];

/// Runs tests in guests.
fn in_guests(args: &Args, tally: &mut Tally) -> anyhow::Result<()> {
    let mut beds = match Beds::get() {
        Ok(beds) => beds,
        Err(error) if args.ring.is_empty() || required(GUEST) => return Err(error),
        Err(error) => {
            say(&format!("ring {GUEST}: SKIPPED: {error:#}"));
            tally.skipped_rings += 1;
            return Ok(());
        }
    };
    for series in &args.kernels {
        build::release(series.architecture)?;
        let programs = test_programs(series.architecture)?;
        let context = || format!("kernel {series}");
        let ring = Ring::new(&mut beds, series, &programs).with_context(context)?;
        for program in IN_GUESTS {
            say(&format!("ring {program} on kernel {series}"));
            let results = ring.run(program, |test| args.wants_in_guests(test)).with_context(context)?;
            tally.passed += results.passed;
            for (test, printed) in &results.failed {
                tally.fail(format!("{test} on kernel {series}"), printed);
            }
            tally.skipped_tests += results.skipped;
        }
    }
    Ok(())
}

/// The programs of [`IN_GUESTS`], built.
fn test_programs(architecture: Architecture) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
    let mut cargo = build::cargo_for(architecture)?;
    cargo.args(["test", "--locked", "--no-run", "--package", "pmu-user", "--message-format=json"]);
    cargo.args(IN_GUESTS.iter().flat_map(|program| ["--test", program])).stderr(Stdio::inherit());
    let messages = output(&mut cargo)?;
    let messages: Vec<serde_json::Value> =
        messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let place = |program: &&'static str| {
        let mut built = messages.iter().filter(|message| message["target"]["name"] == *program);
        let path = built.find_map(|message| message["executable"].as_str()).map(PathBuf::from);
        Ok((*program, path.with_context(|| format!("cargo names no program for the tests `{program}`"))?))
    };
    IN_GUESTS.iter().map(place).collect()
}

/// Runs one `cargo test`, passes its output on and adds up its summaries. `binary`: the release binary that was built.
fn ring_run(
    (tools, binary): (&Tools, &Path),
    ring: &Kind,
    run: &[&str],
    args: &Args,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let mut cargo = tools.cargo();
    if env::var_os("PMBPF_BIN").is_none() {
        cargo.env("PMBPF_BIN", binary);
    }
    cargo.args(["test", "--locked", "--no-fail-fast"]).args(run).arg("--");
    cargo.args(&args.filter).envs(args.rounds.map(|rounds| ("PMBPF_ROUNDS", rounds.to_string())));
    if ring.name == LIVE && !args.not_live.is_empty() {
        say(&format!("ring {LIVE}: WITHOUT tests of {}", args.not_live.join(", ")));
        cargo.args(args.not_live.iter().flat_map(|name| ["--skip", name]));
    }
    if ring.privileged {
        // They measure; two at a time would measure each other.
        cargo.arg("--test-threads=1");
        if !is_root() {
            cargo.env(
                runner_variable()?,
                "sudo --preserve-env=PATH,CARGO_BIN_EXE_pmbpf,PMBPF_BIN,PMBPF_ROUNDS",
            );
        }
    }
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("cannot run cargo test")?;
    let stdout = child.stdout.take().context("cargo test has no output")?;
    let mut summaries = 0;
    let mut program = Program::default();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        writeln!(std::io::stdout().lock(), "{line}")?;
        summaries += u32::from(program.take(&line, tally));
    }
    let status = child.wait()?;
    if !status.success() && (summaries == 0 || tally.failed == 0) {
        // It did not build, or a test took the whole process down.
        tally.fail(format!("ring {}: {status} without a summary", ring.name), "");
    }
    Ok(())
}

/// Cargo's variable for the program that runs test binaries.
fn runner_variable() -> anyhow::Result<String> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host =
        version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    Ok(format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace('-', "_")))
}
