//! Tests of schedules against a search that is independent of how they are made.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{
    Because, Capacity, Counters, Home, Need, Packing, Resource, Schedule, WantedMetric, Why,
    capacity::{Held, Hold, Shares},
    schedule,
    synthetic::{COMMON, SCARCE, server},
};
use crate::machine::pmu::counters::CountersSource;

fn capacity(general: u32, fixed: u64, held: &[Held]) -> Capacity {
    let hold = |&counter: &Held| Hold { by: "someone".to_owned(), counter, hint: String::new() };
    let holds = held.iter().map(hold).collect();
    Capacity { general, fixed, shares: Shares::Offered, holds, source: CountersSource::Least }
}

fn needs(counters: &[Counters]) -> Vec<Need> {
    let need = |(number, &counters)| Need { name: format!("event {number}"), counters, resource: None };
    counters.iter().enumerate().map(need).collect()
}

fn wanted(metrics: &[&[usize]]) -> Vec<WantedMetric> {
    let metric = |(number, events): (usize, &&[usize])| WantedMetric {
        name: format!("metric {number}"),
        level: 1,
        events: events.to_vec(),
    };
    metrics.iter().enumerate().map(metric).collect()
}

const CYCLES: Counters = Counters::Fixed { index: 1, general: u32::MAX };
const ANY: Counters = Counters::General(u32::MAX);

#[test]
fn a_servers_tree_comes_near_the_fewest_groups_there_can_be() {
    let (needs, wanted) = server();
    let least = (SCARCE / 4).max((SCARCE + COMMON) / 8);
    let capacity = capacity(0xff, 0xf, &[]);
    let whole = schedule(&needs, &wanted, &capacity, Packing::Whole);
    assert!(whole.groups.len() <= least * 13 / 10, "{} groups, {least} at least", whole.groups.len());
    let tight = schedule(&needs, &wanted, &capacity, Packing::Tight);
    assert!(tight.groups.len() <= least + 1, "{} groups, {least} at least", tight.groups.len());
    assert!(tight.split() < wanted.len() / 3, "{} of {} metrics are split", tight.split(), wanted.len());
}

#[test]
fn events_with_counters_of_their_own_always_count() {
    let needs = needs(&[Counters::Slots, Counters::Share, CYCLES, Counters::Free, ANY]);
    let found = schedule(&needs, &wanted(&[&[0, 1], &[2, 3], &[2, 4]]), &capacity(1, 2, &[]), Packing::Whole);
    assert_eq!((found.always, found.groups), (vec![0, 1, 2, 3], vec![vec![4]]));
    assert_eq!(found.homes, [Home::Always, Home::Always, Home::One(0)]);
}

#[test]
fn cycles_stand_in_on_a_general_counter_when_the_watchdog_has_theirs() {
    let needs = needs(&[CYCLES, ANY, ANY]);
    let metrics = wanted(&[&[0, 1], &[0, 2]]);
    let found = schedule(&needs, &metrics, &capacity(0b11, 2, &[Held::Fixed(1)]), Packing::Whole);
    assert_eq!((found.always, found.groups), (vec![0], vec![vec![1], vec![2]]));
}

#[test]
fn an_only_general_counter_is_left_to_the_groups() {
    let needs = needs(&[CYCLES, ANY]);
    let found = schedule(&needs, &wanted(&[&[0, 1]]), &capacity(1, 2, &[Held::Fixed(1)]), Packing::Whole);
    assert_eq!((found.always.len(), found.groups.len()), (0, 2));
    assert_eq!(found.homes, [Home::Split(vec![0, 1], Because::TooMany)]);
}

#[test]
fn a_general_counter_of_others_is_missing_in_every_group() {
    let needs = needs(&[ANY, ANY]);
    let found =
        schedule(&needs, &wanted(&[&[0], &[1]]), &capacity(0b11, 0, &[Held::AnyGeneral]), Packing::Whole);
    assert_eq!(found.groups.len(), 2);
}

#[test]
fn others_make_room_for_what_can_use_one_counter_only() {
    let needs = needs(&[ANY, Counters::General(1), Counters::General(2)]);
    let found = schedule(&needs, &wanted(&[&[0, 1, 2]]), &capacity(0b111, 0, &[]), Packing::Whole);
    assert_eq!(found.homes, [Home::One(0)]);
}

#[test]
fn two_offcore_values_are_the_most_and_a_value_is_shared() {
    let mut needs = needs(&[ANY; 4]);
    for (need, value) in needs.iter_mut().zip([1, 1, 2, 3]) {
        need.resource = Some(Resource::Offcore(value));
    }
    let capacity = capacity(0xf, 0, &[]);
    let found = schedule(&needs, &wanted(&[&[0, 1, 2], &[0, 2, 3]]), &capacity, Packing::Whole);
    assert_eq!(found.groups.len(), 2);
    assert!(matches!((&found.homes[0], &found.homes[1]), (Home::One(_), Home::Split(..))));
}

