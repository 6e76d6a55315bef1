//! `pmbpf list`: a table with named columns, in every format.

use std::io::{self, Write};

use super::{
    Format, csv, json,
    text::{self, Style},
};
use crate::{
    machine::{
        cgroup::Cgroup,
        cpu::{Cpu, format_list},
    },
    plan::{self, profile::Available},
    table::{
        hint::hint,
        listing::{ListedEvent, ListedPmu},
        metric::Metric,
        model::{self, Coverage},
    },
    untrusted::Untrusted,
};

/// Table of what exists.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Kind of the rows: `listed_event`, `listed_pmu`…
    pub kind: &'static str,
    /// Names of the columns. Text shows those that are not empty.
    pub columns: &'static [&'static str],
    /// Columns that text does not show.
    pub hidden: &'static [&'static str],
    /// Layout of the list in text.
    pub look: Look,
    /// Rows, with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// Sentences on what is not in the table, and why.
    pub notes: Vec<String>,
}

/// Layout of a list in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Columns under their names.
    Table,
    /// Labels, followed by sentences from the column of this name. Later columns are shown below, after their
    /// names.
    Sheet(&'static str),
}

/// Content of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Cell without content.
    Empty,
    /// A name or a sentence.
    Text(Untrusted),
    /// A single number.
    Number(u64),
    /// Several names or sentences.
    Several(Vec<Untrusted>),
}

impl Cell {
    /// Returns a cell of text, empty for an empty text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        if text.is_empty() { Self::Empty } else { Self::Text(Untrusted::from(text)) }
    }

    /// Returns a cell of text, empty if there is none.
    #[must_use]
    pub fn optional(text: Option<&String>) -> Self {
        text.map_or(Self::Empty, |text| Self::text(text))
    }

    /// Returns a cell of several names or sentences.
    #[must_use]
    pub fn several(names: impl IntoIterator<Item = String>) -> Self {
        Self::Several(names.into_iter().map(Untrusted::from).collect())
    }
}

