//! Estimates from slices with known totals, and from slices that show too little.

use std::{array, time::Duration};

use super::{Estimates, EventIndex, REPLICATES};
use crate::{
    drain::{SlotId, reading::SliceRow},
    metric::value::{How, Known, Value},
    plan::multiplexing::{EventGroup, Multiplexing, PlannedEvent},
    table::unit::Unit,
};

const MS: u64 = 1_000_000;
const CYCLES: EventIndex = EventIndex(0);
const INSTRUCTIONS: EventIndex = EventIndex(1);
const LEFT: EventIndex = EventIndex(2);
const RIGHT: EventIndex = EventIndex(3);

fn group(names: &[&str]) -> EventGroup {
    let event =
        |name: &&str| PlannedEvent { name: (*name).to_owned(), kind: 4, words: [0; 4], modes: String::new() };
    EventGroup { events: names.iter().map(event).collect() }
}

fn turns() -> Multiplexing {
    Multiplexing {
        pmu: "cpu".to_owned(),
        always: vec![group(&["cycles", "instructions"])],
        groups: vec![group(&["left"]), group(&["right"])],
        slice: Duration::from_millis(20),
    }
}

/// Returns a slice of 20 ms: cycles, instructions, and the count of the active group.
fn row(slice: u64, group: u32, always: [u64; 2], count: u64) -> SliceRow {
    SliceRow {
        slot: SlotId::default(),
        turns: 0,
        slice,
        group: Some(group),
        time_ns: 20 * MS,
        always: always.to_vec(),
        always_running_ns: vec![20 * MS],
        counts: vec![count],
        running_ns: 20 * MS,
    }
}

/// Returns slices of two phases, mixed in varying shares of the time. `left` counts 10 per thousand cycles in
/// one and 2,000 in the other, `right` always 500. The groups take turns at 2 and 2 slices.
fn mixed(slices: u64) -> (Vec<SliceRow>, f64) {
    let mut truth = 0.0;
    let rows = (0..slices)
        .map(|slice| {
            let share = (slice * 7 % 11) as f64 / 10.0;
            let left = 400.0 * (1.0 - share) + 80_000.0 * share;
            truth += left.round();
            let always = [40_000_000, (20e6 * (1.0 - share) + 120e6 * share) as u64];
            match slice / 2 % 2 {
                0 => row(slice, 0, always, left.round() as u64),
                _ => row(slice, 1, always, 20_000),
            }
        })
        .collect();
    (rows, truth)
}

fn known(value: &Value) -> Known {
    *value.known().unwrap()
}

fn missing(value: &Value) -> &str {
    match value {
        Value::Missing(why) => why,
        Value::Known(known) => panic!("{known:?}"),
    }
}

#[test]
fn mixtures_of_phases_that_what_always_counts_tells_apart_are_exact() {
    let (rows, truth) = mixed(24);
    let left = known(&Estimates::new(&turns(), &rows).value(LEFT));
    assert!((left.estimate / truth - 1.0).abs() < 2e-3, "{left:?} for {truth}");
    let plain =
        rows.iter().filter(|row| row.group == Some(0)).map(|row| row.counts[0]).sum::<u64>() as f64 * 2.0;
    assert!((plain / truth - 1.0).abs() > 0.02, "scaling has to be off for this to say anything: {plain}");
    assert_eq!((left.how, left.coverage), (How::Scaled, 0.5));
}

#[test]
fn what_counts_all_the_time_is_exact() {
    let (rows, _) = mixed(24);
    let cycles = known(&Estimates::new(&turns(), &rows).value(CYCLES));
    assert_eq!((cycles.estimate, cycles.low, cycles.high), (24.0 * 40e6, 24.0 * 40e6, 24.0 * 40e6));
    assert_eq!((cycles.how, cycles.coverage), (How::Counted, 1.0));
}

#[test]
fn clocks_that_differ_a_little_leave_a_count_exact() {
    let (mut rows, _) = mixed(24);
    rows.iter_mut().for_each(|row| row.always_running_ns = vec![20 * MS - 10_000]);
    assert_eq!(known(&Estimates::new(&turns(), &rows).value(CYCLES)).how, How::Counted);
}

