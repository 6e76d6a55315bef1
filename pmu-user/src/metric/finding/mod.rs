//! Findings: numbers that stand out in a run. A rule compares one number with a threshold. A finding is a
//! number with its whole interval above the threshold, so chance does not explain it. Pure, like all of
//! `metric`.

mod explained;
mod faults;
mod forks;
mod io;
mod io_limit;
mod kernel;
mod locks;
#[cfg(test)]
mod quiet;
mod rules;
mod tasks;
#[cfg(test)]
mod tests;
mod waits;

pub use self::rules::{Cause, RULES, Rule};
use std::collections::{BTreeMap, BTreeSet};

use super::{
    OwnerOrTarget, OwnerReport, Report, TasksReport,
    io::Subject,
    value::{How, Known},
};
use crate::{
    drain::{Header, Owner},
    machine::cgroup::ancestors,
    table::{metric, unit::Unit},
    untrusted::Untrusted,
};

/// Maximum number of findings of one rule: of many owners for which it holds, those with the largest amounts
/// are reported.
const MOST_OF_A_RULE: usize = 3;

/// Number that stands out.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Rule of the finding.
    pub rule: &'static Rule,
    /// Owner of the number; `None` for the host.
    pub whose: Option<OwnerOrTarget>,
    /// Subject of the number other than CPUs.
    pub subject: Option<Subject>,
    /// Name of the number.
    pub metric: String,
    /// Value of the number, in the rule's unit.
    pub value: Known,
    /// Names that state the place: a function and its file, the code of a gap, the nodes of a path,
    /// processes.
    pub names: Vec<Untrusted>,
    /// Base of a share, where the name does not contain it: `slots`.
    pub domain: Option<String>,
    /// Numbers on which it rests.
    pub evidence: Vec<Evidence>,
    /// Advice on what to try, the best first.
    pub next: Vec<&'static str>,
    /// Findings that follow from it, and would be separate ones without it.
    pub symptoms: Vec<Finding>,
    /// Amount that orders findings of one rule: by default the first number on which it rests, unless that
    /// misleads.
    weight: Option<f64>,
    /// Part of a wait for a CPU for which the owner's own tasks had that CPU.
    own_part: f64,
    /// Whether it concerns kernel code.
    of_kernel: bool,
}

/// Number on which a finding rests.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// Name of the number.
    pub metric: String,
    /// Unit of the number.
    pub unit: Unit,
    /// Value of the number.
    pub value: Known,
    /// Owner of the number, if it is not the finding's.
    pub whose: Option<OwnerOrTarget>,
}

impl Finding {
    /// Returns the finding of `value` by the rule of `cause`. `None` if its interval reaches below the
    /// threshold, or if it is impossible: a share above the whole.
    fn of(cause: Cause, value: Known) -> Option<Self> {
        Self::by(cause.rule(), value)
    }

    /// Returns the finding of `value` by this rule.
    fn by(rule: &'static Rule, value: Known) -> Option<Self> {
        let finding = Self {
            rule,
            whose: None,
            subject: None,
            metric: rule.metric.to_owned(),
            value,
            names: Vec::new(),
            domain: None,
            evidence: Vec::new(),
            next: vec![rule.next],
            symptoms: Vec::new(),
            weight: None,
            own_part: 0.0,
            of_kernel: false,
        };
        (value.low > rule.above && value.estimate <= rule.unit.most()).then_some(finding)
    }

    fn of_whom(mut self, who: &OwnerOrTarget) -> Self {
        self.whose = Some(who.clone());
        self
    }

    fn about(mut self, subject: &Subject) -> Self {
        match subject {
            Subject::Owner(owner, of) => {
                self.whose = Some(OwnerOrTarget::Owner(owner.clone()));
                self.subject = Some((**of).clone());
            }
            subject => self.subject = Some(subject.clone()),
        }
        self
    }

    fn naming(mut self, names: impl IntoIterator<Item = Untrusted>) -> Self {
        self.names.extend(names);
        self
    }

    fn resting_on(mut self, metric: &str, unit: Unit, value: Known) -> Self {
        self.evidence.push(Evidence { metric: metric.to_owned(), unit, value, whose: None });
        self
    }

    /// Returns the path of the finding's cgroup.
    fn path(&self) -> Option<&[u8]> {
        match self.whose.as_ref()?.owner()? {
            Owner::Cgroup { path, .. } => Some(path.as_bytes()),
            _ => None,
        }
    }

