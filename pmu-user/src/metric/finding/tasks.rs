//! Findings on tasks.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Cause, Finding, busy, exact,
    faults::fault_storm,
    forks::fork_storm,
    locks::convoy,
    rate,
    rules::{BUSY, HOT_SAMPLES, MOVES_LEAST, RATE_LEAST_NS, STEAL_STEP_NS},
    waits::cpu_wait,
};
use crate::{
    drain::{Owner, TasksHeader},
    metric::{
        BlindClass, Frame, GapReport, OwnerOrTarget, OwnerReport, Quality, TasksReport,
        interrupt::by_handler,
        topdown::{Node, TopDown},
        value::{How, Known, Value, poisson_interval},
    },
    plan::Target,
    table::{
        hint::hint,
        metric::{self, Metric},
        unit::Unit,
    },
    untrusted::Untrusted,
};

/// Returns the findings, in no order.
pub(super) fn findings(header: &TasksHeader, report: &TasksReport) -> Vec<Finding> {
    let mut found: Vec<Finding> = each_owner(report, fault_storm);
    found.extend(each_owner(report, convoy));
    found.extend(each_owner(report, migration_storm));
    found.extend(each_owner(report, interrupted));
    found.extend(each_owner(report, |report, owner| cpu_wait(header, report, owner)));
    found.extend(steal(report));
    found.extend(fork_storm(report));
    found.extend(masked(header, report));
    found.extend(masked_span(report));
    found.extend(report.topdown.iter().flatten().flat_map(|topdown| bottlenecks(report, topdown)));
    found.extend(hot_function(report).or_else(|| hot_stack(report)));
    found.extend(owners_beyond(report));
    found.extend(missing(report));
    found
}

/// Returns the findings of a rule on the owners, or on all together where it holds for none of them alone.
fn each_owner(
    report: &TasksReport,
    rule: impl Fn(&TasksReport, &OwnerReport) -> Option<Finding>,
) -> Vec<Finding> {
    let found: Vec<Finding> = report.rows().filter_map(|owner| rule(report, owner)).collect();
    if found.is_empty() { rule(report, &report.total).into_iter().collect() } else { found }
}

/// Returns the finding on an event's rate, per second of an owner's CPU time.
fn storm(report: &TasksReport, owner: &OwnerReport, cause: Cause, of: &Metric) -> Option<Finding> {
    let (time, count) = (busy(report, owner, BUSY)?, owner.value(of)?);
    if time.low < RATE_LEAST_NS as f64 {
        return None;
    }
    let finding = Finding::of(cause, rate(count, time))?.of_whom(&owner.who);
    Some(finding.resting_on(of.name, of.unit, *count).resting_on(metric::CPU_TIME.name, Unit::Ns, *time))
}

/// Returns the finding on migrations. A task that waits often is moved at many wake-ups, at little cost. Only
/// moves that come with every few switches are a storm.
fn migration_storm(report: &TasksReport, owner: &OwnerReport) -> Option<Finding> {
    let (moves, switches) = (owner.value(&metric::MIGRATIONS)?, owner.value(&metric::CONTEXT_SWITCHES)?);
    if moves.low < MOVES_LEAST * switches.high {
        return None;
    }
    storm(report, owner, Cause::MigrationStorm, &metric::MIGRATIONS)
}

/// Returns the finding on the time of interrupt handlers while an owner's tasks had a CPU. It names the
/// handler that had most time on all CPUs.
fn interrupted(report: &TasksReport, owner: &OwnerReport) -> Option<Finding> {
    let (time, taken) = (busy(report, owner, BUSY)?, owner.value(&metric::INTERRUPTS_TIME)?);
    if time.low < RATE_LEAST_NS as f64 {
        return None;
    }
    let share = taken.times(100.0 / time.estimate.max(1.0));
    let share = Known { low: 100.0 * taken.low / time.high.max(1.0), ..share };
    let most = by_handler(&report.handlers).into_iter().map(|sum| Untrusted::from(sum.called)).take(1);
    let finding = Finding::of(Cause::Interrupted, share)?.of_whom(&owner.who).naming(most);
    Some(finding.resting_on(metric::INTERRUPTS_TIME.name, Unit::Ns, *taken))
}

/// Returns the finding on stolen time, where all CPU time is accounted for.
fn steal(report: &TasksReport) -> Option<Finding> {
    let books = report.quality.books.as_ref()?;
    let stolen = books.told_stolen_ns? as f64;
    let cpus = books.time.wall_ns as f64 / report.length_ns.max(1) as f64;
    // The time of each CPU comes in steps, and the first step may include a part from before.
    let stolen = Known { low: (stolen - cpus * STEAL_STEP_NS).max(0.0), ..exact(stolen) };
    Some(Finding::of(Cause::Steal, stolen.times(100.0 / books.time.wall_ns.max(1) as f64))?.resting_on(
        "stolen_time",
        Unit::Ns,
        stolen,
    ))
}

