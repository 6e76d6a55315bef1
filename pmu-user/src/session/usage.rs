//! The kernel's own accounts of the targets, to be compared with what the programs saw of them. A target that
//! ran, or read, and of which nothing was seen has no numbers, not zeros.

use std::{collections::BTreeSet, fs, path::PathBuf};

use rustix::param::clock_ticks_per_second;

use crate::{
    drain::{Owner, TasksDrain},
    machine::{Machine, cgroup::Cgroup, duration_ns, stat::after_name},
    perf::{children_bytes_read, children_usage},
    plan::{
        Plan, Target,
        io::IoPlan,
        request::{By, Descend},
    },
};

/// Position of `utime`, as [`after_name`] counts; `stime` follows.
const UTIME_FIELD: usize = 11;

/// Account that is compared with what was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Account {
    /// CPU time in ns.
    CpuTime,
    /// Bytes that were read from storage, as in /proc/PID/io. Reading those of other users takes
    /// CAP_SYS_PTRACE.
    BytesRead,
}

impl Account {
    /// Returns the least use that is evidence. CPU time: `/proc` has it in ticks of 10 ms, and reading it
    /// takes a moment. Bytes: more than a page that was needed before the programs looked.
    const fn evidence(self) -> u64 {
        match self {
            Self::CpuTime => 50_000_000,
            Self::BytesRead => 1 << 20,
        }
    }

    /// Returns the account of a process, with the threads that it has had.
    fn of_process(self, id: u32) -> Option<u64> {
        match self {
            Self::CpuTime => cpu_time(id),
            Self::BytesRead => field(&format!("/proc/{id}/io"), "read_bytes: "),
        }
    }

    /// Returns the account of a thread.
    fn of_thread(self, id: u32) -> Option<u64> {
        match self {
            Self::CpuTime => {
                let stat = fs::read_to_string(format!("/proc/{id}/schedstat")).ok()?;
                stat.split(' ').next()?.parse().ok()
            }
            Self::BytesRead => field(&format!("/proc/{id}/task/{id}/io"), "read_bytes: "),
        }
    }

    /// Returns the account of this process's children that have been waited for.
    fn of_children(self) -> Option<u64> {
        match self {
            Self::CpuTime => children_usage().ok().map(|usage| duration_ns(usage.user + usage.system)),
            Self::BytesRead => children_bytes_read().ok(),
        }
    }

    /// Returns the account of a cgroup, by its folder.
    fn of_cgroup(self, folder: &std::path::Path) -> Option<u64> {
        match self {
            Self::CpuTime => {
                let usage_us = field(folder.join("cpu.stat").to_str()?, "usage_usec ")?;
                usage_us.checked_mul(1000)
            }
            Self::BytesRead => Some(rbytes(&fs::read_to_string(folder.join("io.stat")).ok()?)),
        }
    }

    /// Returns the account so far; `None` if it is gone.
    fn of(self, what: &What) -> Option<u64> {
        match what {
            What::Owner(id) | What::Process(id) => self.of_process(*id),
            What::Thread(id) => self.of_thread(*id),
            What::Cgroup(folder) => self.of_cgroup(folder),
            What::Command(id, before) => {
                self.of_process(*id).or_else(|| Some(self.of_children()?.saturating_sub(*before)))
            }
        }
    }
}

/// Accounts of the targets, since counting started.
#[derive(Debug)]
pub(super) struct Targets {
    account: Account,
    tracked: Vec<Tracked>,
}

impl Default for Targets {
    /// Returns no targets.
    fn default() -> Self {
        Self { account: Account::CpuTime, tracked: Vec::new() }
    }
}

/// A target with its account.
#[derive(Debug)]
struct Tracked {
    what: What,
    before: u64,
    seen: bool,
}

