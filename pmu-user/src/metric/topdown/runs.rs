//! Tree of several runs of a command: each metric from the run that counted its events, flags and path over
//! all of them.
//!
//! Events that always count were counted in every run: their metrics are means, with the interval of the
//! runs. The spread of the runs shows whether they did the same work, and so whether a part can be compared
//! with its whole.

use std::sync::Arc;

use super::{Node, Prepared, TopDown, Tree, report};
use crate::{
    drain::reading::SliceRow,
    metric::{
        OwnerOrTarget,
        estimate::{Estimates, EventIndex},
        formulas::over_values,
        repeat::over_runs,
        value::Value,
    },
    model::{Interval, slice::sums},
    plan::{metrics::Metrics, multiplexing::Multiplexing},
    table::unit::Unit,
};

/// Results of one run of the command.
#[derive(Clone, Debug)]
pub struct OneRun {
    /// Metrics of the target, those of other runs missing.
    pub tree: Tree,
    /// Duration, CPU time, and counts of what always counted.
    pub totals: Vec<Total>,
}

/// Total that every run counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Total {
    /// Name of the total.
    pub what: String,
    /// Unit of the value.
    pub unit: Unit,
    /// Value of the total.
    pub value: Value,
}

/// Runs that a tree is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Runs {
    /// Runs that ended well.
    pub ended: u32,
    /// Runs that the plan has: one for each group of counters.
    pub planned: u32,
    /// Spread of the runs in each total.
    pub spreads: Vec<Spread>,
}

/// Spread of the runs in a total that every one of them counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Name of the total.
    pub what: String,
    /// Unit of the range.
    pub unit: Unit,
    /// Minimum and maximum of the runs, or why they are not known.
    pub range: Result<(f64, f64), String>,
}

impl Spread {
    /// Returns how far the maximum is above the minimum, as a share of it. `None` if that is not known, or 0.
    pub fn share(&self) -> Option<f64> {
        let (least, most) = self.range.as_ref().ok()?;
        (*least > 0.0).then(|| most / least - 1.0)
    }
}

impl OneRun {
    /// Returns the results of the run of `interval`: its duration, and what the target did on the cores of
    /// one core PMU, the plan's `at`th.
    pub fn new(
        (length_ns, tree): (u64, &Tree),
        (at, turns): (usize, &Multiplexing),
        interval: &Interval,
    ) -> Self {
        let of_pmu = interval.slices.values().flatten().filter(|row| row.turns as usize == at);
        let rows: Vec<SliceRow> = sums(of_pmu);
        Self { tree: tree.clone(), totals: totals(length_ns, turns, &rows) }
    }
}

fn totals(length_ns: u64, turns: &Multiplexing, rows: &[SliceRow]) -> Vec<Total> {
    let time_ns = report::time_ns(rows);
    let time = |(what, ns): (&str, u64)| Total {
        what: what.to_owned(),
        unit: Unit::Ns,
        value: Value::counted(ns, 1.0),
    };
    let estimates = Estimates::new(turns, rows);
    let counted = turns.always_events().enumerate().map(|(index, event)| Total {
        what: event.name.clone(),
        unit: Unit::Counts,
        value: estimates.value(EventIndex(index)),
    });
    [("duration", length_ns), ("cpu time", time_ns)].into_iter().map(time).chain(counted).collect()
}

impl TopDown {
    /// Replaces the tree of the first run by that of several. `plan` is that of all runs, `runs` are those
    /// that ended well, in order. Owners have no tree, because each run has different owners.
    pub fn combine(&mut self, prepared: &Prepared, plan: &Metrics, planned: u32, runs: &[OneRun]) {
        self.shapes = Arc::clone(&prepared.layout.shapes);
        let time_share = runs.first().and_then(|run| run.tree.time_share.clone());
        let tree = Tree { time_share, ..prepared.combined(plan, runs) };
        self.owners = vec![(OwnerOrTarget::Target, tree)];
        self.runs = Some(Runs {
            ended: u32::try_from(runs.len()).unwrap_or(u32::MAX),
            planned,
            spreads: spreads(runs),
        });
    }
}

