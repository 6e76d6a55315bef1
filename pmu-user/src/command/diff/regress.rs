//! `--fail-on regress:METRIC>N%`: a comparison as a gate for continuous integration.

use std::str::FromStr;

use crate::{
    command::failure::{Quality, Usage},
    metric::diff::{Diff, Difference, Judgement, What, judge, less_is_worse},
    suggest::{did_you_mean, nearest},
    untrusted::Untrusted,
};

/// A metric, and by how much it may become worse.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Regress {
    metric: String,
    /// As a share of the first side's.
    limit: f64,
}

impl FromStr for Regress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no condition; use regress:METRIC>N%, as regress:cpu_time>5%");
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

/// Each condition with the numbers it is about: more than one where a metric is of several devices.
pub(super) type Found<'a> = Vec<(&'a Regress, Vec<&'a Difference>)>;

/// Finds what conditions are about, in the target, or in the owner of this name.
///
/// # Errors
///
/// There is no such number in both sides.
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
        return Err(Usage(format!(
            "{whom} is not in both recordings: there is nothing to hold --fail-on against"
        )));
    }
    let names = || of_whose.iter().filter_map(|difference| metric(difference)).map(str::to_owned);
    let one = |condition: &'a Regress| {
        let is_it = |one: &&&Difference| metric(one) == Some(&condition.metric);
        let numbers: Vec<&Difference> = of_whose.iter().filter(is_it).copied().collect();
        if numbers.is_empty() {
            let near = did_you_mean(&nearest(&condition.metric, names(), |name| name));
            return Err(Usage(format!(
                "{whom} has no metric `{}` in both recordings{near}",
                condition.metric
            )));
        }
        Ok((condition, numbers))
    };
    conditions.iter().map(one).collect()
}

fn metric(difference: &Difference) -> Option<&str> {
    match &difference.key.what {
        What::Metric(metric) => Some(metric),
        What::Culprit(_) | What::Function(..) | What::Stack(_) => None,
    }
}

/// Holds conditions against what was found. What cannot be told passes no gate.
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
        Judgement::Unknown(why) => Some(format!("whether {metric} became worse cannot be told: {why}")),
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