#[test]
fn what_cannot_be_counted_is_said_and_takes_nothing_with_it() {
    let needs = needs(&[Counters::Share, Counters::General(0xf0), CYCLES, ANY, ANY]);
    let mut capacity = capacity(0xf, 0, &[]);
    capacity.shares = Shares::Missing;
    let found = schedule(&needs, &wanted(&[&[0, 3], &[1, 3], &[4]]), &capacity, Packing::Whole);
    assert_eq!(found.impossible, [(0, Why::NoShares), (1, Why::NoGeneral(0xf0))]);
    assert_eq!(found.homes, [Home::Nowhere(vec![0]), Home::Nowhere(vec![1]), Home::One(0)]);
    assert_eq!(found.groups, [vec![4]], "3 is wanted only by what cannot be had");
}

#[test]
fn an_event_whose_counters_are_held_names_the_holder() {
    let needs = needs(&[Counters::Fixed { index: 2, general: 0 }, Counters::General(0b1000)]);
    let capacity = capacity(0xf, 0b100, &[Held::Fixed(2), Held::General(3)]);
    let found = schedule(&needs, &wanted(&[&[0], &[1]]), &capacity, Packing::Whole);
    let why = Why::Held("someone".to_owned());
    assert_eq!(found.impossible, [(0, why.clone()), (1, why)]);
}

#[test]
fn coverage_is_the_share_of_the_turns() {
    let needs = needs(&[CYCLES, ANY, ANY, ANY]);
    let metrics = wanted(&[&[0], &[0, 1], &[1, 2], &[1, 3]]);
    let found = schedule(&needs, &metrics, &capacity(0b11, 2, &[]), Packing::Whole);
    assert_eq!(found.coverage(&metrics), [Some(1.0), Some(1.0), Some(0.5), Some(0.5)]);
}

/// Returns any input that a table and a machine could produce.
fn input() -> impl Strategy<Value = (Vec<Need>, Vec<WantedMetric>, Capacity)> {
    let mask = prop_oneof![Just(0xf_u32), Just(u32::MAX), 0..256_u32];
    let counters = prop_oneof![
        8 => mask.clone().prop_map(Counters::General),
        2 => (0..4_u8, mask).prop_map(|(index, general)| Counters::Fixed { index, general }),
        1 => prop_oneof![Just(Counters::Slots), Just(Counters::Share), Just(Counters::Free)],
    ];
    let resource = prop_oneof![
        6 => Just(None),
        1 => (0..5_u64).prop_map(|value| Some(Resource::Offcore(value))),
        1 => (0..3_u64).prop_map(|value| Some(Resource::FrontEnd(value))),
    ];
    let held = prop_oneof![
        (0..4_u8).prop_map(Held::Fixed),
        (0..8_u8).prop_map(Held::General),
        Just(Held::AnyGeneral)
    ];
    (
        prop::collection::vec((counters, resource), 1..40),
        prop::collection::vec((1..7_u32, prop::collection::vec(any::<prop::sample::Index>(), 1..9)), 1..30),
        prop_oneof![Just(0xf_u32), Just(0xff), 0..256_u32],
        0..16_u64,
        prop::collection::vec(held, 0..3),
        prop_oneof![Just(Shares::Offered), Just(Shares::Missing)],
    )
        .prop_map(|(events, metrics, general, fixed, held, shares)| {
            let (counters, resources): (Vec<_>, Vec<_>) = events.into_iter().unzip();
            let mut needs = needs(&counters);
            for (need, resource) in needs.iter_mut().zip(resources) {
                need.resource = resource.filter(|_| matches!(need.counters, Counters::General(_)));
            }
            let events = |events: Vec<prop::sample::Index>| -> Vec<usize> {
                events.iter().map(|index| index.index(counters.len())).collect()
            };
            let metrics: Vec<Vec<usize>> = metrics.iter().map(|(_, list)| events(list.clone())).collect();
            let mut wanted = wanted(&metrics.iter().map(Vec::as_slice).collect::<Vec<_>>());
            wanted.iter_mut().enumerate().for_each(|(number, metric)| metric.level = 1 + number as u32 % 6);
            (needs, wanted, Capacity { shares, ..capacity(general, fixed, &held) })
        })
}

fn held(capacity: &Capacity, counter: Held) -> bool {
    capacity.holds.iter().any(|hold| hold.counter == counter)
}

/// Returns whether these events can count at the same time, next to those that always count and those of
/// others. Tries every placement.
fn fit(events: &[usize], found: &Schedule, needs: &[Need], capacity: &Capacity) -> bool {
    let free: u32 = (0..32)
        .filter(|&bit| capacity.general >> bit & 1 == 1 && !held(capacity, Held::General(bit)))
        .map(|bit| 1 << bit)
        .sum();
    let all: BTreeSet<usize> = found.always.iter().chain(events).copied().collect();
    let mut masks: Vec<u32> = Vec::new();
    let mut values: BTreeSet<Resource> = BTreeSet::new();
    for &event in &all {
        match needs[event].counters {
            Counters::General(mask) => masks.push(mask),
            Counters::Fixed { index, general }
                if capacity.fixed >> index & 1 == 0 || held(capacity, Held::Fixed(index)) =>
            {
                masks.push(general);
            }
            Counters::Slots | Counters::Share if capacity.shares == Shares::Missing => return false,
            _ => {}
        }
        values.extend(needs[event].resource);
    }
    // Others hold no more counters than there are.
    let roaming = capacity.holds.iter().filter(|hold| hold.counter == Held::AnyGeneral).map(|_| u32::MAX);
    masks.extend(roaming.take(free.count_ones() as usize));
    let offcore = values.iter().filter(|value| matches!(value, Resource::Offcore(_))).count();
    offcore <= 2 && values.len() - offcore <= 1 && seat(&masks, free)
}

