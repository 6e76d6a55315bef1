//! Counts by event from readings of counters: scaled, with intervals and derived numbers, and combined over
//! several runs. Pure.

mod rows;

use std::{collections::HashSet, time::Duration};

use self::rows::rows;
use super::{
    derived::Derived,
    repeat::{Outlier, median, outliers, over_runs, ratio_over_runs},
    value::Value,
};
use crate::{
    drain::{CountsDrain, Owner, counts::Part},
    plan::{
        Target,
        count::{AskedEvent, CountPlan, Place, TOOL_PMU},
    },
    table::event_syntax::Selected,
};

/// Counts of an interval, of a run, or of several.
#[derive(Clone, Debug)]
pub struct Stat {
    /// Start of the interval, since counting started.
    pub from: Duration,
    /// Rows for each event, PMU family and target cgroup, in the order of the request.
    pub rows: Vec<Row>,
    /// Wall time in ns.
    pub elapsed: Value,
    /// CPU time of the command in user mode, in ns; `None` if there was no command or it still runs.
    pub user: Option<Value>,
    /// CPU time of the command in the kernel, in ns.
    pub system: Option<Value>,
    /// Number of runs of which this is the mean.
    pub runs: u32,
    /// Runs that are outliers.
    pub outliers: Vec<Outlier>,
}

/// Count of one event on the PMUs of one family.
#[derive(Clone, Debug)]
pub struct Row {
    /// Cgroup of the count, if cgroups are the target.
    pub owner: Option<Owner>,
    /// CPUs or thread of the count, where rows are divided.
    pub place: Option<Place>,
    /// Event as typed.
    pub event: String,
    /// Name of the PMU, without the number of an uncore PMU; empty if the host has none for it.
    pub pmu: String,
    /// Whether other PMUs count the same event.
    pub beside: Beside,
    /// Unit of the count, if it is not 1.
    pub unit: Option<String>,
    /// Value of the count.
    pub value: Value,
    /// Whether this host can count the event.
    pub support: Support,
    /// Time that its counters were enabled, in ns, added up.
    pub enabled_ns: u64,
    /// Time of that during which they were running.
    pub running_ns: u64,
    /// Number derived from this count and others.
    pub derived: Option<Derived>,
    /// Values of each run, if there were several.
    pub of_runs: Vec<Value>,
    /// Places where it should have been counted and was not, with the reason.
    pub uncounted: Vec<String>,
}

/// Whether a row is the only one of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Event is unique by its name.
    Alone,
    /// Other kinds of PMUs count it as well: their counts are never added up.
    Others,
}

/// Whether an event can be counted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Event can be counted.
    Counted,
    /// Host does not have such an event.
    NotHere,
}

