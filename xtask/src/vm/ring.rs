//! The live ring in guests: every test meets a kernel of its own, as it was when it had booted.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{
    Architecture, Beds, Series,
    bed::Bed,
    guest::{Kept, Output},
    image, in_work, module,
    qemu::Work,
    shared_files, workloads,
};
use crate::command::say;

/// A test that takes longer hangs.
const TEST_MAX: Duration = Duration::from_secs(300);
/// Where the test program is for a guest, below `/work`.
const PROGRAM: &str = "live";

/// Where the programs that it runs are.
const WORKLOADS: &str = "target/workloads";
/// How a test says that it cannot run in a guest.
const SKIPPED: &str = "SKIPPED: ";

/// What became of a test.
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// Runs these tests of a program, in a guest each of this kernel; how many passed, failed and cannot run there.
pub(crate) fn run(
    beds: &mut Beds,
    series: &Series,
    program: &Path,
    filter: Option<&str>,
) -> anyhow::Result<(u64, u64, u64)> {
    let bed = beds.bed(series, false)?;
    bed.save(&beds.tools)?;
    let work = Work::new("shared")?;
    let architecture = series.architecture;
    let mut files = shared_files(architecture, &[])?;
    for (path, name) in workloads::build(&beds.tools, architecture, &work.0)? {
        files.push((path, format!("{WORKLOADS}/{name}")));
    }
    files.push((stripped(beds, architecture, program, &work)?, PROGRAM.to_owned()));
    files.push((module::pmusim(&mut beds.apt, &beds.tools, &bed.kernel)?, super::PMUSIM.to_owned()));
    let shared = image::shared(&beds.tools, &work.0, &files)?;
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for test in &names(beds, &bed, &shared, filter)? {
        let begun = Instant::now();
        let outcome =
            run_one(beds, &bed, &shared, test).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        let seconds = begun.elapsed().as_secs_f64();
        match outcome {
            Outcome::Passed => {
                passed += 1;
                say(&format!("Linux {}: {test} ... ok ({seconds:.1} s)", bed.kernel.release));
            }
            Outcome::Skipped(why) => {
                skipped += 1;
                say(&format!("Linux {}: {test} ... SKIPPED: {why}", bed.kernel.release));
            }
            Outcome::Failed(output) => {
                failed += 1;
                say(&format!("Linux {}: {test} ... FAILED ({seconds:.1} s)\n{output}", bed.kernel.release));
            }
        }
    }
    Ok((passed, failed, skipped))
}

/// Names of the program's tests, as it tells them where it runs.
fn names(beds: &Beds, bed: &Bed, shared: &Path, filter: Option<&str>) -> anyhow::Result<Vec<String>> {
    let kept = Kept::default();
    let mut guest = bed.restore(&beds.tools, shared, &Output::Keep(kept.clone()))?;
    let words = [format!("./{PROGRAM}").as_str(), "--list", "--format", "terse"].map(Into::into);
    let code = guest.run(&in_work(None, &words)?, TEST_MAX)?;
    guest.end();
    let text = kept.text();
    if code != 0 {
        bail!("the test program does not run there:\n{text}");
    }
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.filter(|name| filter.is_none_or(|part| name.contains(part))).map(str::to_owned).collect())
}

fn run_one(beds: &Beds, bed: &Bed, shared: &Path, test: &str) -> anyhow::Result<Outcome> {
    let kept = Kept::default();
    let mut guest = bed.restore(&beds.tools, shared, &Output::Keep(kept.clone()))?;
    let words = [
        "env",
        "PMBPF_BIN=/work/target/release/pmbpf",
        &format!("PMBPF_WORKLOADS=/work/{WORKLOADS}"),
        "PMBPF_GUEST=1",
        "RUST_BACKTRACE=0",
        &format!("./{PROGRAM}"),
        "--exact",
        test,
        "--test-threads=1",
        "--nocapture",
    ];
    let line = in_work(None, &words.map(Into::into))?;
    let ended = guest.run(&line, TEST_MAX);
    if !matches!(ended, Ok(0)) {
        guest.keep_log();
    }
    guest.end();
    Ok(match ended {
        Ok(0) => match kept.text().lines().find_map(|line| line.split_once(SKIPPED)) {
            None => Outcome::Passed,
            Some((_, why)) => Outcome::Skipped(why.to_owned()),
        },
        Ok(_) => Outcome::Failed(kept.text()),
        Err(error) => Outcome::Failed(format!("{}{error:#}", kept.text())),
    })
}

/// The program without the debugging information that makes most of it.
fn stripped(beds: &Beds, architecture: Architecture, program: &Path, work: &Work) -> anyhow::Result<PathBuf> {
    let stripped = work.0.join(PROGRAM);
    let mut strip = beds.tools.command(architecture.strip());
    crate::command::run(strip.args(["-g", "-o"]).arg(&stripped).arg(program))
        .with_context(|| format!("cannot strip {}", program.display()))?;
    Ok(stripped)
}
