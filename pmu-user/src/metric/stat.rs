//! From readings of counters to a count an event: scaled, with its interval, what it says about others, and over several
//! runs. Pure.

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
    /// Start, since counting started.
    pub from: Duration,
    /// A row for each event, PMU family and target cgroup, in the order asked for.
    pub rows: Vec<Row>,
    /// Wall time in ns.
    pub elapsed: Value,
    /// The command's CPU time in user mode, in ns; none if there was no command or it still runs.
    pub user: Option<Value>,
    /// The same in the kernel.
    pub system: Option<Value>,
    /// Runs that this is the mean of.
    pub runs: u32,
    /// Runs that stand out.
    pub outliers: Vec<Outlier>,
}

/// One event on the PMUs of one family.
#[derive(Clone, Debug)]
pub struct Row {
    /// The cgroup, if cgroups are the target.
    pub owner: Option<Owner>,
    /// The CPUs or the thread that it is of, where not all are one row.
    pub place: Option<Place>,
    /// As typed.
    pub event: String,
    /// The PMU's name, without the number of an uncore PMU; empty if the host has none for it.
    pub pmu: String,
    /// Do other PMUs count the same event?
    pub beside: Beside,
    /// Unit of the count, if it is not simply one.
    pub unit: Option<String>,
    /// The count.
    pub value: Value,
    /// Can this host count it at all?
    pub support: Support,
    /// Time that its counters were enabled, in ns, added up.
    pub enabled_ns: u64,
    /// Time of that during which they counted.
    pub running_ns: u64,
    /// What it says about others.
    pub derived: Option<Derived>,
    /// What each run said, if there were several.
    pub of_runs: Vec<Value>,
    /// Places where it should have been counted and was not, with the reason.
    pub uncounted: Vec<String>,
}

/// Is a row the only one of its event?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Its name says all.
    Alone,
    /// Other kinds of PMUs count it, too: they are never added up.
    Others,
}

/// Can an event be counted here?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It can.
    Counted,
    /// The host has no such event.
    NotHere,
}

impl Stat {
    /// What was counted between `earlier` and `drain`; from the start if there is none.
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

    /// Puts times of the run where they were asked for as events.
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

    /// What a report of this plan takes in memory at most, in bytes, without what readings say of places that have no counter.
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

    /// What this report takes in memory, in bytes.
    pub fn bytes(&self) -> usize {
        let texts = |row: &Row| {
            let uncounted = row.uncounted.iter().map(|why| size_of::<String>() + why.len()).sum::<usize>();
            row.event.len() + row.pmu.len() + row.unit.as_ref().map_or(0, String::len) + uncounted
        };
        self.rows.iter().map(|row| size_of::<Row>() + texts(row)).sum()
    }

    /// Several runs of the same plan as one; `None` if there are none.
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

/// Why there are no times of a command.
const NO_END: &str = "it is a command's, and known when that has ended";

/// The rows of a target: of all of it together, or of each place in turn; where each CPU or thread is a place, of each event in turn.
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

/// Targets that have counters of their own.
const fn targets(plan: &CountPlan) -> usize {
    match &plan.target {
        Target::Cgroups(cgroups) => cgroups.len(),
        _ => 1,
    }
}

impl Row {
    /// Its event, with the PMU where that is not plain.
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
    // Of events that hardly happen one more is no news.
    let is_rare = |outlier: &Outlier| unit.is_empty() && outlier.value.max(outlier.median) <= RARE_MAX;
    outliers(&known).into_iter().map(outlier).filter(|outlier| !is_rare(outlier)).collect()
}

/// Occurrences in a run up to which another number in another run is chance.
const RARE_MAX: f64 = 2.0;

#[cfg(test)]
mod tests;