impl Listing {
    /// Returns a table of these rows.
    const fn table(kind: &'static str, columns: &'static [&'static str], rows: Vec<Vec<Cell>>) -> Self {
        Self { kind, columns, hidden: &[], look: Look::Table, rows, notes: Vec::new() }
    }

    /// Returns a list of events. An event that cannot be counted here has the reason in its last column.
    #[must_use]
    pub fn of_events(events: &[ListedEvent]) -> Self {
        let row = |event: &ListedEvent| {
            vec![
                Cell::text(event.kind.name()),
                Cell::text(&event.name),
                Cell::optional(event.alias.as_ref()),
                Cell::text(&event.pmu),
                Cell::text(&event.notation),
                Cell::optional(event.counters.as_ref()),
                Cell::optional(event.unit.as_ref()),
                Cell::text(if event.missing.is_none() { "ok" } else { "unsupported" }),
                Cell::optional(event.missing.as_ref()),
            ]
        };
        Self::table(
            "listed_event",
            &["source", "name", "alias", "pmu", "notation", "counters", "unit", "status", "reason"],
            events.iter().map(row).collect(),
        )
    }

    /// Returns a list of PMUs. Uncore PMUs of a kind share a row.
    #[must_use]
    pub fn of_pmus(pmus: &[ListedPmu]) -> Self {
        let pairs = |pairs: &[(String, String)]| {
            Cell::several(pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>())
        };
        let row = |pmu: &ListedPmu| {
            // Box numbers are as dense as CPU numbers, and so are their types.
            let kinds: Vec<Cpu> = pmu.kinds.iter().copied().map(Cpu).collect();
            vec![
                Cell::text(&pmu.name),
                Cell::text(&format_list(&kinds)),
                if pmu.instances.is_empty() { Cell::Empty } else { Cell::Number(pmu.instances.len() as u64) },
                pmu.cpus.as_deref().map_or(Cell::text("any"), |cpus| Cell::text(&format_list(cpus))),
                Cell::Number(pmu.events as u64),
                pairs(&pmu.terms),
                pairs(&pmu.caps),
            ]
        };
        Self::table(
            "listed_pmu",
            &["name", "type", "instances", "cpus", "events", "format", "caps"],
            pmus.iter().map(row).collect(),
        )
    }

    /// Returns a list of metrics: those of the catalogue, each with the reason if it cannot be measured here,
    /// and those of a CPU model. `missing` is the reason why the model's metrics cannot be measured.
    #[must_use]
    pub fn of_metrics<'a>(
        listed: impl IntoIterator<Item = (&'a Metric, Option<String>)>,
        of_model: impl IntoIterator<Item = (&'a model::Metric, Option<&'a str>)>,
        missing: Option<&str>,
    ) -> Self {
        let status = |missing: Option<&str>| {
            let status = if missing.is_none() { "ok" } else { "unsupported" };
            [Cell::text(status), Cell::text(missing.unwrap_or_default())]
        };
        let of_catalogue = |(metric, missing): (&Metric, Option<String>)| {
            let mut row = [metric.name, metric.unit.name(), metric.family.name()].map(Cell::text).to_vec();
            row.extend([Cell::text(metric.parent.unwrap_or_default()), Cell::Empty, Cell::Empty]);
            row.push(Cell::text(metric.says));
            row.extend(status(missing.as_deref()));
            row
        };
        let of_table = |(metric, parent): (&model::Metric, Option<&str>)| {
            let mut row = [&metric.name, metric.unit.name(), "topdown"].map(Cell::text).to_vec();
            row.extend([Cell::text(parent.unwrap_or_default()), Cell::Number(metric.level.into())]);
            row.push(Cell::several(metric.groups.iter().cloned()));
            row.push(Cell::text(hint(&metric.name).map_or("", |hint| hint.says)));
            row.extend(status(missing));
            row
        };
        let rows = listed.into_iter().map(of_catalogue).chain(of_model.into_iter().map(of_table));
        Self::table(
            "listed_metric",
            &["name", "unit", "family", "parent", "level", "groups", "says", "status", "reason"],
            rows.collect(),
        )
    }

    /// Returns a list of configurations: a row for each quantity, with its events here, or the reason why
    /// there are none.
    #[must_use]
    pub fn of_profiles(profiles: &[Available]) -> Self {
        let row = |available: &Available, row: &plan::profile::Row| {
            let (events, missing) = match &row.events {
                Ok(events) => (events.iter().map(|event| event.event.clone()).collect(), None),
                Err(why) => (Vec::new(), Some(why)),
            };
            vec![
                Cell::text(available.profile.name),
                Cell::text(row.quantity.name()),
                Cell::several(events),
                Cell::text(if missing.is_none() { "ok" } else { "unsupported" }),
                Cell::optional(missing),
            ]
        };
        let rows = profiles.iter().flat_map(|one| one.rows.iter().map(move |each| row(one, each)));
        Self::table("listed_profile", &["name", "row", "events", "status", "reason"], rows.collect())
    }

    /// Returns a list of CPU models with tables.
    #[must_use]
    pub fn of_cpus(all: &[Coverage]) -> Self {
        let number = |count: usize| Cell::Number(count as u64);
        let row = |one: &Coverage| {
            vec![
                Cell::text(one.model),
                Cell::text(one.product),
                Cell::several(one.cpus.clone()),
                Cell::Number(one.levels.into()),
                number(one.metrics),
                number(one.metrics_of_owners),
                number(one.events),
                Cell::several(one.checks.iter().map(|check| check.name().to_owned())),
                Cell::text(&one.formulas),
                Cell::text(&one.source),
            ]
        };
        let columns = &[
            "model",
            "product",
            "cpus",
            "levels",
            "metrics",
            "metrics_of_owners",
            "events",
            "checked",
            "formulas",
            "source",
        ];
        let hidden = &["cpus", "metrics_of_owners", "events", "formulas", "source"];
        Self { hidden, ..Self::table("listed_cpu", columns, all.iter().map(row).collect()) }
    }

    /// Returns a list of cgroups, each with its name for `--cgroup`, its path, and the number of threads that
    /// it holds itself.
    #[must_use]
    pub fn of_cgroups(cgroups: &[(Cgroup, Option<String>, Option<usize>)]) -> Self {
        let row = |(cgroup, name, threads): &(Cgroup, Option<String>, Option<usize>)| {
            let threads = threads.map_or(Cell::Empty, |threads| Cell::Number(threads as u64));
            let name = name.as_deref().map_or(Cell::Empty, |name| Cell::Text(name.into()));
            vec![name, Cell::Text(cgroup.path.clone()), Cell::Number(cgroup.id.0), threads]
        };
        Self::table("listed_cgroup", &["name", "path", "id", "tasks"], cgroups.iter().map(row).collect())
    }

    /// Writes the table.
    ///
    /// # Errors
    ///
    /// The stream cannot be written.
    pub fn write(&self, into: &mut dyn Write, style: &Style, format: Format) -> io::Result<()> {
        match format {
            Format::Text => text::list::write(into, style, self)?,
            Format::Json => json::list::write(into, self)?,
            Format::Csv => csv::list::write(into, self)?,
        }
        into.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, Listing};
    use crate::{
        untrusted::Untrusted,
        view::{Format, text::Style},
    };

    const FULL: Style = Style::DEFAULT;

    fn written(format: Format) -> String {
        let row = |name: &str, reason: Cell| {
            let several = Cell::Several(["a=1", "=b"].map(Untrusted::from).to_vec());
            vec![Cell::Text(Untrusted::from(name)), Cell::Empty, Cell::Number(7), several, reason]
        };
        let rows = vec![row("cycles", Cell::text("no PMU")), row("\u{1b}[31mred", Cell::Empty)];
        let columns = &["name", "alias", "type", "format", "reason"];
        let notes = vec!["more exist".to_owned()];
        let list = Listing { notes, ..Listing::table("listed_event", columns, rows) };
        let mut bytes = Vec::new();
        list.write(&mut bytes, &FULL, format).unwrap();
        anstream::adapter::strip_str(&String::from_utf8(bytes).unwrap()).to_string()
    }

    #[test]
    fn text_leaves_out_columns_without_anything_and_ends_with_the_notes() {
        let text = written(Format::Text);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["cycles", "7", "a=1,=b", "no", "PMU"]);
        assert!(!lines[0].contains("alias") && lines[0].contains("reason"), "{text}");
        assert_eq!(lines.last(), Some(&"more exist"));
    }

