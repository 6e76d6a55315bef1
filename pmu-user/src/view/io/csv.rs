//! CSV (RFC 4180): one header row, one row per interval, subject and metric.

use std::io::{self, Write};

use super::{
    super::{csv::value_cells, words},
    kind, place,
};
use crate::{
    drain::{Id, Owner},
    metric::io::{IoReport, Label, Row, Subject},
};

const COLUMNS: [&str; 18] = [
    "t_ns",
    "dt_ns",
    "subject_kind",
    "subject",
    "part",
    "owner",
    "metric",
    "unit",
    "value",
    "low",
    "high",
    "coverage",
    "how",
    "status",
    "reason",
    "label",
    "share",
    "told_apart",
];

type Rows<'a> = csv::Writer<&'a mut dyn Write>;

/// Header row.
pub(super) fn begin(into: &mut dyn Write) -> io::Result<()> {
    let mut rows = Rows::from_writer(into);
    rows.write_record(COLUMNS)?;
    rows.flush()
}

/// All rows of an interval.
pub(super) fn interval(into: &mut dyn Write, report: &IoReport) -> io::Result<()> {
    let mut rows = Rows::from_writer(into);
    report.rows.iter().try_for_each(|one| rows.write_record(record(report, one)))?;
    rows.flush()
}

fn record(report: &IoReport, row: &Row) -> Vec<String> {
    let (owner, of) = match &row.subject {
        Subject::Owner(owner, of) => (name(owner), of.as_ref()),
        subject => (String::new(), subject),
    };
    let (subject, part) = match of {
        Subject::Place(at) => (place(*at), String::new()),
        Subject::Device(address, names) | Subject::Function(address, names) => {
            (names.csv().into_owned(), address.clone())
        }
        Subject::Disk(name, part) | Subject::Interface(name, part) => {
            (name.csv().into_owned(), (*part).to_owned())
        }
        Subject::Group(path) => (path.csv().into_owned(), String::new()),
        // An owner owns no owner.
        Subject::Owner(..) => Default::default(),
    };
    let (t, dt) = (report.from_ns.to_string(), report.length_ns.to_string());
    let mut record = vec![t, dt, kind(of).to_owned(), subject, part, owner];
    record.extend([row.metric.clone(), row.unit.name().to_owned()]);
    record.extend(value_cells(&row.value, words::status(&row.value)));
    record.push(row.label.name().to_owned());
    match row.label {
        Label::Apportioned { share, coverage } => record.extend([share.to_string(), coverage.to_string()]),
        Label::Measured | Label::System => record.extend([String::new(), String::new()]),
    }
    record
}

fn name(owner: &Owner) -> String {
    match owner {
        Owner::Other => "other".to_owned(),
        Owner::Process { pid, name, .. } => format!("{} ({})", name.csv(), Id::of(*pid)),
        Owner::Thread { tid, name, .. } => format!("{} ({})", name.csv(), Id::of(*tid)),
        Owner::Ended { name, .. } | Owner::Comm { name } | Owner::Exe { name } => name.csv().into_owned(),
        Owner::Cgroup { path, .. } => path.csv().into_owned(),
    }
}
