//! What `pmbpf stat` will open: events in perf's event syntax on plain counters, without any BPF program.

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
    /// CPUs or threads that have rows of their own, where not all are one row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
    /// Time from the start of the command to that of the counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// Is what this process may not count left out, instead of an error?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_possible: bool,
}

/// What [`CountPlan::new`] is given: the events, and how their counts are put together.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Lists of events; the usual ones if there are none.
    pub lists: Vec<String>,
    /// How often `-d` was said: each adds caches to the usual events.
    pub detailed: u8,
    /// Do the usual events have those that this host lacks, for rows that are the same everywhere?
    pub unsupported_too: bool,
    /// Nothing but times.
    pub null: bool,
    /// The Top-Down counters of the CPU instead of the usual events.
    pub topdown: bool,
    /// How counts of CPUs or threads are put together.
    pub aggregate: Aggregate,
    /// Why user mode alone is counted where an event does not say, if that is so.
    pub user_mode: Option<String>,
    /// What else a report must say is missing.
    pub left_out: Option<String>,
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
/// What each `-d` adds (perf-stat(1), `--detailed`).
const DETAILED: [&str; 3] = [
    "L1-dcache-loads,L1-dcache-load-misses,LLC-loads,LLC-load-misses",
    "L1-icache-loads,L1-icache-load-misses,dTLB-loads,dTLB-load-misses,iTLB-loads,iTLB-load-misses",
    "L1-dcache-prefetches,L1-dcache-prefetch-misses",
];
/// The first level of the Top-Down tree where a counter of the core has it.
const TOPDOWN: &str = "{slots,topdown-retiring,topdown-bad-spec,topdown-fe-bound,topdown-be-bound}";

impl CountPlan {
    /// Decides what to count for `request`, with the events that are wanted or the usual ones. Needs no privilege, and the root of the
    /// file system only to see which processes exist.
    ///
    /// # Errors
    ///
    /// Names the target or event that cannot be had, why, and the nearest thing that can. An event of a PMU that this
    /// host does not have is no error: it is in the plan, with the reason.
    pub fn new(
        request: &Request,
        wanted: &Wanted,
        machine: &Machine,
        catalog: &Catalog,
        root: &Path,
    ) -> Result<Self, PlanError> {
        let cpus = cpus(request, machine)?;
        // A counter is of the cgroup that there is when it is opened.
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

    /// Lists of events: those that were asked for, or the usual ones, with what every `-d` adds.
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

    /// Counts what does not say a mode in user mode alone. What happens in the kernel alone is not counted then: 0 would be wrong.
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

    /// Has the report say that this is missing, beside what else is.
    fn leaves_out(&mut self, what: Option<String>) {
        let all: Vec<String> = self.left_out.take().into_iter().chain(what).collect();
        self.left_out = (!all.is_empty()).then(|| all.join("; "));
    }

    /// The threads that have rows of their own.
    pub fn threads(&self) -> Vec<u32> {
        self.places.iter().filter_map(Place::tid).collect()
    }

    /// The events that this host has, in the order of their numbers.
    pub fn events(&self) -> impl Iterator<Item = &Selected> {
        self.groups.iter().flat_map(|group| &group.events)
    }
}

/// Why there is no Top-Down counter.
const NO_SLOTS: &str =
    "the cores have no Top-Down counter; `pmbpf run` has the tree where a table knows the CPU";

/// Why what the kernel does is not counted in user mode.
const OF_KERNEL: &str = "it happens in kernel mode, which takes CAP_PERFMON";

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
mod tests;