/// Subject of a separate account.
#[derive(Debug)]
enum What {
    /// A process that has a separate owner.
    Owner(u32),
    Process(u32),
    Thread(u32),
    /// Folder of a cgroup.
    Cgroup(PathBuf),
    /// A child process, and the use of all children before it.
    Command(u32, u64),
}

/// Owners of requests that the programs saw.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenOwners {
    /// Targets by their ids.
    pub(super) targets: BTreeSet<u64>,
    /// Whether there were others, which are below a target.
    pub(super) others: bool,
}

impl Targets {
    /// Reads the CPU time that the targets have used so far. `command`: the process that becomes the command.
    pub(super) fn that_run(plan: &Plan, machine: &Machine, command: Option<u32>) -> Self {
        // Tasks on other CPUs are unseen on purpose.
        if plan.cpus != machine.cpu.online {
            return Self::default();
        }
        let process = |id: u32| if plan.by == By::Process { What::Owner(id) } else { What::Process(id) };
        let what = what(&plan.target, plan.descend, machine, process);
        Self::begin(Account::CpuTime, what, command)
    }

    /// Reads the bytes that the targets have read so far. Needs CAP_SYS_PTRACE for processes of other users.
    pub(super) fn that_read(plan: &IoPlan, machine: &Machine, command: Option<u32>) -> Self {
        Self::begin(Account::BytesRead, what(&plan.target, plan.descend, machine, What::Owner), command)
    }

    fn begin(account: Account, mut what: Vec<What>, command: Option<u32>) -> Self {
        what.extend(command.map(|pid| What::Command(pid, account.of_children().unwrap_or(0))));
        let tracked = |what: What| {
            let before = account.of(&what)?;
            Some(Tracked { what, before, seen: false })
        };
        Self { account, tracked: what.into_iter().filter_map(tracked).collect() }
    }

