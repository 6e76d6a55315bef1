//! Selection and order of the rows of a report. The target's own numbers, the host's and those that state how
//! far they can be trusted are always kept.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    OwnerOrTarget, OwnerReport, Report, TasksReport,
    io::{IoReport, Subject},
    number::{Attribution, Content, Number},
};
use crate::{
    drain::{Id, Owner},
    suggest::{did_you_mean, glob, nearest},
    table::metric,
};

/// Number of names that an error lists where no name is near.
const NAMES_LISTED: usize = 5;

/// Selection and order of the rows of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Owners to which rows are limited, unless empty.
    pub owners: Vec<Pattern>,
    /// Minimum share (0 to 1): of the target's CPU time for owners, of samples for functions and stacks.
    pub min_share: Option<f64>,
    /// Metric by which owners are sorted, most first.
    pub sort: Option<String>,
    /// Rows for processes of one program.
    pub processes: Processes,
}

/// Rows for processes of one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processes {
    /// One row for all of them.
    #[default]
    Together,
    /// One row for each.
    OneByOne,
}

/// Pattern that matches owners by name, id or path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// Creates a pattern, as `web*`, `1234`, `/system.slice/*`: `*` stands for any text, `?` for a character.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns whether the owner matches by id, name, cgroup path, last part of that, or the name of its
    /// container or pod.
    #[must_use]
    pub fn matches(&self, owner: &Owner) -> bool {
        let is = |name: &[u8]| glob(self.0.as_bytes(), name);
        let is_id = |id: u32| Id::of(id).here().is_some_and(|id| self.0 == id.to_string());
        match owner {
            Owner::Other => is(b"other"),
            Owner::Process { pid, name, .. } => is_id(*pid) || is(name.as_bytes()),
            Owner::Thread { tid, pid, name, .. } => is_id(*tid) || is_id(*pid) || is(name.as_bytes()),
            Owner::Ended { name, .. }
            | Owner::Program { name, .. }
            | Owner::Comm { name }
            | Owner::Exe { name } => is(name.as_bytes()),
            Owner::Cgroup { path, identity, .. } => {
                let path = path.as_bytes();
                let is_called = || {
                    identity.as_ref().is_some_and(|identity| identity.names().any(|name| is(name.as_bytes())))
                };
                is(path) || path.rsplit(|&byte| byte == b'/').next().is_some_and(is) || is_called()
            }
        }
    }
}

/// Selection of a filter that a report does not contain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unmet(pub String);

impl Filter {
    /// Removes the rows of a report that are not requested, and orders the rest.
    ///
    /// # Errors
    ///
    /// If nothing is left, or no number has the name; the error lists the nearest names. Rows that are not
    /// requested are removed nevertheless.
    pub fn apply(&self, report: &mut Report) -> Result<(), Unmet> {
        let result = self.choose_owners(report);
        result.and(self.order(report))
    }

    /// Removes the owners of a report that are not requested.
    ///
    /// # Errors
    ///
    /// As for [`Filter::apply`].
    pub fn choose_owners(&self, report: &mut Report) -> Result<(), Unmet> {
        if self.processes == Processes::OneByOne {
            report.tasks.iter_mut().for_each(TasksReport::unfold);
            report.io.iter_mut().for_each(IoReport::take_apart);
        }
        if self.owners.is_empty() {
            return Ok(());
        }
        let result = self.check_owners(report);
        report.keep_owners(|owner| self.owners.iter().any(|pattern| pattern.matches(owner)));
        result
    }

    /// Removes rows of small shares, and orders the rest.
    ///
    /// # Errors
    ///
    /// As for [`Filter::apply`].
    pub fn order(&self, report: &mut Report) -> Result<(), Unmet> {
        let mut result = Ok(());
        if let Some(share) = self.min_share {
            result = result.and(keep_large(report, share));
        }
        match &self.sort {
            Some(metric) => result.and(sort(report, metric)),
            None => result,
        }
    }

    fn check_owners(&self, report: &Report) -> Result<(), Unmet> {
        if report.owners().any(|owner| self.owners.iter().any(|pattern| pattern.matches(owner))) {
            return Ok(());
        }
        let wanted: Vec<&str> = self.owners.iter().map(|pattern| pattern.0.as_str()).collect();
        let wanted = wanted.join(", ");
        let mut seen = BTreeSet::new();
        let names: Vec<String> =
            report.owners().filter(|owner| seen.insert(*owner)).map(Owner::in_words).collect();
        // An owner is listed as `web (1234)`, a cgroup by its path: the request meant the name alone.
        let near = nearest_by(&wanted, &names, |name| {
            let name = name.rsplit('/').next().unwrap_or(name);
            name.split(" (").next().unwrap_or(name).to_owned()
        });
        let listed = match (near.as_slice(), names.as_slice()) {
            ([], []) => ": the report has no owners".to_owned(),
            ([], _) => format!("; there are {}", names[..names.len().min(NAMES_LISTED)].join(", ")),
            (near, _) => did_you_mean(near),
        };
        Err(Unmet(format!("no owner is {wanted}{listed}")))
    }
}

