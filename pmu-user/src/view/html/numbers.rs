//! Tables of numbers: owners by metrics, subjects of I/O by metrics, and counts, one per row.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value as Json;

use super::{
    cells::{TAIL, cell, content, head, is_weak, known, text},
    rows::{Number, Rows, Who},
};

/// Maximum number of rows of a table. The scripts have all rows.
const ROWS_MAX: usize = 150;
/// Maximum number of columns of a table.
const COLUMNS_MAX: usize = 16;
/// Maximum number of subjects in columns. If there are more, they are in rows.
const BESIDE_MAX: usize = 3;

/// Appends the tables of a report.
pub(super) fn tables(rows: &Rows, into: &mut String) {
    if rows.header["command"] == "stat" {
        return counts(&rows.numbers, into);
    }
    let of_tasks = |number: &&Number| number.subject.is_none() && number.level.is_none();
    let numbers: Vec<&Number> = rows.numbers.iter().filter(of_tasks).collect();
    if !numbers.is_empty() {
        into.push_str("<div id=\"grid\">");
        let titles = "Owners; of run-queue latency the 99th percentile";
        let numbers = without_root(rows.by_program(&numbers));
        wide(titles, "owner", &numbers, |number| label(number.owner.as_ref(), None), into);
        into.push_str("</div>");
    }
    into.push_str("<div id=\"subjects\">");
    let mut kinds: Vec<(String, Vec<&Number>)> = Vec::new();
    for number in &rows.numbers {
        let Some(subject) = &number.subject else { continue };
        let kind = word(subject, "kind");
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, list)) => list.push(number),
            None => kinds.push((kind, vec![number])),
        }
    }
    for (kind, numbers) in &kinds {
        let whose = |number: &Number| label(number.owner.as_ref(), number.subject.as_ref());
        wide(&capital(kind), kind, numbers, whose, into);
    }
    into.push_str("</div>");
}

