//! Tests of plans for machines other than this one.

use std::{path::Path, time::Duration};

use super::{
    Plan, PlanError, Sampling,
    request::{By, Force, Rate, Request, Target},
    tick,
};
use crate::{
    machine::{
        Machine,
        cgroup::Layout,
        cpu::{Cpu, Processor},
        pmu::Pmu,
        privilege::Privileges,
        testing::{Tree, processor},
        topology::Topology,
    },
    table::quantity::Quantity,
    untrusted::Untrusted,
};

pub(super) fn machine(pmus: &[&str]) -> Machine {
    Machine {
        host: Untrusted::from("bed"),
        kernel: Untrusted::from("6.12.0"),
        cpu: Processor { guest: true, online: vec![Cpu(0), Cpu(1), Cpu(2)], ..processor() },
        pmus: pmus.iter().map(|&name| Pmu { name: Untrusted::from(name), kind: 4 }).collect(),
        cgroups: Layout::default(),
        topology: Topology::default(),
        probed: Vec::new(),
    }
}

pub(super) fn plan(request: &Request, machine: &Machine) -> Result<Plan, PlanError> {
    // An empty root: nothing of this host may leak into the plan.
    Plan::new(request, machine, Path::new("/nonexistent"))
}

#[test]
fn without_a_pmu_the_clock_samples_and_the_plan_says_why() {
    let machine = machine(&["software"]);
    let mut plan = plan(&Request::default(), &machine).unwrap();
    let sampling = plan.sampling.remove(0);
    assert_eq!((sampling.event.as_str(), sampling.period), ("cpu-clock", 10_101_010));
    assert!(machine.no_core_pmu().unwrap().contains("hypervisor"));
}

#[test]
fn with_a_pmu_cycles_sample() {
    let plan = plan(&Request::default(), &machine(&["cpu", "software"])).unwrap();
    assert_eq!(plan.sampling[0].event, "cycles");
}

#[test]
fn an_event_of_a_missing_pmu_is_refused_with_the_reason() {
    let error =
        plan(&Request { events: vec!["instructions".to_owned()], ..Request::default() }, &machine(&[]))
            .unwrap_err();
    assert_eq!(error.class(), super::Class::Unsupported);
    assert!(error.to_string().contains("no hardware PMU"), "{error}");
}

#[test]
fn a_frequency_without_a_clock_is_refused() {
    let asked = Request { events: vec!["page-faults".to_owned()], ..Request::default() };
    assert!(matches!(plan(&asked, &machine(&[])), Err(PlanError::NeedsPeriod(_))));
    let with_period = Request { rate: Rate::Period(100), ..asked };
    assert_eq!(plan(&with_period, &machine(&[])).unwrap().sampling[0].period, 100);
}

#[test]
fn a_tracepoint_is_sampled_at_every_hit_unless_told_otherwise() {
    let tree = Tree::new(&[("sys/kernel/tracing/events/sched/sched_switch/id", "317")]);
    tree.pmu("software", &[("type", "1")]);
    let planned = |event: &str, rate| {
        let asked = Request { events: vec![event.to_owned()], rate, ..Request::default() };
        Plan::new(&asked, &machine(&[]), &tree.root).map(|mut plan| plan.sampling.remove(0))
    };
    let period = |event, rate| planned(event, rate).unwrap().period;
    assert_eq!(period("sched:sched_switch", Rate::Default), 1);
    assert_eq!(period("sched:sched_switch", Rate::Period(9)), 9);
    assert_eq!(period("sched:sched_switch/period=4/", Rate::Period(9)), 4);
    assert_eq!(period("sched:sched_switch:k", Rate::Default), 1);
    assert!(matches!(planned("sched:sched_switch", Rate::Frequency(99)), Err(PlanError::NeedsPeriod(_))));
    for event in
        ["sched:sched_switch:u", "sched:sched_switch:hI", "sched:sched_switch:P", "sched:sched_switch:kG"]
    {
        assert!(matches!(planned(event, Rate::Default), Err(PlanError::NotSampled(..))), "{event}");
    }
}

#[test]
fn a_cpu_that_is_not_online_is_named() {
    let asked = Request { cpus: Some(vec![Cpu(1), Cpu(3)]), ..Request::default() };
    let error = plan(&asked, &machine(&[])).unwrap_err().to_string();
    assert!(error.contains("cpu 3") && error.contains("0-2"), "{error}");
}