/// Returns the finding on blind time, as a share of the CPU time in which it could have occurred. Gaps that
/// were certainly masked are a lower bound.
fn masked(header: &TasksHeader, report: &TasksReport) -> Option<Finding> {
    let masked = report.blind.masked();
    let time = masked.time.known()?;
    let sure: u64 = sure_gaps(report).map(|gap| gap.gap.row.late_ns).fold(0, u64::saturating_add);
    let low = time.low.max(sure as f64);
    let time = Known { estimate: time.estimate.max(low), low, high: time.high.max(low), ..*time };
    let finding = Finding::of(Cause::Masked, time.times(100.0 / masked.of_ns.max(1) as f64))?;
    let code = longest(report).and_then(|gap| gap.stack.first().cloned());
    let finding = finding.resting_on(metric::BLIND_TIME.name, Unit::Ns, time).naming(code);
    let all = header.plan.target == Target::System;
    Some(if all { finding } else { finding.of_whom(&OwnerOrTarget::Target) })
}

/// Returns the gaps of the target that only masking explains. A timer was due when its gap began at the
/// earliest, so a gap is at least as long as its timer was late.
fn sure_gaps(report: &TasksReport) -> impl Iterator<Item = &GapReport> {
    report.blind.gaps.iter().filter(|gap| gap.class == BlindClass::Masked)
}

fn longest(report: &TasksReport) -> Option<&GapReport> {
    sure_gaps(report).max_by_key(|gap| gap.gap.row.late_ns)
}

/// Returns the finding on the longest gap.
fn masked_span(report: &TasksReport) -> Option<Finding> {
    let longest = longest(report)?;
    let late = exact(longest.gap.row.late_ns as f64);
    let finding = Finding::of(Cause::MaskedSpan, late)?.naming(longest.stack.first().cloned());
    Some(match &longest.owner {
        Some(owner) => finding.of_whom(&OwnerOrTarget::Owner(owner.clone())),
        None => finding,
    })
}

/// Returns the findings on lost slots: of the target, and of owners that differ from it.
fn bottlenecks(report: &TasksReport, topdown: &TopDown) -> Vec<Finding> {
    let mut paths: BTreeSet<&[u32]> = BTreeSet::new();
    let mut found = Vec::new();
    let owners: BTreeMap<_, _> = report.by_program().iter().map(|owner| (&owner.who, owner)).collect();
    let all = report.total.value(&metric::CPU_TIME).map_or(0.0, |all| all.estimate);
    for (who, tree) in report.trees(topdown) {
        let owner = match who {
            OwnerOrTarget::Target => Some(&report.total),
            whose => owners.get(whose).copied(),
        };
        let path = &tree.path[..tree.sure];
        let Some(time) = owner.and_then(|owner| busy(report, owner, BUSY)) else { continue };
        // Part of its time that it had on these cores.
        let share =
            tree.time_share.as_ref().and_then(Value::known).map_or(1.0, |share| share.estimate / 100.0);
        let time = time.times(share);
        if paths.contains(path) || time.estimate < 0.2 * all {
            continue;
        }
        if let Some(finding) = bottleneck(topdown, tree.nodes.as_slice(), path) {
            found.push(finding.of_whom(who).resting_on(metric::CPU_TIME.name, Unit::Ns, time));
            paths.insert(path);
        }
    }
    found
}

/// Returns the finding on the node at the end of a path; useful work is not a bottleneck.
fn bottleneck(topdown: &TopDown, nodes: &[Node], path: &[u32]) -> Option<Finding> {
    let shape = |index: &u32| topdown.shapes.iter().find(|shape| shape.index == *index);
    let shapes: Vec<_> = path.iter().filter_map(shape).collect();
    let is_share = |index: &u32| shape(index).is_some_and(|shape| shape.unit == Unit::Percent);
    let last = path.iter().rev().find(|index| is_share(index))?;
    if shapes.first()?.name == "Retiring" {
        return None;
    }
    let value = nodes[*last as usize].value.known()?;
    let finding = Finding::of(Cause::Bottleneck, *value)?;
    let names = shapes.iter().map(|shape| Untrusted::from(shape.name.as_str()));
    let shape = shape(last)?;
    let next = hint(&shape.name).map_or(finding.next.clone(), |hint| hint.try_next.clone());
    let domain = shape.domain.split('_').next().unwrap_or_default().to_lowercase();
    let domain = topdown.pmu().map_or_else(|| domain.clone(), |pmu| format!("{domain} on {pmu}"));
    Some(
        Finding { metric: topdown.named(&shape.name).into_owned(), domain: Some(domain), next, ..finding }
            .naming(names),
    )
}

