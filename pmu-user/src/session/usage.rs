//! CPU time of the targets as the kernel accounts it, to hold against what the programs saw of them: a target that ran and of
//! which nothing was seen has no numbers, not zeros.

use std::{fs, path::PathBuf, time::Duration};

use rustix::param::clock_ticks_per_second;

use crate::{
    drain::{Drain, Owner},
    machine::{Machine, stat::after_name},
    perf::children_usage,
    plan::{
        Plan, Target,
        request::{By, Descend},
    },
};

/// `utime`, as [`after_name`] counts; `stime` follows.
const UTIME_FIELD: usize = 11;

/// So much must have been used to be evidence: `/proc` tells it in ticks of 10 ms, and reading it takes a moment.
const EVIDENCE: Duration = Duration::from_millis(50);

/// The targets, since counting started.
#[derive(Debug, Default)]
pub(super) struct Targets(Vec<Tracked>);

/// A target.
#[derive(Debug)]
struct Tracked {
    what: What,
    before: Duration,
    seen: bool,
}

/// What has CPU time of its own.
#[derive(Debug)]
enum What {
    /// A process that has an owner of its own.
    Owner(u32),
    Process(u32),
    Thread(u32),
    /// `cpu.stat` of a cgroup.
    Cgroup(PathBuf),
    /// A process that is our child, and what our children had used before.
    Command(u32, Duration),
}

impl Targets {
    /// Reads what they have used so far. `command`: the process that becomes the command.
    pub(super) fn begin(plan: &Plan, machine: &Machine, command: Option<u32>) -> Self {
        // What runs on other CPUs is not seen on purpose.
        if plan.cpus != machine.cpu.online {
            return Self::default();
        }
        let process = |&id: &u32| if plan.by == By::Process { What::Owner(id) } else { What::Process(id) };
        let what: Vec<What> = match &plan.target {
            Target::System => Vec::new(),
            // A cgroup's `cpu.stat` holds what is below it, which is left out on purpose.
            Target::Cgroups(_) if plan.descend == Descend::No => Vec::new(),
            Target::Processes(ids) => ids.iter().map(process).collect(),
            Target::Threads(ids) => ids.iter().copied().map(What::Thread).collect(),
            Target::Cgroups(cgroups) => {
                let stat = |path: PathBuf| {
                    let mount = machine.cgroups.v2.as_ref()?;
                    Some(What::Cgroup(mount.join(path.strip_prefix("/").ok()?).join("cpu.stat")))
                };
                cgroups.iter().filter_map(|cgroup| stat(cgroup.path.to_path())).collect()
            }
            Target::Command(_) => {
                let children = children_usage().map_or(Duration::ZERO, |usage| usage.user + usage.system);
                command.map(|pid| What::Command(pid, children)).into_iter().collect()
            }
        };
        let tracked = |what: What| {
            let before = what.used()?;
            Some(Tracked { what, before, seen: false })
        };
        Self(what.into_iter().filter_map(tracked).collect())
    }

    /// Notes of whom something was seen.
    pub(super) fn see(&mut self, drain: &Drain) {
        let Self(targets) = self;
        let together = drain.counts.iter().any(|row| row.slot.slot == 0);
        for target in targets.iter_mut().filter(|target| !target.seen) {
            target.seen = together
                || match target.what {
                    What::Owner(id) => drain
                        .owners
                        .iter()
                        .any(|row| matches!(row.owner, Owner::Process { pid, .. } if pid == id)),
                    _ => !drain.counts.is_empty(),
                };
        }
    }

    /// Targets that ran while nothing was seen of them.
    pub(super) fn unseen(&self) -> u64 {
        let ran = |target: &&Tracked| {
            let used = target.what.used().unwrap_or_default();
            !target.seen && used.saturating_sub(target.before) >= EVIDENCE
        };
        self.0.iter().filter(ran).count() as u64
    }
}

impl What {
    /// CPU time so far; `None` if it is gone.
    fn used(&self) -> Option<Duration> {
        match self {
            Self::Owner(id) | Self::Process(id) => of_process(*id),
            Self::Thread(id) => {
                let stat = fs::read_to_string(format!("/proc/{id}/schedstat")).ok()?;
                Some(Duration::from_nanos(stat.split(' ').next()?.parse().ok()?))
            }
            Self::Cgroup(stat) => {
                let stat = fs::read_to_string(stat).ok()?;
                let usage = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
                Some(Duration::from_micros(usage.parse().ok()?))
            }
            Self::Command(id, before) => of_process(*id).or_else(|| {
                let usage = children_usage().ok()?;
                Some((usage.user + usage.system).saturating_sub(*before))
            }),
        }
    }
}

/// CPU time of all threads that a process has had, in whole ticks.
fn of_process(id: u32) -> Option<Duration> {
    let stat = fs::read(format!("/proc/{id}/stat")).ok()?;
    let mut times = after_name(&stat)?.skip(UTIME_FIELD).map_while(|field| field.parse::<u64>().ok());
    let ticks = times.next()? + times.next()?;
    Some(Duration::from_secs(1) * u32::try_from(ticks).ok()? / u32::try_from(clock_ticks_per_second()).ok()?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{EVIDENCE, Targets, Tracked, What, of_process};
    use crate::drain::{CountRow, Drain, Owner, OwnerRow, SlotId};

    fn spin_until_used(ours: u32) {
        let before = of_process(ours).unwrap();
        while of_process(ours).unwrap() - before < EVIDENCE + Duration::from_millis(20) {}
    }

    fn tracked(what: What) -> Tracked {
        Tracked { before: what.used().unwrap(), what, seen: false }
    }

    #[test]
    fn a_target_that_ran_and_was_not_seen_is_told() {
        let ours = std::process::id();
        let mut targets = Targets(vec![tracked(What::Owner(ours)), tracked(What::Thread(ours))]);
        assert_eq!(targets.unseen(), 0);
        spin_until_used(ours);
        // The first thread of a test waits for the others.
        assert_eq!(targets.unseen(), 1);
        let owner = Owner::Process { pid: ours, born_ns: 1, name: "x".into() };
        let row = OwnerRow { slot: SlotId { slot: 1, generation: 0 }, owner, ended_ns: None };
        targets.see(&Drain { owners: vec![row], ..Drain::default() });
        assert_eq!(targets.unseen(), 0);
    }

    #[test]
    fn one_that_is_counted_with_others_may_have_been_seen() {
        let ours = std::process::id();
        let mut targets = Targets(vec![tracked(What::Owner(ours))]);
        spin_until_used(ours);
        let common = CountRow {
            slot: SlotId::default(),
            cpu: crate::machine::cpu::Cpu(0),
            count: pmu_common::count::Count::ZERO,
            samples: Vec::new(),
            latencies: Vec::new(),
        };
        targets.see(&Drain { counts: vec![common], ..Drain::default() });
        assert_eq!(targets.unseen(), 0);
    }
}
