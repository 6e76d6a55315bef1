//! `pmbpf diff`: comparison of two recordings, or two groups of them.

mod regress;
#[cfg(test)]
mod tests;

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use self::regress::Regress;
use super::{
    failure::{Incomplete, Quality, Usage},
    output::{self, Stream},
    page::PageArgs,
    pipeline::{check_counts, prepare},
};
use crate::{
    drain::recording::{Entry, Opened},
    metric::diff::{Diff, Facts, Recorded, Run, differing, facts},
    view::diff::Comparison,
};

/// Arguments of `pmbpf diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = super::examples::DIFF)]
pub(super) struct Args {
    /// Recordings of the first side, the baseline, separated by commas
    #[arg(value_name = "A1,A2,…")]
    a: PathBuf,
    /// Recordings of the second side: one if the first has one, else at least two
    #[arg(value_name = "B1,B2,…")]
    b: PathBuf,
    /// Exit with 3 if this metric is worse by more than N % (95 % interval): regress:METRIC>N% (repeatable)
    #[arg(long, value_name = "CONDITION")]
    fail_on: Vec<Regress>,
    /// Apply --fail-on to the owner with this name instead of the target
    #[arg(long, value_name = "NAME", requires = "fail_on")]
    owner: Option<String>,
    /// Use the formulas of this perfmon directory instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    perfmon_dir: Option<PathBuf>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    output: output::Output,
}

/// Contents of the recordings of one side.
#[derive(Default)]
struct Side {
    recorded: Vec<Recorded>,
    facts: Vec<Facts>,
    /// Names of recordings that break off.
    broken: Vec<String>,
}

/// Reads both sides, compares them and writes the result.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    args.page.check()?;
    let read = |names: &Path| Side::read(names, args.perfmon_dir.as_deref());
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    check(&a, &b)?;
    let conditions = differing([&a.facts, &b.facts]);
    let sides: [&[Recorded]; 2] = [&a.recorded, &b.recorded];
    let diff = Diff::new(sides, &conditions);
    if diff.differences.is_empty() && diff.only.is_empty() {
        let why = "the recordings have no number in common; `pmbpf report` shows what each of them has";
        return Err(anyhow::anyhow!(why));
    }
    // A condition that cannot be checked is an error before anything is written.
    let found = regress::found(&args.fail_on, args.owner.as_deref(), &diff)?;
    let comparison = Comparison { sides, facts: [&a.facts, &b.facts], conditions: &conditions, diff: &diff };
    if args.page.is_given() {
        args.page.deliver(&comparison.page()?, &args.output)?;
    } else {
        let into = &mut *args.output.open(Stream::Stdout);
        comparison.write(into, &args.output.style(Stream::Stdout), args.output.format())?;
    }
    regress::check(&found)?;
    match a.broken.iter().chain(&b.broken).next() {
        None => Ok(0),
        Some(name) => Err(Incomplete(format!("{name} breaks off: it was compared as far as it goes")).into()),
    }
}

/// Refuses anything but one recording per side or several on each.
fn check(a: &Side, b: &Side) -> Result<(), Usage> {
    match (a.recorded.len(), b.recorded.len()) {
        (1, 1) | (2.., 2..) => Ok(()),
        (a, b) => Err(Usage(format!(
            "there are {a} recordings on the first side and {b} on the second: give one of each, or at least two \
             of each, because one run does not say how runs differ"
        ))),
    }
}

impl Side {
    /// Reads the recordings of a list separated by commas.
    fn read(names: &Path, folder: Option<&Path>) -> anyhow::Result<Self> {
        let mut side = Self::default();
        let each = || names.as_os_str().as_bytes().split(|&byte| byte == b',');
        if each().any(<[u8]>::is_empty) {
            let given = names.display();
            return Err(Usage(format!("`{given}` has an empty name between its commas")).into());
        }
        for name in each() {
            side.add(Path::new(OsStr::from_bytes(name)), folder)?;
        }
        Ok(side)
    }

    fn add(&mut self, path: &Path, folder: Option<&Path>) -> anyhow::Result<()> {
        let name = path.display().to_string();
        let Opened { header, mut entries } = Opened::open(path)?;
        header.counts.iter().try_for_each(|counts| check_counts(&counts.plan))?;
        let prepared = match &header.tasks {
            Some(tasks) => prepare(&tasks.plan, &header.machine.topology, folder)?,
            None => Vec::new(),
        };
        let mut run = Run::new(&header, prepared)?;
        let mut ending = None;
        while let Some(entry) = entries.read()? {
            match entry {
                Entry::Drain(drain) => run.drain(*drain),
                Entry::Ending(ended) => ending = Some(ended),
                Entry::Names(names) => run.name(&names),
            }
        }
        let of_run = run.finish(&name, ending.as_ref());
        if of_run.is_empty() {
            return Err(
                Quality(format!("{name} holds no complete drain: there is nothing to compare")).into()
            );
        }
        if ending.is_none() || entries.lost_bytes()? > 0 {
            self.broken.push(name);
        }
        let facts = facts(&header);
        self.facts.extend(of_run.iter().map(|_| facts.clone()));
        self.recorded.extend(of_run);
        Ok(())
    }
}
