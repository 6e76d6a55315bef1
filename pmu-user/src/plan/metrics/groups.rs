//! Requested metrics of a CPU model, packed into groups that are counted together, and the metrics that are
//! left out.

use std::path::PathBuf;

use super::measured::{Depth, Measured, Multiplex};
use crate::plan::schedule::{self, Capacity, Home, Need, Packing, Schedule, WantedMetric};

/// Packs events into groups. If multiplexing is not allowed, keeps the metrics that fit with those before
/// them.
pub(super) fn fit(
    request: &MetricsRequest,
    needs: &[Need],
    wanted: &[WantedMetric],
    capacity: &Capacity,
) -> Schedule {
    let all = schedule::schedule(needs, wanted, capacity, Packing::Whole);
    if request.multiplex != Multiplex::No || all.groups.len() <= 1 {
        return all;
    }
    let mut kept: Vec<WantedMetric> = wanted.to_vec();
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&index| wanted[index].level);
    kept.iter_mut().for_each(|metric| metric.events.clear());
    for index in order {
        kept[index].events.clone_from(&wanted[index].events);
        if schedule::schedule(needs, &kept, capacity, Packing::Whole).groups.len() > 1 {
            kept[index].events.clear();
        }
    }
    schedule::schedule(needs, &kept, capacity, Packing::Whole)
}

/// Returns the place of each metric in the schedule. Adds metrics without a place to `missing`, with the
/// reason.
pub(super) fn measured(
    schedule: &Schedule,
    wanted: &[WantedMetric],
    needs: &[Need],
    missing: &mut Vec<(String, String)>,
) -> Vec<Measured> {
    let coverage = schedule.coverage(wanted);
    let mut measured = Vec::new();
    for ((metric, home), coverage) in wanted.iter().zip(&schedule.homes).zip(coverage) {
        let groups: Vec<u32> = match home {
            Home::Always => Vec::new(),
            Home::One(group) => vec![*group as u32],
            Home::Split(groups, _) => groups.iter().map(|&group| group as u32).collect(),
            Home::Nowhere(events) => {
                missing.push((metric.name.clone(), nowhere(events, schedule, needs)));
                continue;
            }
        };
        let fits = metric.events.iter().all(|event| {
            schedule.always.contains(event) || schedule.groups.iter().any(|group| group.contains(event))
        });
        if !fits {
            let why =
                "its events do not fit the counters along with the others, and multiplexing is not allowed";
            missing.push((metric.name.clone(), why.to_owned()));
            continue;
        }
        let (name, level) = (metric.name.clone(), metric.level);
        measured.push(Measured { name, level, groups, coverage: coverage.unwrap_or(0.0) });
    }
    measured
}

fn nowhere(events: &[usize], schedule: &Schedule, needs: &[Need]) -> String {
    let why = |event: &usize| {
        let (_, why) = schedule.impossible.iter().find(|(index, _)| index == event)?;
        Some(format!("{}: {why}", needs[*event].name))
    };
    let all: Vec<String> = events.iter().filter_map(why).collect();
    all.join("; ")
}

/// Request for metrics of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsRequest {
    /// Name of the CPU model; the machine's own if `None`.
    pub model: Option<String>,
    /// Perfmon directory of the user.
    pub folder: Option<PathBuf>,
    /// Depth of the tree.
    pub depth: Depth,
    /// Metrics, or groups of them, in addition to the tree.
    pub names: Vec<String>,
    /// Whether metrics may be multiplexed.
    pub multiplex: Multiplex,
}