impl Prepared {
    /// Returns the tree of several runs.
    fn combined(&self, plan: &Metrics, runs: &[OneRun]) -> Tree {
        let values: Vec<Value> =
            (0..self.model.metrics.len()).map(|metric| self.of_runs(metric, plan, runs)).collect();
        let known = |value: &Value| value.known().map_or(f64::NAN, |known| known.estimate);
        let estimates: Vec<f64> = values.iter().map(known).collect();
        let flagged = |metric: usize| {
            let threshold = self.model.metrics[metric].threshold.as_ref()?;
            Some(over_values(threshold, &estimates) == 1.0)
        };
        let nodes: Vec<Node> = values
            .into_iter()
            .enumerate()
            .map(|(metric, value)| Node { value, flagged: flagged(metric) })
            .collect();
        self.with_path(nodes)
    }

    /// Returns a metric's value in the run that counted all of its events.
    fn of_runs(&self, metric: usize, plan: &Metrics, runs: &[OneRun]) -> Value {
        match &self.wanted[metric] {
            Some(Ok(())) => {}
            Some(Err(why)) => return Value::Missing(why.clone()),
            None => return Value::Missing("it was not asked for".to_owned()),
        }
        let name = self.model.metrics[metric].name.as_str();
        let measured = plan.measured.iter().find(|measured| measured.name == name);
        let run = match measured.map(|measured| measured.groups.as_slice()) {
            None | Some([]) => {
                let values: Vec<&Value> = runs.iter().map(|run| &run.tree.nodes[metric].value).collect();
                return over_runs(&values);
            }
            Some(&[group]) => group as usize,
            Some(_) => return Value::Missing("its events were counted in different runs".to_owned()),
        };
        match runs.get(run) {
            Some(run) => run.tree.nodes[metric].value.clone(),
            None => Value::Missing(format!("run {}, which counts its events, did not end well", run + 1)),
        }
    }
}

/// Returns the spread of `runs` in each total that all of them counted.
fn spreads(runs: &[OneRun]) -> Vec<Spread> {
    let Some(first) = runs.first() else { return Vec::new() };
    let spread = |(index, total): (usize, &Total)| {
        let mut range = Ok((f64::INFINITY, f64::NEG_INFINITY));
        for (run, one) in (1..).zip(runs) {
            range = match (range, one.totals.get(index).map(|total| &total.value)) {
                (Ok((least, most)), Some(Value::Known(known))) => {
                    Ok((f64::min(least, known.estimate), f64::max(most, known.estimate)))
                }
                (Ok(_), Some(Value::Missing(why))) => Err(format!("run {run}: {why}")),
                (Ok(_), None) => Err(format!("run {run}: it was not counted")),
                (Err(why), _) => Err(why),
            };
        }
        Spread { what: total.what.clone(), unit: total.unit, range }
    };
    first.totals.iter().enumerate().map(spread).collect()
}

#[cfg(test)]
mod tests {
    use super::{OneRun, Runs, totals};
    use crate::{
        drain::reading::SliceRow,
        metric::{
            topdown::{
                Prepared, TopDown, Tree,
                tests::{self, ALWAYS, node},
            },
            value::{How, Value},
        },
        plan::{metrics::Metrics, multiplexing::Multiplexing},
    };

    /// Returns the results of one run: slots, retired, lost, cycles, and the event of its own group, which is
    /// the run's number `group`.
    fn run(group: usize, always: [u64; 4], counted: u64) -> OneRun {
        let turns = Multiplexing { groups: vec![tests::group(&[tests::TURNS[group]])], ..tests::turns() };
        let prepared = tests::prepared(&of_run(group), &turns);
        let rows: Vec<SliceRow> = tests::rows(always, &[counted]);
        OneRun { tree: tests::tree(&prepared, &turns, &rows), totals: totals(2_000, &turns, &rows) }
    }

    /// Returns the plan of a run, as [`crate::plan::Plan::of_run`] makes it.
    fn of_run(group: usize) -> Metrics {
        let mut plan = tests::plan();
        plan.measured.retain(|metric| metric.groups.iter().all(|&other| other as usize == group));
        plan
    }

    fn combined(runs: &[OneRun]) -> (Prepared, TopDown) {
        let prepared = tests::prepared(&tests::plan(), &tests::turns());
        let mut topdown = TopDown {
            core_type: None,
            model: String::new(),
            source: String::new(),
            formulas: String::new(),
            notes: Vec::new(),
            counters: Vec::new().into(),
            shapes: Vec::new().into(),
            owners: Vec::new(),
            runs: None,
        };
        topdown.combine(&prepared, &tests::plan(), 2, runs);
        (prepared, topdown)
    }

