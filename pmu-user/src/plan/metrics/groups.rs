//! What of a CPU model's metrics is wanted, packed into groups that are counted together, and which metrics are left out.

use std::path::PathBuf;

use super::measured::{Depth, Measured, Multiplex};
use crate::plan::schedule::{self, Capacity, Home, Need, Packing, Schedule, WantedMetric};

/// Packs, without turns if none are allowed: then the metrics that fit with those before them are kept.
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

/// Where the schedule has each metric; those that have no place go to `missing`, with the reason.
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
            let why = "its events do not fit the counters beside the others, and taking turns is not allowed";
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

/// What of a model's metrics to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsRequest {
    /// Name of the CPU model; the machine's own if none.
    pub model: Option<String>,
    /// The user's perfmon directory.
    pub folder: Option<PathBuf>,
    /// How deep.
    pub depth: Depth,
    /// Metrics, or groups of them, beside the tree.
    pub names: Vec<String>,
    /// May metrics be multiplexed?
    pub multiplex: Multiplex,
}
