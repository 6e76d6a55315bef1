//! Counts as text: one event per line, then the times.

use std::io::{self, Write};

use super::{
    Style, TITLE, WARNING, named,
    number::{count, percent},
    table::{Align, Table, cut},
};
use crate::{
    drain::{Ending, Stopped},
    machine::cpu::format_list,
    metric::{
        derived::Derived,
        repeat::Outlier,
        stat::{Row, Stat, Support},
        value::{How, Known, Value},
    },
    plan::{Target, count::CountPlan, request::Descend},
    untrusted::Untrusted,
    view::words,
};

/// Writes the counts of one interval.
pub(in crate::view) fn interval(
    into: &mut dyn Write,
    style: &Style,
    stat: &Stat,
    first: bool,
) -> io::Result<()> {
    if !first {
        writeln!(into)?;
    }
    let length = stat.elapsed.known().map_or(0.0, |known| known.estimate);
    writeln!(into, "{TITLE}{:.3} s + {}{TITLE:#}", stat.from.as_secs_f64(), super::duration(length))?;
    rows(into, style, stat)
}

/// Writes the counts of the whole run.
pub(in crate::view) fn whole(
    into: &mut dyn Write,
    style: &Style,
    plan: &CountPlan,
    stat: &Stat,
    ending: &Ending,
) -> io::Result<()> {
    let target = plan.target.in_words(plan.inherit, Descend::Yes);
    let runs = if stat.runs > 1 { format!(", mean of {} runs", stat.runs) } else { String::new() };
    writeln!(into, "\n{TITLE}{target}{TITLE:#}{}{runs}\n", on_cpus(plan))?;
    rows(into, style, stat)?;
    if !stat.rows.is_empty() {
        writeln!(into)?;
    }
    time(into, "elapsed", &stat.elapsed)?;
    for (label, value) in [("user", &stat.user), ("system", &stat.system)] {
        value.as_ref().map_or(Ok(()), |value| time(into, label, value))?;
    }
    if ending.stopped == Stopped::Truncated {
        writeln!(into, "{WARNING}incomplete: the recording breaks off{WARNING:#}")?;
    }
    if let Some(workload) = ending.workload {
        writeln!(into, "  the command {}", words::workload(workload))?;
    }
    if let Some(left_out) = &plan.left_out {
        writeln!(into, "\n{WARNING}not counted: {left_out}{WARNING:#}")?;
    }
    for row in &stat.rows {
        for why in &row.uncounted {
            let of = row.owner.as_ref().map(|owner| format!(" of {}", named(owner))).unwrap_or_default();
            writeln!(into, "{WARNING}{}{of} is incomplete: {why}{WARNING:#}", row.label())?;
        }
    }
    stat.outliers.iter().try_for_each(|one| outlier(into, one))
}

fn on_cpus(plan: &CountPlan) -> String {
    match plan.target {
        Target::System | Target::Cgroups(_) => format!(", on cpu {}", format_list(&plan.cpus)),
        Target::Processes(_) | Target::Threads(_) | Target::Command(_) => String::new(),
    }
}

/// Writes the rows of each cgroup, or all rows.
fn rows(into: &mut dyn Write, style: &Style, stat: &Stat) -> io::Result<()> {
    let mut rest = stat.rows.as_slice();
    while let Some(first) = rest.first() {
        let same = rest.iter().take_while(|row| row.owner == first.owner).count();
        if let Some(owner) = &first.owner {
            writeln!(into, "{TITLE}{}{TITLE:#}", cut(&owner.in_words()))?;
        }
        table(&rest[..same]).write(into, style)?;
        rest = &rest[same..];
    }
    Ok(())
}

fn table(rows: &[Row]) -> Table {
    use Align::{Left, Right, Words};
    let inexact = |row: &Row| row.value.known().is_some_and(|known| known.low < known.high);
    let uncertain = rows.iter().any(inexact);
    let partly = rows.iter().any(|row| row.value.known().is_some_and(|known| known.how == How::Scaled));
    let mut columns = vec![("count", Right), ("", Left), ("event", Left), ("metric", Right), ("", Left)];
    let place = rows.iter().find_map(|row| row.place.as_ref());
    let has_places = place.is_some();
    if let Some(place) = place {
        columns.insert(0, (if place.tid().is_some() { "thread" } else { "cpus" }, Left));
    }
    if uncertain {
        columns.push(("±", Right));
    }
    if partly {
        columns.push(("counted", Right));
    }
    columns.push(("", Words));
    let mut table = Table::new(&columns).spare(["metric"]);
    let mut said = "";
    for row in rows {
        let known = row.value.known();
        let unit = row.unit.as_deref();
        let (metric, metric_unit) = row.derived.as_ref().map_or_else(Default::default, derived);
        let mut cells = vec![
            known.map_or_else(|| absent(row).to_owned(), |known| amount(known.estimate, unit)),
            unit_of(unit),
            cut(&Untrusted::from(row.label()).terminal()),
            metric,
            metric_unit,
        ];
        if uncertain {
            cells.push(known.filter(|_| inexact(row)).map_or(String::new(), |known| reach(known, unit)));
        }
        if partly {
            cells.push(known.map_or(String::new(), |known| percent(known.coverage)));
        }
        if has_places {
            cells.insert(0, row.place.as_ref().map_or_else(String::new, |place| cut(&place.to_string())));
        }
        // A reason that many rows share is shown in the first of them.
        let why = row.value.reason().unwrap_or_default();
        cells.push(if why == said { String::new() } else { why.to_owned() });
        said = why;
        table.row(cells);
    }
    table
}

