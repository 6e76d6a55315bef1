//! Tests of plans on hosts that are made of files.

use super::{CountPlan, Wanted};
use crate::{
    machine::{Machine, pmu::catalog::Catalog, testing::Tree},
    plan::{Class, PlanError, request::Request},
};

fn host(with_pmu: bool) -> Tree {
    let tree = Tree::new(&[
        ("proc/sys/kernel/hostname", "bed\n"),
        ("proc/sys/kernel/osrelease", "6.12.0\n"),
        ("proc/cpuinfo", "flags : hypervisor\n"),
        ("proc/self/mountinfo", ""),
        ("sys/devices/system/cpu/possible", "0-1\n"),
        ("sys/devices/system/cpu/online", "0-1\n"),
    ]);
    tree.pmu("software", &[("type", "1")]);
    if with_pmu {
        tree.pmu("cpu", &[("type", "4"), ("format/event", "config:0-7")]);
    }
    tree
}

fn wanted(lists: &[&str]) -> Wanted {
    Wanted { lists: lists.iter().map(|list| (*list).to_owned()).collect(), ..Wanted::default() }
}

fn planned(wanted: &Wanted, with_pmu: bool) -> Result<CountPlan, PlanError> {
    let tree = host(with_pmu);
    for (system, name) in [("sched", "sched_switch"), ("sched", "sched_wakeup"), ("irq", "irq_handler_entry")]
    {
        tree.write(&format!("sys/kernel/tracing/events/{system}/{name}/id"), "7\n");
    }
    let machine = Machine::read(&tree.root).unwrap();
    let catalog = Catalog::read(&tree.root).unwrap();
    CountPlan::new(&Request::default(), wanted, &machine, &catalog, &tree.root)
}

fn plan(lists: &[&str], with_pmu: bool) -> Result<CountPlan, PlanError> {
    planned(&wanted(lists), with_pmu)
}

fn names(plan: &CountPlan) -> Vec<&str> {
    plan.asked.iter().map(|event| event.name.as_str()).collect()
}

#[test]
fn the_usual_events_are_those_that_the_host_has() {
    let with = plan(&[], true).unwrap();
    assert_eq!(names(&with)[..2], ["cpu-clock", "context-switches"]);
    assert_eq!(names(&with)[4..], ["cycles", "instructions", "branches", "branch-misses"]);
    assert_eq!(with.left_out, None);
    let without = plan(&[], false).unwrap();
    assert_eq!(names(&without), ["cpu-clock", "context-switches", "cpu-migrations", "page-faults"]);
    let why = without.left_out.unwrap();
    assert!(why.starts_with("cycles, instructions") && why.contains("hypervisor"), "{why}");
}

#[test]
fn lists_are_joined_in_the_order_given() {
    let plan = plan(&["page-faults,{cycles,instructions}", "cs"], true).unwrap();
    assert_eq!(names(&plan), ["page-faults", "cycles", "instructions", "cs"]);
    let groups: Vec<u32> = plan.asked.iter().map(|event| event.group).collect();
    assert_eq!(groups, [0, 1, 1, 2]);
    let found: Vec<_> = plan.asked.iter().map(|event| event.found.clone()).collect();
    assert_eq!(found, [Ok(0), Ok(1), Ok(2), Ok(3)]);
}

#[test]
fn an_event_without_a_pmu_stays_in_the_plan_with_the_reason() {
    let plan = plan(&["{page-faults,cycles}", "faults"], false).unwrap();
    let why = |index: usize| plan.asked[index].found.clone().unwrap_err();
    assert!(why(1).starts_with("no hardware PMU is exposed"), "{}", why(1));
    assert!(why(0).starts_with("it stands in a group with `cycles`"), "{}", why(0));
    assert_eq!((plan.asked[2].found.clone(), plan.events().count()), (Ok(0), 1));
}

#[test]
fn an_event_that_nobody_knows_is_an_error_with_the_nearest() {
    let error = plan(&["page-fualts"], true).unwrap_err();
    assert_eq!(error.class(), Class::Usage);
    assert!(error.to_string().contains("did you mean page-faults?"), "{error}");
    assert_eq!(plan(&["cycles,"], true).unwrap_err().class(), Class::Usage);
}

