//! Trees of synthetic counts.

use std::time::Duration;

use super::{Around, Prepared, Tree};
use crate::{
    drain::reading::SliceRow,
    machine::topology::{Smt, Topology},
    metric::value::Value,
    plan::{
        metrics::{CountsOf, Measured, Metrics},
        multiplexing::{EventGroup, Multiplexing, PlannedEvent},
    },
    table::model::{TaskForms, read},
};

/// Table in which some of the slots retire and the others are lost. What memory and its first cache lose is
/// counted in separate turns.
const TABLE: &str = "pmbpf table 1\n\
    model\tmade\n\
    metric\tRetiring\t1\t-\tpercent\tTMA\tSlots\t-\t100\tR / S\t@Retiring > 60\t-\n\
    metric\tLost\t1\t-\tpercent\tTMA\tSlots\t-\t100\tB / S\t@Lost > 20\t-\n\
    metric\tUseful\t2\tRetiring\tpercent\tTMA\tSlots\t-\t100\tR / S\t-\t-\n\
    metric\tMemory\t2\tLost\tpercent\tTMA\tSlots\t-\t100\tM / S\t@Memory > 10 & @Lost > 20\t-\n\
    metric\tCore\t2\tLost\tpercent\tTMA\tSlots\t-\t100\t(B - M) / S\t@Core > 10 & @Lost > 20\t-\n\
    metric\tCache\t3\tMemory\tpercent\tTMA\tClocks\t-\t100\tL / C\t@Cache > 5 & @Memory > 10\t-\n\
    metric\tBoth\t1\t-\t-\tTMA\t-\t-\t1\tM / L\t-\t-\n\
    metric\tElsewhere\t1\t-\t-\tTMA\t-\t-\t1\tX / C\t-\t-\n";

/// Events that always count, and those that have a turn each.
pub(super) const ALWAYS: [&str; 4] = ["S", "R", "B", "C"];
pub(super) const TURNS: [&str; 2] = ["M", "L"];

pub(super) fn group(names: &[&str]) -> EventGroup {
    let event =
        |name: &&str| PlannedEvent { name: (*name).to_owned(), kind: 4, words: [0; 4], modes: String::new() };
    EventGroup { events: names.iter().map(event).collect() }
}

/// Returns the turns of all events of the synthetic model.
pub(super) fn turns() -> Multiplexing {
    Multiplexing {
        pmu: "cpu".to_owned(),
        always: vec![group(&ALWAYS)],
        groups: TURNS.iter().map(|name| group(&[name])).collect(),
        slice: Duration::from_millis(10),
    }
}

/// Returns the plan for [`turns()`]. A metric of an event that is not counted is missing.
pub(super) fn plan() -> Metrics {
    let measured = |(name, level, groups): (&str, u32, &[u32])| Measured {
        name: name.to_owned(),
        level,
        groups: groups.to_vec(),
        coverage: 1.0,
    };
    let metrics: [(&str, u32, &[u32]); 7] = [
        ("Retiring", 1, &[]),
        ("Lost", 1, &[]),
        ("Useful", 2, &[]),
        ("Memory", 2, &[0]),
        ("Core", 2, &[0]),
        ("Cache", 3, &[1]),
        ("Both", 1, &[0, 1]),
    ];
    Metrics {
        model: "made".to_owned(),
        measured: metrics.into_iter().map(measured).collect(),
        missing: vec![("Elsewhere".to_owned(), "X is counted elsewhere".to_owned())],
        ..Metrics::default()
    }
}

pub(super) fn prepared(plan: &Metrics, turns: &Multiplexing) -> Prepared {
    Prepared::new(TaskForms::new(read(TABLE).unwrap(), Smt::Off), plan, turns)
}

/// Returns the rows of an owner in slices of a second, with `always` in each and `counted` of each group in
/// its turn.
pub(super) fn rows(always: [u64; 4], counted: &[u64]) -> Vec<SliceRow> {
    let row = |slice: usize| {
        let group = slice % counted.len();
        SliceRow {
            slice: slice as u64,
            group: Some(group as u32),
            time_ns: 1_000_000_000,
            always: always.to_vec(),
            always_running_ns: vec![1_000_000_000],
            counts: vec![counted[group]],
            running_ns: 1_000_000_000,
            ..SliceRow::default()
        }
    };
    (0..10 * counted.len()).map(row).collect()
}

pub(super) fn tree(prepared: &Prepared, turns: &Multiplexing, rows: &[SliceRow]) -> Tree {
    let topology = Topology::default();
    let around = Around { topology: &topology, cpus: 1, extent: CountsOf::Some, seconds: 1.0 };
    prepared.tree(turns, rows, &around)
}

/// Returns a node by its name.
pub(super) fn node<'a>(prepared: &Prepared, tree: &'a Tree, name: &str) -> &'a super::Node {
    &tree.nodes[prepared.model.metric(name).unwrap() as usize]
}

pub(super) fn names<'a>(prepared: &'a Prepared, path: &[u32]) -> Vec<&'a str> {
    path.iter().map(|index| prepared.model.metrics[*index as usize].name.as_str()).collect()
}

