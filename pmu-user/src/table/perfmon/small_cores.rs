//! Metrics of the small cores of hybrids, from `E-core_TMA_Metrics.csv` of a perfmon directory. There is no
//! JSON file of them, so they are read in the form that such a file would have.
//!
//! A row of the sheet is a metric, a column a core. Formulas name events, metrics of rows above, and rows of
//! key `Aux`. Names, units and scales are those of the JSON files of servers with such cores, so that each
//! metric has one name. Read in this way, the column of the cores of Sierra Forest is its file.

use std::collections::{BTreeMap, BTreeSet};

use super::{base, file, lists::TICKS};
use crate::{table::formula::is_of_name, untrusted::is_unsafe};

/// File name of the sheet.
pub(super) const SHEET: &str = "E-core_TMA_Metrics.csv";

/// Columns of the sheet, by the models with these cores.
const COLUMNS: [(&str, &str); 5] = [
    ("alderlake/cpu_atom", "GRT"),
    ("arrowlake/cpu_atom", "ARL-SKT"),
    ("arrowlake/cpu_lowpower", "CMT"),
    ("lunarlake/cpu_atom", "LNL-SKT"),
    ("meteorlake/cpu_atom", "CMT"),
];

/// Names in formulas that are not events, with our names for them.
const CONSTANTS: [(&str, &str); 2] =
    [("TSC", TICKS), ("DurationTimeInMilliSeconds", "DURATIONTIMEINMILLISECONDS")];

/// Parts of formulas that are metrics of large cores.
const COUNTS: [(&str, &str); 2] = [("CLKS", "#CLKS"), ("SLOTS", "#SLOTS")];

/// Beginnings of the keys of the tree's nodes.
const NODES: [&str; 4] = ["FE", "BAD", "BE", "RET"];

/// Maximum depth of parts of formulas made of parts.
const PARTS_MAX: u32 = 8;
/// Maximum length of a formula with everything in it expanded.
const FORMULA_BYTES_MAX: usize = 16 << 10;

/// Returns the column of a model, if its cores have one.
pub(super) fn column(model: &str) -> Option<&'static str> {
    COLUMNS.iter().find(|(known, _)| *known == model).map(|(_, column)| *column)
}

/// Returns the version of the sheet, and the metrics of a column. Leaves out those that take an event that
/// the core lacks: `has` returns whether the core has an event.
pub(super) fn read(
    text: &str,
    column: &str,
    has: &dyn Fn(&str) -> bool,
) -> Result<(String, Vec<file::Metric>), String> {
    let sheet = Sheet::read(text, column)?;
    let mut metrics = Metrics { sheet: &sheet, has, all: Vec::new() };
    // Nodes above a row, the nearest last.
    let mut above: Vec<usize> = Vec::new();
    for row in &sheet.rows {
        if row.is_node {
            above.retain(|&node| metrics.all[node].row.level < row.level);
        }
        let parent = above.last().filter(|_| row.is_node).copied();
        let Some(known) = metrics.of(row, parent) else { continue };
        if row.is_node {
            above.push(metrics.all.len());
        }
        metrics.all.push(known);
    }
    let all = metrics.all.into_iter().map(|known| known.metric).collect();
    Ok((format!("E-core TMA {}", sheet.version), all))
}

/// Contents of a sheet about one core.
struct Sheet {
    version: String,
    rows: Vec<Row>,
    /// Parts of formulas, by name.
    parts: BTreeMap<String, String>,
}

/// A row of a metric. Its formula is empty if the core lacks that metric.
struct Row {
    /// Name in the sheet.
    own: String,
    /// Name in other files.
    name: String,
    is_node: bool,
    level: u32,
    formula: String,
    domain: String,
    groups: String,
    locate: String,
    threshold: String,
}

