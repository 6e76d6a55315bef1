//! `pmbpf doctor`: what can be measured here, what cannot, why, and the least that would help. Changes nothing.

mod checks;

use std::{
    io::{self, Write},
    path::Path,
};

use serde::Serialize;

use super::output::{self, Stream};
use crate::view::{Format, SCHEMA};

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = super::examples::DOCTOR)]
pub(super) struct Args {
    #[command(flatten)]
    output: output::Output,
}

/// How well something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    /// It works.
    Ok,
    /// It works in part.
    Limited,
    /// It does not.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    /// What was found.
    found: String,
    /// What does not work because of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    disables: Option<String>,
    /// The least that would help.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

/// Looks, and says. The exit code is 0 if `pmbpf run` works here.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    let (checks, code) = checks::all(Path::new("/"))?;
    let mut into = args.output.open(Stream::Stdout);
    match args.output.format() {
        Format::Json => json(&mut *into, &checks, code)?,
        Format::Csv => csv(&mut *into, &checks)?,
        Format::Text => text(&mut *into, &checks, code)?,
    }
    Ok(code)
}

fn json(into: &mut dyn Write, checks: &[Check], code: u8) -> io::Result<()> {
    let report = serde_json::json!({
        "schema": SCHEMA, "kind": "doctor", "can_run": code == 0, "checks": checks,
    });
    writeln!(into, "{report}")?;
    into.flush()
}

fn csv(into: &mut dyn Write, checks: &[Check]) -> io::Result<()> {
    let mut rows = csv::Writer::from_writer(into);
    rows.write_record(["name", "status", "found", "disables", "fix"])?;
    for check in checks {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let status = format!("{:?}", check.status).to_lowercase();
        rows.write_record([check.name, &status, &check.found, &text(&check.disables), &text(&check.fix)])?;
    }
    rows.flush()
}

fn text(into: &mut dyn Write, checks: &[Check], code: u8) -> io::Result<()> {
    for check in checks {
        let mark = match check.status {
            Status::Ok => "ok     ",
            Status::Limited => "limited",
            Status::Missing => "missing",
        };
        writeln!(into, "{mark}  {:<22}{}", check.name, check.found)?;
        if let Some(disables) = &check.disables {
            writeln!(into, "{:>33}{disables}", "")?;
        }
        for line in check.fix.iter().flat_map(|fix| fix.lines()) {
            writeln!(into, "{:>33}fix: {line}", "")?;
        }
    }
    let verdict = if code == 0 { "pmbpf run works here" } else { "pmbpf run does not work here" };
    writeln!(into, "\n{verdict}")?;
    into.flush()
}
