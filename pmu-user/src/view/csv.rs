//! CSV (RFC 4180): one header row, then one row per number, with the same columns for every command. A
//! distribution has one row for each of its parts: count, sum, percentiles, maximum, buckets.

pub(super) mod list;

use std::io::{self, Write};

use super::{stage::Stage, text::Style, words};
use crate::{
    drain::{Id, Owner},
    machine::container::COLUMNS,
    metric::{
        culprit::Culprit,
        io::{Label, Subject},
        number::{Attribution, Content, Number},
        value::{Distribution, Known, Value},
    },
    untrusted::Untrusted,
};

/// Columns that every row begins with.
const BEGIN: [&str; 10] =
    ["t_ns", "dt_ns", "owner_kind", "owner", "pid", "subject_kind", "subject", "part", "metric", "unit"];
/// Columns of the value of a number.
const VALUE: [&str; 9] =
    ["value", "low", "high", "bucket_low", "bucket_high", "coverage", "how", "status", "reason"];
/// Columns of details that only some numbers have.
const DETAILS: [&str; 8] =
    ["parent", "label", "share", "told_apart", "samples", "pmu", "enabled_ns", "running_ns"];

type Rows<'a> = csv::Writer<&'a mut dyn Write>;

/// Writes a stage as rows.
pub(super) fn write(into: &mut dyn Write, _: &Style, stage: Stage<'_>) -> io::Result<()> {
    match stage {
        Stage::Begin(_) => begin(into),
        Stage::Interval(report, _) | Stage::Whole { report, intervals: 0, .. } => {
            report.by_source(|frame, found| numbers(into, frame, found))
        }
        Stage::Whole { .. } => Ok(()),
    }
}

/// Writes the header row.
fn begin(into: &mut dyn Write) -> io::Result<()> {
    let mut rows = Rows::from_writer(into);
    rows.write_record(BEGIN.iter().chain(&VALUE).chain(&DETAILS).chain(&COLUMNS))?;
    rows.flush()
}

/// Writes the numbers of an interval that begins `from_ns` after counting starts and is `length_ns` long.
fn numbers<'a>(
    into: &mut dyn Write,
    (from_ns, length_ns): (u64, u64),
    numbers: impl Iterator<Item = Number<'a>>,
) -> io::Result<()> {
    let mut rows = Rows::from_writer(into);
    let (t, dt) = (from_ns.to_string(), length_ns.to_string());
    for number in numbers {
        let mut row = Row { rows: &mut rows, time: [&t, &dt], number: &number };
        match &number.content {
            Content::Value(value) => row.write("", number.unit, value, None)?,
            Content::Distribution(Ok(found)) => row.distribution(found)?,
            Content::Distribution(Err(why)) => {
                row.write("", number.unit, &Value::Missing((*why).to_owned()), None)?;
            }
        }
    }
    rows.flush()
}

/// Rows of one number.
struct Row<'a, 'b> {
    rows: &'a mut Rows<'b>,
    time: [&'a str; 2],
    number: &'a Number<'a>,
}

impl Row<'_, '_> {
    fn distribution(&mut self, found: &Distribution) -> io::Result<()> {
        let counted = |count| Value::counted(count, found.coverage);
        let unit = self.number.unit;
        self.write(".count", "values", &counted(found.count()), None)?;
        self.write(".sum", unit, &counted(found.sum), None)?;
        for (name, known) in found.quantiles() {
            self.write(&format!(".{name}"), unit, &Value::Known(known), None)?;
        }
        for (bucket, count) in found.histogram.iter() {
            self.write(".bucket", "values", &counted(count), Some((bucket.low, bucket.high)))?;
        }
        Ok(())
    }

