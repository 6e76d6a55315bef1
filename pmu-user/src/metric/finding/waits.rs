//! Waits for a CPU, and the culprits that had it.

use std::collections::BTreeMap;

use super::{
    Cause, Evidence, Finding, exact,
    rules::{CULPRIT_LEAST, CULPRITS_TOLD, TAIL_COUNT, WAIT_LEAST, WAIT_TAIL_NS},
    share_beside,
};
use crate::{
    drain::{Owner, TasksHeader},
    machine::cgroup::ancestors,
    metric::{OwnerOrTarget, OwnerReport, TasksReport, culprit::Culprit},
    plan::Target,
    table::{metric, unit::Unit},
    untrusted::Untrusted,
};

/// Returns the finding on waits for a CPU, as a share of the time in which the owner's tasks could run. It
/// names the culprits, or the largest other user of CPUs.
pub(super) fn cpu_wait(header: &TasksHeader, report: &TasksReport, owner: &OwnerReport) -> Option<Finding> {
    let (time, waits) = (owner.value(&metric::CPU_TIME)?, owner.waits.as_ref().ok()?);
    let tail = waits.quantile(0.99);
    let waited = exact(waits.sum as f64);
    let is_long = waited.low > WAIT_LEAST * report.length_ns as f64 && tail.low > WAIT_TAIL_NS;
    if !is_long || waits.count() < TAIL_COUNT.min(report.length_ns / 100_000_000) {
        return None;
    }
    let mut finding = Finding::of(Cause::CpuWait, share_beside(waited.estimate, time))?
        .of_whom(&owner.who)
        .resting_on("runqueue_latency.sum", Unit::Ns, waited)
        .resting_on("runqueue_latency.p99", Unit::Ns, tail)
        .resting_on(metric::CPU_TIME.name, Unit::Ns, *time);
    finding.own_part = own_part(report, owner);
    // Weight: the time lost to others, times its share of the time that the owner could run. A batch job that
    // waits for itself loses as much as the server next to it that waits for the batch job. A daemon that
    // wakes up for a moment loses all of next to nothing.
    let lost = waited.estimate * (1.0 - finding.own_part);
    finding.weight = Some(lost * lost / (waited.estimate + time.estimate).max(1.0));
    let culprits = culprits(report, owner);
    if culprits.is_empty() {
        finding.evidence.extend(neighbour(header, report, owner));
    }
    finding.evidence.extend(culprits);
    Some(finding)
}

/// Returns whether a culprit is the owner that waited, or is below it. For the target as a whole, every owner
/// is.
fn is_own(owner: &OwnerReport, culprit: &Owner) -> bool {
    match (culprit, owner.who.owner()) {
        (Owner::Cgroup { path, .. }, Some(Owner::Cgroup { path: own, .. })) => {
            path == own || is_above(own, path)
        }
        (culprit, own) => Some(culprit) == own,
    }
}

/// Returns the part of an owner's waits for which its own tasks had the CPU.
fn own_part(report: &TasksReport, owner: &OwnerReport) -> f64 {
    let waited = report.waited_by_program();
    let Some(waited) = waited.iter().find(|waited| waited.who == owner.who) else { return 0.0 };
    let own = waited.charges.iter().filter(|charge| match &charge.culprit {
        Culprit::Owner(culprit) => owner.who == OwnerOrTarget::Target || is_own(owner, culprit),
        Culprit::Outside | Culprit::Idle | Culprit::Migrated | Culprit::Unknown => false,
    });
    own.map(|charge| charge.share).sum::<f64>().min(1.0)
}

/// Returns the culprits that had the CPUs for longest while an owner waited: itself with those below it,
/// others that are counted, or tasks that are not (owner `None`). The next one follows where its part was
/// large enough.
fn culprits(report: &TasksReport, owner: &OwnerReport) -> Vec<Evidence> {
    let waited = report.waited_by_program();
    let Some(waited) = waited.iter().find(|waited| waited.who == owner.who) else { return Vec::new() };
    let mut had: BTreeMap<Option<OwnerOrTarget>, u64> = BTreeMap::new();
    for charge in &waited.charges {
        let whose = match &charge.culprit {
            Culprit::Owner(culprit) if is_own(owner, culprit) => Some(owner.who.clone()),
            Culprit::Owner(culprit) => Some(OwnerOrTarget::Owner(culprit.clone())),
            Culprit::Outside => None,
            Culprit::Idle | Culprit::Migrated | Culprit::Unknown => continue,
        };
        let sum = had.entry(whose).or_default();
        *sum = sum.saturating_add(charge.wait_ns);
    }
    let mut had: Vec<_> = had.into_iter().filter(|(_, wait_ns)| *wait_ns > 0).collect();
    had.sort_by(|(_, one), (_, other)| other.cmp(one));
    let is_told = |(rank, (_, wait_ns)): &(usize, (Option<OwnerOrTarget>, u64))| {
        *rank == 0 || *wait_ns as f64 >= CULPRIT_LEAST * waited.wait_ns as f64
    };
    let evidence = |(_, (whose, wait_ns))| Evidence {
        metric: metric::RUNQUEUE_CULPRIT.name.to_owned(),
        unit: Unit::Ns,
        value: exact(wait_ns as f64),
        whose,
    };
    had.into_iter().enumerate().take(CULPRITS_TOLD).filter(is_told).map(evidence).collect()
}

