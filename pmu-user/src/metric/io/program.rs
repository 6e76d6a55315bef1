//! I/O of the processes of one program as one row, like the row of their tasks.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{IoReport, Label, Row, Subject};
use crate::{
    drain::Owner,
    metric::{
        program::incomplete,
        value::{Distribution, Value},
    },
    table::{
        metric::{BLOCK_LATENCY, BLOCK_REQUESTS_RATE},
        unit::Unit,
    },
    untrusted::Untrusted,
};

impl IoReport {
    /// Groups processes by program: those that share a row of tasks in `of_tasks`, else those of one name.
    pub(in crate::metric) fn put_together(&mut self, of_tasks: &BTreeMap<Owner, Owner>) {
        let is_program = |of: &Owner| matches!(of, Owner::Program { .. });
        let of_tasks = of_tasks.iter().filter(|(_, of)| is_program(of));
        self.members = of_tasks.map(|(process, of)| (process.clone(), of.clone())).collect();
        let mut by_name: BTreeMap<&Untrusted, BTreeSet<&Owner>> = BTreeMap::new();
        for owner in self.rows.iter().filter_map(owner_of).filter(|owner| !self.members.contains_key(owner)) {
            if let Owner::Process { name, .. } = owner {
                by_name.entry(name).or_default().insert(owner);
            }
        }
        let mut found = Vec::new();
        for (name, processes) in by_name.into_iter().filter(|(_, processes)| processes.len() > 1) {
            let program = Owner::Program { name: name.clone(), processes: processes.len() as u64 };
            found.extend(processes.into_iter().map(|process| (process.clone(), program.clone())));
        }
        self.members.extend(found);
        self.add_up();
    }

    fn add_up(&mut self) {
        let mut by_subject: BTreeMap<Subject, Vec<&Row>> = BTreeMap::new();
        for row in &self.rows {
            if let Subject::Owner(owner, of) = &row.subject
                && let Some(program) = self.members.get(owner)
            {
                let subject = Subject::Owner(program.clone(), of.clone());
                by_subject.entry(subject).or_default().push(row);
            }
        }
        self.programs = by_subject.iter().flat_map(|(subject, rows)| together(subject, rows)).collect();
    }

    /// Shows processes one by one.
    pub(in crate::metric) fn take_apart(&mut self) {
        self.members.clear();
        self.programs.clear();
    }

    /// Removes rows of owners that are not kept. A program with only some of its processes kept is shown as
    /// those processes.
    pub(in crate::metric) fn keep_owners(&mut self, is_kept: &impl Fn(&Owner) -> bool) {
        self.rows.retain(|row| owner_of(row).is_none_or(is_kept));
        let left = incomplete(&self.members, is_kept);
        self.members.retain(|_, program| !left.contains(program));
        self.add_up();
    }

    /// Returns every row, with the processes of one program together. Owners come in the requested order,
    /// else by bandwidth, highest first.
    pub fn by_program(&self) -> Vec<&Row> {
        let is_apart = |row: &&Row| owner_of(row).is_none_or(|owner| !self.members.contains_key(owner));
        let mut rows: Vec<&Row> = self.rows.iter().filter(is_apart).chain(&self.programs).collect();
        let weight = self.weights(&rows);
        rows.sort_by_key(|row| owner_of(row).map(|owner| Reverse(weight.get(owner).copied())));
        rows
    }

    /// Returns the sort key of each owner, as an integer in the order of the numbers.
    fn weights(&self, rows: &[&Row]) -> BTreeMap<Owner, u64> {
        let mut weights: BTreeMap<&Owner, f64> = BTreeMap::new();
        if self.order.is_empty() {
            for row in rows.iter().filter(|row| row.unit == Unit::MegabytesPerSecond) {
                if let (Some(owner), Some(known)) = (owner_of(row), row.value.known()) {
                    *weights.entry(owner).or_default() += known.estimate;
                }
            }
        } else {
            for (owner, &value) in &self.order {
                let shown = self.members.get(owner).unwrap_or(owner);
                let weight = weights.entry(shown).or_insert(value);
                *weight = weight.max(value);
            }
        }
        // Owners without a number come last. Numbers that are not negative are in the order of their bits.
        weights.into_iter().map(|(owner, weight)| (owner.clone(), weight.max(0.0).to_bits())).collect()
    }
}

/// Returns the owner of a row, if it has one.
const fn owner_of(row: &Row) -> Option<&Owner> {
    match &row.subject {
        Subject::Owner(owner, _) => Some(owner),
        _ => None,
    }
}

