//! Tests in guests: every test has a separate kernel, in the state after its boot.

use std::{
    env, fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{
    Beds, PMUSIM, Series,
    bed::Bed,
    guest::{Kept, Output},
    image, in_work,
    kernel::{Architecture, module_bytes, module_name},
    module,
    qemu::Work,
    shared_files, workloads,
};
use crate::{
    build,
    command::{run as succeed, say},
    dist,
};

/// Maximum time of a test: one that takes longer hangs.
const TEST_MAX: Duration = Duration::from_secs(300);
/// Folder of the programs that tests run, below `/work`.
const WORKLOADS: &str = "target/workloads";
/// Drivers that tests load, below `/work` as `NAME.ko`.
const DRIVERS: [&str; 1] = ["loop"];
/// Prefix of the message of a test that cannot run in a guest.
const SKIPPED: &str = "SKIPPED: ";

/// Results of tests in guests.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) passed: u64,
    /// Names of those that failed, with what they printed.
    pub(crate) failed: Vec<(String, String)>,
    pub(crate) skipped: u64,
}

/// Result of one test.
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
    /// The guest died of a flaw of the emulator, which is not a result of the test.
    Lost,
}

/// Guests of one kernel, with the test programs on their disk.
pub(crate) struct Ring<'a> {
    beds: &'a Beds,
    bed: Bed,
    shared: PathBuf,
    /// Owns the disk.
    _work: Work,
}

impl<'a> Ring<'a> {
    /// Saves a guest of this kernel and makes the disk: pmbpf, workloads, the simulated PMUs, drivers, and these programs.
    pub(crate) fn new(
        beds: &'a mut Beds,
        series: &Series,
        programs: &[(&str, PathBuf)],
    ) -> anyhow::Result<Self> {
        let bed = beds.bed(series, false)?;
        bed.save(&beds.tools)?;
        let work = Work::new("ring")?;
        let architecture = series.architecture;
        let mut files = shared_files(architecture, &[])?;
        for (path, name) in workloads::build(&beds.tools, architecture, &work.0)? {
            files.push((path, format!("{WORKLOADS}/{name}")));
        }
        if architecture == Architecture::X86 {
            files.push((module::pmusim(&mut beds.apt, &beds.tools, &bed.parts.kernel)?, PMUSIM.to_owned()));
            files.push((module::selftest(&beds.tools, &work.0)?, "selftest".to_owned()));
        }
        if series.systemd {
            let packages = dist::two_versions(&build::place(architecture), &work.0)?;
            files.extend(packages.into_iter().zip(["old.deb", "new.deb"].map(str::to_owned)));
        }
        for module in bed.parts.kernel.modules(&DRIVERS)? {
            let name = format!("{}.ko", module_name(&module.to_string_lossy()));
            let plain = work.0.join(&name);
            fs::write(&plain, module_bytes(&beds.tools, &module)?)?;
            files.push((plain, name));
        }
        for (name, program) in programs {
            // Debugging information makes up most of them.
            let stripped = work.0.join(name);
            let mut strip = beds.tools.command(architecture.strip());
            succeed(strip.args(["-g", "-o"]).arg(&stripped).arg(program))
                .with_context(|| format!("cannot strip {}", program.display()))?;
            files.push((stripped, (*name).to_owned()));
        }
        let shared = image::shared(&beds.tools, &work.0, &files)?;
        Ok(Self { beds, bed, shared, _work: work })
    }

    /// Runs these tests of a program, each in a separate guest. A test runs in a second guest if the emulator
    /// ended the first.
    pub(crate) fn run(&self, program: &str, tests: &[&String]) -> anyhow::Result<Results> {
        let mut results = Results::default();
        let release = &self.bed.parts.kernel.release;
        for &test in tests {
            let begun = Instant::now();
            let say = |how: &str| say(&format!("Linux {release}: {test} ... {how}"));
            let mut outcome = self.run_one(program, test);
            if matches!(outcome, Ok(Outcome::Lost)) {
                say("LOST, once more: the emulator executed a breakpoint that the kernel had taken away");
                outcome = self.run_one(program, test);
            }
            let seconds = begun.elapsed().as_secs_f64();
            match outcome.unwrap_or_else(|error| Outcome::Failed(format!("{error:#}"))) {
                Outcome::Passed => {
                    results.passed += 1;
                    say(&format!("ok ({seconds:.1} s)"));
                }
                Outcome::Skipped(why) => {
                    results.skipped += 1;
                    say(&format!("SKIPPED: {why}"));
                }
                Outcome::Failed(output) => {
                    say(&format!("FAILED ({seconds:.1} s)\n{output}"));
                    results.failed.push((test.clone(), output));
                }
                Outcome::Lost => {
                    results.failed.push((test.clone(), String::new()));
                    say(&format!("FAILED ({seconds:.1} s): the emulator ended two guests"));
                }
            }
        }
        Ok(results)
    }

    /// Returns the names of a program's tests, as it lists them where it runs.
    pub(crate) fn names(&self, program: &str) -> anyhow::Result<Vec<String>> {
        let kept = Kept::default();
        let mut guest = self.bed.restore(&self.beds.tools, &self.shared, &Output::Keep(kept.clone()))?;
        let words = [format!("./{program}").as_str(), "--list", "--format", "terse"].map(Into::into);
        let code = guest.run(&in_work(None, &words)?, TEST_MAX)?;
        guest.end();
        let text = kept.text();
        if code != 0 {
            bail!("{program} does not run there:\n{text}");
        }
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    fn run_one(&self, program: &str, test: &str) -> anyhow::Result<Outcome> {
        let kept = Kept::default();
        let mut guest = self.bed.restore(&self.beds.tools, &self.shared, &Output::Keep(kept.clone()))?;
        let asked = env::var("PMBPF_ROUNDS");
        let rounds = format!("PMBPF_ROUNDS={}", asked.as_deref().unwrap_or("1"));
        let words = [
            "env",
            &rounds,
            "PMBPF_BIN=/work/target/release/pmbpf",
            &format!("PMBPF_WORKLOADS=/work/{WORKLOADS}"),
            "PMBPF_GUEST=1",
            "RUST_BACKTRACE=0",
            &format!("./{program}"),
            "--exact",
            test,
            "--test-threads=1",
            "--nocapture",
        ];
        let ended = guest.run(&in_work(None, &words.map(Into::into))?, TEST_MAX);
        if matches!(ended, Ok(1..)) {
            guest.keep_log();
        }
        let died_of_emulator = ended.is_err() && guest.died_of_emulator();
        guest.end();
        Ok(match ended {
            Ok(0) => match kept.text().lines().find_map(|line| line.split_once(SKIPPED)) {
                None => {
                    // The figures of a requested series are printed.
                    if asked.is_ok() {
                        say(&kept.text());
                    }
                    Outcome::Passed
                }
                Some((_, why)) => Outcome::Skipped(why.to_owned()),
            },
            Ok(_) => Outcome::Failed(kept.text()),
            Err(_) if died_of_emulator => Outcome::Lost,
            Err(error) => Outcome::Failed(format!("{}{error:#}", kept.text())),
        })
    }
}