impl Sheet {
    fn read(text: &str, column: &str) -> Result<Self, String> {
        let records = records(text)?;
        let head = records.iter().position(|record| record.get(0) == Some("Key"));
        let head = head.ok_or("no row begins with `Key`")?;
        let place = |name: &str| {
            let found = records[head].iter().position(|cell| cell == name);
            found.ok_or_else(|| format!("it has no column `{name}`"))
        };
        let levels = [place("Level1")?, place("Level2")?, place("Level3")?];
        let (formulas, domains, groups) = (place(column)?, place("Count Domain")?, place("Metric Group")?);
        let (thresholds, locates) = (place("Threshold")?, place("Locate-with")?);
        let version = records[..head].iter().find(|record| record.get(0) == Some("TMA"));
        let version = version.and_then(|record| record.get(2)).unwrap_or_default().to_owned();
        let mut sheet = Self { version, rows: Vec::new(), parts: BTreeMap::new() };
        for record in &records[head + 1..] {
            let cell = |at: usize| record.get(at).unwrap_or_default().to_owned();
            let Some(level) = levels.iter().position(|&at| !cell(at).is_empty()) else { continue };
            let (key, own) = (cell(0), cell(levels[level]));
            let formula = Some(cell(formulas)).filter(|formula| formula != "#NA").unwrap_or_default();
            let is_node = NODES.iter().any(|start| key.starts_with(start));
            if key == "Aux" && !formula.is_empty() {
                sheet.parts.insert(own, formula);
            } else if is_node || key.starts_with("Info") {
                sheet.rows.push(Row {
                    name: if is_node { own.clone() } else { metric_name(&key, &own) },
                    own,
                    is_node,
                    level: level as u32 + 1,
                    formula,
                    domain: cell(domains),
                    groups: cell(groups),
                    locate: cell(locates),
                    threshold: cell(thresholds),
                });
            }
        }
        sheet.rows.extend(COUNTS.map(|(own, part)| Row::of_count(own, part)));
        Ok(sheet)
    }
}

/// Parses rows of comma-separated values, without those that would display as something else.
fn records(text: &str) -> Result<Vec<csv::StringRecord>, String> {
    let text = text.trim_start_matches('\u{feff}');
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let records: Result<Vec<csv::StringRecord>, csv::Error> = reader.records().collect();
    let mut records = records.map_err(|error| error.to_string())?;
    records.retain(|record| !record.iter().any(|cell| cell.contains(is_unsafe)));
    Ok(records)
}

/// Returns the name of a metric that is not a node: `Info.Buffers` and `%_Full_Cycles` give
/// `Info_Buffers_Full_Cycles`.
fn metric_name(key: &str, own: &str) -> String {
    format!("{}_{}", key.replace('.', "_"), own.trim_start_matches(['%', '_']))
}

impl Row {
    /// Returns the row of a count that the sheet has as a part of formulas.
    fn of_count(own: &str, part: &str) -> Self {
        Self {
            own: own.to_owned(),
            name: metric_name("Info.Thread", own),
            is_node: false,
            level: 1,
            formula: part.to_owned(),
            domain: "Count".to_owned(),
            groups: String::new(),
            locate: String::new(),
            threshold: String::new(),
        }
    }

    /// Returns its unit in perfmon's words.
    fn unit(&self) -> &'static str {
        match self.own.as_str() {
            _ if self.is_node => "percent",
            share if share.starts_with('%') => "percent",
            "CPI" => "per instruction",
            _ => "",
        }
    }

    /// Returns its threshold over names of metrics, with that of the metric above in place of `P`.
    fn threshold(&self, above: Option<&file::Metric>) -> Option<file::Threshold> {
        let above = above.and_then(|metric| metric.threshold.as_ref());
        let own = |part: &str| {
            let name = &self.name;
            part.replace('>', &format!("{name} >")).replace('<', &format!("{name} <"))
        };
        let parts = self.threshold.split('&').map(str::trim).filter(|part| !part.is_empty());
        let parts = parts.filter_map(|part| match part {
            "P" => above.map(|threshold| threshold.formula.clone()),
            part => Some(own(part)),
        });
        let formula = parts.collect::<Vec<_>>().join(" & ");
        (!formula.is_empty()).then(|| file::Threshold { formula, ..file::Threshold::default() })
    }
}

/// Metrics of a core, as far as they are read.
struct Metrics<'a> {
    sheet: &'a Sheet,
    has: &'a dyn Fn(&str) -> bool,
    all: Vec<Known<'a>>,
}

