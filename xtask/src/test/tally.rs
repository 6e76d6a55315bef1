//! What rings of tests came to: counts, and names of what failed.

use std::{
    io::{self, Write as _},
    time::{Duration, Instant},
};

/// Bytes that the release binary has at most.
const BINARY_BYTES_MAX: u64 = 20_000_000;

/// Tests that passed and failed.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped_rings: u64,
    pub(super) skipped_tests: u64,
    /// What failed: names of tests, and what else a ring asks for.
    pub(super) names: Vec<String>,
    /// How long each part took, with what was built for it.
    took: Vec<(&'static str, Duration)>,
}

impl Tally {
    /// Does a part and takes its time.
    pub(super) fn timed<T>(
        &mut self,
        part: &'static str,
        does: impl FnOnce(&mut Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let begun = Instant::now();
        let result = does(self);
        self.took.push((part, begun.elapsed()));
        result
    }

    /// Counts whether the release binary is as small as it is to be.
    pub(super) fn is_small(&mut self, bytes: u64) -> anyhow::Result<()> {
        let is_small = bytes <= BINARY_BYTES_MAX;
        let verdict = if is_small { "ok" } else { "FAILED" };
        let (is, most) = (bytes as f64 / 1e6, BINARY_BYTES_MAX as f64 / 1e6);
        writeln!(io::stdout().lock(), "the binary is {is:.1} MB, of {most} at most ... {verdict}")?;
        if is_small {
            self.passed += 1;
        } else {
            self.failed += 1;
            self.names.push(format!("the binary is {is:.1} MB"));
        }
        Ok(())
    }

    /// Prints the summary that ends every run; the exit code.
    pub(super) fn close(&self) -> anyhow::Result<u8> {
        let mut stdout = io::stdout().lock();
        let took: Vec<String> =
            self.took.iter().map(|(part, time)| format!("{part} {} s", time.as_secs())).collect();
        writeln!(stdout, "\ntook: {}", took.join(", "))?;
        writeln!(stdout, "rings skipped: {}", self.skipped_rings)?;
        if self.skipped_tests > 0 {
            writeln!(stdout, "tests skipped: {}", self.skipped_tests)?;
        }
        for name in &self.names {
            writeln!(stdout, "failed: {name}")?;
        }
        writeln!(stdout, "{} passed, {} failed", self.passed, self.failed)?;
        Ok(u8::from(self.failed > 0))
    }
}

/// The output of one test program after another.
#[derive(Default)]
pub(super) struct Program {
    /// What it lists as failed, so far.
    failed: Vec<String>,
}

impl Program {
    /// Takes a line of output; whether it is the summary of a program, which is added up. The list of failures is the last of two parts
    /// that begin alike; the first one holds what tests printed.
    pub(super) fn take(&mut self, line: &str, tally: &mut Tally) -> bool {
        if let Some((passed, failed)) = summary(line) {
            tally.passed += passed;
            tally.failed += failed;
            let names = self.failed.drain(..);
            if failed > 0 {
                tally.names.extend(names);
            }
            return true;
        }
        if line == "failures:" {
            self.failed.clear();
        } else if let Some(name) = line.strip_prefix("    ") {
            self.failed.push(name.to_owned());
        }
        false
    }
}

/// `test result: ok. 12 passed; 0 failed; …`
fn summary(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut counts = rest.split("; ").filter_map(|part| part.split(' ').next()?.parse().ok());
    Some((counts.next()?, counts.next()?))
}

#[cfg(test)]
mod tests {
    use super::{BINARY_BYTES_MAX, Program, Tally, summary};

    #[test]
    fn a_binary_that_is_too_large_is_a_failure() {
        let mut tally = Tally::default();
        tally.is_small(BINARY_BYTES_MAX).unwrap();
        tally.is_small(BINARY_BYTES_MAX + 1).unwrap();
        assert_eq!((tally.passed, tally.failed, tally.names.len()), (1, 1, 1));
    }

    #[test]
    fn a_summary_gives_both_counts() {
        let line =
            "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s";
        assert_eq!(summary(line), Some((12, 3)));
        assert_eq!(summary("test model::tests::x ... ok"), None);
    }

    #[test]
    fn tests_that_failed_are_named_as_their_program_lists_them() {
        let mut tally = Tally::default();
        let mut program = Program::default();
        let failed = "running 2 tests\ntest a::x ... FAILED\n\nfailures:\n\n---- a::x stdout ----\n    left: 1\n\n\n\
                      failures:\n    a::x\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n";
        let passed = "running 1 test\n    it prints\ntest b ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
        let summaries =
            failed.lines().chain(passed.lines()).filter(|line| program.take(line, &mut tally)).count();
        assert_eq!((summaries, tally.passed, tally.failed), (2, 2, 1));
        assert_eq!(tally.names, ["a::x"]);
    }
}
