//! Findings, before the numbers that they rest on.

use std::io::{self, Write};

use super::{Brevity, COLUMNS, Style, TITLE, section};
use crate::{
    metric::finding::Finding,
    view::finding::{says, threshold},
};

/// Maximum number of findings that are shown. If there are more, none of them stands out.
const SHOWN: usize = 7;

/// Number of findings that the shortest report explains.
const EXPLAINED_SHORT: usize = 2;

/// Writes the section: a sentence for each finding, with its threshold and what to try.
pub(super) fn write(into: &mut dyn Write, style: &Style, findings: &[Finding]) -> io::Result<()> {
    section(into, "FINDINGS", "numbers whose whole 95 % interval is above a threshold")?;
    if findings.is_empty() {
        return writeln!(into, "  nothing stands out");
    }
    let mut shown = findings.iter().take(SHOWN).enumerate().peekable();
    while let Some((before, finding)) = shown.next() {
        writeln!(into, "  {}  {TITLE}{}{TITLE:#}", before + 1, says(finding))?;
        for symptom in &finding.symptoms {
            writeln!(into, "     with it: {}", says(symptom))?;
        }
        if style.brevity == Brevity::Shortest && before >= EXPLAINED_SHORT {
            continue;
        }
        // The same rule would repeat itself.
        if shown.peek().is_some_and(|(_, next)| next.rule == finding.rule && next.next == finding.next) {
            continue;
        }
        if style.brevity != Brevity::Shortest {
            writeln!(into, "     {COLUMNS}{}{COLUMNS:#}", threshold(finding))?;
        }
        finding.next.iter().try_for_each(|step| writeln!(into, "     try: {step}"))?;
    }
    match findings.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => writeln!(into, "  {COLUMNS}… and {more} more; --json has all{COLUMNS:#}"),
    }
}
