//! CPUs that come and go while counting. Looked at before every drain: one that does both in between is not noticed.

use std::collections::BTreeSet;

use super::Session;
use crate::{
    machine::cpu::{self, Cpu},
    plan::Plan,
};

/// Which CPUs run, as last seen.
#[derive(Debug)]
pub(super) struct Hotplug {
    online: BTreeSet<Cpu>,
    /// Does the plan count every CPU that there was?
    all: bool,
    /// Times that a CPU of the plan went offline.
    pub(super) went: u64,
    /// Times that a CPU which the plan does not know came online, where it counts all of them.
    pub(super) came: u64,
}

/// What has changed since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    went: Vec<Cpu>,
    back: Vec<Cpu>,
}

impl Hotplug {
    pub(super) fn new(plan: &Plan, online: &[Cpu]) -> Self {
        let online: BTreeSet<Cpu> = online.iter().copied().collect();
        let all = online.iter().all(|cpu| plan.cpus.contains(cpu));
        Self { online, all, went: 0, came: 0 }
    }

    /// Did the CPU run when it was last looked at?
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
        self.came += if self.all { others.len() as u64 } else { 0 };
        self.online = online;
        Changes { went, back: planned_now }
    }
}

impl Session {
    /// Notices CPUs that went offline or came back since the last drain.
    pub(super) fn look_at_cpus(&mut self) {
        let Ok(online) = cpu::online(&self.root) else { return };
        let changes = self.hotplug.look(&self.header.plan.cpus, &online);
        changes.went.into_iter().for_each(|cpu| self.close_counters(cpu));
        changes.back.into_iter().for_each(|cpu| self.reopen_counters(cpu));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Changes, Hotplug};
    use crate::machine::cpu::Cpu;

    fn cpus(numbers: &[u32]) -> Vec<Cpu> {
        numbers.iter().copied().map(Cpu).collect()
    }

    fn hotplug(online: &[u32], all: bool) -> Hotplug {
        Hotplug { online: cpus(online).into_iter().collect::<BTreeSet<_>>(), all, went: 0, came: 0 }
    }

    #[test]
    fn a_planned_cpu_is_missed_and_found_again() {
        let mut hotplug = hotplug(&[0, 1], true);
        let planned = cpus(&[0, 1]);
        assert_eq!(hotplug.look(&planned, &cpus(&[0])), Changes { went: cpus(&[1]), back: Vec::new() });
        assert!(!hotplug.is_online(Cpu(1)));
        assert_eq!(hotplug.look(&planned, &cpus(&[0, 1])), Changes { went: Vec::new(), back: cpus(&[1]) });
        assert_eq!((hotplug.went, hotplug.came), (1, 0));
    }

    #[test]
    fn a_new_cpu_is_missing_only_where_all_count() {
        for (all, came) in [(true, 1), (false, 0)] {
            let mut hotplug = hotplug(&[0, 1], all);
            assert_eq!(hotplug.look(&cpus(&[0, 1]), &cpus(&[0, 1, 2])), Changes::default());
            assert_eq!(hotplug.came, came);
        }
    }
}
