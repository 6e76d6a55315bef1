//! Comparison as text: the conditions in which the sides differ, then a table of before and after with the
//! certainty of each change. Differences beyond chance come first, and the rest is dimmed.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use super::{
    Comparison, frame_in_bytes, metric,
    words::{self, Ends, Of},
};
use crate::{
    metric::diff::{Bounded, Difference, LEVEL, Outcome, Recorded, Tested, What, Whose, unit_of},
    untrusted::Untrusted,
    view::{
        io::text::subject_name,
        text::{
            COLUMNS, Style, TITLE, WARNING, duration, line, section,
            table::{Align, Table},
        },
    },
};

/// Names of the sides in sentences.
const WORDS: [&str; 2] = ["before", "after"];
/// Maximum number of recordings of a side that are named.
const NAMED_MAX: usize = 4;
/// Maximum number of reported reasons why numbers are not compared.
const REASONS_MAX: usize = 6;

pub(super) fn write(into: &mut dyn Write, style: &Style, all: &Comparison<'_>) -> io::Result<()> {
    for (side, recordings) in WORDS.iter().zip(all.sides) {
        line(into, side, &recorded(recordings))?;
    }
    conditions(into, style, all)?;
    let mut shown: Vec<&Difference> =
        all.diff.differences.iter().filter(|difference| is_shown(difference)).collect();
    // The sort is stable: differences arrive in order of certainty, highest first.
    shown.sort_by_key(|difference| rank(difference));
    let (code, metrics): (Vec<_>, Vec<_>) = shown
        .into_iter()
        .partition(|difference| matches!(difference.key.what, What::Function(..) | What::Stack(_)));
    if !metrics.is_empty() {
        section(into, "DIFFERENCES", "after against before, 95 % intervals; most certain first")?;
        table(into, style, &metrics)?;
    }
    if !code.is_empty() {
        section(into, "CODE", "share of samples, 95 % intervals")?;
        table(into, style, &code)?;
    }
    only(into, style, all)?;
    untested(into, all)?;
    summary(into, all)
}

/// Returns whether both sides have a value and at least one is not zero.
fn is_shown(difference: &Difference) -> bool {
    let [Some(from), Some(to)] = &difference.sides else { return false };
    from.value != 0.0 || to.value != 0.0
}

/// Returns the sort key: significant differences first, then those of the target, the host and the owners. An
/// owner may have the numbers of the target.
fn rank(difference: &Difference) -> (bool, u8, bool) {
    let of = match difference.key.whose.kind {
        "target" => 0,
        "host" => 1,
        _ => 2,
    };
    let is_culprit = matches!(difference.key.what, What::Culprit(_));
    let is_sure = difference.is_significant();
    if is_sure { (false, 0, false) } else { (true, of, is_culprit) }
}

/// Returns the certainty of a change as a word.
fn surety(difference: &Difference) -> &'static str {
    match difference.tested() {
        Some(tested) if tested.is_significant() => "sure",
        Some(tested) if tested.p < LEVEL => "likely",
        Some(_) => "unsure",
        None => "untested",
    }
}

/// Returns names, lengths and ticks of a side's recordings.
fn recorded(recordings: &[Recorded]) -> String {
    let one = |one: &Recorded| {
        let ticks = if one.parts == 1 { "1 tick".to_owned() } else { format!("{} ticks", one.parts) };
        let name = Untrusted::from(one.name.as_str());
        format!("{} ({}, {ticks})", name.terminal(), duration(one.seconds * 1e9))
    };
    let mut named: Vec<String> = recordings.iter().take(NAMED_MAX).map(one).collect();
    if recordings.len() > NAMED_MAX {
        named.push(format!("and {} more", recordings.len() - NAMED_MAX));
    }
    named.join(", ")
}

