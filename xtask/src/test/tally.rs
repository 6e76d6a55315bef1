//! Results of rings of tests: counts, and the names of failures with the reason.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::{Duration, Instant},
};

/// Maximum size of the release binary in bytes. It has 21.1 MB since `serve` has accounts of cgroups and a
/// configuration, and `stat` the options of perf.
const BINARY_BYTES_MAX: u64 = 22_000_000;
/// Lines of a panic that the summary repeats, and characters of each: the end of a log alone then has the
/// reason.
const PANIC_LINES: usize = 6;
const PANIC_COLUMNS: usize = 400;

/// Maximum number of tests of one run that are attempted a second time.
const SECOND_ATTEMPTS_MAX: usize = 8;

/// Tests that passed and failed.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped_rings: u64,
    pub(super) skipped_tests: u64,
    /// Tests that were to run.
    pub(super) matched: usize,
    /// Tests that run in `cargo xtask nightly` alone.
    pub(super) left_to_the_night: usize,
    /// Failures, of tests or of other requirements of a ring, with the reason.
    failures: Vec<(String, Vec<String>)>,
    /// Tests that passed at a second attempt, with the reason why the first one failed.
    second_attempts: Vec<(String, Vec<String>)>,
    /// Time that each part took, including what was built for it.
    took: Vec<(&'static str, Duration)>,
}

impl Tally {
    /// Runs a part and measures its time.
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

    /// Counts a failure, with what was printed before it.
    pub(super) fn fail(&mut self, name: String, printed: &str) {
        self.failed += 1;
        self.failures.push((name, panic_of(printed)));
    }

    /// Returns the number of failures so far.
    pub(super) fn failures(&self) -> usize {
        self.failures.len()
    }

    /// Runs tests that failed, from this failure on, once more: each separately, with `attempt`, which
    /// returns whether it passed. A hypervisor seldom disturbs a test that measures time twice, and a defect
    /// fails twice. More than a few are not a coincidence.
    pub(super) fn again(
        &mut self,
        from: usize,
        mut attempt: impl FnMut(&str) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let failures = self.failures.split_off(from);
        if failures.len() > SECOND_ATTEMPTS_MAX {
            self.failures.extend(failures);
            return Ok(());
        }
        for failure in failures {
            if attempt(&failure.0)? {
                self.failed -= 1;
                self.passed += 1;
                self.second_attempts.push(failure);
            } else {
                self.failures.push(failure);
            }
        }
        Ok(())
    }

    /// Counts whether the release binary is within its maximum size.
    pub(super) fn is_small(&mut self, bytes: u64, into: &mut dyn Write) -> anyhow::Result<()> {
        let is_small = bytes <= BINARY_BYTES_MAX;
        let verdict = if is_small { "ok" } else { "FAILED" };
        let (is, most) = (bytes as f64 / 1e6, BINARY_BYTES_MAX as f64 / 1e6);
        writeln!(into, "the binary is {is:.1} MB, of {most} at most ... {verdict}")?;
        if is_small {
            self.passed += 1;
        } else {
            self.fail(format!("the binary is {is:.1} MB"), "");
        }
        Ok(())
    }

    /// Prints the summary that ends every run, and returns the exit code.
    pub(super) fn close(&self) -> anyhow::Result<u8> {
        let mut stdout = io::stdout().lock();
        let took: Vec<String> =
            self.took.iter().map(|(part, time)| format!("{part} {} s", time.as_secs())).collect();
        writeln!(stdout, "\ntook: {}", took.join(", "))?;
        writeln!(stdout, "rings skipped: {}", self.skipped_rings)?;
        if self.skipped_tests > 0 {
            writeln!(stdout, "tests skipped: {}", self.skipped_tests)?;
        }
        if self.left_to_the_night > 0 {
            let count = self.left_to_the_night;
            writeln!(stdout, "tests left to `cargo xtask nightly`: {count} (--nightly runs them here)")?;
        }
        let second = self.second_attempts.iter().map(|failure| ("passed at a second attempt", failure));
        let failures = self.failures.iter().map(|failure| ("failed", failure));
        for (verdict, (name, why)) in second.chain(failures) {
            writeln!(stdout, "{verdict}: {name}")?;
            why.iter().try_for_each(|line| writeln!(stdout, "    {line}"))?;
        }
        writeln!(stdout, "{} passed, {} failed", self.passed, self.failed)?;
        Ok(u8::from(self.failed > 0))
    }
}

/// Returns the first lines of the first panic in the output, shortened.
fn panic_of(printed: &str) -> Vec<String> {
    let lines = printed.lines().skip_while(|line| !line.contains(" panicked at "));
    let told = lines.take_while(|line| !line.is_empty() && !line.starts_with("note: run with"));
    told.take(PANIC_LINES).map(|line| line.chars().take(PANIC_COLUMNS).collect()).collect()
}

