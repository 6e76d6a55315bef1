//! Plan of `pmbpf stat`: events in perf's event syntax on plain counters, without any BPF program.

mod events;
mod place;

use std::{path::Path, time::Duration};

use serde::{Deserialize, Serialize};

pub use self::{
    events::{TIMES, TOOL, TOOL_PMU},
    place::{Aggregate, Place},
};
use super::{
    PlanError, Target, cpus, metrics,
    request::{Inherit, Request, Target as Asked},
    resolve as resolve_target,
};
use crate::{
    machine::{Machine, cpu::Cpu, pmu::catalog::Catalog},
    table::{
        event_syntax::{self, List, Modifiers, Selected, SelectedGroup, Why},
        model::Tables,
    },
};

/// Complete plan of `pmbpf stat`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CountPlan {
    /// Target that is counted: the system, cgroups, processes, threads or a command.
    pub target: Target,
    /// Inheritance of counters by children of processes and threads.
    pub inherit: Inherit,
    /// CPUs on which counters are opened, for a target that is not a task.
    pub cpus: Vec<Cpu>,
    /// Events that were requested, in order.
    pub asked: Vec<AskedEvent>,
    /// Requested events that this host has, in groups.
    pub groups: Vec<SelectedGroup>,
    /// Text for the report: events or modes that are left out, with the reason.
    pub left_out: Option<String>,
    /// Number of runs of the command.
    pub runs: u32,
    /// Interval between two reports, for reports during the run.
    pub interval: Option<Duration>,
    /// Duration after which counting stops.
    pub duration: Option<Duration>,
    /// CPUs or threads with separate rows; empty if all counts are one row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
    /// Time from the start of the command to that of the counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// Whether events that this process may not count are left out instead of being an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_possible: bool,
}

/// Input of [`CountPlan::new`]: the events, and the aggregation of their counts.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Lists of events; the default events if empty.
    pub lists: Vec<String>,
    /// Number of `-d` options: each adds cache events to the default events.
    pub detailed: u8,
    /// Whether the default events include those that this host lacks, so that rows are the same everywhere.
    pub unsupported_too: bool,
    /// Whether only times are reported, without any event.
    pub null: bool,
    /// Whether the Top-Down counters of the CPU replace the default events.
    pub topdown: bool,
    /// Aggregation of counts of CPUs or threads.
    pub aggregate: Aggregate,
    /// Reason why events without a mode are counted in user mode only, if they are.
    pub user_mode: Option<String>,
    /// Other items that the report must state as missing.
    pub left_out: Option<String>,
}

/// Requested event, with its group and its place in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedEvent {
    /// Name as typed.
    pub name: String,
    /// Group of the event, from 0: events of one group are counted at the same times.
    pub group: u32,
    /// Index of the event in [`CountPlan::groups`], counted through all groups, or the reason why this host
    /// lacks it.
    pub found: Result<u32, String>,
}

/// Default events that need no PMU.
const SOFTWARE: [&str; 3] = ["context-switches", "cpu-migrations", "page-faults"];
/// Default events that only a core PMU counts.
const HARDWARE: [&str; 4] = ["cycles", "instructions", "branches", "branch-misses"];
/// Events that each `-d` adds (perf-stat(1), `--detailed`).
const DETAILED: [&str; 3] = [
    "L1-dcache-loads,L1-dcache-load-misses,LLC-loads,LLC-load-misses",
    "L1-icache-loads,L1-icache-load-misses,dTLB-loads,dTLB-load-misses,iTLB-loads,iTLB-load-misses",
    "L1-dcache-prefetches,L1-dcache-prefetch-misses",
];
/// First level of the Top-Down tree, for a core that has a counter of it.
const TOPDOWN: &str = "{slots,topdown-retiring,topdown-bad-spec,topdown-fe-bound,topdown-be-bound}";

impl CountPlan {
    /// Decides what to count for `request`: the events in `wanted`, or the default events. Needs no
    /// privilege. Uses the root of the file system to see which processes exist.
    ///
    /// # Errors
    ///
    /// Returns the target or event that is not available, the reason, and the nearest match. An event of a
    /// PMU that this host does not have is not an error: it is in the plan, with the reason.
    pub fn new(
        request: &Request,
        wanted: &Wanted,
        machine: &Machine,
        catalog: &Catalog,
        root: &Path,
    ) -> Result<Self, PlanError> {
        let cpus = cpus(request, machine)?;
        // A counter counts for the cgroup that exists when the counter is opened.
        let target = resolve_target(&request.target, machine, root)?.0;
        let places = match wanted.aggregate {
            Aggregate::Thread => Place::threads(&target, root),
            of_cpus => Place::all(of_cpus, &cpus, root),
        };
        let mut plan = Self {
            target,
            inherit: request.inherit,
            places,
            cpus,
            asked: Vec::new(),
            groups: Vec::new(),
            left_out: None,
            runs: 1,
            interval: request.interval,
            duration: request.duration,
            delay: None,
            if_possible: false,
        };
        let no_pmu = machine.no_core_pmu();
        if wanted.topdown && !catalog.cores().any(|core| core.event("slots").is_some()) {
            return Err(PlanError::Unsupported(
                "slots".to_owned(),
                no_pmu.unwrap_or_else(|| NO_SLOTS.to_owned()),
            ));
        }
        let tables = metrics::tables(&request.metrics, root);
        for list in plan.lists(request, wanted, no_pmu.as_deref()) {
            plan.add(&List::parse(&list)?, catalog, &tables, no_pmu.as_deref())?;
        }
        if let Some(why) = &wanted.user_mode {
            plan.keep_to_user_mode(why);
        }
        plan.leaves_out(wanted.left_out.clone());
        Ok(plan)
    }

