//! Causes and the findings that follow from them. Two findings often have one origin: a limit that is used
//! up, and the time that its tasks could not run; page faults, and the kernel's code for them. The list
//! contains the cause, with the findings that follow from it below. Its first line is thus what needs to be
//! changed.

use std::collections::BTreeMap;

use super::{Cause, Finding, forks::called, waits::is_above};
use crate::{
    drain::Owner,
    metric::OwnerOrTarget,
    table::metric::{RUNQUEUE_CULPRIT, THROTTLED_TIME},
};

/// Share of a wait, or of its reason, that counts as most of it.
const MOST: f64 = 0.5;

/// Puts findings that follow from another one below it: below the first of several causes, and in a chain
/// below its first link.
pub(super) fn explain(found: Vec<Finding>) -> Vec<Finding> {
    // If two explain each other, the one that comes first is the cause.
    let explains = |cause: usize, at: usize| {
        let is_mutual = || at < cause && follows(&found[cause], &found[at]);
        cause != at && follows(&found[at], &found[cause]) && !is_mutual()
    };
    let causes: Vec<Option<usize>> =
        (0..found.len()).map(|at| (0..found.len()).find(|&cause| explains(cause, at))).collect();
    let first_link = |at: usize| (0..found.len()).fold(at, |at, _| causes[at].unwrap_or(at));
    let links: Vec<usize> = (0..found.len()).map(first_link).collect();
    let mut symptoms: BTreeMap<usize, Vec<Finding>> = BTreeMap::new();
    let mut kept: Vec<(usize, Finding)> = Vec::new();
    for (at, finding) in found.into_iter().enumerate() {
        match links[at] {
            // A cycle has no first link: its findings stay as they are.
            cause if cause == at || links[cause] != cause => kept.push((at, finding)),
            cause => symptoms.entry(cause).or_default().push(finding),
        }
    }
    let with = |(at, finding): (usize, Finding)| Finding {
        symptoms: symptoms.remove(&at).unwrap_or_default(),
        ..finding
    };
    kept.into_iter().map(with).collect()
}

/// Returns whether `finding` follows from `cause`.
fn follows(finding: &Finding, cause: &Finding) -> bool {
    match (cause.rule.cause, finding.rule.cause) {
        (Cause::Throttled, Cause::CpuWait) => {
            let (held, waited) = (amount(cause, THROTTLED_TIME.name), amount(finding, WAITED));
            covers(cause, finding) && held >= MOST * waited
        }
        (Cause::OomKill | Cause::MemoryHigh, Cause::MemoryPressure | Cause::IoPressure)
        | (Cause::MemoryPressure, Cause::IoPressure) => within(cause, finding),
        (Cause::DiskSaturated, Cause::BlockLatency | Cause::BlockQueue) => cause.subject == finding.subject,
        (Cause::DiskSaturated | Cause::BlockLatency | Cause::BlockQueue, Cause::IoPressure) => true,
        (Cause::ForkStorm, Cause::CpuWait) => {
            is_of_name(cause, finding.whose.as_ref()) || waits_for_name(cause, finding)
        }
        (Cause::ForkStorm, Cause::FaultStorm | Cause::MigrationStorm) => {
            is_of_name(cause, finding.whose.as_ref())
        }
        (Cause::ForkStorm, Cause::HotFunction | Cause::HotStack) => {
            finding.of_kernel && is_of_name(cause, finding.whose.as_ref())
        }
        (Cause::FaultStorm | Cause::MigrationStorm, Cause::HotFunction | Cause::HotStack) => {
            finding.of_kernel && within(cause, finding)
        }
        (
            Cause::Convoy
            | Cause::FaultStorm
            | Cause::MigrationStorm
            | Cause::Bottleneck
            | Cause::HotFunction
            | Cause::HotStack,
            Cause::CpuWait,
        ) => finding.own_part >= MOST && within(cause, finding),
        (Cause::CpuWait, Cause::CpuWait) => is_noise_of(finding, cause),
        _ => false,
    }
}