#[test]
fn clocks_that_differ_in_a_slice_of_nearly_no_time_leave_counts_exact() {
    let short = |row: SliceRow| SliceRow { time_ns: 20_000, running_ns: 19_000, ..row };
    let always = [40_000_000, 20_000_000];
    let rows = [
        row(1, 0, always, 700),
        short(SliceRow { always_running_ns: vec![19_000], ..row(2, 0, [40, 20], 7) }),
    ];
    let turns = Multiplexing { groups: vec![group(&["left"])], ..turns() };
    let estimates = Estimates::new(&turns, &rows);
    assert_eq!(estimates.value(CYCLES), Value::counted(40_000_040, 1.0));
    assert_eq!(estimates.value(LEFT), Value::counted(707, 1.0));
}

#[test]
fn an_event_that_lost_its_counter_for_a_while_is_scaled() {
    let (mut rows, _) = mixed(24);
    for row in rows.iter_mut().step_by(3) {
        (row.always, row.always_running_ns) = (vec![0, 0], vec![0]);
    }
    let cycles = known(&Estimates::new(&turns(), &rows).value(CYCLES));
    assert!((cycles.estimate / (24.0 * 40e6) - 1.0).abs() < 1e-9, "{cycles:?}");
    assert!(cycles.how == How::Scaled && (cycles.coverage - 2.0 / 3.0).abs() < 1e-9, "{cycles:?}");
}

#[test]
fn a_slice_in_which_others_had_the_counters_is_scaled_by_itself() {
    let (mut rows, _) = mixed(24);
    for row in rows.iter_mut().filter(|row| row.group == Some(1)).step_by(2) {
        (row.counts, row.running_ns) = (vec![5_000], 5 * MS);
    }
    let right = known(&Estimates::new(&turns(), &rows).value(RIGHT));
    assert!((right.estimate / (24.0 * 20_000.0) - 1.0).abs() < 1e-6, "{right:?}");
    assert!((right.coverage - (6.0 * 20.0 + 6.0 * 5.0) / (24.0 * 20.0)).abs() < 1e-9, "{right:?}");
}

#[test]
fn a_group_without_a_turn_is_missing_and_not_nothing() {
    let (mut rows, _) = mixed(24);
    rows.retain(|row| row.group == Some(0));
    assert!(missing(&Estimates::new(&turns(), &rows).value(RIGHT)).contains("no turn"));
}

#[test]
fn a_group_whose_counters_others_held_is_missing() {
    let (mut rows, _) = mixed(24);
    rows.iter_mut().filter(|row| row.group == Some(1)).for_each(|row| row.running_ns = 0);
    assert!(missing(&Estimates::new(&turns(), &rows).value(RIGHT)).contains("others held"));
}

#[test]
fn two_slices_are_too_few() {
    let (rows, _) = mixed(4);
    assert!(missing(&Estimates::new(&turns(), &rows).value(LEFT)).contains("2 slices only"));
}

#[test]
fn what_never_ran_is_missing() {
    let estimates = Estimates::new(&turns(), &[]);
    for event in 0..estimates.events() {
        assert!(missing(&estimates.value(EventIndex(event))).contains("never ran"));
    }
}

#[test]
fn a_group_that_has_all_turns_is_exact() {
    let (mut rows, _) = mixed(24);
    rows.iter_mut().for_each(|row| (row.group, row.counts) = (Some(0), vec![7]));
    let left = known(&Estimates::new(&turns(), &rows).value(LEFT));
    assert_eq!((left.estimate, left.low, left.high, left.how), (168.0, 168.0, 168.0, How::Counted));
}

#[test]
fn a_total_is_no_less_than_was_seen() {
    let (mut rows, _) = mixed(24);
    let mut seen = 0;
    for (at, row) in rows.iter_mut().enumerate().filter(|(_, row)| row.group == Some(0)) {
        row.counts = vec![if at == 0 { 1_000_000 } else { 0 }];
        seen += row.counts[0];
    }
    let left = known(&Estimates::new(&turns(), &rows).value(LEFT));
    assert!(left.low >= seen as f64 && left.estimate >= left.low, "{left:?}");
}

#[test]
fn nothing_seen_may_be_something() {
    let (mut rows, _) = mixed(24);
    rows.iter_mut().for_each(|row| row.counts = vec![0]);
    let left = known(&Estimates::new(&turns(), &rows).value(LEFT));
    assert!(left.estimate == 0.0 && left.low == 0.0 && left.high > 2.0, "{left:?}");
}

#[test]
fn the_order_of_the_rows_does_not_matter() {
    let (mut rows, _) = mixed(24);
    let forward = Estimates::new(&turns(), &rows);
    rows.reverse();
    assert_eq!(forward.value(LEFT), Estimates::new(&turns(), &rows).value(LEFT));
}