/// Returns perf's words for a missing count.
const fn absent(row: &Row) -> &'static str {
    match row.support {
        Support::NotHere => "<not supported>",
        Support::Counted => "<not counted>",
    }
}

fn derived(derived: &Derived) -> (String, String) {
    let Value::Known(known) = &derived.value else { return (String::new(), String::new()) };
    let share = derived.unit.starts_with('%');
    let number = match known.estimate {
        number if share => format!("{number:.2}"),
        number if number.abs() < 1000.0 => format!("{number:.3}"),
        number => rate(number),
    };
    (number, derived.unit.clone())
}

fn rate(number: f64) -> String {
    if number < 1e6 { format!("{:.2}K", number / 1e3) } else { count(number) }
}

fn unit_of(unit: Option<&str>) -> String {
    match unit {
        Some("ns") => "ms".to_owned(),
        // The unit comes from sysfs, which a module may have filled.
        other => Untrusted::from(other.unwrap_or_default()).terminal().into_owned(),
    }
}

/// Returns a count in its unit: clocks in ms, all others as they are.
fn amount(number: f64, unit: Option<&str>) -> String {
    match unit {
        None => grouped(&format!("{number:.0}")),
        Some("ns") => grouped(&format!("{:.3}", number / 1e6)),
        Some(_) => grouped(&format!("{number:.2}")),
    }
}

/// Groups the digits before the point by threes.
fn grouped(number: &str) -> String {
    let (whole, fraction) = number.split_at(number.find('.').unwrap_or(number.len()));
    let mut text = String::with_capacity(number.len() + whole.len() / 3);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + fraction
}

/// Returns half of the interval as a share of the count. If one side is wider by more than a fifth, returns
/// the ends of the interval.
fn reach(known: &Known, unit: Option<&str>) -> String {
    let (down, up) = (known.estimate - known.low, known.high - known.estimate);
    if known.estimate == 0.0 || down.max(up) > 1.2 * down.min(up) {
        format!("[{} – {}]", amount(known.low, unit), amount(known.high, unit))
    } else {
        percent((known.high - known.low) / 2.0 / known.estimate.abs())
    }
}

/// Returns half the interval as a share of the mean.
fn relative(known: &Known) -> String {
    if known.estimate == 0.0 {
        String::new()
    } else {
        percent((known.high - known.estimate) / known.estimate)
    }
}

fn time(into: &mut dyn Write, label: &str, value: &Value) -> io::Result<()> {
    let Value::Known(known) = value else { return Ok(()) };
    let seconds = grouped(&format!("{:.6}", known.estimate / 1e9));
    let spread = if known.low < known.high { format!("  ± {}", relative(known)) } else { String::new() };
    writeln!(into, "  {seconds:>14} s {label}{spread}")
}

fn outlier(into: &mut dyn Write, outlier: &Outlier) -> io::Result<()> {
    let unit = Some(outlier.unit.as_str()).filter(|unit| !unit.is_empty());
    let amount = |number: f64| format!("{} {}", amount(number, unit), unit_of(unit)).trim_end().to_owned();
    writeln!(
        into,
        "{WARNING}run {} stands out: {} {}, the median is {} (modified z-score {:.1}){WARNING:#}",
        outlier.run,
        outlier.what,
        amount(outlier.value),
        amount(outlier.median),
        outlier.score
    )
}

#[cfg(test)]
mod tests {
    use super::{amount, grouped};

    #[test]
    fn digits_stand_in_threes() {
        assert_eq!(["7", "999", "1000", "1234567.25"].map(grouped), ["7", "999", "1,000", "1,234,567.25"]);
    }

    #[test]
    fn clocks_are_shown_in_milliseconds() {
        assert_eq!(amount(1_234_567_890.0, Some("ns")), "1,234.568");
        assert_eq!(amount(12_345.6, None), "12,346");
        assert_eq!(amount(12.345, Some("Joules")), "12.35");
    }
}