    #[test]
    fn a_reason_that_the_notes_give_stands_once() {
        let rows = vec![vec![Cell::text("cycles"), Cell::text("no PMU")]; 3];
        let notes = vec!["no PMU".to_owned()];
        let list = Listing { notes, ..Listing::table("listed_event", &["name", "reason"], rows) };
        let mut bytes = Vec::new();
        list.write(&mut bytes, &FULL, Format::Text).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap().matches("no PMU").count(), 1);
    }

    #[test]
    fn json_has_a_row_a_line_with_null_for_nothing() {
        let text = written(Format::Json);
        let rows: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows[0]["kind"], "listed_event");
        assert_eq!((&rows[0]["alias"], &rows[0]["type"]), (&serde_json::Value::Null, &serde_json::json!(7)));
        assert_eq!(rows[0]["format"], serde_json::json!(["a=1", "=b"]));
        assert_eq!(
            (&rows[2]["kind"], &rows[2]["text"]),
            (&serde_json::json!("note"), &serde_json::json!("more exist"))
        );
    }

    #[test]
    fn no_format_lets_a_name_steer_the_terminal() {
        for format in [Format::Text, Format::Json, Format::Csv] {
            let text = written(format);
            // If the escape had passed, only `red` would be left of it.
            assert!(text.contains("[31mred"), "{text}");
        }
    }
}