/// Maximum loss of a culprit to others, as a share of its victim's loss: a culprit with as many tasks as the
/// victim loses as much, and is a victim itself.
const NOISE_MOST: f64 = 0.75;
/// Name of the sum of an owner's waits for a CPU, in its finding.
const WAITED: &str = "runqueue_latency.sum";

fn amount(finding: &Finding, metric: &str) -> f64 {
    finding.evidence(metric).map_or(0.0, |evidence| evidence.value.estimate)
}

/// Returns whether the finding is the wait of an owner that had the CPU for most of the victim's wait, and
/// loses less itself. An example is a batch job with tasks that wait for each other, and a server that waits
/// for the batch job.
fn is_noise_of(finding: &Finding, victim: &Finding) -> bool {
    let culprits = victim.evidence.iter().filter(|evidence| evidence.metric == RUNQUEUE_CULPRIT.name);
    let had = culprits.filter(|evidence| evidence.whose.is_some() && evidence.whose == finding.whose);
    let had: f64 = had.map(|evidence| evidence.value.estimate).sum();
    had >= MOST * amount(victim, WAITED) && finding.lost_to_others() < NOISE_MOST * victim.lost_to_others()
}

/// Returns whether an owner has the name of a storm's processes.
fn is_of_name(storm: &Finding, whose: Option<&OwnerOrTarget>) -> bool {
    match (storm.names.first(), whose) {
        (Some(_), Some(OwnerOrTarget::Target)) => true,
        (Some(name), Some(OwnerOrTarget::Owner(owner))) => called(owner) == Some(name),
        _ => false,
    }
}

/// Returns whether the processes of a storm had the CPU for most of an owner's wait.
fn waits_for_name(storm: &Finding, finding: &Finding) -> bool {
    let culprits = finding.evidence.iter().filter(|evidence| evidence.metric == RUNQUEUE_CULPRIT.name);
    let had =
        culprits.filter(|evidence| evidence.whose.is_some() && is_of_name(storm, evidence.whose.as_ref()));
    had.map(|evidence| evidence.value.estimate).sum::<f64>() >= MOST * amount(finding, WAITED)
}

/// Returns whether the owner of `cause` includes that of `finding`: the same owner, a cgroup above it, or
/// everything.
fn covers(cause: &Finding, finding: &Finding) -> bool {
    match (cause.whose.as_ref(), finding.whose.as_ref()) {
        (None | Some(OwnerOrTarget::Target), _) => true,
        // A cgroup is limited, and processes are counted: if cgroups are targets, those that the limit
        // throttles.
        (Some(OwnerOrTarget::Owner(Owner::Cgroup { .. })), Some(OwnerOrTarget::Target)) => true,
        (Some(OwnerOrTarget::Owner(Owner::Cgroup { path, .. })), Some(OwnerOrTarget::Owner(owner))) => {
            match owner {
                Owner::Cgroup { path: other, .. } => path == other || is_above(path, other),
                _ => true,
            }
        }
        (cause, finding) => cause == finding,
    }
}

/// Returns whether one of the two includes the other: what the whole does may be done by one of its parts.
fn within(cause: &Finding, finding: &Finding) -> bool {
    let part_of_all = matches!(finding.whose, None | Some(OwnerOrTarget::Target));
    part_of_all || covers(cause, finding) || covers(finding, cause)
}

#[cfg(test)]
mod tests {
    use super::{Cause, Finding, RUNQUEUE_CULPRIT, THROTTLED_TIME, WAITED, explain};
    use crate::{
        drain::Owner,
        metric::{OwnerOrTarget, finding::exact},
        table::unit::Unit,
    };

    fn cgroup(path: &str) -> OwnerOrTarget {
        OwnerOrTarget::Owner(Owner::cgroup(path.len() as u64, path.into()))
    }