    /// Returns the lists of events: those requested or the default ones, with the events that each `-d` adds.
    fn lists(&mut self, request: &Request, wanted: &Wanted, no_pmu: Option<&str>) -> Vec<String> {
        if wanted.null {
            return Vec::new();
        }
        let mut lists = wanted.lists.clone();
        if wanted.topdown {
            lists.push(TOPDOWN.to_owned());
        }
        let detailed = &DETAILED[..DETAILED.len().min(usize::from(wanted.detailed))];
        if lists.is_empty() {
            let has_hardware = no_pmu.is_none() || wanted.unsupported_too || !detailed.is_empty();
            self.left_out =
                no_pmu.filter(|_| !has_hardware).map(|why| format!("{}: {why}", HARDWARE.join(", ")));
            lists.push(usual_events(&request.target, has_hardware));
        }
        lists.extend(detailed.iter().map(|list| (*list).to_owned()));
        lists
    }

    fn add(
        &mut self,
        list: &List,
        catalog: &Catalog,
        tables: &Tables,
        no_pmu: Option<&str>,
    ) -> Result<(), PlanError> {
        for group in list.groups.iter().flat_map(|group| events::expanded(group, catalog)) {
            let number = self.asked.iter().map(|event| event.group + 1).max().unwrap_or(0);
            let asked = |name: &str, found| AskedEvent { name: name.to_owned(), group: number, found };
            let resolved = match events::time_of_run(&group) {
                Some(time) => Ok(vec![time]),
                None => event_syntax::resolve_with(&List { groups: vec![group.clone()] }, catalog, tables),
            };
            match resolved {
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

    /// Restricts events without a mode to user mode. An event that occurs only in the kernel is not counted
    /// then: a count of 0 would be wrong.
    fn keep_to_user_mode(&mut self, why: &str) {
        let (mut unseen, mut is_limited) = (Vec::new(), false);
        for (index, event) in self.groups.iter_mut().flat_map(|group| &mut group.events).enumerate() {
            let modifiers = event.modifiers;
            let is_time = event.instances.iter().any(|at| at.kind == TOOL);
            if modifiers.user || modifiers.kernel || modifiers.hypervisor || is_time {
                continue;
            }
            event.name = modifiers.in_user_mode(&event.name);
            event.modifiers.user = true;
            is_limited = true;
            if !events::happens_in_user_mode(event) {
                unseen.push(index as u32);
            }
        }
        let names: Vec<String> = self.events().map(|event| event.name.clone()).collect();
        for asked in &mut self.asked {
            match asked.found {
                Ok(index) => asked.name.clone_from(&names[index as usize]),
                Err(_) if !asked.name.contains([':', '/']) => {
                    asked.name = Modifiers::default().in_user_mode(&asked.name);
                }
                Err(_) => {}
            }
            if asked.found.as_ref().is_ok_and(|index| unseen.contains(index)) {
                asked.found = Err(OF_KERNEL.to_owned());
            }
        }
        self.leaves_out(is_limited.then(|| format!("kernel mode: {why}")));
    }

    /// Adds an item to the text of what the report must state as missing.
    fn leaves_out(&mut self, what: Option<String>) {
        let all: Vec<String> = self.left_out.take().into_iter().chain(what).collect();
        self.left_out = (!all.is_empty()).then(|| all.join("; "));
    }

    /// Returns the threads that have separate rows.
    pub fn threads(&self) -> Vec<u32> {
        self.places.iter().filter_map(Place::tid).collect()
    }

    /// Returns the events that this host has, in the order of their numbers.
    pub fn events(&self) -> impl Iterator<Item = &Selected> {
        self.groups.iter().flat_map(|group| &group.events)
    }
}

/// Reason reported where there is no Top-Down counter.
const NO_SLOTS: &str =
    "the cores have no Top-Down counter; `pmbpf run` has the tree where a table knows the CPU";

/// Reason reported for a kernel event that is not counted in user mode.
const OF_KERNEL: &str = "it happens in kernel mode, which takes CAP_PERFMON";

/// Returns the default events: a clock, then the events of perf stat. The clock is a task's clock where tasks
/// are counted, and a CPU's clock elsewhere, since every task of a CPU has a separate clock.
fn usual_events(target: &Asked, has_pmu: bool) -> String {
    let clock = match target {
        Asked::System | Asked::Cgroups(_) | Asked::CgroupsToCome(_) | Asked::AllCgroups => "cpu-clock",
        Asked::Processes(_) | Asked::Threads(_) | Asked::Command(_) => "task-clock",
    };
    let hardware: &[&str] = if has_pmu { &HARDWARE } else { &[] };
    [clock].iter().chain(&SOFTWARE).chain(hardware).copied().collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