fn seat(masks: &[u32], free: u32) -> bool {
    let Some((mask, rest)) = masks.split_first() else { return true };
    masks.len() <= free.count_ones() as usize
        && (0..32).any(|bit| free & mask & 1 << bit != 0 && seat(rest, free & !(1 << bit)))
}

proptest! {
    // Each case packs up to 40 events, unoptimised.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_group_fits((needs, wanted, capacity) in input()) {
        for packing in [Packing::Whole, Packing::Tight] {
            let found = schedule(&needs, &wanted, &capacity, packing);
            for group in &found.groups {
                prop_assert!(!group.is_empty() && fit(group, &found, &needs, &capacity), "{:?} of {:?}", group, found);
            }
            prop_assert!(fit(&[], &found, &needs, &capacity), "{:?}", found);
        }
    }

    #[test]
    fn every_event_that_can_be_had_is_counted_and_no_other((needs, wanted, capacity) in input()) {
        for packing in [Packing::Whole, Packing::Tight] {
            let found = schedule(&needs, &wanted, &capacity, packing);
            let impossible: BTreeSet<usize> = found.impossible.iter().map(|(event, _)| *event).collect();
            let had = wanted.iter().filter(|metric| !metric.events.iter().any(|event| impossible.contains(event)));
            let expected: BTreeSet<usize> = had.flat_map(|metric| metric.events.clone()).collect();
            let grouped: BTreeSet<usize> = found.groups.concat().into_iter().collect();
            let always: BTreeSet<usize> = found.always.iter().copied().collect();
            prop_assert!(grouped.is_disjoint(&always));
            prop_assert_eq!(&grouped | &always, expected);
        }
    }

    #[test]
    fn an_event_is_impossible_only_if_it_cannot_count_alone((needs, wanted, capacity) in input()) {
        let found = schedule(&needs, &wanted, &capacity, Packing::Whole);
        for event in wanted.iter().flat_map(|metric| &metric.events) {
            let alone = fit(&[*event], &Schedule::default(), &needs, &capacity);
            let impossible = found.impossible.iter().any(|(other, _)| other == event);
            prop_assert_ne!(alone, impossible, "event {} of {:?}", event, found);
        }
    }

    #[test]
    fn a_metric_that_fits_one_group_is_in_one((needs, wanted, capacity) in input()) {
        let found = schedule(&needs, &wanted, &capacity, Packing::Whole);
        for (metric, home) in wanted.iter().zip(&found.homes) {
            if !matches!(home, Home::Nowhere(_)) && fit(&metric.events, &found, &needs, &capacity) {
                prop_assert!(matches!(home, Home::One(_) | Home::Always), "{:?} is in {:?}", metric, home);
            }
        }
    }

    #[test]
    fn a_home_holds_what_the_metric_wants((needs, wanted, capacity) in input()) {
        for packing in [Packing::Whole, Packing::Tight] {
            let found = schedule(&needs, &wanted, &capacity, packing);
            for (metric, home) in wanted.iter().zip(&found.homes) {
                let groups: &[usize] = match home {
                    Home::Nowhere(missing) => {
                        prop_assert!(!missing.is_empty());
                        continue;
                    }
                    Home::Always => &[],
                    Home::One(group) => &[*group],
                    Home::Split(groups, because) => {
                        prop_assert!(groups.len() > 1);
                        prop_assert_eq!(*because == Because::Fewer, fit(&metric.events, &found, &needs, &capacity));
                        groups
                    }
                };
                let there = |event: &usize| found.always.contains(event) || groups.iter().any(|&group| found.groups[group].contains(event));
                prop_assert!(metric.events.iter().all(there), "{:?} in {:?}", metric, home);
            }
        }
    }

    #[test]
    fn tight_is_no_looser_than_whole((needs, wanted, capacity) in input()) {
        let whole = schedule(&needs, &wanted, &capacity, Packing::Whole);
        let tight = schedule(&needs, &wanted, &capacity, Packing::Tight);
        prop_assert!(tight.groups.len() <= whole.groups.len());
    }

    #[test]
    fn the_same_input_gives_the_same_groups((needs, wanted, capacity) in input()) {
        for packing in [Packing::Whole, Packing::Tight] {
            let first = schedule(&needs, &wanted, &capacity, packing);
            prop_assert_eq!(first, schedule(&needs, &wanted, &capacity, packing));
        }
    }
}
