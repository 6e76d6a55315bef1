//! Cgroups with a limit of CPU time.

use std::io::{self, Write};

use super::{
    Style, and_more, named,
    number::{cell, duration, percent},
    section,
    table::{Align, Table},
};
use crate::metric::TasksReport;

/// The section, if a limit held anybody back.
pub(super) fn write(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    use Align::{Left, Right};
    let lost = |time: Option<&crate::metric::value::Known>| time.is_some_and(|time| time.estimate > 0.0);
    let held: Vec<_> = report.throttled.iter().filter(|limit| lost(limit.time.known())).collect();
    if held.is_empty() {
        return Ok(());
    }
    section(into, "CPU LIMITS", "cpu.max, as the kernel accounts it: periods in which it was used up")?;
    let columns = [("cgroup", Left), ("periods", Right), ("throttled", Right), ("stood still", Right)];
    let mut table = Table::new(&columns);
    let shown = held.len().min(style.rows_max);
    for limit in &held[..shown] {
        let share = cell(limit.share.known(), |share| percent(share / 100.0));
        let time = cell(limit.time.known(), duration);
        table.row(vec![named(&limit.owner), limit.periods.to_string(), share, time]);
    }
    table.write(into, style)?;
    and_more(into, held.len() - shown)
}
