//! Intervals and errors on simulated workloads, compared with the truth and with the kernel's rotation.
//! `cargo test -p pmu-user --lib simulation -- --nocapture` prints the figures.

mod measured;
mod tally;
mod workload;

use std::{collections::BTreeMap, sync::LazyLock};

use self::{
    measured::Measured,
    tally::{Tally, mean, median},
    workload::{ALWAYS, Class, EVENTS, Workload},
};
use super::{Estimates, EventIndex};
use crate::metric::testing::Random;

/// Tallies by kind of metric, and for totals by order of phases.
type Study = BTreeMap<String, Tally>;

const TOTALS: &str = "totals";
const PER_THOUSAND: &str = "per 1,000 instructions";
const RATIO: &str = "ratio of two groups";
const FRACTION: &str = "Top-Down fraction";

/// Study of plain workloads, more than the 200 that are required: workloads differ, and a share of them by
/// chance.
static PLAIN: LazyLock<Study> = LazyLock::new(|| study(Class::Plain, 240, 0x9e37_79b9_7f4a_7c15));

fn study(class: Class, workloads: usize, seed: u64) -> Study {
    let mut random = Random(seed);
    let mut study = Study::new();
    for _ in 0..workloads {
        let workload = Workload::new(&mut random, class);
        let measured = Measured::new(&workload, &mut random);
        let estimates = Estimates::new(&measured.turns, &measured.rows);
        for event in ALWAYS..measured.truth.len() {
            let value = estimates.value(EventIndex(event));
            for kind in [TOTALS.to_owned(), format!("{TOTALS}, phases: {:?}", workload.order)] {
                let tally = study.entry(kind).or_default();
                tally.add(&value, measured.kernel[event], measured.truth[event]);
            }
        }
        for group in 0..workload.groups {
            metrics(&mut study, &measured, &estimates, group, (group + 1) % workload.groups);
        }
    }
    for (kind, tally) in &study {
        println!("{class:?}, {workloads} workloads: {kind:28} {tally}");
    }
    study
}

/// Formula of a metric, over a function that returns an event's total.
type Formula<'a> = dyn Fn(&dyn Fn(EventIndex) -> Option<f64>) -> Option<f64> + 'a;

/// Adds three metrics: over what always counts, over two groups, and one as Top-Down has them, with a bound.
fn metrics(study: &mut Study, measured: &Measured, estimates: &Estimates, group: usize, other: usize) {
    let [left, right] = [group, other].map(|group| EventIndex(ALWAYS + group * EVENTS));
    let mut add = |kind: &str, formula: &Formula<'_>| {
        let truth = formula(&|event| Some(measured.truth[event.0])).unwrap();
        let kernel = formula(&|event| {
            measured.kernel[event.0].or((event.0 < ALWAYS).then(|| measured.truth[event.0]))
        });
        study.entry(kind.to_owned()).or_default().add(&estimates.metric(formula), kernel, truth);
    };
    let (instructions, slots, memory) = (EventIndex(1), EventIndex(3), EventIndex(5));
    add(PER_THOUSAND, &|total| Some(1000.0 * total(left)? / total(instructions)?));
    add(RATIO, &|total| Some(total(left)? / total(right)?));
    add(FRACTION, &|total| {
        let share = total(left)? / (total(left)? + total(right)?);
        Some((total(memory)? / total(slots)? * share).clamp(0.0, 1.0))
    });
}

#[test]
fn the_interval_of_a_total_covers_the_truth_in_93_to_97_of_100_cases() {
    let tally = &PLAIN[TOTALS];
    assert!((0.93..=0.97).contains(&tally.coverage()), "{tally}");
    assert!(tally.missing * 20 < tally.ours.len(), "{tally}");
}

#[test]
fn the_interval_of_a_metric_covers_the_truth_in_93_to_97_of_100_cases() {
    for kind in [PER_THOUSAND, RATIO, FRACTION] {
        let tally = &PLAIN[kind];
        assert!((0.93..=0.97).contains(&tally.coverage()), "{kind}: {tally}");
    }
}

#[test]
fn the_error_of_a_total_is_at_most_half_of_that_of_the_kernels_rotation() {
    let tally = &PLAIN[TOTALS];
    assert!(median(&tally.ours) <= 0.5 * median(&tally.kernel), "{tally}");
    assert!(mean(&tally.ours) <= 0.5 * mean(&tally.kernel), "{tally}");
}

#[test]
fn the_error_of_misses_per_thousand_is_at_most_half_of_that_of_the_kernels_rotation() {
    let tally = &PLAIN[PER_THOUSAND];
    assert!(median(&tally.ours) <= 0.5 * median(&tally.kernel), "{tally}");
    assert!(mean(&tally.ours) <= 0.5 * mean(&tally.kernel), "{tally}");
}

#[test]
fn where_what_always_counts_hides_the_phases_the_interval_is_honest() {
    let study = study(Class::Hidden, 80, 0xd1b5_4a32_d192_ed03);
    for kind in [TOTALS, PER_THOUSAND, RATIO, FRACTION] {
        let tally = &study[kind];
        assert!(tally.coverage() >= 0.9, "{kind}: {tally}");
    }
}

#[test]
fn after_a_few_rounds_the_interval_is_honest() {
    let study = study(Class::Short, 100, 0x8cb9_2ba7_2f3d_8dd7);
    for kind in [TOTALS, PER_THOUSAND, RATIO, FRACTION] {
        let tally = &study[kind];
        assert!(tally.coverage() >= 0.9, "{kind}: {tally}");
    }
}