impl Stat {
    /// Returns the counts between `earlier` and `drain`; from the start if `earlier` is `None`.
    pub fn new(plan: &CountPlan, drain: &CountsDrain, earlier: Option<&CountsDrain>) -> Self {
        let from = earlier.map_or(Duration::ZERO, |earlier| earlier.at);
        let elapsed_ns = drain.at.saturating_sub(from).as_nanos() as f64;
        let targets = targets(plan);
        let parts = drain.parts.iter().take(targets).enumerate().flat_map(|(index, part)| {
            let before = earlier.and_then(|earlier| earlier.parts.get(index));
            let owner = match &plan.target {
                Target::Cgroups(cgroups) => {
                    cgroups.get(index).map(|cgroup| Owner::cgroup(cgroup.id.0, cgroup.path.clone()))
                }
                _ => None,
            };
            of_places(plan, part, before, owner.as_ref(), elapsed_ns)
        });
        let usage = drain.ended.as_ref().and_then(|ended| ended.usage);
        let time = |time: Duration| Value::counted(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), 1.0);
        let mut stat = Self {
            from,
            rows: parts.collect(),
            elapsed: time(drain.at.saturating_sub(from)),
            user: usage.map(|usage| time(usage.user)),
            system: usage.map(|usage| time(usage.system)),
            runs: 1,
            outliers: Vec::new(),
        };
        stat.fill_in_times();
        stat
    }

    /// Fills in times of the run that were requested as events.
    fn fill_in_times(&mut self) {
        for row in self.rows.iter_mut().filter(|row| row.pmu == TOOL_PMU) {
            let value = match row.event.as_str() {
                "user_time" => self.user.clone(),
                "system_time" => self.system.clone(),
                _ => Some(self.elapsed.clone()),
            };
            row.value = value.unwrap_or_else(|| Value::Missing(NO_END.to_owned()));
            let time_ns = row.value.known().map_or(0, |known| known.estimate as u64);
            (row.enabled_ns, row.running_ns) = (time_ns, time_ns);
        }
    }

    /// Returns the maximum memory of a report of this plan, in bytes, without the reasons that readings give
    /// for places without a counter.
    pub fn bytes_max(plan: &CountPlan) -> usize {
        let of_event = |event: &Selected| {
            let unit = event.unit.as_ref().map_or(0, String::len);
            let pmus = event.instances.iter().map(|instance| instance.pmu.len()).sum::<usize>();
            (event.instances.len(), event.instances.len().saturating_mul(unit).saturating_add(pmus))
        };
        let events: Vec<(usize, usize)> = plan.events().map(of_event).collect();
        let asked = |asked: &AskedEvent| {
            let row = size_of::<Row>() + asked.name.len();
            match &asked.found {
                Err(why) => row + why.len(),
                Ok(index) => {
                    let (rows, texts) = events.get(*index as usize).copied().unwrap_or_default();
                    row.saturating_mul(rows).saturating_add(texts)
                }
            }
        };
        let all = plan.asked.iter().map(asked).fold(0, usize::saturating_add);
        targets(plan).saturating_mul(plan.places.len().max(1)).saturating_mul(all)
    }

    /// Returns the memory of this report, in bytes.
    pub fn bytes(&self) -> usize {
        let texts = |row: &Row| {
            let uncounted = row.uncounted.iter().map(|why| size_of::<String>() + why.len()).sum::<usize>();
            row.event.len() + row.pmu.len() + row.unit.as_ref().map_or(0, String::len) + uncounted
        };
        self.rows.iter().map(|row| size_of::<Row>() + texts(row)).sum()
    }

    /// Returns several runs of the same plan as one; `None` if there are none.
    pub fn of_runs(runs: &[Self]) -> Option<Self> {
        let (first, rest) = runs.split_first()?;
        if rest.is_empty() {
            return Some(first.clone());
        }
        let row = |(index, row): (usize, &Row)| {
            let same: Vec<&Row> = runs.iter().filter_map(|run| run.rows.get(index)).collect();
            row_of_runs(row, &same)
        };
        let rows: Vec<Row> = first.rows.iter().enumerate().map(row).collect();
        let over = |pick: fn(&Self) -> Option<&Value>| {
            let values: Option<Vec<&Value>> = runs.iter().map(pick).collect();
            values.map(|values| over_runs(&values))
        };
        let mut found =
            standing_out("elapsed", "ns", &runs.iter().map(|run| &run.elapsed).collect::<Vec<_>>());
        for row in &rows {
            let unit = row.unit.clone().unwrap_or_default();
            found.extend(standing_out(&row.label(), &unit, &row.of_runs.iter().collect::<Vec<_>>()));
        }
        found.sort_by_key(|outlier| outlier.run);
        Some(Self {
            from: first.from,
            rows,
            elapsed: over(|run| Some(&run.elapsed))?,
            user: over(|run| run.user.as_ref()),
            system: over(|run| run.system.as_ref()),
            runs: runs.len() as u32,
            outliers: found,
        })
    }
}

/// Reason why a command's times are missing.
const NO_END: &str = "it is a command's, and known when that has ended";