    /// Returns the amount by which findings of one rule are ordered.
    fn amount(&self) -> f64 {
        self.weight.unwrap_or_else(|| self.evidence.first().map_or(self.value, |evidence| evidence.value).low)
    }

    /// Returns the part of a wait's share for which others had the CPU, in per cent.
    fn lost_to_others(&self) -> f64 {
        self.value.estimate * (1.0 - self.own_part)
    }

    /// Returns the finding, and then those that follow from it.
    pub fn with_symptoms(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.symptoms)
    }

    /// Returns a number on which it rests, by name.
    pub fn evidence(&self, metric: &str) -> Option<&Evidence> {
        self.evidence.iter().find(|evidence| evidence.metric == metric)
    }
}

/// Returns the findings of the whole run: rules in their order, and for each rule the largest amount first.
pub fn findings(header: &Header, report: &Report) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some((header, report)) = header.tasks.as_ref().zip(report.tasks.as_ref()) {
        found.extend(tasks::findings(header, report));
        found.extend(kernel::findings(header, report));
    }
    found.extend(report.io.iter().flat_map(io::findings));
    if let Some(tasks) = &report.tasks {
        let limited = io_limit::findings(&tasks.limits, report.io.as_ref(), tasks.length_ns);
        // I/O pressure is then caused by the limit.
        let is_explained = |finding: &Finding| {
            finding.rule.cause == Cause::IoPressure
                && limited.iter().any(|limit| limit.whose == finding.whose)
        };
        found.retain(|finding| !is_explained(finding));
        found.extend(limited);
    }
    found.sort_by(|a, b| {
        let by_amount = || b.amount().total_cmp(&a.amount());
        a.rule.cause.cmp(&b.rule.cause).then_with(by_amount).then_with(|| a.whose.cmp(&b.whose))
    });
    let holds_another = above_another(&found);
    let mut kept: Vec<Finding> = Vec::new();
    // A cgroup's numbers include those below it, which are more specific.
    for (finding, _) in found.into_iter().zip(holds_another).filter(|(_, is_above)| !is_above) {
        let alike = kept.iter().rev().take_while(|other| other.rule == finding.rule).count();
        if alike < MOST_OF_A_RULE {
            kept.push(finding);
        }
    }
    explained::explain(kept)
}

/// Returns for each finding whether it is of a cgroup above that of another one, by the same rule.
fn above_another(found: &[Finding]) -> Vec<bool> {
    let key = |finding: &Finding| (finding.rule.cause, finding.subject.clone());
    let mut above: BTreeMap<_, BTreeSet<&[u8]>> = BTreeMap::new();
    for finding in found {
        above.entry(key(finding)).or_default().extend(finding.path().into_iter().flat_map(ancestors));
    }
    let is_above = |finding: &Finding| finding.path().is_some_and(|path| above[&key(finding)].contains(path));
    found.iter().map(is_above).collect()
}

/// Returns `part / (part + rest)` in per cent, where `part` is exact.
fn share_beside(part: f64, rest: &Known) -> Known {
    let of = |rest: f64| if part + rest > 0.0 { 100.0 * part / (part + rest) } else { 0.0 };
    Known { estimate: of(rest.estimate), low: of(rest.high), high: of(rest.low), ..*rest }
}

/// Returns a count, which is exact, per second of `time`, which is in ns.
fn rate(count: &Known, time: &Known) -> Known {
    let per = |count: f64, ns: f64| if ns > 0.0 { count / (ns / 1e9) } else { f64::INFINITY };
    Known {
        estimate: per(count.estimate, time.estimate),
        low: per(count.low, time.high),
        high: per(count.high, time.low),
        coverage: count.coverage.min(time.coverage),
        how: How::Counted,
    }
}

/// Returns the CPU time of an owner, if it used more than this share of one CPU.
fn busy<'o>(report: &TasksReport, owner: &'o OwnerReport, least: f64) -> Option<&'o Known> {
    let time = owner.value(&metric::CPU_TIME)?;
    (time.low > least * report.length_ns as f64).then_some(time)
}

/// Returns a number that is known exactly.
const fn exact(estimate: f64) -> Known {
    Known { estimate, low: estimate, high: estimate, coverage: 1.0, how: How::Counted }
}
