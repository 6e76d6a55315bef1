//! Plans for machines that are not this one.

use std::{path::Path, time::Duration};

use super::{
    Plan, PlanError,
    request::{By, Rate, Request, Target},
    tick,
};
use crate::{
    machine::{
        Machine,
        cgroup::Layout,
        cpu::{Cpu, Processor},
        pmu::Pmu,
        topology::Topology,
    },
    untrusted::Untrusted,
};

fn machine(pmus: &[&str]) -> Machine {
    Machine {
        host: Untrusted::from("bed"),
        kernel: Untrusted::from("6.12.0"),
        cpu: Processor {
            model: Untrusted::from("Model"),
            guest: true,
            tick_ns: 4_000_000,
            possible: 4,
            online: vec![Cpu(0), Cpu(1), Cpu(2)],
        },
        pmus: pmus.iter().map(|&name| Pmu { name: Untrusted::from(name), kind: 4 }).collect(),
        cgroups: Layout { v2: None, v1: Vec::new() },
        topology: Topology::default(),
    }
}

fn plan(request: &Request, machine: &Machine) -> Result<Plan, PlanError> {
    // An empty root: nothing of this host may leak into the plan.
    Plan::new(request, machine, Path::new("/nonexistent"))
}

#[test]
fn without_a_pmu_the_clock_samples_and_the_plan_says_why() {
    let machine = machine(&["software"]);
    let plan = plan(&Request::default(), &machine).unwrap();
    let sampling = plan.sampling.unwrap();
    assert_eq!((sampling.event.as_str(), sampling.period), ("cpu-clock", 10_101_010));
    assert!(machine.no_core_pmu().unwrap().contains("hypervisor"));
}

#[test]
fn with_a_pmu_cycles_sample() {
    let plan = plan(&Request::default(), &machine(&["cpu", "software"])).unwrap();
    assert_eq!(plan.sampling.unwrap().event, "cycles");
}

#[test]
fn an_event_of_a_missing_pmu_is_refused_with_the_reason() {
    let error =
        plan(&Request { event: Some("instructions".to_owned()), ..Request::default() }, &machine(&[]))
            .unwrap_err();
    assert_eq!(error.class(), super::Class::Unsupported);
    assert!(error.to_string().contains("no hardware PMU"), "{error}");
}

#[test]
fn a_frequency_without_a_clock_is_refused() {
    let asked = Request { event: Some("page-faults".to_owned()), ..Request::default() };
    assert!(matches!(plan(&asked, &machine(&[])), Err(PlanError::NeedsPeriod(_))));
    let with_period = Request { rate: Rate::Period(100), ..asked };
    assert_eq!(plan(&with_period, &machine(&[])).unwrap().sampling.unwrap().period, 100);
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
    assert_eq!(tick(None), Duration::from_secs(1));
    assert_eq!(tick(Some(Duration::from_millis(100))), Duration::from_millis(100));
    assert_eq!(tick(Some(Duration::from_millis(2500))), Duration::from_nanos(2_500_000_000 / 3));
}

#[test]
fn more_cpus_mean_fewer_slots_not_more_memory() {
    let mut large = machine(&[]);
    large.cpu.possible = 1024;
    let plan = plan(&Request::default(), &large).unwrap();
    assert!(u64::from(plan.slots) * 1024 * super::ROW_BYTES <= super::ROWS_BYTES_MAX);
}