fn conditions(into: &mut dyn Write, style: &Style, all: &Comparison<'_>) -> io::Result<()> {
    if all.conditions.is_empty() {
        return Ok(());
    }
    section(into, "NOT ALIKE", "what limits the comparison")?;
    use Align::{Left, Words};
    let mut table = Table::new(&[("", Left), (WORDS[0], Left), (WORDS[1], Left), ("", Words)]);
    for one in all.conditions {
        let [a, b] = one.sides.each_ref().map(|side| side.terminal().into_owned());
        table.row_in(WARNING, vec![one.what.to_owned(), a, b, one.limits.to_owned()]);
    }
    table.write(into, style)
}

fn table(into: &mut dyn Write, style: &Style, rows: &[&Difference]) -> io::Result<()> {
    use Align::{Left, Right};
    let titles = [
        ("metric", Left),
        ("owner", Left),
        (WORDS[0], Right),
        (WORDS[1], Right),
        ("change", Right),
        ("sure", Left),
        ("p", Right),
    ];
    let mut table = Table::new(&titles).spare(["p", "owner"]);
    for difference in rows.iter().take(style.rows_max) {
        let number = |at: usize| {
            let side = difference.sides[at].as_ref();
            side.map_or_else(|| "–".to_owned(), |estimate| shown(difference, estimate.value))
        };
        let cells = [what(difference), owner(&difference.key.whose), number(0), number(1)];
        let (change, chance) = match difference.tested() {
            Some(tested) => (change(difference, tested), words::chance(tested.p_adjusted)),
            None => (plain_change(difference), "–".to_owned()),
        };
        let looks = if difference.is_significant() { anstyle::Style::new() } else { COLUMNS };
        let cells = cells.into_iter().chain([change, surety(difference).to_owned(), chance]);
        table.row_in(looks, cells.collect());
    }
    table.write(into, style)?;
    match rows.len().saturating_sub(style.rows_max) {
        0 => Ok(()),
        more => writeln!(into, "  {COLUMNS}… and {more} more{COLUMNS:#}"),
    }
}

fn what(difference: &Difference) -> String {
    let frame = |frame| Untrusted::new(frame_in_bytes(frame)).terminal().into_owned();
    match (&difference.key.what, &difference.key.subject) {
        (What::Metric(metric), None) => {
            let of = difference.key.event.as_ref().map_or_else(String::new, |event| format!(" {event}"));
            Untrusted::from(format!("{metric}{of}")).terminal().into_owned()
        }
        (What::Metric(metric), Some(subject)) => {
            let of = subject_name(subject);
            format!("{} {}", Untrusted::from(metric.as_str()).terminal(), of)
        }
        (What::Culprit(who), _) => format!("{} {}", metric(difference), owner(who)),
        (What::Function(at, _), _) => frame(at),
        (What::Stack(frames), _) => {
            let outer = frames.len().saturating_sub(2);
            let inner: Vec<String> = frames.iter().take(2).map(frame).collect();
            let outer = if outer > 0 { format!(" ‹ {outer} more") } else { String::new() };
            format!("{}{outer}", inner.join(" ‹ "))
        }
    }
}

fn owner(whose: &Whose) -> String {
    match whose.kind {
        "target" => "all".to_owned(),
        "host" => "host".to_owned(),
        _ => whose.name.terminal().into_owned(),
    }
}

/// Returns a number of a side in a fitting unit.
fn shown(difference: &Difference, value: f64) -> String {
    words::number(of(difference, &unit_of(difference)), value)
}

/// Returns the change with its interval.
fn change(difference: &Difference, tested: &Tested) -> String {
    let ends = |bounded: &Bounded| Ends { value: bounded.value, low: bounded.low, high: bounded.high };
    let unit = unit_of(difference);
    let (change, interval) =
        words::change(of(difference, &unit), ends(&tested.difference), tested.relative.as_ref().map(ends));
    format!("{change} {interval}")
}

