//! Counts in the fields of `perf stat -x`: value, unit, event, time on a counter, its share, metric and the
//! metric's unit. The interval, the CPUs or the target of a row come first.

use std::io::{self, Write};

use super::{csv::text, stage::Stage, text::Style};
use crate::{
    metric::{
        repeat::mean_and_error,
        stat::{Row, Stat, Support},
        value::Known,
    },
    plan::count::Place,
};

/// Writes a stage. Rows have no header, and intervals are not added up.
pub(super) fn write(into: &mut dyn Write, style: &Style, stage: Stage<'_>) -> io::Result<()> {
    let (stat, is_interval) = match stage {
        Stage::Interval(report, _) => (&report.counts, true),
        Stage::Whole { report, intervals: 0, .. } => (&report.counts, false),
        Stage::Begin(_) | Stage::Whole { .. } => return Ok(()),
    };
    let Some(stat) = stat else { return Ok(()) };
    let separator = style.separator.to_string();
    stat.rows.iter().try_for_each(|row| {
        let fields = [at(stat, is_interval), place(row), counted(row, stat)].concat();
        writeln!(into, "{}", fields.join(&separator))
    })
}

/// Returns the end time of the interval.
fn at(stat: &Stat, is_interval: bool) -> Vec<String> {
    let elapsed_ns = stat.elapsed.known().map_or(0.0, |known| known.estimate);
    let ns = stat.from.as_nanos() + elapsed_ns as u128;
    let at = || format!("{:>6}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    is_interval.then(at).into_iter().collect()
}

/// Returns the CPUs, with their number where there may be several, or the thread.
fn place(row: &Row) -> Vec<String> {
    let name = row.place.as_ref().map(|place| text(&place.to_string()));
    let cpus = row.place.as_ref().and_then(Place::cpus).map(|cpus| cpus.to_string());
    name.into_iter().chain(cpus).collect()
}

fn counted(row: &Row, stat: &Stat) -> Vec<String> {
    let (number, unit) = amount(row);
    let mut fields = vec![number, unit, text(&row.event)];
    fields.extend(row.owner.as_ref().map(|owner| text(&owner.in_words())));
    if stat.runs > 1 {
        fields.push(format!("{:.2}%", 100.0 * spread(row)));
    }
    let share = match row.enabled_ns {
        0 => 100.0,
        enabled => 100.0 * row.running_ns as f64 / enabled as f64,
    };
    let running_ns =
        if row.value.known().is_some() { row.running_ns / u64::from(stat.runs.max(1)) } else { 0 };
    fields.extend([running_ns.to_string(), format!("{share:.2}")]);
    fields.extend(metric(row));
    fields
}

/// Returns the count and its unit. Clocks are in milliseconds, times of the run in nanoseconds.
fn amount(row: &Row) -> (String, String) {
    let is_clock = row.unit.as_deref() == Some("ns") && row.pmu == "software";
    let unit = if is_clock { "msec" } else { row.unit.as_deref().unwrap_or_default() };
    let number = match (row.value.known(), row.support) {
        (None, Support::NotHere) => return ("<not supported>".to_owned(), String::new()),
        (None, Support::Counted) => "<not counted>".to_owned(),
        (Some(known), _) if is_clock => format!("{:.2}", known.estimate / 1e6),
        (Some(known), _) if matches!(unit, "" | "ns") => format!("{:.0}", known.estimate),
        (Some(known), _) => format!("{:.2}", known.estimate),
    };
    (number, text(unit))
}

/// Returns the standard deviation of the mean of the runs, as a share of the mean.
fn spread(row: &Row) -> f64 {
    let known: Vec<f64> = row.of_runs.iter().filter_map(|run| Some(run.known()?.estimate)).collect();
    if known.len() < 2 {
        return 0.0;
    }
    let (mean, error) = mean_and_error(&known);
    if mean == 0.0 { 0.0 } else { error / mean }
}

/// Returns the derived metric and its unit in perf's words, or empty texts where perf has none.
fn metric(row: &Row) -> [String; 2] {
    let none = || [String::new(), String::new()];
    let Some(derived) = &row.derived else { return none() };
    let Some(Known { estimate, .. }) = derived.value.known() else { return none() };
    let (number, unit) = match derived.name {
        "cpus_utilized" => (format!("{estimate:.3}"), "CPUs utilized".to_owned()),
        "cpu_rate" => {
            let (number, prefix) = prefixed(*estimate);
            (format!("{number:.3}"), format!("{prefix}/sec"))
        }
        "frequency" => (format!("{estimate:.3}"), "GHz".to_owned()),
        "insn_per_cycle" => (format!("{estimate:.2}"), "insn per cycle".to_owned()),
        "branch_miss_share" => (format!("{estimate:.2}"), "of all branches".to_owned()),
        "cache_miss_share" => (format!("{estimate:.2}"), "of all cache refs".to_owned()),
        "frontend_stall_share" => (format!("{estimate:.2}"), "frontend cycles idle".to_owned()),
        "backend_stall_share" => (format!("{estimate:.2}"), "backend cycles idle".to_owned()),
        "topdown_share" => (format!("{estimate:.1}"), "% of slots".to_owned()),
        "miss_share" => match cache(&row.event) {
            Some(cache) => (format!("{estimate:.2}"), format!("of all {cache}")),
            None => return none(),
        },
        _ => return none(),
    };
    [number, unit]
}

/// Returns the accesses of an event's cache, in perf's words.
fn cache(event: &str) -> Option<&'static str> {
    let caches = [
        ("L1-dcache", "L1-dcache accesses"),
        ("L1-icache", "L1-icache accesses"),
        ("LLC", "LL-cache accesses"),
        ("dTLB", "dTLB cache accesses"),
        ("iTLB", "iTLB cache accesses"),
    ];
    caches.iter().find(|(name, _)| event.starts_with(name)).map(|(_, words)| *words)
}

/// Returns a number divided by powers of 1000, and its prefix.
fn prefixed(mut number: f64) -> (f64, &'static str) {
    let mut prefixes = ["", "K", "M", "G"].into_iter();
    let mut prefix = prefixes.next().unwrap_or_default();
    while number > 1000.0 {
        let Some(next) = prefixes.next() else { break };
        (number, prefix) = (number / 1000.0, next);
    }
    (number, prefix)
}

#[cfg(test)]
mod tests {
    use super::prefixed;

    #[test]
    fn a_rate_is_below_a_thousand_of_its_unit() {
        assert_eq!(prefixed(999.0), (999.0, ""));
        assert_eq!(prefixed(66_504.0), (66.504, "K"));
        assert_eq!(prefixed(2.5e12), (2500.0, "G"));
    }
}