/// Returns the rows of a target: all of it together, or each place in turn. Where each CPU or thread is a
/// place, the rows are ordered by event.
fn of_places(
    plan: &CountPlan,
    part: &Part,
    before: Option<&Part>,
    owner: Option<&Owner>,
    elapsed_ns: f64,
) -> Vec<Row> {
    if plan.places.is_empty() {
        return rows(plan, part, before, owner, elapsed_ns);
    }
    let there = |part: &Part, place: &Place| {
        let readings = part.readings.iter().filter(|reading| place.has(reading.cpu, reading.thread));
        Part { readings: readings.cloned().collect(), uncounted: part.uncounted.clone() }
    };
    let of_place = |place: &Place| {
        let (part, before) = (there(part, place), before.map(|before| there(before, place)));
        let rows = rows(plan, &part, before.as_ref(), owner, elapsed_ns);
        rows.into_iter().map(|row| Row { place: Some(place.clone()), ..row }).collect::<Vec<_>>()
    };
    let mut all: Vec<Vec<Row>> = plan.places.iter().map(of_place).collect();
    let is_by_event = plan.places.first().is_some_and(Place::is_by_event);
    let events = all.first().map_or(0, Vec::len);
    if !is_by_event || all.iter().any(|rows| rows.len() != events) {
        return all.into_iter().flatten().collect();
    }
    let mut rows: Vec<_> = all.iter_mut().map(|rows| rows.drain(..)).collect();
    (0..events).flat_map(|_| rows.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>()).collect()
}

/// Returns the number of targets that have separate counters.
const fn targets(plan: &CountPlan) -> usize {
    match &plan.target {
        Target::Cgroups(cgroups) => cgroups.len(),
        _ => 1,
    }
}

impl Row {
    /// Returns the event, with the PMU where the event alone is ambiguous.
    pub fn label(&self) -> String {
        match self.beside {
            Beside::Alone => self.event.clone(),
            Beside::Others => format!("{} ({})", self.event, self.pmu),
        }
    }
}

fn row_of_runs(row: &Row, same: &[&Row]) -> Row {
    let values: Vec<Value> = same.iter().map(|row| row.value.clone()).collect();
    let derived: Option<Vec<&Derived>> = same.iter().map(|row| row.derived.as_ref()).collect();
    let derived = derived.filter(|all| all.iter().all(|one| one.name == all[0].name)).map(|all| Derived {
        value: ratio_over_runs(
            &values.iter().collect::<Vec<_>>(),
            &all.iter().map(|one| &one.value).collect::<Vec<_>>(),
        ),
        ..all[0].clone()
    });
    let mut seen = HashSet::new();
    Row {
        value: match row.support {
            Support::NotHere => row.value.clone(),
            Support::Counted => over_runs(&values.iter().collect::<Vec<_>>()),
        },
        enabled_ns: same.iter().map(|row| row.enabled_ns).fold(0, u64::saturating_add),
        running_ns: same.iter().map(|row| row.running_ns).fold(0, u64::saturating_add),
        derived,
        uncounted: same
            .iter()
            .flat_map(|row| row.uncounted.clone())
            .filter(|why| seen.insert(why.clone()))
            .collect(),
        of_runs: values,
        ..row.clone()
    }
}

fn standing_out(what: &str, unit: &str, values: &[&Value]) -> Vec<Outlier> {
    let known: Option<Vec<f64>> = values.iter().map(|value| Some(value.known()?.estimate)).collect();
    let Some(known) = known else { return Vec::new() };
    let outlier = |(index, score): (usize, f64)| Outlier {
        run: index as u32 + 1,
        what: what.to_owned(),
        unit: unit.to_owned(),
        value: known[index],
        median: median(&known),
        score,
    };
    // One more occurrence of a rare event is not an outlier.
    let is_rare = |outlier: &Outlier| unit.is_empty() && outlier.value.max(outlier.median) <= RARE_MAX;
    outliers(&known).into_iter().map(outlier).filter(|outlier| !is_rare(outlier)).collect()
}

/// Number of occurrences in a run up to which a difference between runs is chance.
const RARE_MAX: f64 = 2.0;

#[cfg(test)]
mod tests;