    /// Returns a finding of a cgroup that rests on this number.
    fn of(cause: Cause, path: &str, metric: &str, amount: f64) -> Finding {
        let value = exact((2.0 * cause.rule().above).min(99.0).max(cause.rule().above * 1.01));
        let finding = Finding::of(cause, value).unwrap().of_whom(&cgroup(path));
        finding.resting_on(metric, Unit::Ns, exact(amount))
    }

    /// Returns a wait, of which the owner's own tasks had this part, and `other` the rest.
    fn wait(path: &str, waited: f64, own_part: f64, other: &str) -> Finding {
        let mut finding = Finding { own_part, ..of(Cause::CpuWait, path, WAITED, waited) };
        finding.evidence.push(super::super::Evidence {
            metric: RUNQUEUE_CULPRIT.name.to_owned(),
            unit: Unit::Ns,
            value: exact(waited * (1.0 - own_part)),
            whose: Some(cgroup(other)),
        });
        finding
    }

    /// Returns findings, each with those that follow from it.
    fn shape(found: Vec<Finding>) -> Vec<(Cause, Vec<Cause>)> {
        let causes = |found: Finding| {
            let symptoms = found.symptoms.iter().map(|symptom| symptom.rule.cause).collect();
            (found.rule.cause, symptoms)
        };
        explain(found).into_iter().map(causes).collect()
    }

    #[test]
    fn a_limit_explains_the_waits_below_it_if_it_took_most_of_them() {
        let limit = |held| of(Cause::Throttled, "/web", THROTTLED_TIME.name, held);
        let below = || wait("/web/a", 100.0, 0.2, "/b");
        assert_eq!(shape(vec![limit(60.0), below()]), [(Cause::Throttled, vec![Cause::CpuWait])]);
        assert_eq!(shape(vec![limit(40.0), below()]).len(), 2, "others had the CPU");
        assert_eq!(shape(vec![limit(60.0), wait("/webs", 100.0, 0.2, "/b")]).len(), 2, "of another cgroup");
    }

    #[test]
    fn a_wait_for_its_own_tasks_follows_from_what_they_do() {
        let convoy = || of(Cause::Convoy, "/a", "lock_wait.time", 1.0);
        let found = shape(vec![convoy(), wait("/a", 100.0, 0.9, "/b")]);
        assert_eq!(found, [(Cause::Convoy, vec![Cause::CpuWait])]);
        assert_eq!(shape(vec![convoy(), wait("/a", 100.0, 0.1, "/b")]).len(), 2, "it waited for others");
        let hot = Finding { of_kernel: true, ..of(Cause::HotFunction, "/a", "samples", 90.0) };
        let faults = of(Cause::FaultStorm, "/a", "minor_faults", 1e6);
        assert_eq!(shape(vec![faults.clone(), hot.clone()]), [(Cause::FaultStorm, vec![Cause::HotFunction])]);
        let own = Finding { of_kernel: false, ..hot };
        assert_eq!(shape(vec![faults, own]).len(), 2, "code of its own");
    }

    #[test]
    fn the_noisy_one_stands_below_its_victim_and_two_victims_beside_each_other() {
        let victim = || wait("/web", 100.0, 0.0, "/batch");
        let noisy = |own| wait("/batch", 200.0, own, "/web");
        assert_eq!(shape(vec![victim(), noisy(0.6)]), [(Cause::CpuWait, vec![Cause::CpuWait])]);
        assert_eq!(shape(vec![victim(), noisy(0.1)]).len(), 2);
    }

    #[test]
    fn what_explains_a_cause_has_its_symptoms_as_well() {
        let storm = of(Cause::ForkStorm, "/a", "processes_ended", 9.0);
        let storm = Finding { whose: None, names: vec!["/a".into()], ..storm };
        let faults = of(Cause::FaultStorm, "/a", "minor_faults", 9.0);
        let hot = Finding { of_kernel: true, ..of(Cause::HotFunction, "/a", "samples", 90.0) };
        let found = shape(vec![storm, faults, hot]);
        assert_eq!(found, [(Cause::ForkStorm, vec![Cause::FaultStorm, Cause::HotFunction])]);
    }
}
