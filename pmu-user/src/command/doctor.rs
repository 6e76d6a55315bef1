//! `pmbpf doctor`: checks of what can be measured here, with causes and the smallest fix. Changes nothing.

mod checks;

use std::path::Path;

use super::output::{self, Stream};
use crate::view::list::{Cell, Listing, Look};

/// Arguments of `pmbpf doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = super::examples::DOCTOR)]
pub(super) struct Args {
    #[command(flatten)]
    output: output::Output,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// Works in full.
    Ok,
    /// Works in part.
    Limited,
    /// Does not work.
    Missing,
}

impl Status {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

/// Check of one property of the host.
#[derive(Debug)]
struct Check {
    name: &'static str,
    status: Status,
    /// State that was found.
    found: String,
    /// Features that do not work because of it.
    disables: Option<String>,
    /// Smallest change that would help.
    fix: Option<String>,
}

/// Runs all checks and writes them. Returns exit code 0 if `pmbpf run` works here.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    let (checks, code) = checks::all(Path::new("/"))?;
    let output = &args.output;
    let into = &mut *output.open(Stream::Stdout);
    listing(&checks, code).write(into, &output.style(Stream::Stdout), output.format())?;
    Ok(code)
}

fn listing(checks: &[Check], code: u8) -> Listing {
    let row = |check: &Check| {
        let fixes = check.fix.iter().flat_map(|fix| fix.lines()).map(str::to_owned);
        vec![
            Cell::text(check.status.name()),
            Cell::text(check.name),
            Cell::text(&check.found),
            Cell::optional(check.disables.as_ref()),
            Cell::several(fixes),
        ]
    };
    let verdict = if code == 0 { "pmbpf run works here" } else { "pmbpf run does not work here" };
    Listing {
        kind: "doctor",
        columns: &["status", "name", "found", "disables", "fix"],
        hidden: &[],
        look: Look::Sheet("found"),
        rows: checks.iter().map(row).collect(),
        notes: vec![verdict.to_owned()],
    }
}
