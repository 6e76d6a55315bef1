//! Rows of gaps: late timers that are long enough to be listed.

use std::io::{self, Write};

use serde_json::json;

use super::{SCHEMA, line, who::owner};
use crate::{
    drain::Id,
    metric::{GapReport, TasksReport, number::Whose},
};

/// A row for each, the target's first.
pub(super) fn gaps(into: &mut dyn Write, report: &TasksReport) -> io::Result<()> {
    report.blind.gaps.iter().chain(&report.blind.others_gaps).try_for_each(|gap| gap_row(into, gap))
}

fn gap_row(into: &mut dyn Write, gap: &GapReport) -> io::Result<()> {
    let row = &gap.gap.row;
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "gap", "t": row.at_ns, "cpu": row.cpu.0, "late_ns": row.late_ns,
            "stolen_ns": row.stolen_ns, "class": gap.class.name(), "timers": gap.gap.timers,
            "tid": Id::of(row.tid).here(), "pid": Id::of(row.tgid).here(), "comm": row.comm,
            "owner": gap.owner.as_ref().map(|who| owner(Whose::Owner(who))),
            "stack": gap.stack,
        }),
    )
}
