//! What `pmbpf stat` will open: events in perf's event syntax on plain counters, without any BPF program.

use std::{path::Path, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    PlanError, Target, cpus, metrics,
    request::{Inherit, Request, Target as Asked},
    resolve as resolve_target,
};
use crate::{
    machine::{Machine, cpu::Cpu, pmu::catalog::Catalog},
    table::{
        event_syntax::{self, List, Selected, SelectedGroup, Why},
        model::Tables,
    },
};

/// A whole count, decided.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CountPlan {
    /// Whose occurrences.
    pub target: Target,
    /// Children of processes and threads.
    pub inherit: Inherit,
    /// CPUs, for a target that is no task.
    pub cpus: Vec<Cpu>,
    /// Every event that was asked for, in order.
    pub asked: Vec<AskedEvent>,
    /// What of it this host has, in groups.
    pub groups: Vec<SelectedGroup>,
    /// What the default events leave out, and why.
    pub left_out: Option<String>,
    /// How often to run the command.
    pub runs: u32,
    /// Time between two reports, if reports are asked for while running.
    pub interval: Option<Duration>,
    /// Stop after.
    pub duration: Option<Duration>,
}

/// An event that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedEvent {
    /// As typed.
    pub name: String,
    /// Which group it stands in, from 0: events of one group are counted at the same times.
    pub group: u32,
    /// Which of the events of [`CountPlan::groups`] it is, counted through all groups; or why this host has none.
    pub found: Result<u32, String>,
}

/// What is counted where there is no PMU, too.
const SOFTWARE: [&str; 3] = ["context-switches", "cpu-migrations", "page-faults"];
/// What only a core's PMU counts.
const HARDWARE: [&str; 4] = ["cycles", "instructions", "branches", "branch-misses"];

impl CountPlan {
    /// Decides what to count for `request` with the events of `lists`, or the usual ones if it is empty. Needs no
    /// privilege, and the root of the file system only to see which processes exist.
    ///
    /// # Errors
    ///
    /// Names the target or event that cannot be had, why, and the nearest thing that can. An event of a PMU that this
    /// host does not have is no error: it is in the plan, with the reason.
    pub fn new(
        request: &Request,
        lists: &[String],
        machine: &Machine,
        catalog: &Catalog,
        root: &Path,
    ) -> Result<Self, PlanError> {
        let mut plan = Self {
            // A counter is of the cgroup that there is when it is opened.
            target: resolve_target(&request.target, machine, root)?.0,
            inherit: request.inherit,
            cpus: cpus(request, machine)?,
            asked: Vec::new(),
            groups: Vec::new(),
            left_out: None,
            runs: 1,
            interval: request.interval,
            duration: request.duration,
        };
        let no_pmu = machine.no_core_pmu();
        let usual;
        let lists = if lists.is_empty() {
            plan.left_out = no_pmu.as_ref().map(|why| format!("{}: {why}", HARDWARE.join(", ")));
            usual = [usual_events(&request.target, no_pmu.is_none())];
            &usual
        } else {
            lists
        };
        let tables = metrics::tables(&request.metrics, root);
        for list in lists {
            plan.add(&List::parse(list)?, catalog, &tables, no_pmu.as_deref())?;
        }
        Ok(plan)
    }

    fn add(
        &mut self,
        list: &List,
        catalog: &Catalog,
        tables: &Tables,
        no_pmu: Option<&str>,
    ) -> Result<(), PlanError> {
        for group in &list.groups {
            let number = self.asked.iter().map(|event| event.group + 1).max().unwrap_or(0);
            let asked = |name: &str, found| AskedEvent { name: name.to_owned(), group: number, found };
            let alone = List { groups: vec![group.clone()] };
            match event_syntax::resolve_with(&alone, catalog, tables) {
                Ok(found) => {
                    let first = self.events().count() as u32;
                    let events = found.iter().flat_map(|group| &group.events).zip(first..);
                    self.asked.extend(events.map(|(event, index)| asked(&event.name, Ok(index))));
                    self.groups.extend(found);
                }
                Err(error) if error.why == Why::NoCores => {
                    let why = no_pmu.map_or_else(|| error.why.to_string(), str::to_owned);
                    let of_member = |typed: &str| match typed == error.event {
                        true => why.clone(),
                        false => format!("it stands in a group with `{}`: {why}", error.event),
                    };
                    let members = group.members.iter();
                    let missing = members.map(|one| asked(&one.typed, Err(of_member(&one.typed))));
                    self.asked.extend(missing.collect::<Vec<_>>());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The events that this host has, in the order of their numbers.
    pub fn events(&self) -> impl Iterator<Item = &Selected> {
        self.groups.iter().flat_map(|group| &group.events)
    }
}

/// A clock, then what perf stat counts. A task's clock where tasks are counted; a CPU's clock elsewhere, since every
/// task of a CPU has a clock of its own.
fn usual_events(target: &Asked, has_pmu: bool) -> String {
    let clock = match target {
        Asked::System | Asked::Cgroups(_) | Asked::CgroupsToCome(_) | Asked::AllCgroups => "cpu-clock",
        Asked::Processes(_) | Asked::Threads(_) | Asked::Command(_) => "task-clock",
    };
    let hardware: &[&str] = if has_pmu { &HARDWARE } else { &[] };
    [clock].iter().chain(&SOFTWARE).chain(hardware).copied().collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::CountPlan;
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

    fn plan(lists: &[&str], with_pmu: bool) -> Result<CountPlan, PlanError> {
        let tree = host(with_pmu);
        let machine = Machine::read(&tree.root).unwrap();
        let lists: Vec<String> = lists.iter().map(|list| (*list).to_owned()).collect();
        let catalog = Catalog::read(&tree.root).unwrap();
        CountPlan::new(&Request::default(), &lists, &machine, &catalog, &tree.root)
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
}