#[test]
fn a_metric_that_is_an_event_has_the_events_interval() {
    let (mut rows, _) = mixed(60);
    rows.iter_mut().for_each(|row| row.counts[0] += row.slice * 7_919 % 4_001);
    let estimates = Estimates::new(&turns(), &rows);
    let (event, metric) = (known(&estimates.value(RIGHT)), known(&estimates.metric(|total| total(RIGHT))));
    assert!(
        (event.high - metric.high).abs() < 1e-6 && (event.low - metric.low).abs() < 1e-6,
        "{event:?} {metric:?}"
    );
    assert!(event.high > event.estimate);
}

#[test]
fn a_metric_over_exact_counts_is_exact() {
    let (rows, _) = mixed(24);
    let per_cycle =
        known(&Estimates::new(&turns(), &rows).metric(|total| Some(total(INSTRUCTIONS)? / total(CYCLES)?)));
    assert_eq!((per_cycle.low, per_cycle.how, per_cycle.coverage), (per_cycle.high, How::Counted, 1.0));
}

#[test]
fn a_metric_covers_as_little_as_its_worst_event() {
    let (mut rows, _) = mixed(24);
    rows.iter_mut().filter(|row| row.group == Some(1)).for_each(|row| row.running_ns = 10 * MS);
    let metric = Estimates::new(&turns(), &rows).metric(|total| Some(total(LEFT)? / total(RIGHT)?));
    assert_eq!(known(&metric).coverage, 0.25);
}

#[test]
fn what_a_metric_cannot_be_is_in_no_interval() {
    let (mut rows, _) = mixed(24);
    rows.iter_mut().for_each(|row| row.counts[0] += row.slice * 7_919 % 4_001);
    let estimates = Estimates::new(&turns(), &rows);
    let within = |estimate: f64, unit: Unit| {
        let replicas: [f64; REPLICATES] =
            array::from_fn(|replicate| estimate + if replicate % 2 == 0 { 1e-5 } else { -1e-5 });
        let metric = known(&estimates.evaluated(&[RIGHT], estimate, Some(&replicas), unit));
        [metric.low, metric.high]
    };
    let [low, high] = within(0.0, Unit::MegabytesPerSecond);
    assert!(low == 0.0 && high > 0.0, "{low} to {high}");
    let [low, high] = within(99.999_999, Unit::Percent);
    assert!(low < 99.999_999 && high == 100.0, "{low} to {high}");
}

#[test]
fn a_metric_over_a_missing_event_says_why() {
    let (mut rows, _) = mixed(24);
    rows.retain(|row| row.group == Some(0));
    let metric = Estimates::new(&turns(), &rows).metric(|total| Some(total(RIGHT)? / total(CYCLES)?));
    assert!(missing(&metric).contains("no turn"));
}

#[test]
fn a_ratio_over_nothing_is_missing() {
    let (rows, _) = mixed(24);
    let estimates = Estimates::new(&turns(), &rows);
    let metric = estimates.metric(|total| Some(total(CYCLES)? / (total(CYCLES)? - total(CYCLES)?)));
    assert!(missing(&metric).contains("undefined"));
}

#[test]
fn a_metric_that_is_often_undefined_within_its_error_is_missing() {
    let (mut rows, _) = mixed(24);
    rows.iter_mut().for_each(|row| row.counts[0] += row.slice * 7_919 % 4_001);
    let estimates = Estimates::new(&turns(), &rows);
    let least = known(&estimates.value(RIGHT)).estimate;
    let metric = estimates.metric(|total| total(RIGHT).filter(|count| *count >= least));
    assert!(missing(&metric).contains("too uncertain"));
}

#[test]
fn rows_that_do_not_fit_the_plan_count_for_nothing() {
    let (mut rows, _) = mixed(24);
    rows[0].counts = vec![];
    rows[1].group = Some(9);
    rows[2].always = vec![];
    rows[3].always_running_ns = vec![];
    let right = known(&Estimates::new(&turns(), &rows).value(RIGHT));
    assert!((right.estimate / (24.0 * 20_000.0) - 1.0).abs() < 0.05, "{right:?}");
}

#[test]
fn an_event_is_found_by_its_name_and_first_where_it_always_counts() {
    let mut turns = turns();
    turns.groups[1] = group(&["right", "cycles"]);
    assert_eq!(
        [EventIndex::of(&turns, "cycles"), EventIndex::of(&turns, "right")],
        [Some(CYCLES), Some(RIGHT)]
    );
    assert_eq!(EventIndex::of(&turns, "misses"), None);
}
