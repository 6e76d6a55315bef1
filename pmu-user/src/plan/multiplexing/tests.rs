//! Tests of the order of the groups, and of the time for which one is active.

use std::time::Duration;

use super::{ActiveGroup, EventGroup, Host, Multiplexing, PlannedEvent, Unfit, slice};
use crate::plan::schedule::{Counters, Need, Schedule};

fn group(events: usize) -> EventGroup {
    let event = PlannedEvent { name: "e".to_owned(), kind: 4, words: [0; 4], modes: String::new() };
    EventGroup { events: vec![event; events] }
}

fn turns(always: &[usize], groups: &[usize]) -> Multiplexing {
    let all = |sizes: &[usize]| sizes.iter().map(|&size| group(size)).collect();
    let slice = Duration::from_millis(10);
    Multiplexing { pmu: "cpu".to_owned(), always: all(always), groups: all(groups), slice }
}

#[test]
fn a_group_in_force_lies_behind_what_always_counts() {
    let turns = turns(&[2, 1], &[3, 1]);
    assert_eq!((turns.always_places(), turns.stride()), (5, 11));
    let first = ActiveGroup { shift: 0, leaders: 0b10_1001, members: 0b1_1000_0100 };
    assert_eq!(turns.in_force(Some(0)), first);
    assert_eq!(turns.in_force(Some(1)), ActiveGroup { shift: 4, members: 0b100, ..first });
}

#[test]
fn without_groups_only_what_always_counts_is_read() {
    assert_eq!(turns(&[2], &[]).in_force(None), ActiveGroup { shift: 0, leaders: 1, members: 0b100 });
}

#[test]
fn more_events_at_a_time_than_a_row_holds_are_refused() {
    assert_eq!(turns(&[8, 8], &[8]).check(), Ok(()));
    let error = Unfit::TooMany { pmu: "cpu".to_owned(), places: 28 };
    assert_eq!(turns(&[8, 8], &[1, 9]).check(), Err(error));
    assert_eq!(turns(&[0], &[]).check(), Err(Unfit::Empty("cpu".to_owned())));
}

#[test]
fn slots_lead_and_what_needs_no_counter_stands_apart() {
    let counters = [
        Counters::Share,
        Counters::Free,
        Counters::Fixed { index: 1, general: 0 },
        Counters::Slots,
        Counters::General(0xf),
    ];
    let names = ["retiring", "clock", "cycles", "slots", "misses"];
    let need = |(name, counters): (&str, Counters)| Need { name: name.to_owned(), counters, resource: None };
    let needs: Vec<Need> = names.into_iter().zip(counters).map(need).collect();
    let event =
        |name: &str| PlannedEvent { name: name.to_owned(), kind: 4, words: [0; 4], modes: String::new() };
    let resolved = names.map(event);
    let schedule = Schedule { always: vec![0, 1, 2, 3], groups: vec![vec![4]], ..Schedule::default() };
    let turns = Multiplexing::new(&schedule, &needs, &resolved, "cpu", Duration::from_millis(20));
    let found: Vec<Vec<&str>> = turns
        .always
        .iter()
        .chain(&turns.groups)
        .map(|group| group.events.iter().map(|event| event.name.as_str()).collect())
        .collect();
    assert_eq!(found, [vec!["slots", "retiring"], vec!["cycles"], vec!["clock"], vec!["misses"]]);
    assert_eq!((turns.pmu.as_str(), turns.round()), ("cpu", Duration::from_millis(20)));
}

#[test]
fn changing_groups_costs_little_on_any_machine() {
    for cpus in [1, 2, 64, 512, 8192] {
        for (host, change_us) in [(Host::Bare, 20.0), (Host::Guest, 100.0)] {
            let slice_us = slice(cpus, host).as_secs_f64() * 1e6;
            assert!(change_us / slice_us <= 0.002 + 1e-9, "{cpus} CPUs, {host:?}");
            assert!(cpus as f64 * 10.0 / slice_us <= 0.05 + 1e-9, "{cpus} CPUs, {host:?}");
        }
    }
}

#[test]
fn few_cpus_have_short_slices() {
    assert_eq!(slice(2, Host::Bare), Duration::from_millis(10));
    assert_eq!(slice(2, Host::Guest), Duration::from_millis(50));
    assert_eq!(slice(256, Host::Bare), Duration::from_millis(51) + Duration::from_micros(200));
}