    /// Writes one row. `part` follows the metric's name.
    fn write(&mut self, part: &str, unit: &str, value: &Value, bucket: Option<(u64, u64)>) -> io::Result<()> {
        let number = self.number;
        let mut record: Vec<String> = self.time.map(str::to_owned).to_vec();
        record.extend(owner(number.whose));
        record.extend(match (number.details.culprit, number.details.place) {
            (Some(who), _) => culprit(who),
            (None, Some(place)) => [place.kind().to_owned(), text(&place.to_string()), String::new()],
            (None, None) => subject(number.subject),
        });
        record.push(text(&format!("{}{part}", number.metric)));
        record.push(text(unit));
        record.extend(value_cells(value, bucket, number));
        record.extend(details(number));
        record.extend(identity(number.whose));
        Ok(self.rows.write_record(record)?)
    }
}

pub(super) fn text(text: &str) -> String {
    Untrusted::from(text).csv().into_owned()
}

/// Returns kind, name and process id of an owner, empty for the host.
fn owner(whose: Attribution<'_>) -> [String; 3] {
    let (name, pid) = match whose {
        Attribution::Host => return Default::default(),
        Attribution::Target => ("total".to_owned(), String::new()),
        Attribution::Owner(Owner::Other) => ("other".to_owned(), String::new()),
        Attribution::Owner(Owner::Process { pid: id, name, .. } | Owner::Thread { tid: id, name, .. }) => {
            match Id::of(*id) {
                Id::Here(pid) => (name.csv().into_owned(), pid.to_string()),
                // The column holds ids of one namespace.
                outside @ Id::Outside(_) => (format!("{} ({outside})", name.csv()), String::new()),
            }
        }
        Attribution::Owner(
            Owner::Ended { name, .. }
            | Owner::Program { name, .. }
            | Owner::Comm { name }
            | Owner::Exe { name },
        ) => (name.csv().into_owned(), String::new()),
        Attribution::Owner(Owner::Cgroup { path, .. }) => (path.csv().into_owned(), String::new()),
    };
    [words::kind(whose).to_owned(), name, pid]
}

/// Returns the identity of a cgroup as cells of [`COLUMNS`], as far as it is known.
fn identity(whose: Attribution<'_>) -> [String; COLUMNS.len()] {
    let Attribution::Owner(Owner::Cgroup { identity: Some(identity), .. }) = whose else {
        return Default::default();
    };
    identity.columns().map(|name| name.map_or_else(String::new, |name| name.csv().into_owned()))
}

/// Returns kind, name and part of the subject of a number.
pub(super) fn subject(of: Option<&Subject>) -> [String; 3] {
    let Some(of) = of else { return Default::default() };
    let (name, part) = match of {
        Subject::Scope(at) => (words::place(*at), String::new()),
        Subject::Device(address, names) | Subject::Function(address, names) => {
            (names.csv().into_owned(), address.clone())
        }
        Subject::Disk(name, part) | Subject::Interface(name, part) => {
            (name.csv().into_owned(), (*part).to_owned())
        }
        Subject::Group(path) => (path.csv().into_owned(), String::new()),
        // An owner owns no owner: see `Number::subject`.
        Subject::Owner(..) => Default::default(),
    };
    [words::subject(of).to_owned(), name, part]
}

/// Returns the same cells for a culprit. The part is the culprit's kind.
fn culprit(who: &Culprit) -> [String; 3] {
    let name = match who {
        Culprit::Owner(owner) => text(&owner.in_words()),
        nobody => words::culprit(nobody).to_owned(),
    };
    ["culprit".to_owned(), name, words::culprit(who).to_owned()]
}

/// Returns the cells of [`VALUE`]. Reasons may hold names that others chose.
fn value_cells(value: &Value, bucket: Option<(u64, u64)>, number: &Number<'_>) -> [String; VALUE.len()] {
    let status = number.status().to_owned();
    let [bucket_low, bucket_high] = match bucket {
        // The last bucket has no end.
        Some((low, high)) => {
            [low.to_string(), if high == u64::MAX { String::new() } else { high.to_string() }]
        }
        None => Default::default(),
    };
    match value {
        Value::Known(Known { estimate, low, high, coverage, how }) => {
            let [value, low, high, coverage] = [estimate, low, high, coverage].map(ToString::to_string);
            // Reason why the value is partial, where places are known that did not count.
            let uncounted = number.details.counters.map_or_else(String::new, |of| of.uncounted.join("; "));
            let how = how.name().to_owned();
            [value, low, high, bucket_low, bucket_high, coverage, how, status, text(&uncounted)]
        }
        Value::Missing(why) => {
            let [value, low, high, coverage, how] = Default::default();
            [value, low, high, bucket_low, bucket_high, coverage, how, status, text(why)]
        }
    }
}

/// Returns the cells of [`DETAILS`].
fn details(number: &Number<'_>) -> [String; DETAILS.len()] {
    let details = &number.details;
    let [share, told_apart] = match details.label {
        Some(Label::Apportioned { share, coverage }) => [share, coverage].map(|number| number.to_string()),
        _ => Default::default(),
    };
    let label = details.label.map_or("", |label| label.name()).to_owned();
    let samples = details.samples.map_or_else(String::new, |samples| samples.to_string());
    let [pmu, enabled, running] = match details.counters {
        Some(of) => [text(&of.pmu), of.enabled_ns.to_string(), of.running_ns.to_string()],
        None => [details.pmu.map(text).unwrap_or_default(), String::new(), String::new()],
    };
    let parent = number.parent.as_deref().map_or_else(String::new, text);
    [parent, label, share, told_apart, samples, pmu, enabled, running]
}
