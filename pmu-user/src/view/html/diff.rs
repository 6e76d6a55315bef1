//! Page of a comparison: differences beyond chance, every difference, what only one side has, and the
//! conditions in which the sides differ.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write},
};

use serde::Deserialize;
use serde_json::Value as Json;

use super::{
    assembled,
    cells::{TAIL, head, text},
    end::frame,
    island::{Lines, Packing},
    numbers::{label, more},
    rows::Who,
};
use crate::view::{
    diff::words::{Ends, Of, chance, change, number},
    text::duration,
};

const PAGE: &str = include_str!("diff.html");
/// Scripts, joined in this order.
const SCRIPTS: [&str; 6] = [
    include_str!("base.js"),
    include_str!("data.js"),
    include_str!("span.js"),
    include_str!("grid.js"),
    include_str!("stacks.js"),
    include_str!("diff.js"),
];

/// Maximum number of rows of a table. The scripts have all rows.
const ROWS_MAX: usize = 200;
/// Maximum number of metric names in a row of what one side has.
const NAMED_MAX: usize = 12;

/// A number that was compared.
#[derive(Debug, Deserialize)]
struct Difference {
    owner: Option<Who>,
    subject: Option<BTreeMap<String, Json>>,
    metric: String,
    culprit: Option<Who>,
    frame: Option<Json>,
    frames: Option<Vec<Json>>,
    unit: String,
    basis: String,
    a: Option<Side>,
    b: Option<Side>,
    difference: Option<Ends>,
    relative: Option<Ends>,
    p_adjusted: Option<f64>,
    significant: bool,
    reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Side {
    value: f64,
}

impl Difference {
    fn of(&self) -> Of<'_> {
        Of { metric: &self.metric, basis: &self.basis, unit: &self.unit }
    }
}

/// Collector of the rows of a comparison, as they are written.
pub struct Differences {
    lines: Lines,
    packing: Packing,
    rows: Rows,
}

#[derive(Default)]
struct Rows {
    header: Json,
    summary: Json,
    differences: Vec<Difference>,
    only: Vec<Json>,
}

impl Default for Differences {
    fn default() -> Self {
        Self::new()
    }
}

impl Differences {
    /// Returns a collector without rows.
    #[must_use]
    pub fn new() -> Self {
        Self { lines: Lines::default(), packing: Packing::new(), rows: Rows::default() }
    }

    /// Returns the page as HTML.
    ///
    /// # Errors
    ///
    /// The rows could not be compressed.
    pub fn page(self) -> io::Result<Vec<u8>> {
        let (rows, whole) = (self.rows, self.packing.end()?);
        Ok(assembled(PAGE, &SCRIPTS.concat(), |slot, into| match slot {
            "title" => into.push_str("b against a – pmbpf"),
            "header" => rows.header(into),
            "significant" => rows.significant(into),
            "all" => table("Differences, b against a", rows.differences.iter(), rows.differences.len(), into),
            "only" => rows.only(into),
            "alike" => rows.alike(into),
            "whole" => into.push_str(&whole),
            _ => {}
        }))
    }
}