    fn tree(topdown: &TopDown) -> &Tree {
        &topdown.owners[0].1
    }

    fn runs(topdown: &TopDown) -> &Runs {
        topdown.runs.as_ref().unwrap()
    }

    #[test]
    fn each_metric_is_of_the_run_that_counted_its_events_and_nothing_is_scaled() {
        let (prepared, topdown) = combined(&[run(0, [100, 70, 30, 50], 20), run(1, [100, 70, 30, 50], 10)]);
        let value = |name: &str| node(&prepared, tree(&topdown), name).value.clone();
        assert_eq!(value("Memory"), Value::exact(20.0));
        assert_eq!(value("Core"), Value::exact(10.0));
        assert_eq!(value("Cache"), Value::exact(20.0));
        assert_eq!(value("Lost").known().map(|lost| (lost.estimate, lost.coverage)), Some((30.0, 1.0)));
        assert_eq!(value("Elsewhere"), Value::Missing("X is counted elsewhere".to_owned()));
        assert_eq!(topdown.shapes.len(), 8);
    }

    #[test]
    fn flags_and_the_path_are_those_of_all_runs_together() {
        // No single run has both Memory and Cache.
        let alone = run(1, [100, 70, 30, 50], 10);
        let (prepared, topdown) = combined(&[run(0, [100, 70, 30, 50], 20), alone.clone()]);
        assert_eq!(node(&prepared, &alone.tree, "Cache").flagged, Some(false));
        assert_eq!(node(&prepared, tree(&topdown), "Cache").flagged, Some(true));
        assert_eq!(tests::names(&prepared, &tree(&topdown).path), ["Lost", "Memory", "Cache"]);
        assert_eq!(tree(&topdown).faults, [""; 0]);
    }

    #[test]
    fn counts_of_different_runs_are_not_mixed() {
        let (prepared, topdown) = combined(&[run(0, [100, 70, 30, 50], 20), run(1, [100, 70, 30, 50], 10)]);
        let why = "its events were counted in different runs".to_owned();
        assert_eq!(node(&prepared, tree(&topdown), "Both").value, Value::Missing(why));
    }

    #[test]
    fn what_every_run_counts_is_their_mean_and_its_interval_says_how_they_differ() {
        let (prepared, topdown) = combined(&[run(0, [100, 70, 30, 50], 20), run(1, [100, 60, 40, 50], 10)]);
        let Value::Known(lost) = node(&prepared, tree(&topdown), "Lost").value else { panic!() };
        assert!((lost.estimate - 35.0).abs() < 1e-9 && lost.how == How::Counted, "{lost:?}");
        assert!(lost.low < 30.0 && lost.high > 40.0, "{lost:?}");
    }

    #[test]
    fn a_run_that_did_other_work_shows_in_a_part_that_is_more_than_its_whole() {
        let steady = run(0, [100, 70, 30, 50], 45);
        let (_, topdown) = combined(&[steady.clone(), run(1, [100, 70, 30, 50], 10)]);
        assert!(tree(&topdown).faults[0].starts_with("Memory (45.0 %) is more than Lost"), "{topdown:?}");
    }

    #[test]
    fn how_much_runs_differ_is_told_for_time_and_for_all_that_always_counts() {
        let (_, topdown) = combined(&[run(0, [100, 70, 30, 50], 20), run(1, [110, 70, 40, 50], 10)]);
        let spreads = &runs(&topdown).spreads;
        let names: Vec<&str> = spreads.iter().map(|spread| spread.what.as_str()).collect();
        assert_eq!(names[..2], ["duration", "cpu time"]);
        assert_eq!(names[2..], ALWAYS);
        assert_eq!(spreads[0].range, Ok((2_000.0, 2_000.0)));
        // Ten slices each.
        assert_eq!(spreads[2].range, Ok((1_000.0, 1_100.0)));
        assert!((spreads[2].share().unwrap() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn what_a_run_that_failed_would_have_counted_is_missing_and_the_rest_is_there() {
        let (prepared, topdown) = combined(&[run(0, [100, 70, 30, 50], 20)]);
        assert_eq!((runs(&topdown).ended, runs(&topdown).planned), (1, 2));
        let why = "run 2, which counts its events, did not end well".to_owned();
        assert_eq!(node(&prepared, tree(&topdown), "Cache").value, Value::Missing(why));
        assert_eq!(node(&prepared, tree(&topdown), "Memory").value, Value::exact(20.0));
    }
}
