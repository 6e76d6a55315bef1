//! Tests in guests: with the kernels and names of a command line, or of a subset that `tests/guest/subsets` declares.

use std::{path::PathBuf, process::Stdio};

use anyhow::{Context as _, bail};

use super::{Args, is_nightly, required, rings::GUEST, tally::Tally};
use crate::{
    build,
    command::{output, say},
    vm::{Beds, kernel::Architecture, ring::Ring},
};

/// Lines of subset, kernels, and parts of tests' names.
const SUBSETS: &str = include_str!("../../../tests/guest/subsets");
/// Programs of tests that run in guests.
const PROGRAMS: [&str; 2] = ["live", "guest"];

/// Tests in guests with some kernels.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Kernels, with commas between.
    pub(crate) kernels: String,
    /// Parts of names, with commas between.
    pub(crate) tests: String,
}

/// Returns the lines of a subset.
pub(crate) fn subset(name: &str) -> anyhow::Result<Vec<Selection>> {
    let lines = SUBSETS.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let lines: Vec<[&str; 3]> = lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.try_into().map_err(|_| anyhow::anyhow!("tests/guest/subsets: not three words: {line}"))
        })
        .collect::<Result<_, _>>()?;
    let found: Vec<Selection> = lines
        .iter()
        .filter(|[subset, ..]| *subset == name)
        .map(|[_, kernels, tests]| Selection { kernels: (*kernels).to_owned(), tests: (*tests).to_owned() })
        .collect();
    if found.is_empty() {
        bail!("no subset `{name}` in tests/guest/subsets");
    }
    Ok(found)
}

/// Runs the requested tests in guests.
pub(super) fn run(args: &Args, tally: &mut Tally) -> anyhow::Result<()> {
    let mut beds = match Beds::get() {
        Ok(beds) => beds,
        Err(error) if args.ring.is_empty() || required(GUEST) => return Err(error),
        Err(error) => {
            say(&format!("ring {GUEST}: SKIPPED: {error:#}"));
            tally.skipped_rings += 1;
            return Ok(());
        }
    };
    let Some(name) = &args.guests else { return with(args, &mut beds, tally) };
    for Selection { kernels, tests } in subset(name)? {
        with(&Args { filter: args.filter.clone(), ..Args::in_guests(&kernels, &tests)? }, &mut beds, tally)?;
    }
    Ok(())
}

/// Runs tests with the kernels of `args`.
fn with(args: &Args, beds: &mut Beds, tally: &mut Tally) -> anyhow::Result<()> {
    for series in &args.kernels {
        build::release(series.architecture)?;
        let programs = test_programs(series.architecture)?;
        let context = || format!("kernel {series}");
        let ring = Ring::new(beds, series, &programs).with_context(context)?;
        let names = PROGRAMS.map(|program| Ok((program, ring.names(program).with_context(context)?)));
        let names: Vec<(&str, Vec<String>)> = names.into_iter().collect::<anyhow::Result<_>>()?;
        let all = || names.iter().flat_map(|(_, names)| names);
        if let Some(unmet) = args.in_guests.iter().find(|part| all().all(|name| !name.contains(&**part))) {
            bail!("no test's name contains `{unmet}`: nothing to run with kernel {series}");
        }
        for (program, names) in &names {
            let wanted: Vec<&String> = names.iter().filter(|name| wants(args, name)).collect();
            say(&format!("ring {program} on kernel {series}: {} tests", wanted.len()));
            tally.matched += wanted.len();
            let results = ring.run(program, &wanted).with_context(context)?;
            tally.passed += results.passed;
            for (test, printed) in &results.failed {
                tally.fail(format!("{test} on kernel {series}"), printed);
            }
            tally.skipped_tests += results.skipped;
        }
    }
    Ok(())
}

fn wants(args: &Args, test: &str) -> bool {
    let named = match args.in_guests.is_empty() {
        true => args.nightly || !is_nightly(test),
        false => args.in_guests.iter().any(|part| test.contains(part)),
    };
    named && args.filter.as_ref().is_none_or(|part| test.contains(part))
}

/// Builds the programs and returns their paths.
fn test_programs(architecture: Architecture) -> anyhow::Result<Vec<(&'static str, PathBuf)>> {
    let mut cargo = build::cargo_for(architecture)?;
    cargo.args(["test", "--locked", "--no-run", "--package", "pmu-user", "--message-format=json"]);
    cargo.args(PROGRAMS.iter().flat_map(|program| ["--test", program])).stderr(Stdio::inherit());
    let messages = output(&mut cargo)?;
    let messages: Vec<serde_json::Value> =
        messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let place = |program: &'static str| {
        let mut built = messages.iter().filter(|message| message["target"]["name"] == *program);
        let path = built.find_map(|message| message["executable"].as_str()).map(PathBuf::from);
        Ok((program, path.with_context(|| format!("cargo names no program for the tests `{program}`"))?))
    };
    PROGRAMS.into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::{Args, subset};

    #[test]
    fn every_subset_names_kernels_that_there_are() {
        for name in ["ci", "nightly"] {
            for line in subset(name).unwrap() {
                assert!(!Args::in_guests(&line.kernels, &line.tests).unwrap().kernels.is_empty(), "{line:?}");
            }
        }
        assert!(subset("none").is_err());
    }
}