/// Returns a row for each metric of `rows`, which belong to the processes of one program and to one subject.
fn together(subject: &Subject, rows: &[&Row]) -> Vec<Row> {
    let mut by_metric: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in rows {
        match by_metric.iter_mut().find(|(metric, _)| *metric == row.metric) {
            Some((_, of_metric)) => of_metric.push(row),
            None => by_metric.push((&row.metric, vec![row])),
        }
    }
    let mut found = Vec::new();
    for (_, of_metric) in by_metric {
        let Some(first) = of_metric.first() else { continue };
        let (value, distribution) = number(&of_metric, rows);
        let label = of_metric.iter().map(|row| row.label).reduce(both).unwrap_or(first.label);
        let distribution = distribution.map(Box::new);
        found.push(Row { subject: subject.clone(), value, distribution, label, ..(**first).clone() });
    }
    found
}

/// Combines several values to one: a sum of rates, a mean weighted by requests, a distribution of all values.
fn number(rows: &[&Row], all: &[&Row]) -> (Value, Option<Distribution>) {
    let missing = || rows.iter().find(|row| row.value.known().is_none()).map(|row| row.value.clone());
    let first = || rows.first().map_or_else(|| Value::exact(0.0), |row| row.value.clone());
    if rows.iter().any(|row| row.is_distribution()) {
        let distributions = rows.iter().filter_map(|row| row.distribution.as_deref());
        let found = distributions.cloned().reduce(|sum, one| merged(&sum, &one));
        let value = found.as_ref().map(|found| Value::Known(found.mean()));
        return (value.or_else(missing).unwrap_or_else(first), found);
    }
    let weigh = |row: &Row| match row.unit {
        Unit::Bytes => Some(requests(row, all)),
        // Waiting is known only for requests that were seen from their start.
        Unit::Percent => Some(requests(row, all) * seen(row, all)),
        _ => None,
    };
    let known = rows.iter().filter_map(|row| Some((row.value.known()?, weigh(row))));
    let (mut sum, mut weights, mut is_mean) = (None, 0.0, false);
    for (known, weight) in known {
        let one = known.times(weight.unwrap_or(1.0));
        sum = Some(sum.map_or(one, |sum: crate::metric::value::Known| sum.plus(&one)));
        weights += weight.unwrap_or(0.0);
        is_mean |= weight.is_some();
    }
    let value = match sum {
        Some(sum) if is_mean && weights > 0.0 => Value::Known(sum.times(1.0 / weights)),
        Some(sum) if !is_mean => missing().unwrap_or(Value::Known(sum)),
        _ => missing().unwrap_or_else(first),
    };
    (value, None)
}

/// Returns the row of a metric with the same subject as `row`.
fn beside<'a>(row: &Row, metric: &str, all: &[&'a Row]) -> Option<&'a Row> {
    all.iter().find(|other| other.subject == row.subject && other.metric == metric).copied()
}

/// Returns the requests per second of the subject of `row`.
fn requests(row: &Row, all: &[&Row]) -> f64 {
    let rate = beside(row, BLOCK_REQUESTS_RATE.name, all).and_then(|row| row.value.known());
    rate.map_or(0.0, |known| known.estimate)
}

/// Returns the share of these requests that was seen from their start.
fn seen(row: &Row, all: &[&Row]) -> f64 {
    let latency = beside(row, BLOCK_LATENCY.name, all).and_then(|row| row.distribution.as_deref());
    latency.map_or(0.0, |latency| latency.coverage)
}

fn merged(one: &Distribution, other: &Distribution) -> Distribution {
    let mut histogram = one.histogram.clone();
    histogram.merge(&other.histogram);
    let occurred = |of: &Distribution| of.count() as f64 / of.coverage.max(f64::MIN_POSITIVE);
    Distribution {
        coverage: histogram.count() as f64 / (occurred(one) + occurred(other)),
        histogram,
        sum: one.sum.saturating_add(other.sum),
        max: if other.max.high > one.max.high { other.max } else { one.max },
    }
}