    /// Records the targets of which something was seen.
    pub(super) fn see(&mut self, drain: &TasksDrain) {
        let together = drain.counts.iter().any(|row| row.slot.slot == 0);
        for target in self.tracked.iter_mut().filter(|target| !target.seen) {
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

    /// Records the targets of which requests were seen.
    pub(super) fn see_owners(&mut self, owners: &SeenOwners) {
        for target in &mut self.tracked {
            target.seen = owners.others
                || match target.what {
                    What::Owner(id) => owners.targets.contains(&u64::from(id)),
                    _ => !owners.targets.is_empty(),
                };
        }
    }

    /// Returns the use of each target of which nothing was seen, if it is enough to be evidence.
    pub(super) fn unseen(&self) -> impl Iterator<Item = u64> {
        let used = |target: &Tracked| {
            let used = self.account.of(&target.what).unwrap_or_default();
            used.saturating_sub(target.before)
        };
        self.tracked
            .iter()
            .filter(|target| !target.seen)
            .map(used)
            .filter(|used| *used >= self.account.evidence())
    }
}

/// Returns the targets that have an account. A command has none yet.
fn what(target: &Target, descend: Descend, machine: &Machine, process: impl Fn(u32) -> What) -> Vec<What> {
    match target {
        Target::System | Target::Command(_) => Vec::new(),
        // A cgroup's account includes what is below it, which is left out on purpose.
        Target::Cgroups(_) if descend == Descend::No => Vec::new(),
        Target::Processes(ids) => ids.iter().copied().map(process).collect(),
        Target::Threads(ids) => ids.iter().copied().map(What::Thread).collect(),
        Target::Cgroups(cgroups) => {
            let folder = |cgroup: &Cgroup| {
                let path = cgroup.path.to_path();
                Some(machine.cgroups.v2.as_ref()?.join(path.strip_prefix("/").ok()?))
            };
            cgroups.iter().filter_map(folder).map(What::Cgroup).collect()
        }
    }
}

/// Returns the number after `name` at the beginning of a line.
fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

/// Returns the bytes read from all devices in an `io.stat` (Documentation/admin-guide/cgroup-v2.rst).
fn rbytes(stat: &str) -> u64 {
    let words = stat.split_ascii_whitespace().filter_map(|word| word.strip_prefix("rbytes="));
    words.filter_map(|bytes| bytes.parse::<u64>().ok()).fold(0, u64::saturating_add)
}

/// Returns the CPU time of all threads that a process has had, in ns, in whole ticks.
fn cpu_time(id: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{id}/stat")).ok()?;
    let mut times = after_name(&stat)?.skip(UTIME_FIELD).map_while(|field| field.parse::<u64>().ok());
    let ticks = times.next()? + times.next()?;
    ticks.checked_mul(1_000_000_000)?.checked_div(clock_ticks_per_second())
}

#[cfg(test)]
mod tests {
    use super::{Account, SeenOwners, Targets, Tracked, What, cpu_time, rbytes};
    use crate::drain::{CountRow, Owner, OwnerRow, SlotId, TasksDrain};

    fn spin_until_used(ours: u32) {
        let before = cpu_time(ours).unwrap();
        while cpu_time(ours).unwrap() - before < Account::CpuTime.evidence() + 20_000_000 {}
    }

    fn targets(account: Account, what: impl IntoIterator<Item = What>) -> Targets {
        let tracked = |what: What| Tracked { before: account.of(&what).unwrap(), what, seen: false };
        Targets { account, tracked: what.into_iter().map(tracked).collect() }
    }

    #[test]
    fn a_target_that_ran_and_was_not_seen_is_told() {
        let ours = std::process::id();
        let mut targets = targets(Account::CpuTime, [What::Owner(ours), What::Thread(ours)]);
        assert_eq!(targets.unseen().count(), 0);
        spin_until_used(ours);
        // The first thread of a test waits for the others.
        assert_eq!(targets.unseen().count(), 1);
        let owner = Owner::Process { pid: ours, born_ns: 1, name: "x".into() };
        let row = OwnerRow { slot: SlotId { slot: 1, generation: 0 }, owner, ended_ns: None };
        targets.see(&TasksDrain { owners: vec![row], ..TasksDrain::default() });
        assert_eq!(targets.unseen().count(), 0);
    }

    #[test]
    fn one_that_is_counted_with_others_may_have_been_seen() {
        let ours = std::process::id();
        let mut targets = targets(Account::CpuTime, [What::Owner(ours)]);
        spin_until_used(ours);
        let common = CountRow {
            slot: SlotId::default(),
            cpu: crate::machine::cpu::Cpu(0),
            count: pmu_common::count::Count::ZERO,
            samples: Vec::new(),
            latencies: Vec::new(),
        };
        targets.see(&TasksDrain { counts: vec![common], ..TasksDrain::default() });
        assert_eq!(targets.unseen().count(), 0);
    }

    #[test]
    fn a_target_that_read_is_seen_by_its_requests_or_its_childrens() {
        let ours = std::process::id();
        let mut targets = targets(Account::CpuTime, [What::Owner(ours)]);
        spin_until_used(ours);
        for (seen, others, unseen) in
            [(None, false, 1), (Some(1), false, 1), (Some(ours), false, 0), (None, true, 0)]
        {
            let owners = SeenOwners { targets: seen.into_iter().map(u64::from).collect(), others };
            targets.see_owners(&owners);
            assert_eq!(targets.unseen().count(), unseen, "{owners:?}");
        }
    }

    #[test]
    fn bytes_read_are_those_of_every_device() {
        let stat = "8:0 rbytes=4096 wbytes=1 rios=1 wios=1 dbytes=0 dios=0\n7:0 rbytes=8192 wbytes=0\n8:16\n";
        assert_eq!((rbytes(stat), rbytes("")), (12288, 0));
        let ours = Account::BytesRead.of_process(std::process::id());
        assert!(ours.is_some() || !std::path::Path::new("/proc/self/io").exists());
        assert!(Account::BytesRead.of_children().is_some());
    }
}