/// Returns the change of a difference that could not be tested.
fn plain_change(difference: &Difference) -> String {
    let [Some(from), Some(to)] = &difference.sides else { return "–".to_owned() };
    let unit = unit_of(difference);
    let at = |value: f64| Ends { value, low: value, high: value };
    let relative = (from.value != 0.0).then(|| at(to.value / from.value - 1.0));
    words::change(of(difference, &unit), at(to.value - from.value), relative).0
}

fn of<'a>(difference: &'a Difference, unit: &'a str) -> Of<'a> {
    Of { metric: metric(difference), basis: difference.basis.name(), unit }
}

fn only(into: &mut dyn Write, style: &Style, all: &Comparison<'_>) -> io::Result<()> {
    for (side, name) in WORDS.iter().enumerate() {
        let rows: Vec<_> = all.diff.only.iter().filter(|only| only.side == side).collect();
        if rows.is_empty() {
            continue;
        }
        section(into, &format!("ONLY {}", name.to_uppercase()), "owners by CPU time, and metrics of others")?;
        use Align::{Left, Right, Words};
        let mut table = Table::new(&[("owner", Left), ("cpu", Right), ("metrics", Words)]);
        for one in rows.iter().take(style.rows_max) {
            let cpu = one.cpu_time_ns.map_or_else(|| "–".to_owned(), duration);
            let metrics = one.metrics.iter().take(NAMED_MAX).map(|name| Untrusted::from(name.as_str()));
            let mut metrics: Vec<String> = metrics.map(|name| name.terminal().into_owned()).collect();
            if one.metrics.len() > NAMED_MAX {
                metrics.push(format!("and {} more", one.metrics.len() - NAMED_MAX));
            }
            table.row(vec![owner(&one.whose), cpu, metrics.join(", ")]);
        }
        table.write(into, style)?;
        let more = rows.len().saturating_sub(style.rows_max);
        if more > 0 {
            writeln!(into, "  {COLUMNS}… and {more} more{COLUMNS:#}")?;
        }
    }
    Ok(())
}

/// Writes the reasons why numbers are not compared, most frequent first.
fn untested(into: &mut dyn Write, all: &Comparison<'_>) -> io::Result<()> {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for difference in &all.diff.differences {
        if let Outcome::Untested(why) = &difference.outcome {
            *reasons.entry(why).or_default() += 1;
        }
    }
    let mut reasons: Vec<(&str, usize)> = reasons.into_iter().collect();
    reasons.sort_by_key(|&(why, count)| (std::cmp::Reverse(count), why));
    let rare = all.diff.rare;
    if reasons.is_empty() && rare == 0 {
        return Ok(());
    }
    section(into, "NOT TESTED", "numbers that both sides have, and why")?;
    for (why, count) in reasons.iter().take(REASONS_MAX) {
        writeln!(into, "  {count}: {}", Untrusted::from(*why).terminal())?;
    }
    let more: usize = reasons.iter().skip(REASONS_MAX).map(|(_, count)| count).sum();
    if more > 0 {
        writeln!(into, "  {more}: for other reasons, which --json has")?;
    }
    if rare > 0 {
        writeln!(
            into,
            "  {rare}: functions, stacks and culprits of too few samples or short waits, or beyond those that are compared"
        )?;
    }
    Ok(())
}

fn summary(into: &mut dyn Write, all: &Comparison<'_>) -> io::Result<()> {
    let (compared, significant) = (all.diff.compared(), all.diff.significant());
    writeln!(
        into,
        "\n{TITLE}{compared} numbers compared, {significant} differ by more than chance at 5 % after correction\
         {TITLE:#} (sure; Benjamini–Hochberg), {} without it (likely)",
        all.diff.uncorrected()
    )?;
    let variation = if all.has_groups() {
        "chance is how the recordings of a side differ (Welch's t over the runs)"
    } else {
        "chance is how each recording varies over its ticks, 4 of them at least; what differs from run to run anyway is \
         not in it: compare groups, A1,A2 B1,B2, for that"
    };
    writeln!(into, "{COLUMNS}{variation}{COLUMNS:#}")
}