/// Returns the numbers without the root cgroup, if it has the same numbers as the target.
fn without_root(mut numbers: Vec<&Number>) -> Vec<&Number> {
    let is_root = |number: &Number| {
        number.owner.as_ref().and_then(|owner| owner.path.as_deref()).is_some_and(|path| path == "/")
    };
    let of = |is: &dyn Fn(&Number) -> bool, metric: &str| {
        let number = numbers.iter().find(|number| number.metric == metric && is(number));
        number.and_then(|number| number.value)
    };
    let is_target = |number: &Number| number.owner.as_ref().is_some_and(|owner| owner.kind == "target");
    let alike = ["cpu_time", "context_switches", "samples"];
    if alike.iter().all(|metric| of(&is_root, metric) == of(&is_target, metric)) {
        numbers.retain(|number| !is_root(number));
    }
    numbers
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn word(subject: &BTreeMap<String, Json>, name: &str) -> String {
    subject.get(name).and_then(Json::as_str).unwrap_or_default().to_owned()
}

/// Returns the label of a row: the subject, then the owner.
pub(super) fn label(owner: Option<&Who>, subject: Option<&BTreeMap<String, Json>>) -> String {
    let subject = subject.map(|subject| {
        // A place is a number, which says little without its kind.
        let kind = if subject.contains_key("at") { "kind" } else { "" };
        let names = [kind, "name", "path", "address", "port", "operation", "direction", "at"];
        let parts: Vec<String> =
            names.iter().map(|name| word(subject, name)).filter(|part| !part.is_empty()).collect();
        if parts.is_empty() { word(subject, "kind") } else { parts.join(" ") }
    });
    match (subject, owner) {
        (Some(subject), Some(owner)) => format!("{subject}, {}", owner.label()),
        (Some(subject), None) => subject,
        (None, owner) => owner.map_or_else(|| "host".to_owned(), Who::label),
    }
}

/// Appends a table of owners by metric, or of metrics by owner if the owners are few.
fn wide(
    caption: &str,
    what: &str,
    numbers: &[&Number],
    whose: impl Fn(&Number) -> String,
    into: &mut String,
) {
    let mut metrics: Vec<(&str, bool)> = Vec::new();
    let mut all: Vec<(String, BTreeMap<&str, &Number>)> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for number in numbers {
        let is_known = known(number).is_some();
        match metrics.iter_mut().find(|(name, _)| *name == number.metric) {
            Some((_, any)) => *any |= is_known,
            None => metrics.push((&number.metric, is_known)),
        }
        let label = whose(number);
        let place = *places.entry(label.clone()).or_insert_with(|| {
            all.push((label, BTreeMap::new()));
            all.len() - 1
        });
        all[place].1.insert(&number.metric, number);
    }
    let metrics: Vec<&str> = metrics.into_iter().filter(|(_, any)| *any).map(|(name, _)| name).collect();
    if metrics.is_empty() {
        let _ = write!(
            into,
            "<p class=\"quiet\">{}: nothing is known; the last section says why.</p>",
            text(caption)
        );
        return;
    }
    if all.len() <= BESIDE_MAX && metrics.len() > all.len() {
        return transposed(caption, &metrics, &all, into);
    }
    let columns = &metrics[..metrics.len().min(COLUMNS_MAX)];
    let titles: Vec<(&str, bool)> =
        [(what, false)].into_iter().chain(columns.iter().map(|name| (*name, true))).collect();
    head(caption, &titles, into);
    for (label, cells) in all.iter().take(ROWS_MAX) {
        let _ = write!(into, "<tr><th scope=\"row\" class=\"who\">{}</th>", text(label));
        columns.iter().for_each(|metric| cell(cells.get(metric).copied(), into));
        into.push_str("</tr>");
    }
    into.push_str(TAIL);
    more(all.len().saturating_sub(ROWS_MAX), "rows", into);
    more(metrics.len() - columns.len(), "columns", into);
}

/// Appends a note of what a table leaves out.
pub(super) fn more(count: usize, what: &str, into: &mut String) {
    if count > 0 {
        let _ = write!(into, "<p class=\"quiet\">{count} more {what} are in the page's data only.</p>");
    }
}

fn transposed(caption: &str, metrics: &[&str], all: &[(String, BTreeMap<&str, &Number>)], into: &mut String) {
    let titles: Vec<(&str, bool)> =
        [("metric", false)].into_iter().chain(all.iter().map(|(label, _)| (label.as_str(), true))).collect();
    head(caption, &titles, into);
    for metric in metrics {
        let _ = write!(into, "<tr><th scope=\"row\"><code>{}</code></th>", text(metric));
        all.iter().for_each(|(_, cells)| cell(cells.get(metric).copied(), into));
        into.push_str("</tr>");
    }
    into.push_str(TAIL);
}

/// Appends counts without owners' metrics: one number per row, with what it rests on.
fn counts(numbers: &[Number], into: &mut String) {
    into.push_str("<div id=\"counts\">");
    let titles =
        [("of", false), ("event", false), ("PMU", false), ("count", true), ("counted", true), ("how", false)];
    head("Counts", &titles, into);
    for number in numbers.iter().take(ROWS_MAX * 4) {
        let whose = label(number.owner.as_ref(), number.subject.as_ref());
        let name = match &number.parent {
            Some(parent) => format!("{parent}: {}", number.metric),
            None => number.metric.clone(),
        };
        let _ = write!(
            into,
            "<tr><th scope=\"row\" class=\"who\">{}</th><td><code>{}</code></td><td>{}</td>",
            text(&whose),
            text(&name),
            text(number.pmu.as_deref().unwrap_or_default())
        );
        match known(number) {
            Some(found) => {
                let weak = if is_weak(&found) { " weak" } else { "" };
                let (shown, share) = (content(&found, &number.unit), (found.coverage * 100.0).round());
                let how = text(number.how.as_deref().unwrap_or_default());
                let _ = write!(
                    into,
                    "<td class=\"n{weak}\">{shown}</td><td class=\"n\">{share:.0} %</td><td>{how}</td></tr>"
                );
            }
            None => {
                let why = text(number.reason.as_deref().unwrap_or_default());
                let _ = write!(
                    into,
                    "<td class=\"n none\">–</td><td class=\"n none\">–</td><td class=\"prose\">{why}</td></tr>"
                );
            }
        }
    }
    into.push_str(TAIL);
    more(numbers.len().saturating_sub(ROWS_MAX * 4), "rows", into);
    into.push_str("</div>");
}
