//! CPUs that come and go during counting. They are checked before every drain. A CPU that did both in between
//! shows by the time of an event.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::TasksSession;
use crate::{
    machine::{
        cpu::{Cpu, OnlineCpus},
        monotonic_ns,
    },
    perf::Dummy,
    plan::Plan,
};

/// Set of online CPUs, as last seen.
#[derive(Debug)]
pub(super) struct Hotplug {
    /// The kernel's list of online CPUs; `None` if it has none.
    list: Option<OnlineCpus>,
    online: BTreeSet<Cpu>,
    /// CPUs on which events are open.
    present: BTreeMap<Cpu, Presence>,
    /// Whether the plan counts every CPU that was online.
    all: bool,
    /// Number of times that a CPU of the plan went offline.
    pub(super) went: u64,
    /// Number of times that a CPU came online on which nothing counts: the kernel refuses to open its events.
    pub(super) came: u64,
}

/// Changes since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    went: Vec<Cpu>,
    back: Vec<Cpu>,
    /// CPUs that were not online when counting began, if every CPU counts.
    new: Vec<Cpu>,
}

impl Hotplug {
    pub(super) fn new(plan: &Plan, online: &[Cpu], root: &Path) -> Self {
        let online: BTreeSet<Cpu> = online.iter().copied().collect();
        let all = online.iter().all(|cpu| plan.cpus.contains(cpu));
        let watched = plan.cpus.iter().filter(|_| plan.has_events());
        let present = watched.filter_map(|&cpu| Some((cpu, Presence::open(cpu)?))).collect();
        Self { list: OnlineCpus::open(root).ok(), online, present, all, went: 0, came: 0 }
    }

    /// Returns the time for which planned CPUs were without events, in ns, so far.
    pub(super) fn uncovered(&self) -> Vec<(Cpu, u64)> {
        let times = self.present.iter().map(|(&cpu, presence)| (cpu, presence.uncovered_ns));
        times.filter(|&(_, uncovered_ns)| uncovered_ns > 0).collect()
    }

    /// Returns whether there is a CPU whose events are not open.
    fn lacks_events(&self) -> bool {
        self.present.values().any(|presence| presence.dummy.is_none())
    }

    /// Accounts the time of every CPU's events. Returns the CPUs that were offline and are back, and are not
    /// in `changes`.
    fn went_and_came(&mut self, changes: &Changes) -> Vec<Cpu> {
        let mut both = Vec::new();
        for (&cpu, presence) in &mut self.present {
            let was_here = presence.dummy.is_some();
            let known = changes.went.contains(&cpu) || changes.back.contains(&cpu);
            if presence.look() && self.online.contains(&cpu) && !known {
                // Events that could not be opened again are tried again.
                self.went += u64::from(was_here);
                both.push(cpu);
            }
        }
        both
    }

    /// Records that the CPU's events are open again.
    fn is_back(&mut self, cpu: Cpu) {
        if let Some(presence) = self.present.get_mut(&cpu) {
            let refused = !presence.reopen(cpu);
            let was_refused = std::mem::replace(&mut presence.refused, refused);
            self.came += u64::from(refused && !was_refused);
        }
    }

    /// Returns whether the CPU was online at the last look.
    pub(super) fn is_online(&self, cpu: Cpu) -> bool {
        self.online.contains(&cpu)
    }

    fn look(&mut self, planned: &[Cpu], online: &[Cpu]) -> Changes {
        let online: BTreeSet<Cpu> = online.iter().copied().collect();
        let (planned_now, others): (Vec<_>, Vec<_>) =
            online.difference(&self.online).partition(|cpu| planned.contains(cpu));
        let went: Vec<Cpu> =
            self.online.difference(&online).copied().filter(|cpu| planned.contains(cpu)).collect();
        self.went += went.len() as u64;
        self.online = online;
        Changes { went, back: planned_now, new: if self.all { others } else { Vec::new() } }
    }

    /// Watches a CPU that came after counting had begun, `late_ns` ago.
    fn watch(&mut self, cpu: Cpu, late_ns: u64) {
        match Presence::open(cpu) {
            Some(presence) => {
                self.present.insert(cpu, Presence { uncovered_ns: late_ns, ..presence });
            }
            None => self.came += 1,
        }
    }
}

/// Presence of the events that were opened on a CPU, and the time without them.
#[derive(Debug)]
struct Presence {
    /// `None` while its events are not open.
    dummy: Option<Dummy>,
    /// Time of CLOCK_MONOTONIC up to which time is accounted, and the enabled time of the event by then.
    at_ns: u64,
    enabled_ns: u64,
    /// Time without events.
    uncovered_ns: u64,
    /// Whether the kernel refused to open them again.
    refused: bool,
}