/// A metric with its row.
struct Known<'a> {
    row: &'a Row,
    /// Formula before it is made a percentage, over events and constants.
    spelled: String,
    metric: file::Metric,
}

/// Form of metrics in the formula of another, of which perfmon has both.
#[derive(Clone, Copy)]
enum Form {
    /// Expanded to their formulas (`Formula`).
    Spelled,
    /// By their names, with events in lower case (`BaseFormula`).
    Short,
}

impl<'a> Metrics<'a> {
    /// Returns the metric of a row, below another of these. Returns `None` if the core lacks what it takes.
    fn of(&self, row: &'a Row, parent: Option<usize>) -> Option<Known<'a>> {
        if row.formula.is_empty() {
            return None;
        }
        let [spelled, short] = [Form::Spelled, Form::Short].map(|form| self.formula(&row.formula, form, 0));
        let (spelled, short) = (spelled?, short?);
        let parent = parent.map(|parent| &self.all[parent].metric);
        let events: BTreeSet<&str> = spelled.split(|character| !is_of_name(character)).collect();
        let events = events.into_iter().filter(|event| (self.has)(&base(event)));
        let located = row.locate.split([';', ',']).map(str::trim).filter(|event| (self.has)(&base(event)));
        let metric = file::Metric {
            name: row.name.clone(),
            legacy_name: row.name.clone(),
            parent_category: parent.map(|parent| parent.name.clone()),
            level: row.level,
            unit_of_measure: row.unit().to_owned(),
            events: events.map(|event| alias(event, event)).collect(),
            constants: CONSTANTS.map(|(theirs, ours)| alias(theirs, ours)).into(),
            formula: if row.is_node { format!("100 * ( {spelled} )") } else { spelled.clone() },
            base_formula: Some(short),
            category: "TMA".to_owned(),
            count_domain: Some(row.domain.clone()),
            metric_group: Some(row.groups.clone()),
            threshold: row.threshold(parent),
            locate_with: Some(located.collect::<Vec<_>>().join(";")),
        };
        Some(Known { row, spelled, metric })
    }

    /// Returns a formula or a part of one, with its names replaced by their meaning. Returns `None` if the
    /// core lacks one of them, or the text grows too long.
    fn formula(&self, text: &str, form: Form, depth: u32) -> Option<String> {
        let meaning = |name: &str| {
            if let Some(part) = self.sheet.parts.get(name) {
                let part = if depth < PARTS_MAX { self.formula(part, form, depth + 1) } else { None };
                return part.map(|part| format!("( {part} )"));
            }
            let is_constant = CONSTANTS.iter().any(|(constant, _)| *constant == name);
            if is_constant || matches!(name, "max" | "min") || name.parse::<f64>().is_ok() {
                return Some(name.to_owned());
            }
            match (self.all.iter().find(|known| known.row.own == name), form) {
                (Some(known), Form::Spelled) => Some(format!("( {} )", known.spelled)),
                (Some(known), Form::Short) => Some(format!("tma_{}", known.row.name.to_ascii_lowercase())),
                (None, _) if !(self.has)(&base(name)) => None,
                (None, Form::Spelled) => Some(name.to_owned()),
                (None, Form::Short) => Some(name.to_ascii_lowercase()),
            }
        };
        replaced(text, &meaning)
    }
}

/// Returns the meaning of a name in a formula.
fn alias(alias: &str, name: &str) -> file::Alias {
    file::Alias { name: name.to_owned(), alias: alias.to_owned() }
}

/// Returns `text` with its names and numbers replaced. Returns `None` if one of them has no replacement, or
/// the text grows too long.
fn replaced(text: &str, meaning: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let (mut rest, mut done) = (text, String::new());
    while let Some(start) = rest.find(is_of_name) {
        let (between, after) = rest.split_at(start);
        let end = after.find(|character| !is_of_name(character)).unwrap_or(after.len());
        done.push_str(between);
        done.push_str(&meaning(&after[..end])?);
        if done.len() > FORMULA_BYTES_MAX {
            return None;
        }
        rest = &after[end..];
    }
    done.push_str(rest);
    Some(done)
}

#[cfg(test)]
mod tests;