/// Returns the finding on the function that most samples hit, if the target kept a CPU in use.
fn hot_function(report: &TasksReport) -> Option<Finding> {
    let most = report.functions.iter().filter(|function| function.hot.frame != Frame::Rest);
    let most = most.max_by(|a, b| a.hot.share.estimate.total_cmp(&b.hot.share.estimate))?;
    let hot = &most.hot;
    busy(report, &report.total, 4.0 * BUSY)?;
    if hot.samples < HOT_SAMPLES {
        return None;
    }
    let (name, module) = named(&hot.frame)?;
    let finding = Finding::of(Cause::HotFunction, hot.share.times(100.0))?.naming([name]).naming(module);
    let finding = Finding { of_kernel: hot.kernel, ..finding };
    let finding = finding.of_whom(&of_one_or_all(most.owners.iter().map(|(owner, _)| owner)));
    Some(finding.resting_on(metric::SAMPLES.name, Unit::Samples, exact(hot.samples as f64)))
}

/// Returns the owner, where there is only one, else the target.
fn of_one_or_all<'a>(mut owners: impl Iterator<Item = &'a Owner>) -> OwnerOrTarget {
    match (owners.next(), owners.next()) {
        (Some(one), None) => OwnerOrTarget::Owner(one.clone()),
        _ => OwnerOrTarget::Target,
    }
}

/// Returns the name of code, and the file that contains it.
fn named(frame: &Frame) -> Option<(Untrusted, Option<Untrusted>)> {
    let at = |address: &u64| Untrusted::from(format!("{address:#x}"));
    Some(match frame {
        Frame::Function { name, module, .. } => (name.clone(), module.clone()),
        Frame::Offset { module, offset, .. } => (at(offset), Some(module.clone())),
        Frame::Address(address) => (at(address), None),
        Frame::Rest | Frame::Cut(_) => return None,
    })
}

/// Returns the finding on the call path that most samples hit, where no function alone is hot. Its innermost
/// calls name it.
fn hot_stack(report: &TasksReport) -> Option<Finding> {
    const NAMED: usize = 3;
    let hot = report.hottest_stack()?;
    busy(report, &report.total, 4.0 * BUSY)?;
    let samples = hot.samples;
    if samples < HOT_SAMPLES {
        return None;
    }
    let names = hot.frames.iter().take(NAMED).filter_map(|frame| Some(named(frame)?.0));
    let finding = Finding::of(Cause::HotStack, hot.share.times(100.0))?.naming(names);
    let finding = Finding { of_kernel: hot.kernel > 0, ..finding };
    let finding = finding.of_whom(&of_one_or_all(hot.owners.iter().copied()));
    Some(finding.resting_on(metric::SAMPLES.name, Unit::Samples, exact(samples as f64)))
}

/// Returns the finding on the CPU time of owners that share one row because there were too many.
fn owners_beyond(report: &TasksReport) -> Option<Finding> {
    let other = report.owners.iter().find(|owner| owner.who == OwnerOrTarget::Owner(Owner::Other))?;
    let (time, all) = (other.value(&metric::CPU_TIME)?, report.total.value(&metric::CPU_TIME)?);
    let share = time.times(100.0 / all.estimate.max(1.0)).within(Unit::Percent);
    Some(Finding::of(Cause::OwnersBeyond, share)?.resting_on(metric::CPU_TIME.name, Unit::Ns, *time))
}

/// Returns the missing samples of the first event, as a share of those expected. The number that hits a
/// target is also subject to chance, and its work may be in step with the sampling timer. At most as many of
/// its samples are missing as of all that ran.
fn samples_missing(quality: &Quality) -> Option<Known> {
    let coverage = quality.sample_coverages().next()?;
    let all = quality.samples.first().map(|of| (of.seen, of.expected));
    let of_target = quality.target.as_ref().and_then(|target| target.samples.first());
    let of_target = of_target.filter(|of| of.coverage.is_some()).map(|of| (of.seen, of.expected));
    let (seen, expected) = of_target.or(all)?;
    let expected = expected.filter(|expected| *expected > 0)? as f64;
    let (fewest, most) = poisson_interval(seen);
    let missing = all.and_then(|(seen, expected)| Some(expected?.saturating_sub(seen) as f64));
    let most_missing = missing.map_or(1.0, |missing| (missing / expected).min(1.0));
    let share = |more: f64| 100.0 * (1.0 - coverage - more / expected).clamp(0.0, most_missing);
    let (low, high) = (share(most - seen as f64), share(fewest - seen as f64));
    Some(Known { low, high, how: How::Sampled, ..exact(share(0.0)) })
}

/// Returns the findings on events that never arrived.
fn missing(report: &TasksReport) -> Vec<Finding> {
    let quality = &report.quality;
    let without = |coverage: f64| Known { how: How::Sampled, ..exact(100.0 * (1.0 - coverage)) };
    let switches = (quality.switches > 0).then(|| without(quality.switch_coverage));
    let samples = samples_missing(quality);
    let switches = switches.and_then(|share| Finding::of(Cause::SwitchesMissing, share));
    let samples = samples.and_then(|share| Finding::of(Cause::SamplesMissing, share));
    [switches, samples].into_iter().flatten().collect()
}
