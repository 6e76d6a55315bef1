//! Conditions on synthetic intervals: the owners for which they hold, for how long, and how often they are
//! reported.

use super::{Condition, Conditions, Limit, Measure, Met, Side, Whose};
use crate::{
    drain::Owner,
    metric::{
        exposed::testing::{Did, INTERVAL_NS, World},
        filter::Pattern,
    },
};

fn condition(name: &str, limit: Limit, lasting: u64, whose: Whose) -> Condition {
    let measure = Measure::named(name).unwrap();
    let lasting_ns = lasting * INTERVAL_NS;
    Condition { text: name.to_owned(), measure, side: Side::Above, limit, lasting_ns, whose }
}

fn did(path: &str, cpu_ms: u64, wait_ms: u64) -> Did {
    let owner = Owner::cgroup(path.len() as u64, path.into());
    let waits = if wait_ms == 0 { (0, 0) } else { (100, wait_ms * 1_000_000) };
    Did { owner, cpu_ns: cpu_ms * 1_000_000, waits, ends: false }
}

fn of_whom(met: &[Met]) -> Vec<&str> {
    met.iter().map(|met| met.whose.as_str()).collect()
}

#[test]
fn a_condition_holds_of_whoever_is_beyond_the_limit_and_the_target_only_where_it_is_asked_for() {
    let mut world = World::new();
    let report = world.interval(&[did("/web", 4000, 30), did("/batch", 2000, 1)]);
    let met = |condition| Conditions::new(vec![condition]).met(&report);
    let waits = condition("runqueue_latency.p99", Limit::Of(20e6), 0, Whose::Everybodys);
    let waited = met(waits);
    assert_eq!(of_whom(&waited), ["/web"]);
    // Exact to the width of a bucket.
    assert!((28e6..34e6).contains(&waited[0].value), "{waited:?}");
    let cpu = |limit, whose| met(condition("cpu_time", limit, 0, whose));
    assert_eq!(of_whom(&cpu(Limit::Of(1e9), Whose::Everybodys)).len(), 2);
    // 4 s of 5 s.
    assert_eq!(of_whom(&cpu(Limit::ShareOfTime(0.79), Whose::Everybodys)), ["/web"]);
    assert!(cpu(Limit::ShareOfTime(0.81), Whose::Everybodys).is_empty());
    assert_eq!(of_whom(&cpu(Limit::Of(1e9), Whose::Owners(Pattern::new("batch")))), ["/batch"]);
    assert_eq!(of_whom(&cpu(Limit::Of(5e9), Whose::Targets)), ["total"]);
}

#[test]
fn a_distribution_whose_bucket_holds_the_limit_meets_nothing() {
    let mut world = World::new();
    let report = world.interval(&[did("/web", 1, 30)]);
    let waited = |limit| {
        let one = condition("runqueue_latency.p50", Limit::Of(limit), 0, Whose::Everybodys);
        !Conditions::new(vec![one]).met(&report).is_empty()
    };
    let measured =
        Conditions::new(vec![condition("runqueue_latency.p50", Limit::Of(0.0), 0, Whose::Everybodys)])
            .met(&report)[0]
            .value;
    assert!(waited(measured * 0.8) && !waited(measured) && !waited(measured * 0.999));
}

#[test]
fn what_is_missing_meets_nothing() {
    let report = World::new().interval(&[did("/web", 1000, 0)]);
    for side in [Side::Above, Side::Below, Side::AtLeast, Side::AtMost] {
        for name in ["runqueue_latency.p99", "off_cpu.time", "block.read_bw", "memory.current"] {
            let one = Condition { side, ..condition(name, Limit::Of(1.0), 0, Whose::Everybodys) };
            assert_eq!(Conditions::new(vec![one]).met(&report), [], "{name} {side:?}");
        }
    }
}

#[test]
fn it_is_met_once_it_has_held_for_long_enough_and_told_once_until_it_ceases_to_hold() {
    let mut world = World::new();
    let busy = condition("cpu_time", Limit::ShareOfTime(0.5), 3, Whose::Everybodys);
    let mut conditions = Conditions::new(vec![busy]);
    // Arguments of each interval: the busy owners, and whether they are reported. Result: owners that meet
    // the condition.
    let mut step = |web: bool, batch: bool, tells: bool| {
        let ms = |is_busy| if is_busy { 4000 } else { 1000 };
        let met = conditions.met(&world.interval(&[did("/web", ms(web), 0), did("/batch", ms(batch), 0)]));
        if tells {
            conditions.set_reported();
        }
        of_whom(&met).join(" ")
    };
    assert_eq!(step(true, false, true), "", "1 of 3");
    assert_eq!(step(true, true, true), "");
    assert_eq!(step(true, false, false), "/web", "/batch paused");
    assert_eq!(step(true, true, true), "/web", "nobody was told");
    assert_eq!(step(true, true, true), "", "somebody was");
    assert_eq!(step(true, true, true), "/batch");
    assert_eq!(step(false, false, true), "");
    assert_eq!([step(true, true, true), step(true, true, true)], ["", ""]);
    let mut both: Vec<String> = step(true, true, true).split(' ').map(str::to_owned).collect();
    both.sort();
    assert_eq!(both, ["/batch", "/web"]);
}

#[test]
fn a_name_of_every_metric_is_known_and_a_part_only_where_there_are_some() {
    for name in super::names() {
        assert_eq!(Measure::named(&name).unwrap().name(), name);
    }
    assert_eq!(Measure::named("runqueue_latency.culprit").unwrap().name(), "runqueue_latency.culprit");
    assert!(Measure::named("cpu_time.").is_err() && Measure::named("").is_err());
    assert!(Measure::named("block.latency").unwrap_err().contains("block.latency.p99"));
}
