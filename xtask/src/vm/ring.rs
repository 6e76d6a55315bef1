//! The live ring in guests: every test meets a kernel of its own, as it was when it had booted.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context as _;

use super::{
    Beds, Series,
    bed::Bed,
    guest::{Kept, Output},
    image, in_work, module,
    qemu::Work,
    shared_files,
};
use crate::command::say;

/// A test that takes longer hangs.
const TEST_MAX: Duration = Duration::from_secs(300);
/// Where the test program is for a guest, below `/work`.
const PROGRAM: &str = "live";

/// What became of a test.
enum Outcome {
    Passed,
    Failed(String),
}

/// Runs these tests of a program in a guest each of this kernel; how many passed and failed.
pub(crate) fn run(
    beds: &mut Beds,
    series: &Series,
    program: &Path,
    tests: &[String],
) -> anyhow::Result<(u64, u64)> {
    let bed = beds.bed(series, false)?;
    bed.save(&beds.tools)?;
    let work = Work::new("shared")?;
    let mut files = shared_files(&[])?;
    files.push((stripped(beds, program, &work)?, PROGRAM.to_owned()));
    files.push((module::pmusim(&mut beds.apt, &beds.tools, &bed.kernel)?, super::PMUSIM.to_owned()));
    let shared = image::shared(&beds.tools, &work.0, &files)?;
    let (mut passed, mut failed) = (0, 0);
    for test in tests {
        let begun = Instant::now();
        let outcome =
            run_one(beds, &bed, &shared, test).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        let seconds = begun.elapsed().as_secs_f64();
        match outcome {
            Outcome::Passed => {
                passed += 1;
                say(&format!("Linux {}: {test} ... ok ({seconds:.1} s)", bed.kernel.release));
            }
            Outcome::Failed(output) => {
                failed += 1;
                say(&format!("Linux {}: {test} ... FAILED ({seconds:.1} s)\n{output}", bed.kernel.release));
            }
        }
    }
    Ok((passed, failed))
}

fn run_one(beds: &Beds, bed: &Bed, shared: &Path, test: &str) -> anyhow::Result<Outcome> {
    let kept = Kept::default();
    let mut guest = bed.restore(&beds.tools, shared, &Output::Keep(kept.clone()))?;
    let words = [
        "env",
        "PMBPF_BIN=/work/target/release/pmbpf",
        "PMBPF_WORKLOADS=/work/target/workloads",
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
        Ok(0) => Outcome::Passed,
        Ok(_) => Outcome::Failed(kept.text()),
        Err(error) => Outcome::Failed(format!("{}{error:#}", kept.text())),
    })
}

/// The program without the debugging information that makes most of it.
fn stripped(beds: &Beds, program: &Path, work: &Work) -> anyhow::Result<PathBuf> {
    let stripped = work.0.join(PROGRAM);
    let mut strip = beds.tools.command("bin/strip");
    crate::command::run(strip.args(["-g", "-o"]).arg(&stripped).arg(program))
        .with_context(|| format!("cannot strip {}", program.display()))?;
    Ok(stripped)
}