#[test]
fn a_process_that_is_not_there_is_named() {
    let asked = Request { target: Target::Processes(vec![4242]), ..Request::default() };
    assert_eq!(plan(&asked, &machine(&[])).unwrap_err().to_string(), "pid 4242: no such process");
}

#[test]
fn cgroups_need_a_v2_hierarchy() {
    let asked = Request { by: Some(By::Cgroup), ..Request::default() };
    assert_eq!(plan(&asked, &machine(&[])).unwrap_err().class(), super::Class::Unsupported);
}

#[test]
fn an_interval_is_a_whole_number_of_ticks() {
    let of = |interval| tick(interval, Duration::from_secs(1));
    assert_eq!(of(None), Duration::from_secs(1));
    assert_eq!(of(Some(Duration::from_millis(100))), Duration::from_millis(100));
    assert_eq!(of(Some(Duration::from_millis(2500))), Duration::from_nanos(2_500_000_000 / 3));
    assert_eq!(tick(Some(Duration::from_secs(12)), Duration::from_secs(5)), Duration::from_secs(4));
}

#[test]
fn more_cpus_mean_fewer_slots_not_more_memory() {
    let mut large = machine(&[]);
    large.cpu.possible = 1024;
    let plan = plan(&Request::default(), &large).unwrap();
    assert!(u64::from(plan.slots) * 1024 * plan.row_bytes() <= super::ROWS_BYTES_MAX);
}

fn asked(events: &[&str]) -> Request {
    Request { events: events.iter().map(|&event| event.to_owned()).collect(), ..Request::default() }
}

#[test]
fn several_events_have_periods_of_their_own() {
    let request = Request {
        rate: Rate::Period(70_000),
        ..asked(&["cycles:u/", "instructions/period=900001/u,page-faults/period=7/"])
    };
    let error = plan(&request, &machine(&["cpu"])).unwrap_err().to_string();
    assert!(error.contains("`/` was not expected"), "{error}");
    let request =
        Request { rate: Rate::Period(70_000), ..asked(&["cycles:u", "instructions/period=900001/,faults"]) };
    let events = plan(&request, &machine(&["cpu"])).unwrap().sampling;
    let told: Vec<_> =
        events.iter().map(|event| (event.event.as_str(), event.period, event.modes.as_str())).collect();
    assert_eq!(told, [("cycles:u", 70_000, "u"), ("instructions", 900_001, ""), ("faults", 70_000, "")]);
    assert_eq!(events[0].quantity, Some(Quantity::Cycles));
    assert_eq!(events[1].quantity, Some(Quantity::Instructions));
    assert_eq!(events[2].quantity, None);
}

#[test]
fn a_group_is_led_by_its_first_event() {
    let request = Request {
        rate: Rate::Period(1_000_000),
        ..asked(&["branch-misses", "{cycles,instructions,branches}", "page-faults"])
    };
    let events = plan(&request, &machine(&["cpu"])).unwrap().sampling;
    let leaders: Vec<_> = events.iter().map(|event| event.leader).collect();
    assert_eq!(leaders, [None, None, Some(1), Some(1), None]);
}

#[test]
fn memory_grows_only_with_more_events_than_one() {
    let one = plan(&asked(&["cpu-clock"]), &machine(&[])).unwrap();
    let none = plan(&Request { rate: Rate::Off, ..asked(&[]) }, &machine(&[])).unwrap();
    let three = plan(&asked(&["cpu-clock,faults/period=5/,cs/period=3/"]), &machine(&[])).unwrap();
    assert_eq!((one.row_bytes(), one.slots), (none.row_bytes(), none.slots));
    assert_eq!(three.row_bytes() - one.row_bytes(), 128);
}

#[test]
fn more_events_than_programs_are_refused() {
    let many = vec!["cpu-clock"; 17];
    assert!(matches!(plan(&asked(&many), &machine(&[])), Err(PlanError::TooMany(17))));
}

#[test]
fn what_never_overflows_cannot_be_sampled_on() {
    assert!(matches!(plan(&asked(&["dummy"]), &machine(&[])), Err(PlanError::NotSampled(..))));
}

