//! `--fail-on regress:METRIC>N%`: a comparison as a gate for continuous integration.

use std::str::FromStr;

use crate::{
    command::failure::{Quality, Usage},
    metric::diff::{Diff, Difference, Judgement, What, judge, less_is_worse},
    suggest::{did_you_mean, nearest},
    untrusted::Untrusted,
};

/// Metric, and the regression that it may have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Regress {
    metric: String,
    /// Allowed regression, as a share of the first side's value.
    limit: f64,
}

impl FromStr for Regress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("invalid condition `{text}`; use regress:METRIC>N%, e.g. regress:cpu_time>5%");
        let condition = text.trim().strip_prefix("regress:").ok_or_else(wrong)?;
        let (metric, limit) = condition.rsplit_once('>').ok_or_else(wrong)?;
        let percent = limit.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let percent = percent.filter(|percent| percent.is_finite() && *percent >= 0.0).ok_or_else(wrong)?;
        let metric = metric.trim().to_owned();
        if metric.is_empty() {
            return Err(wrong());
        }
        Ok(Self { metric, limit: percent / 100.0 })
    }
}

/// Conditions, each with its numbers: more than one where a metric covers several devices.
pub(super) type Found<'a> = Vec<(&'a Regress, Vec<&'a Difference>)>;

/// Finds the numbers of conditions, in the target or in the owner with this name.
///
/// # Errors
///
/// A number is not in both recordings.
pub(super) fn found<'a>(
    conditions: &'a [Regress],
    owner: Option<&str>,
    diff: &'a Diff,
) -> Result<Found<'a>, Usage> {
    let is_whose = |difference: &&Difference| match (owner, &difference.key.whose) {
        (Some(name), whose) => !matches!(whose.kind, "target" | "host") && whose.is_called(name),
        (None, whose) => matches!(whose.kind, "target" | "host"),
    };
    let of_whose: Vec<&Difference> = diff.differences.iter().filter(is_whose).collect();
    let whom = owner.map_or_else(|| "the target".to_owned(), |name| format!("owner `{name}`"));
    if let (Some(_), true) = (owner, of_whose.is_empty()) {
        return Err(Usage(format!("{whom} is not in both recordings: --fail-on has nothing to compare")));
    }
    let names = || of_whose.iter().filter_map(|difference| metric(difference)).map(str::to_owned);
    let of_metric = |name: &str| -> Vec<&'a Difference> {
        of_whose.iter().filter(|one| metric(one) == Some(name)).copied().collect()
    };
    let one = |condition: &'a Regress| {
        let Regress { metric: wanted, .. } = condition;
        let own = of_metric(wanted);
        if !own.is_empty() {
            return Ok((condition, own));
        }
        let counted = COUNTED.iter().filter(|(name, _)| name == wanted).flat_map(|(_, events)| *events);
        let counted = counted.map(|event| of_metric(event)).find(|numbers| !numbers.is_empty());
        let known =
            COUNTED.iter().filter(|(_, events)| events.iter().any(|event| !of_metric(event).is_empty()));
        let near = || near(wanted, names().chain(known.map(|(name, _)| (*name).to_owned())));
        counted
            .map(|numbers| (condition, numbers))
            .ok_or_else(|| Usage(format!("{whom} has no metric `{wanted}` in both recordings{}", near())))
    };
    conditions.iter().map(one).collect()
}

/// Metrics of `run`, and the events of `stat` that count the same. The first event present is used.
const COUNTED: [(&str, &[&str]); 5] = [
    ("cpu_time", &["event.task-clock", "event.task-clock:u", "event.cpu-clock"]),
    ("context_switches", &["event.context-switches", "event.cs"]),
    ("migrations", &["event.cpu-migrations", "event.migrations"]),
    ("minor_faults", &["event.minor-faults"]),
    ("major_faults", &["event.major-faults"]),
];

/// Maximum number of names listed where none is similar.
const LISTED_MAX: usize = 8;

/// Returns suggestions for a metric: similar names, those that contain its words, else all there are.
fn near(wanted: &str, names: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = names.collect();
    all.sort();
    all.dedup();
    let like = nearest(wanted, all.iter().cloned(), |name| name.strip_prefix("event.").unwrap_or(name));
    if !like.is_empty() {
        return did_you_mean(&like);
    }
    let words: Vec<&str> = wanted.split(['_', '-', '.', ':']).filter(|word| word.len() > 2).collect();
    let is_near = |name: &&String| words.iter().any(|word| name.contains(word));
    let akin: Vec<&str> = all.iter().filter(is_near).map(String::as_str).collect();
    let listed = if akin.is_empty() { all.iter().map(String::as_str).collect() } else { akin };
    let more = if listed.len() > LISTED_MAX { ", …" } else { "" };
    let listed = &listed[..listed.len().min(LISTED_MAX)];
    if listed.is_empty() { String::new() } else { format!("; there are {}{more}", listed.join(", ")) }
}

fn metric(difference: &Difference) -> Option<&str> {
    match &difference.key.what {
        What::Metric(metric) => Some(metric),
        What::Culprit(_) | What::Function(..) | What::Stack(_) => None,
    }
}

/// Checks the numbers against their conditions. A number that cannot be judged passes no gate.
pub(super) fn check(found: &Found<'_>) -> Result<(), Quality> {
    let failures = found
        .iter()
        .flat_map(|(condition, numbers)| numbers.iter().filter_map(|number| failed(condition, number)));
    let failures: Vec<String> = failures.collect();
    if failures.is_empty() { Ok(()) } else { Err(Quality(failures.join("; "))) }
}

fn failed(condition: &Regress, difference: &Difference) -> Option<String> {
    let Regress { metric, limit } = condition;
    let metric = Untrusted::from(metric.as_str());
    let metric = metric.terminal();
    match judge(difference, *limit) {
        Judgement::Within => None,
        Judgement::Unknown(why) => Some(format!("cannot determine whether {metric} became worse: {why}")),
        Judgement::Worse(by) => {
            let way = if less_is_worse(&condition.metric) { "lower" } else { "higher" };
            let [by, limit] = [by, *limit].map(|share| share * 100.0);
            Some(format!("{metric} is {way} by at least {by:.1} % (95 % interval); the limit is {limit} %"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Regress;

    #[test]
    fn a_condition_is_a_metric_and_a_limit() {
        let regress = |metric: &str, limit| Ok(Regress { metric: metric.to_owned(), limit });
        assert_eq!("regress:cpu_time>5%".parse(), regress("cpu_time", 0.05));
        assert_eq!(
            " regress: runqueue_latency.p99 > 12.5 % ".parse(),
            regress("runqueue_latency.p99", 0.125)
        );
        assert_eq!("regress:event.a>b>0%".parse(), regress("event.a>b", 0.0));
        for wrong in
            ["cpu_time>5%", "regress:>5%", "regress:cpu_time", "regress:x>5", "regress:x>-1%", "lost"]
        {
            let error = wrong.parse::<Regress>().unwrap_err();
            assert!(error.contains("regress:METRIC>N%"), "{wrong}: {error}");
        }
    }
}