/// Returns the label of the sum of two values.
fn both(one: Label, other: Label) -> Label {
    match (one, other) {
        (Label::Apportioned { share, coverage }, Label::Apportioned { share: more, coverage: least }) => {
            Label::Apportioned { share: share + more, coverage: coverage.min(least) }
        }
        (apportioned @ Label::Apportioned { .. }, _) | (_, apportioned) => apportioned,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pmu_common::histogram::BLOCK;

    use super::{IoReport, Label, Row, Subject};
    use crate::{
        drain::Owner,
        metric::value::{Distribution, Value},
        model::histogram::Histogram,
        table::metric::{self, Metric},
    };

    fn process(pid: u32) -> Owner {
        Owner::Process { pid, born_ns: 7, name: "postgres".into() }
    }

    /// Returns the rows of a process with `rate` requests per second of `size` bytes. `queued` percent of
    /// them waited, and the share `seen` was seen from its start.
    fn of(pid: u32, rate: f64, size: f64, queued: f64, seen: f64) -> Vec<Row> {
        let disk = Subject::Disk("vda".into(), "write");
        let row = |metric: &Metric, value: f64| Row {
            subject: Subject::Owner(process(pid), Box::new(disk.clone())),
            metric: metric.name.to_owned(),
            unit: metric.unit,
            value: Value::exact(value),
            distribution: None,
            label: Label::Measured,
            note: None,
        };
        let histogram = Histogram::between(BLOCK, &[], &[(40_u16, rate as u32)]);
        let max = histogram.last().unwrap();
        let latency = Distribution { histogram, sum: 40 * rate as u64, max, coverage: seen };
        let of_latency = row(&metric::BLOCK_LATENCY, latency.mean().estimate);
        vec![
            row(&metric::BLOCK_REQUESTS_RATE, rate),
            row(&metric::BLOCK_BANDWIDTH, rate * size / 1e6),
            row(&metric::BLOCK_REQUEST_SIZE, size),
            row(&metric::BLOCK_QUEUED, queued),
            Row { distribution: Some(Box::new(latency)), ..of_latency },
        ]
    }

    fn together(rows: Vec<Row>, of_tasks: &BTreeMap<Owner, Owner>) -> IoReport {
        let mut report = IoReport { rows, ..IoReport::default() };
        report.put_together(of_tasks);
        report
    }

    fn value(report: &IoReport, metric: &Metric) -> f64 {
        let rows = report.by_program();
        let mut of_metric = rows.iter().filter(|row| row.metric == metric.name);
        let (row, more) = (of_metric.next().unwrap(), of_metric.next());
        assert!(more.is_none(), "{metric:?} has several rows");
        assert!(matches!(&row.subject, Subject::Owner(Owner::Program { .. }, _)), "{row:?}");
        row.value.known().unwrap().estimate
    }

    #[test]
    fn processes_of_a_program_are_one_row_of_their_sums() {
        let rows = [of(1, 30.0, 4096.0, 50.0, 1.0), of(2, 10.0, 8192.0, 0.0, 0.5)].concat();
        let report = together(rows.clone(), &BTreeMap::new());
        assert_eq!(value(&report, &metric::BLOCK_REQUESTS_RATE), 40.0);
        assert_eq!(value(&report, &metric::BLOCK_BANDWIDTH), (30.0 * 4096.0 + 10.0 * 8192.0) / 1e6);
        assert_eq!(value(&report, &metric::BLOCK_REQUEST_SIZE), 5120.0);
        // 15 of the 30 and 5 that were seen.
        assert!((value(&report, &metric::BLOCK_QUEUED) - 100.0 * 15.0 / 35.0).abs() < 1e-9);
        let latency = report.programs.iter().find_map(|row| row.distribution.as_deref()).unwrap();
        assert_eq!((latency.count(), latency.sum), (40, 1600));
        assert_eq!(latency.coverage, 40.0 / (30.0 + 10.0 / 0.5));
        let mut one_by_one = report;
        one_by_one.take_apart();
        assert_eq!(one_by_one.by_program().len(), rows.len());
    }

    #[test]
    fn a_process_belongs_to_the_program_that_its_tasks_belong_to() {
        let program = Owner::Program { name: "postgres".into(), processes: 9 };
        let of_tasks: BTreeMap<_, _> = [1, 2].map(|pid| (process(pid), program.clone())).into();
        let report = together(of(1, 30.0, 4096.0, 50.0, 1.0), &of_tasks);
        assert_eq!(value(&report, &metric::BLOCK_REQUESTS_RATE), 30.0);
        let Subject::Owner(owner, _) = &report.by_program()[0].subject else { panic!() };
        assert!(matches!(owner, Owner::Program { processes: 9, .. }), "{owner:?}");
    }

    #[test]
    fn a_program_of_which_some_processes_are_chosen_is_shown_as_these() {
        let rows = [of(1, 30.0, 4096.0, 50.0, 1.0), of(2, 10.0, 8192.0, 0.0, 1.0)].concat();
        let mut report = together(rows, &BTreeMap::new());
        report.keep_owners(&|owner| *owner == process(2));
        let owners: Vec<_> = report.by_program().into_iter().filter_map(super::owner_of).cloned().collect();
        assert_eq!(owners, vec![process(2); 5]);
    }

    #[test]
    fn who_moved_most_comes_first_unless_another_order_was_asked_for() {
        let other = |row: Row| {
            let Subject::Owner(_, of) = row.subject else { panic!() };
            let owner = Owner::Process { pid: 3, born_ns: 7, name: "dd".into() };
            Row { subject: Subject::Owner(owner, of), ..row }
        };
        let rows = of(1, 1.0, 512.0, 0.0, 1.0).into_iter();
        let rows: Vec<Row> = rows.chain(of(3, 9.0, 4096.0, 0.0, 1.0).into_iter().map(other)).collect();
        let mut report = together(rows, &BTreeMap::new());
        let first = |report: &IoReport| super::owner_of(report.by_program()[0]).unwrap().in_words();
        assert!(first(&report).starts_with("dd"));
        report.order = [(process(1), 1.0)].into();
        assert!(first(&report).starts_with("postgres"));
    }
}