/// Returns the names for which the part that `key` picks is most like `wanted`.
fn nearest_by(wanted: &str, names: &[String], key: impl Fn(&str) -> String) -> Vec<String> {
    let keys = names.iter().map(|name| key(name));
    let near = nearest(wanted, keys, |key| key);
    let of_key = |near: &String| names.iter().find(|name| key(name) == *near).cloned();
    near.iter().filter_map(of_key).collect()
}

/// Removes owners, functions and stacks with a smaller share.
fn keep_large(report: &mut Report, least: f64) -> Result<(), Unmet> {
    let Some(tasks) = &mut report.tasks else { return Ok(()) };
    let all = tasks.total.value(&metric::CPU_TIME).map_or(0.0, |known| known.estimate);
    let share = |owner: &OwnerReport| {
        owner.value(&metric::CPU_TIME).map_or(0.0, |known| if all > 0.0 { known.estimate / all } else { 0.0 })
    };
    let largest = tasks.by_program().iter().map(share).fold(0.0, f64::max);
    let had_owners = !tasks.owners.is_empty();
    let is_large = |owner: &OwnerReport| share(owner) >= least;
    tasks.owners.retain(is_large);
    tasks.hot.retain(|function| function.share.estimate >= least);
    tasks.functions.retain(|function| function.hot.share.estimate >= least);
    tasks.modules.retain(|module| module.share.estimate >= least);
    for stacks in [&mut tasks.stacks, &mut tasks.off_cpu_stacks] {
        stacks.retain(|stack| stack.share.estimate >= least);
    }
    if let Some(folded) = &mut tasks.folded {
        folded.owners.retain(is_large);
    }
    if had_owners && tasks.by_program().is_empty() {
        let (least, largest) = (least * 100.0, largest * 100.0);
        return Err(Unmet(format!(
            "no owner has {least} % of the target's CPU time: the largest has {largest:.1} %"
        )));
    }
    Ok(())
}

/// Orders owners by a metric, most first. Those without a value come last, in their previous order.
fn sort(report: &mut Report, wanted: &str) -> Result<(), Unmet> {
    let mut values: BTreeMap<Owner, f64> = BTreeMap::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    let _ = report.by_source::<std::convert::Infallible>(|_, numbers| {
        for number in numbers {
            let Attribution::Owner(owner) = number.whose else { continue };
            if number.metric != wanted {
                if !names.contains(&*number.metric) {
                    names.insert(number.metric.to_string());
                }
            } else if let Some(value) = value_of(&number) {
                // Among several subjects, as disks, the largest counts.
                let kept = values.entry(owner.clone()).or_insert(value);
                *kept = kept.max(value);
            }
        }
        Ok(())
    });
    if values.is_empty() {
        let near = nearest(wanted, names.iter().cloned(), |name| name);
        let listed = if near.is_empty() {
            "; `pmbpf list metrics` names them".to_owned()
        } else {
            did_you_mean(&near)
        };
        return Err(Unmet(format!("no owner has a value of {wanted}{listed}")));
    }
    let by = |one: Option<f64>, other: Option<f64>| -> Ordering {
        let value = |value: Option<f64>| value.unwrap_or(f64::NEG_INFINITY);
        value(other).total_cmp(&value(one))
    };
    let of = |who: &OwnerOrTarget| match who {
        // The target stays first.
        OwnerOrTarget::Target => Some(f64::INFINITY),
        OwnerOrTarget::Owner(owner) => values.get(owner).copied(),
    };
    if let Some(tasks) = &mut report.tasks {
        sort_tasks(tasks, wanted, &of, by);
    }
    if let Some(io) = &mut report.io {
        io.rows.sort_by(|one, other| match (&one.subject, &other.subject) {
            (Subject::Owner(one, _), Subject::Owner(other, _)) => {
                by(values.get(one).copied(), values.get(other).copied())
            }
            _ => Ordering::Equal,
        });
        io.order = values;
    }
    Ok(())
}

fn sort_tasks(
    tasks: &mut TasksReport,
    wanted: &str,
    of: &dyn Fn(&OwnerOrTarget) -> Option<f64>,
    by: impl Fn(Option<f64>, Option<f64>) -> Ordering,
) {
    tasks.owners.sort_by(|one, other| by(of(&one.who), of(&other.who)));
    tasks.waited.sort_by(|one, other| by(of(&one.who), of(&other.who)));
    for topdown in tasks.topdown.iter_mut().flatten() {
        topdown.owners.sort_by(|(one, _), (other, _)| by(of(one), of(other)));
    }
    if let Some(folded) = &mut tasks.folded {
        // Ended processes share a row here, which has its own values.
        let value = |owner: &OwnerReport| {
            let own = owner.numbers().find(|number| number.metric == wanted);
            own.as_ref().map_or_else(|| of(&owner.who), value_of)
        };
        folded.owners.sort_by(|one, other| by(value(one), value(other)));
    }
}

/// Returns the value by which a number is ordered: its value, or the 99th percentile of a distribution.
fn value_of(number: &Number<'_>) -> Option<f64> {
    match &number.content {
        Content::Value(value) => value.known().map(|known| known.estimate),
        Content::Distribution(found) => found.ok().map(|found| found.quantile(0.99).estimate),
    }
}
