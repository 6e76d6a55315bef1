//! Drains in which free-running counters agree with metrics, differ from them or are missing.

use super::{Check, Ticks, Verdict};
use crate::{
    drain::io::{
        IoDrain, IoHeader,
        testing::{always_running, steady},
    },
    metric::{
        io::{IoMetrics, Scope, UncoreCounts},
        value::{How, Known, Value},
    },
    model::io::IoInterval,
    table::io::load,
};

/// 2,000 MB/s written by devices and 10 read by CPUs; memory of two channels, 12.8 GB/s read and 6.4 written.
const RATES: [(&str, u64); 7] = [
    ("OF_CPU.MEM_WRITE", 500_000_000),
    ("CMPD", 2_500_000),
    ("CAS_COUNT.RD", 100_000_000),
    ("CAS_COUNT.WR", 50_000_000),
    ("bw_in_port1", 62_812_500),
    ("read", 200_000_000),
    ("write", 100_000_000),
];

const PART: Scope = Scope::Part(0, 0, 1);
const STACK: Scope = Scope::Stack(0, 1);
const MEMORY: Scope = Scope::Socket(0);

fn checks(header: &IoHeader, drains: Vec<IoDrain>) -> Vec<Check> {
    let metrics = IoMetrics::new(load("icelakex").unwrap(), &header.plan);
    let mut total = IoInterval::default();
    for drain in drains {
        total.append(IoInterval::of(drain.uncore, total.to_ns, drain.at_ns));
    }
    metrics.checks(&UncoreCounts::new(&header.plan, &total))
}

/// Returns the verdicts if one of the rates is different.
fn verdicts(other: (&str, u64)) -> Vec<(Scope, &'static str, Verdict)> {
    verdicts_of(&[other].into_iter().chain(RATES).collect::<Vec<_>>())
}

fn verdicts_of(rates: &[(&str, u64)]) -> Vec<(Scope, &'static str, Verdict)> {
    let header = always_running();
    let checks = checks(&header, steady(&header, 3, rates));
    checks.iter().map(|check| (check.place, check.counter, check.verdict())).collect()
}

#[test]
fn the_smallest_places_that_both_sides_know_agree() {
    let agrees = |place, counter| (place, counter, Verdict::Agrees);
    assert_eq!(
        verdicts(("nothing", 0)),
        [agrees(STACK, "bw_in"), agrees(PART, "bw_in"), agrees(MEMORY, "read"), agrees(MEMORY, "write")]
    );
    // The counter includes what a device sends, for any requester: 500 MB/s more.
    let rates: Vec<(&str, u64)> =
        [("CMPD", 125_000_000), ("bw_in_port1", 78_125_000)].into_iter().chain(RATES).collect();
    let reads = verdicts_of(&rates);
    assert_eq!(reads[1], (PART, "bw_in", Verdict::Agrees));
}

#[test]
fn a_unit_that_is_mistaken_is_named() {
    let eight = Verdict::Differs(Some("a unit of 32 bytes taken for 4"));
    for count in [62_812_500 / 8, 62_812_500 * 8] {
        let found = verdicts(("bw_in_port1", count));
        assert_eq!(found[0], (STACK, "bw_in", eight.clone()), "{count}");
        assert_eq!(found[1], (PART, "bw_in", eight.clone()), "{count}");
        assert_eq!(found[2].2, Verdict::Agrees, "memory has nothing to do with it");
    }
    let sixteen = verdicts(("read", 200_000_000 / 16));
    assert_eq!(sixteen[2].2, Verdict::Differs(Some("a unit of 64 bytes taken for 4")));
    assert_eq!(verdicts(("read", 150_000_000))[2].2, Verdict::Differs(None));
}

#[test]
fn what_is_missing_says_why_and_is_no_difference() {
    let header = always_running();
    let kind = |name: &str| header.plan.kinds.iter().position(|kind| kind.name == name).unwrap() as u32;
    let without = |wanted: &dyn Fn(u32, u32) -> bool| {
        let mut drains = steady(&header, 3, &RATES);
        drains.iter_mut().for_each(|drain| drain.uncore.retain(|slice| wanted(slice.kind, slice.group)));
        checks(&header, drains)
    };
    let free = kind("iio_free_running");
    let unread = without(&|kind, _| kind != free);
    assert_eq!(unread[0].verdict(), Verdict::Missing("the counter that always runs was not read".to_owned()));
    assert_eq!(unread[2].verdict(), Verdict::Agrees);
    let uncounted = without(&|kind, _| kind == free);
    assert!(uncounted.iter().all(|check| matches!(check.verdict(), Verdict::Missing(_))), "{uncounted:?}");
    assert!(uncounted[0].always.known().is_some());
    assert!(matches!(uncounted[0].ratio(), Value::Missing(_)));
}

#[test]
fn a_host_without_such_counters_has_no_checks() {
    let mut header = always_running();
    header.plan.kinds.retain(|kind| kind.unit_bytes.is_empty());
    assert_eq!(checks(&header, steady(&header, 3, &RATES)), []);
}

fn check(metrics: [f64; 3], always: f64) -> Check {
    let [low, estimate, high] = metrics;
    let metrics = Value::Known(Known { estimate, low, high, coverage: 0.2, how: How::Scaled });
    Check { place: PART, counter: "bw_in", metrics, always: Value::exact(always), ticks: (0, 0) }
}

#[test]
fn an_interval_and_a_twentieth_are_believed() {
    let verdict = |always: f64| check([800.0, 1000.0, 1200.0], always).verdict();
    assert_eq!([761.0, 1000.0, 1259.0].map(verdict), [Verdict::Agrees, Verdict::Agrees, Verdict::Agrees]);
    assert_eq!([759.0, 1261.0].map(verdict), [Verdict::Differs(None), Verdict::Differs(None)]);
    let Value::Known(ratio) = check([800.0, 1000.0, 1200.0], 500.0).ratio() else {
        panic!("two numbers have one")
    };
    assert_eq!((ratio.low, ratio.estimate, ratio.high), (1.6, 2.0, 2.4));
}

#[test]
fn what_is_little_is_not_compared_and_what_moves_unseen_differs() {
    assert_eq!(check([0.0, 20.0, 30.0], 99.0).verdict(), Verdict::Little);
    assert!(matches!(check([0.0, 20.0, 30.0], 99.0).ratio(), Value::Missing(_)));
    let unseen = check([900.0, 1000.0, 1100.0], 0.0);
    assert_eq!(unseen.verdict(), Verdict::Differs(None));
    assert!(matches!(unseen.ratio(), Value::Missing(_)), "a ratio over nothing is missing");
    assert_eq!(
        check([0.0, 0.0, 0.0], 500.0).ratio(),
        Value::Known(Known { estimate: 0.0, low: 0.0, high: 0.0, coverage: 0.2, how: How::Scaled })
    );
}

#[test]
fn ticks_that_say_nothing_are_not_counted() {
    let mut ticks = Ticks::default();
    let same = check([900.0, 1000.0, 1100.0], 1000.0);
    ticks.add(&[same.clone(), check([900.0, 1000.0, 1100.0], 3000.0), check([0.0, 0.0, 0.0], 0.0)]);
    ticks.add(&[same.clone(), Check { always: Value::Missing("no".to_owned()), ..same.clone() }]);
    let mut whole = [same.clone(), Check { place: STACK, ..same }];
    ticks.tell(&mut whole);
    assert_eq!(whole.map(|check| check.ticks), [(2, 3), (0, 0)]);
}