#[test]
fn a_wildcard_means_every_tracepoint_that_it_matches_and_a_wrong_one_is_an_error() {
    let sched = plan(&["sched:*:u,cs"], false).unwrap();
    assert_eq!(names(&sched), ["sched:sched_switch:u", "sched:sched_wakeup:u", "cs"]);
    assert!(sched.asked.windows(2).all(|pair| pair[0].group != pair[1].group));
    assert_eq!(names(&plan(&["*:*handler*"], false).unwrap()), ["irq:irq_handler_entry"]);
    let together = plan(&["{sched:sched_*,cs}"], false).unwrap();
    assert_eq!((together.asked.len(), together.groups.len()), (3, 1));
    let wrong = plan(&["sched:nosuch*"], false).unwrap_err();
    assert!(wrong.to_string().contains("no such tracepoint"), "{wrong}");
}

#[test]
fn times_of_the_run_are_events_without_a_counter() {
    let plan = plan(&["duration_time,user_time", "system_time,cs"], false).unwrap();
    assert_eq!(names(&plan), ["duration_time", "user_time", "system_time", "cs"]);
    let kinds: Vec<u32> = plan.events().map(|event| event.instances[0].kind).collect();
    assert_eq!(kinds, [super::TOOL, super::TOOL, super::TOOL, 1]);
}

#[test]
fn in_user_mode_alone_what_the_kernel_does_is_missing_and_not_nothing() {
    let lists =
        wanted(&["page-faults,cycles,cs,sched:sched_switch,task-clock:k,duration_time", "cpu/event=1/"]);
    let plan = planned(&Wanted { user_mode: Some("no rights".to_owned()), ..lists.clone() }, true).unwrap();
    assert_eq!(
        names(&plan),
        [
            "page-faults:u",
            "cycles:u",
            "cs:u",
            "sched:sched_switch:u",
            "task-clock:k",
            "duration_time",
            "cpu/event=1/u"
        ]
    );
    assert!(plan.asked[2].found.clone().unwrap_err().contains("CAP_PERFMON"), "{:?}", plan.asked[2]);
    let found: Vec<_> = plan.asked.iter().filter_map(|event| event.found.clone().ok()).collect();
    assert_eq!(found, [0, 1, 3, 4, 5, 6]);
    assert_eq!(plan.left_out.as_deref(), Some("kernel mode: no rights"));
    let modes: Vec<bool> = plan.events().map(|event| event.modifiers.user).collect();
    assert_eq!(modes, [true, true, true, true, false, false, true]);
    let lacking = planned(&Wanted { user_mode: Some("no rights".to_owned()), ..lists }, false);
    assert!(lacking.is_err(), "no PMU is called cpu");
    let lacking =
        planned(&Wanted { user_mode: Some("no rights".to_owned()), ..wanted(&["cycles"]) }, false).unwrap();
    assert_eq!(names(&lacking), ["cycles:u"]);
}

#[test]
fn details_add_caches_and_nothing_is_no_event() {
    let with = |detailed| planned(&Wanted { detailed, ..Wanted::default() }, true).unwrap();
    assert_eq!(
        names(&with(1))[8..],
        ["L1-dcache-loads", "L1-dcache-load-misses", "LLC-loads", "LLC-load-misses"]
    );
    assert_eq!([with(2), with(3), with(9)].map(|plan| plan.asked.len()), [18, 20, 20]);
    // Detailed events that are requested are shown even where the host lacks them.
    let without = planned(&Wanted { detailed: 1, ..Wanted::default() }, false).unwrap();
    assert_eq!((without.asked.len(), without.left_out), (12, None));
    let null = planned(&Wanted { null: true, ..Wanted::default() }, true).unwrap();
    assert!(null.asked.is_empty() && null.groups.is_empty());
}

#[test]
fn top_down_needs_a_counter_of_the_cores() {
    let topdown = Wanted { topdown: true, ..Wanted::default() };
    let said = |with_pmu| planned(&topdown, with_pmu).unwrap_err();
    assert!(said(false).to_string().contains("hypervisor"), "{}", said(false));
    assert!(said(true).to_string().contains("no Top-Down counter"), "{}", said(true));
    assert_eq!(said(true).class(), Class::Unsupported);
}