fn measured(always: [u64; 4], counted: [u64; 2]) -> (Prepared, Tree) {
    let (plan, turns) = (plan(), turns());
    let prepared = prepared(&plan, &turns);
    let tree = tree(&prepared, &turns, &rows(always, &counted));
    (prepared, tree)
}

#[test]
fn the_path_leads_to_where_most_is_lost_and_not_to_useful_work() {
    let (prepared, tree) = measured([100, 70, 30, 50], [20, 10]);
    assert_eq!(names(&prepared, &tree.path), ["Lost", "Memory", "Cache"]);
    assert_eq!(tree.faults, [""; 0]);
    assert_eq!(node(&prepared, &tree, "Retiring").flagged, Some(true));
    assert_eq!(node(&prepared, &tree, "Useful").flagged, None);
}

#[test]
fn what_counts_all_the_time_is_exact_and_what_takes_turns_has_an_interval() {
    let (prepared, tree) = measured([100, 70, 30, 50], [20, 10]);
    assert_eq!(node(&prepared, &tree, "Lost").value, Value::exact(30.0));
    let Value::Known(memory) = node(&prepared, &tree, "Memory").value else { panic!("{tree:?}") };
    assert!((memory.estimate - 20.0).abs() < 1e-9 && memory.low < 20.0 && memory.high > 20.0, "{memory:?}");
    assert!((memory.coverage - 0.5).abs() < 1e-9, "{memory:?}");
}

#[test]
fn a_part_larger_than_the_whole_and_a_level_that_is_not_everything_are_faults() {
    let (_, tree) = measured([100, 60, 30, 50], [2000, 10]);
    assert!(tree.faults[0].contains("adds up to 90.0 %"), "{:?}", tree.faults);
    assert!(tree.faults[1].starts_with("Memory (2000.0 %) is more than Lost"), "{:?}", tree.faults);
}

#[test]
fn what_is_a_share_of_something_else_may_be_larger() {
    let (_, tree) = measured([100, 70, 30, 50], [20, 45]);
    assert_eq!(tree.faults, [""; 0], "Cache is 90 % of the clocks");
}

#[test]
fn what_is_missing_says_why() {
    let (prepared, tree) = measured([100, 70, 30, 50], [20, 10]);
    assert_eq!(
        node(&prepared, &tree, "Elsewhere").value,
        Value::Missing("X is counted elsewhere".to_owned())
    );
}

/// Table of a metric that two threads count together: they count four for two cycles in which their core's
/// queue was full.
const CORES: &str = "pmbpf table 1\n\
    model\tmade\n\
    event\tOFFCORE_REQUESTS_BUFFER.SQ_FULL\tcore\tevent=0xb2\tany\t0\t-\n\
    event\tCPU_CLK_UNHALTED.DISTRIBUTED\tcore\tevent=0xec\tany\t0\t-\n\
    event\tCPU_CLK_UNHALTED.THREAD\tcore\tevent=0x3c\tany\t0\t-\n\
    metric\tQueue\t1\t-\tpercent\tTMA\tClocks\t-\t100\t\
    OFFCORE_REQUESTS_BUFFER.SQ_FULL / 2 / CPU_CLK_UNHALTED.DISTRIBUTED\t@Queue > 30\t-\n";

#[test]
fn what_both_threads_of_a_core_do_is_told_of_everyone_and_of_nobody_alone() {
    let names =
        ["OFFCORE_REQUESTS_BUFFER.SQ_FULL", "CPU_CLK_UNHALTED.DISTRIBUTED", "CPU_CLK_UNHALTED.THREAD"];
    let turns = Multiplexing { always: vec![group(&names)], groups: Vec::new(), ..turns() };
    let plan = Metrics {
        measured: vec![Measured { name: "Queue".to_owned(), level: 1, groups: Vec::new(), coverage: 1.0 }],
        ..Metrics::default()
    };
    // Both threads always run: 40 of 100 cycles, which each of them counts.
    let row = SliceRow {
        time_ns: 1_000_000_000,
        always: vec![80, 100, 200],
        always_running_ns: vec![1_000_000_000],
        ..SliceRow::default()
    };
    let told = |smt: Smt, extent: CountsOf| {
        let prepared = Prepared::new(TaskForms::new(read(CORES).unwrap(), smt), &plan, &turns);
        let topology = Topology { smt, ..Topology::default() };
        let around = Around { topology: &topology, cpus: 2, extent, seconds: 1.0 };
        let tree = prepared.tree(&turns, std::slice::from_ref(&row), &around);
        let node = node(&prepared, &tree, "Queue");
        (node.value.known().map(|known| known.estimate), node.flagged)
    };
    assert_eq!(told(Smt::On, CountsOf::Everyone), (Some(40.0), Some(true)));
    assert_eq!(told(Smt::On, CountsOf::Some), (None, None));
    assert_eq!(told(Smt::Off, CountsOf::Some), (Some(40.0), Some(true)));
}