/// Parser of the output of one test program after another.
#[derive(Default)]
pub(super) struct Program {
    /// Test to which the lines that follow belong.
    tells: Option<String>,
    /// Output of each test, by name.
    printed: BTreeMap<String, String>,
    /// Tests that are listed as failed, so far.
    failed: Vec<String>,
}

impl Program {
    /// Parses a line of output. Returns whether it is the summary of a program, which is added up. The list
    /// of failures is the last of two parts that begin alike; the first one has what tests printed.
    pub(super) fn take(&mut self, line: &str, tally: &mut Tally) -> bool {
        if let Some((passed, failed)) = summary(line) {
            tally.passed += passed;
            let Self { printed, failed: mut names, .. } = std::mem::take(self);
            // Failures of a program that lists fewer than it counts have no name.
            names.resize(failed as usize, "a test without a name".to_owned());
            for name in names {
                let printed = printed.get(&name).map_or("", String::as_str);
                tally.fail(name, printed);
            }
            return true;
        }
        let heading = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----"));
        if line == "failures:" {
            self.failed.clear();
            self.tells = None;
        } else if let Some(name) = heading {
            self.tells = Some(name.to_owned());
        } else if let Some(name) = &self.tells {
            let printed = self.printed.entry(name.clone()).or_default();
            printed.push_str(line);
            printed.push('\n');
        } else if let Some(name) = line.strip_prefix("    ") {
            self.failed.push(name.to_owned());
        }
        false
    }
}

/// Parses `test result: ok. 12 passed; 0 failed; …`.
fn summary(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut counts = rest.split("; ").filter_map(|part| part.split(' ').next()?.parse().ok());
    Some((counts.next()?, counts.next()?))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{BINARY_BYTES_MAX, Program, SECOND_ATTEMPTS_MAX, Tally, summary};

    #[test]
    fn a_binary_that_is_too_large_is_a_failure() {
        let mut tally = Tally::default();
        tally.is_small(BINARY_BYTES_MAX, &mut io::sink()).unwrap();
        tally.is_small(BINARY_BYTES_MAX + 1, &mut io::sink()).unwrap();
        assert_eq!((tally.passed, tally.failed, tally.failures.len()), (1, 1, 1));
    }

    #[test]
    fn a_summary_gives_both_counts() {
        let line =
            "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s";
        assert_eq!(summary(line), Some((12, 3)));
        assert_eq!(summary("test model::tests::x ... ok"), None);
    }

    #[test]
    fn tests_that_failed_are_named_as_their_program_lists_them_with_why() {
        let mut tally = Tally::default();
        let mut program = Program::default();
        let failed = "running 3 tests\ntest a::x ... FAILED\ntest a::y ... FAILED\n\nfailures:\n\n---- a::x stdout ----\n\n\
                      thread 'a::x' (7) panicked at tests/a.rs:1:2:\nassertion failed:\n    left: 1\nnote: run with it\n\n\
                      ---- a::y stdout ----\nError: none\n\n\nfailures:\n    a::x\n    a::y\n\n\
                      test result: FAILED. 1 passed; 2 failed; 0 ignored\n";
        let passed = "running 1 test\n    it prints\ntest b ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
        let summaries =
            failed.lines().chain(passed.lines()).filter(|line| program.take(line, &mut tally)).count();
        assert_eq!((summaries, tally.passed, tally.failed), (2, 2, 2));
        let why = ["thread 'a::x' (7) panicked at tests/a.rs:1:2:", "assertion failed:", "    left: 1"];
        let why = why.map(str::to_owned).to_vec();
        assert_eq!(tally.failures, [("a::x".to_owned(), why), ("a::y".to_owned(), Vec::new())]);
    }

    #[test]
    fn a_test_that_passes_at_a_second_attempt_is_no_failure_and_is_listed() {
        let mut tally = Tally::default();
        tally.fail("of another run".to_owned(), "");
        let from = tally.failures();
        for name in ["by chance", "by a defect"] {
            tally.fail(name.to_owned(), "");
        }
        tally.again(from, |name| Ok(name == "by chance")).unwrap();
        let names = |of: &[(String, Vec<String>)]| -> Vec<String> {
            of.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&tally.second_attempts), ["by chance"]);
        assert_eq!(names(&tally.failures), ["of another run", "by a defect"]);
        assert_eq!((tally.passed, tally.failed), (1, 2));
    }

    #[test]
    fn many_failures_are_no_chance() {
        let mut tally = Tally::default();
        (0..=SECOND_ATTEMPTS_MAX).for_each(|_| tally.fail("one".to_owned(), ""));
        tally.again(0, |_| panic!("it is attempted again")).unwrap();
        assert_eq!((tally.passed, tally.failed), (0, SECOND_ATTEMPTS_MAX as u64 + 1));
    }

    #[test]
    fn a_failure_without_a_name_is_counted() {
        let mut tally = Tally::default();
        let line = "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured";
        assert!(Program::default().take(line, &mut tally));
        assert_eq!((tally.failed, tally.failures.len()), (1, 1));
    }
}