impl Presence {
    fn open(cpu: Cpu) -> Option<Self> {
        let dummy = Dummy::open(cpu).ok()?;
        Some(Self {
            dummy: Some(dummy),
            at_ns: monotonic_ns(),
            enabled_ns: 0,
            uncovered_ns: 0,
            refused: false,
        })
    }

    /// Accounts the time since the last look. Returns whether its events are gone.
    fn look(&mut self) -> bool {
        let now_ns = monotonic_ns();
        let passed_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns = now_ns;
        let read = |dummy: &Dummy| dummy.enabled_ns().ok();
        let Some(dummy) = &self.dummy else {
            self.uncovered_ns += passed_ns;
            return true;
        };
        let enabled_ns = read(dummy).unwrap_or(self.enabled_ns);
        let covered_ns = enabled_ns.saturating_sub(std::mem::replace(&mut self.enabled_ns, enabled_ns));
        // The two clocks differ by a few millionths. An existing event never has the same time twice.
        if covered_ns + CLOCKS_APART_NS + passed_ns / 1000 >= passed_ns
            || read(dummy).is_some_and(|again| again != enabled_ns)
        {
            return false;
        }
        self.uncovered_ns += passed_ns.saturating_sub(covered_ns);
        self.dummy = None;
        true
    }

    /// Records that its events were opened again. Returns whether the kernel permits that.
    fn reopen(&mut self, cpu: Cpu) -> bool {
        self.look();
        self.dummy = Dummy::open(cpu).ok();
        self.enabled_ns = 0;
        self.dummy.is_some()
    }
}

/// Difference between readings of two clocks that needs no reason.
const CLOCKS_APART_NS: u64 = 1_000_000;

impl TasksSession {
    /// Detects CPUs that went offline or came back since the last drain. With `and_both` also those that did
    /// both, for which each CPU is interrupted.
    pub(super) fn look_at_cpus(&mut self, and_both: bool) {
        let Some(Ok(online)) = self.hotplug.list.as_ref().map(OnlineCpus::read) else { return };
        let mut changes = self.hotplug.look(&self.header.plan.cpus, &online);
        if and_both || changes != Changes::default() || self.hotplug.lacks_events() {
            changes.back.extend(self.hotplug.went_and_came(&changes));
        }
        changes.went.into_iter().for_each(|cpu| self.close_counters(cpu));
        changes.new.into_iter().for_each(|cpu| self.add_cpu(cpu, online.len()));
        for cpu in changes.back {
            self.close_counters(cpu);
            self.symbols.listen_again(cpu, online.len());
            self.reopen_samplers(cpu);
            self.reopen_counters(cpu);
            self.hotplug.is_back(cpu);
        }
    }

    /// Counts on a CPU that is new to the plan from here on, and accounts the time before as not covered.
    fn add_cpu(&mut self, cpu: Cpu, online: usize) {
        let plan = &mut self.header.plan;
        plan.cpus.push(cpu);
        plan.cpus.sort_unstable();
        if plan.has_events() {
            self.hotplug.watch(cpu, monotonic_ns().saturating_sub(self.header.started_ns));
        }
        self.count(self.counted);
        self.symbols.listen_again(cpu, online);
        self.reopen_samplers(cpu);
        self.write_periods();
        self.want_counters(cpu);
        self.reopen_counters(cpu);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Changes, Hotplug};
    use crate::machine::cpu::Cpu;

    fn cpus(numbers: &[u32]) -> Vec<Cpu> {
        numbers.iter().copied().map(Cpu).collect()
    }

    fn hotplug(online: &[u32], all: bool) -> Hotplug {
        Hotplug {
            list: None,
            online: cpus(online).into_iter().collect(),
            present: BTreeMap::new(),
            all,
            went: 0,
            came: 0,
        }
    }

    #[test]
    fn a_planned_cpu_is_missed_and_found_again() {
        let mut hotplug = hotplug(&[0, 1], true);
        let planned = cpus(&[0, 1]);
        assert_eq!(hotplug.look(&planned, &cpus(&[0])), Changes { went: cpus(&[1]), ..Changes::default() });
        assert!(!hotplug.is_online(Cpu(1)));
        assert_eq!(
            hotplug.look(&planned, &cpus(&[0, 1])),
            Changes { back: cpus(&[1]), ..Changes::default() }
        );
        assert_eq!((hotplug.went, hotplug.came), (1, 0));
    }

    #[test]
    fn a_new_cpu_counts_only_where_all_do() {
        for (all, new) in [(true, cpus(&[2])), (false, Vec::new())] {
            let mut hotplug = hotplug(&[0, 1], all);
            let changes = hotplug.look(&cpus(&[0, 1]), &cpus(&[0, 1, 2]));
            assert_eq!(changes, Changes { new, ..Changes::default() });
            assert_eq!(hotplug.look(&cpus(&[0, 1, 2]), &cpus(&[0, 1, 2])), Changes::default());
        }
    }
}