/// Returns the largest user of CPU time other than an owner.
fn neighbour(header: &TasksHeader, report: &TasksReport, owner: &OwnerReport) -> Option<Evidence> {
    // For a target, others are not counted. A cgroup's row includes those below it.
    let is_beside = |other: &&OwnerReport| match (&other.who, &owner.who) {
        (
            OwnerOrTarget::Owner(Owner::Cgroup { path, .. }),
            OwnerOrTarget::Owner(Owner::Cgroup { path: own, .. }),
        ) => path != own && !is_above(path, own) && !is_above(own, path),
        (other, own) => other != own,
    };
    if header.plan.target != Target::System {
        return None;
    }
    // Owners are ordered by CPU time, most first.
    let mut others = report.by_program().iter().filter(is_beside);
    let (other, time) = others.find_map(|other| Some((other, *other.value(&metric::CPU_TIME)?)))?;
    let whose = Some(other.who.clone());
    Some(Evidence { metric: metric::CPU_TIME.name.to_owned(), unit: Unit::Ns, value: time, whose })
}

/// Returns whether the first path of a cgroup is above the second.
pub(super) fn is_above(above: &Untrusted, path: &Untrusted) -> bool {
    ancestors(path.as_bytes()).any(|one| one == above.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::culprits;
    use crate::{
        drain::Owner,
        metric::{
            OwnerOrTarget, TasksReport,
            culprit::{Charge, Culprit, Waited},
            testing::{machine, with_late_ticks},
        },
        plan::Target,
        untrusted::Untrusted,
    };

    fn cgroup(id: u64, path: &str) -> Owner {
        Owner::cgroup(id, Untrusted::from(path))
    }

    /// Returns the culprits that a finding names where `/web` waited 1000 ns, and their times.
    fn told(charges: &[(Culprit, u64)]) -> Vec<(Option<Owner>, f64)> {
        let (header, ledger, interval) = with_late_ticks(Target::System, 1, 0);
        let mut report = TasksReport::new(&machine(), &header, &ledger, &interval, &[]);
        let mut owner = report.total.clone();
        owner.who = OwnerOrTarget::Owner(cgroup(1, "/web"));
        let charge = |(culprit, wait_ns): &(Culprit, u64)| Charge {
            culprit: culprit.clone(),
            wait_ns: *wait_ns,
            share: *wait_ns as f64 / 1000.0,
        };
        let charges = charges.iter().map(charge).collect();
        report.waited = vec![Waited { who: owner.who.clone(), wait_ns: 1000, charges }];
        let found = culprits(&report, &owner);
        found
            .into_iter()
            .map(|one| (one.whose.and_then(|who| who.owner().cloned()), one.value.estimate))
            .collect()
    }

    #[test]
    fn whoever_had_the_cpu_longest_is_told_first_the_owner_itself_and_those_that_are_not_counted_too() {
        let of = |id, path| Culprit::Owner(cgroup(id, path));
        let (web, batch) = (cgroup(1, "/web"), cgroup(2, "/batch"));
        let own =
            [(of(1, "/web"), 500), (of(3, "/web/a"), 380), (Culprit::Outside, 90), (of(2, "/batch"), 10)];
        assert_eq!(told(&own), [(Some(web), 880.0)]);
        let others =
            [(Culprit::Idle, 400), (Culprit::Outside, 350), (of(2, "/batch"), 150), (of(4, "/b"), 100)];
        assert_eq!(told(&others), [(None, 350.0), (Some(batch), 150.0)]);
        assert_eq!(told(&[(Culprit::Unknown, 900), (Culprit::Migrated, 100)]), []);
    }
}