impl Write for Differences {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { lines, packing, rows } = self;
        lines.feed(bytes, |line| {
            packing.push(line)?;
            rows.add(line)
        })?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Rows {
    fn add(&mut self, line: &[u8]) -> io::Result<()> {
        let row: Json = serde_json::from_slice(line)?;
        match row["kind"].as_str() {
            Some("diff_header") => self.header = row,
            Some("diff_summary") => self.summary = row,
            Some("difference") => self.differences.push(serde_json::from_value(row)?),
            Some("only") => self.only.push(row),
            _ => {}
        }
        Ok(())
    }

    fn header(&self, into: &mut String) {
        into.push_str("<h1>b against a</h1>");
        let titles = [
            ("side", false),
            ("recording", false),
            ("host", false),
            ("kernel", false),
            ("target", false),
            ("lasted", true),
        ];
        head("What is compared", &titles, into);
        for side in self.header["sides"].as_array().into_iter().flatten() {
            for one in side["recordings"].as_array().into_iter().flatten() {
                let word = |row: &Json, name: &str| text(row[name].as_str().unwrap_or_default());
                let _ = write!(
                    into,
                    "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td></tr>",
                    word(side, "side"),
                    word(one, "name"),
                    word(one, "host"),
                    word(one, "kernel"),
                    word(one, "target"),
                    duration(one["duration_ns"].as_f64().unwrap_or_default()),
                );
            }
        }
        into.push_str(TAIL);
        let count = |name: &str| self.summary[name].as_u64().unwrap_or_default();
        let _ = write!(
            into,
            "<p>{} of {} numbers that were compared differ by more than chance, after correction for how many they are ({} before it); {} could not be compared.</p>",
            count("significant"),
            count("compared"),
            count("uncorrected"),
            count("untested"),
        );
    }

    fn significant(&self, into: &mut String) {
        let found: Vec<_> = self.differences.iter().filter(|difference| difference.significant).collect();
        if found.is_empty() {
            into.push_str("<p class=\"quiet\">Nothing: what differs may be chance.</p>");
            return;
        }
        table("More than chance, b against a", found.iter().copied(), found.len(), into);
    }

    fn only(&self, into: &mut String) {
        if self.only.is_empty() {
            into.push_str("<p class=\"quiet\">Nothing: both sides have the same owners and numbers.</p>");
            return;
        }
        let titles = [("side", false), ("owner", false), ("CPU time", true), ("numbers", false)];
        head("What only one side has", &titles, into);
        for row in self.only.iter().take(ROWS_MAX) {
            let who: Option<Who> = serde_json::from_value(row["owner"].clone()).ok();
            let metrics: Vec<&str> =
                row["metrics"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
            let rest = metrics.len().saturating_sub(NAMED_MAX);
            let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            let _ = write!(
                into,
                "<tr><th scope=\"row\">{}</th><td class=\"who\">{}</td><td class=\"n\">{}</td><td class=\"prose\">{}{rest}</td></tr>",
                text(row["side"].as_str().unwrap_or_default()),
                text(&label(who.as_ref(), None)),
                row["cpu_time_ns"].as_f64().map_or_else(|| "–".to_owned(), duration),
                text(&metrics[..metrics.len().min(NAMED_MAX)].join(", ")),
            );
        }
        into.push_str(TAIL);
        more(self.only.len().saturating_sub(ROWS_MAX), "rows", into);
    }

    fn alike(&self, into: &mut String) {
        let conditions = self.header["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        if conditions.is_empty() {
            into.push_str("<p class=\"quiet\">Hosts, kernels and plans are alike.</p>");
            return;
        }
        let titles = [("what", false), ("a", false), ("b", false), ("what that limits", false)];
        head("Not alike", &titles, into);
        for row in conditions {
            let cell = |name: &str| text(row[name].as_str().unwrap_or_default());
            let _ = write!(
                into,
                "<tr><th scope=\"row\">{}</th><td class=\"prose\">{}</td><td class=\"prose\">{}</td><td class=\"prose\">{}</td></tr>",
                cell("what"),
                cell("a"),
                cell("b"),
                cell("limits")
            );
        }
        into.push_str(TAIL);
    }
}

/// Appends a table with a row per difference. `count` is the number of all differences.
fn table<'a>(caption: &str, rows: impl Iterator<Item = &'a Difference>, count: usize, into: &mut String) {
    let titles = [
        ("what", false),
        ("owner", false),
        ("a", true),
        ("b", true),
        ("change", true),
        ("", false),
        ("p", true),
    ];
    head(caption, &titles, into);
    rows.take(ROWS_MAX).for_each(|row| line(row, into));
    into.push_str(TAIL);
    more(count.saturating_sub(ROWS_MAX), "rows", into);
}

fn line(row: &Difference, into: &mut String) {
    let side = |side: &Option<Side>| {
        let number = side.as_ref().map(|side| text(&number(row.of(), side.value)));
        number.map_or_else(
            || "<td class=\"n none\">–</td>".to_owned(),
            |number| format!("<td class=\"n\">{number}</td>"),
        )
    };
    let class = if row.significant { " class=\"flagged\"" } else { "" };
    let (what, owner) = (text(&what(row)), text(&label(row.owner.as_ref(), None)));
    let _ = write!(
        into,
        "<tr{class}><th scope=\"row\" class=\"who\">{what}</th><td>{owner}</td>{}{}",
        side(&row.a),
        side(&row.b)
    );
    let Some((difference, p)) = row.difference.zip(row.p_adjusted) else {
        let why = text(row.reason.as_deref().unwrap_or_default());
        let _ = write!(into, "<td class=\"prose\" colspan=\"3\"><small>{why}</small></td></tr>");
        return;
    };
    let (change, interval) = change(row.of(), difference, row.relative);
    let weak = if row.significant { "" } else { " weak" };
    let bar = row.relative.map(|relative| bar(relative, row.significant)).unwrap_or_default();
    let (change, interval, chance) = (text(&change), text(&interval), text(&chance(p)));
    let _ = write!(
        into,
        "<td class=\"n{weak}\">{change} <small>{interval}</small></td><td class=\"bars\">{bar}</td><td class=\"n\">{chance}</td></tr>"
    );
}

/// Returns the name of what is compared, for a stack its innermost functions.
fn what(row: &Difference) -> String {
    if let Some(frames) = &row.frames {
        let inner: Vec<String> = frames.iter().take(2).map(code).collect();
        let outer = frames.len().saturating_sub(2);
        let outer = if outer > 0 { format!(" ‹ {outer} more") } else { String::new() };
        return inner.join(" ‹ ") + &outer;
    }
    match (&row.frame, &row.subject, &row.culprit) {
        (Some(at), ..) => code(at),
        (None, Some(subject), _) => format!("{} {}", row.metric, label(None, Some(subject))),
        (None, None, Some(culprit)) => format!("{} {}", row.metric, label(Some(culprit), None)),
        (None, None, None) => row.metric.clone(),
    }
}

/// Returns the name of a frame, with its file where it has no name.
fn code(at: &Json) -> String {
    let file = at["module"].as_str().filter(|_| at["offset"].is_u64() && at["function"].is_null());
    let file = file.and_then(|module| module.rsplit('/').next()).unwrap_or_default();
    format!("{file}{}", frame(at))
}

/// Returns a bar of the interval of a change between −100 % and +100 %, with 0 in the middle.
fn bar(relative: Ends, significant: bool) -> String {
    let at = |share: f64| 50.0 + 50.0 * share.clamp(-1.0, 1.0);
    let (low, high) = (at(relative.low), at(relative.high));
    let class = match (significant, relative.value > 0.0) {
        (false, _) => "same",
        (true, true) => "more",
        (true, false) => "less",
    };
    format!(
        "<svg class=\"bar change\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"{class}\" x=\"{low:.2}\" y=\"2\" width=\"{:.2}\" height=\"6\"/><rect class=\"whisker\" x=\"{:.2}\" width=\"0.8\" height=\"10\"/><rect class=\"zero\" x=\"49.8\" width=\"0.4\" height=\"10\"/></svg>",
        (high - low).max(0.8),
        at(relative.value) - 0.4
    )
}