#[test]
fn a_period_that_leaves_no_time_is_refused_even_if_forced() {
    let request = |period, force| Request { rate: Rate::Period(period), force, ..asked(&["instructions"]) };
    let refused = |period, force| plan(&request(period, force), &machine(&["cpu"])).unwrap_err().to_string();
    // 2 GHz, 4 instructions a cycle, 2 µs an overflow.
    assert!(refused(15_999, Force::Yes).contains("the least is 16000"), "{}", refused(15_999, Force::Yes));
    assert!(plan(&request(16_000, Force::No), &machine(&["cpu"])).is_ok());
}

#[test]
fn a_period_above_the_kernel_s_rate_can_be_forced() {
    let tree = Tree::new(&[("proc/sys/kernel/perf_event_max_sample_rate", "1000\n")]);
    let request = |force| Request { rate: Rate::Period(100_000), force, ..asked(&["cpu-clock"]) };
    let error = Plan::new(&request(Force::No), &machine(&[]), &tree.root).unwrap_err();
    assert!(error.to_string().contains("the least is 1000000"), "{error}");
    assert!(error.hint(&Privileges::read(Path::new("/"))).unwrap().contains("--force-period"));
    assert!(Plan::new(&request(Force::Yes), &machine(&[]), &tree.root).is_ok());
}

#[test]
fn a_configuration_without_its_pmu_says_what_is_lost() {
    let profile = |name: &str, pmus| {
        plan(&Request { profile: Some(name.to_owned()), ..Request::default() }, &machine(pmus))
    };
    let error = profile("assess", &["software"]).unwrap_err();
    assert_eq!(error.class(), super::Class::Unsupported);
    assert!(error.to_string().contains("cycles, instructions, branches"), "{error}");
    let hotspots = profile("hotspots", &["software"]).unwrap();
    assert_eq!((hotspots.sampling[0].event.as_str(), hotspots.lost.len()), ("cpu-clock", 2));
    let tbp = profile("tbp", &["software"]).unwrap();
    assert_eq!((tbp.sampling[0].period_ns(), tbp.lost.len()), (Some(1_000_003), 0));
    // These cores are unknown, so only the kernel's names remain.
    let assess = profile("assess", &["cpu"]).unwrap();
    let lost: Vec<_> = assess.lost.iter().map(|lost| lost.row.as_str()).collect();
    assert_eq!((assess.sampling.len(), lost), (6, vec!["misaligned"]));
}

#[test]
fn codes_are_those_of_the_vendor() {
    let events = |info: &str| {
        let tree = Tree::new(&[("proc/cpuinfo", info)]);
        let request = Request { profile: Some("data_access".to_owned()), ..Request::default() };
        let plan = Plan::new(&request, &machine(&["cpu"]), &tree.root).unwrap();
        plan.sampling.into_iter().map(|event| (event.event, event.kind, event.config)).collect::<Vec<_>>()
    };
    let amd = events("vendor_id\t: AuthenticAMD\ncpu family\t: 25\n");
    assert_eq!(amd[0], ("instructions".to_owned(), 4, 0xc0));
    assert_eq!(amd[2], ("data_misses".to_owned(), 4, 0x1f41));
    assert_eq!(amd.last().unwrap(), &("misaligned".to_owned(), 4, 0x347));
    let intel = events("vendor_id\t: GenuineIntel\ncpu family\t: 6\n");
    assert_eq!(intel[0], ("instructions".to_owned(), 0, 1));
    assert!(intel.contains(&("data_misses".to_owned(), 4, 0x8d1)), "{intel:?}");
}

#[test]
fn an_older_recording_s_one_event_is_read() {
    let new = plan(&asked(&["cpu-clock"]), &machine(&[])).unwrap();
    let mut old = serde_json::to_value(&new).unwrap();
    old["sampling"] = serde_json::json!({
        "event": "cpu-clock", "kind": 1, "config": 0, "counts": "wall_ns", "period": 10_101_010, "frequency": 99});
    let read = serde_json::from_value::<Plan>(old.clone()).unwrap().sampling;
    assert_eq!(read, [Sampling { quantity: None, ..new.sampling[0].clone() }]);
    old["sampling"] = serde_json::Value::Null;
    assert!(serde_json::from_value::<Plan>(old).unwrap().sampling.is_empty());
}
