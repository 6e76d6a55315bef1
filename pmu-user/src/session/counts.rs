//! Counts without owners of one run: opens what a [`CountPlan`] says, without a BPF program, reads it at every interval and at the end.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{SessionError, raise_file_limit};
use crate::{
    drain::{
        CountsDrain, CountsHeader, Usage, Workload,
        counts::{Part, Uncounted},
    },
    machine::Machine,
    perf::{CountTarget, Counting, children_usage},
    plan::{Target, count::CountPlan},
};

/// Everything that is open of counts during a run: counters by target.
pub struct CountsSession {
    /// What is known before the first reading.
    pub header: CountsHeader,
    /// Which run of the command this is, from 1.
    run: u32,
    parts: Vec<(Counting, Vec<Uncounted>)>,
    /// The process that waits to become the command.
    command: Option<u32>,
    started: Instant,
    /// CPU time of earlier children, and what the command had used before it began.
    before: Option<(Usage, Duration)>,
}

impl CountsSession {
    /// Opens the counters of `plan`. Nothing counts yet.
    ///
    /// # Errors
    ///
    /// The kernel refused an event that this host has.
    pub(super) fn open(
        (plan, run): (CountPlan, u32),
        machine: &Machine,
        command: Option<u32>,
    ) -> Result<Self, SessionError> {
        let targets = count_targets(&plan, machine, command);
        let planned: usize = targets.iter().map(|target| Counting::planned(&plan.groups, target)).sum();
        raise_file_limit(planned as u64 + 64);
        let open = |target: &CountTarget| -> Result<(Counting, Vec<Uncounted>), SessionError> {
            let counting = Counting::open_what_exists(&plan.groups, target)?;
            let uncounted = counting.unopened().iter().flat_map(|unopened| {
                let why = unopened.error.absence();
                let row = move |index| Uncounted { index, pmu: unopened.pmu.clone(), why: why.clone() };
                unopened.events.clone().map(row)
            });
            let uncounted = uncounted.collect();
            Ok((counting, uncounted))
        };
        let parts = targets.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { header: CountsHeader { plan }, run, parts, command, started: Instant::now(), before: None })
    }

    /// Starts the counters, right before a command is let go. Its own start by themselves when it executes.
    pub(super) fn begin(&mut self) -> Result<(), SessionError> {
        self.before =
            children_usage().ok().map(|usage| (usage, self.command.map_or(Duration::ZERO, cpu_time)));
        if !matches!(self.header.plan.target, Target::Command(_)) {
            self.all(Counting::enable, "cannot start the counters")?;
        }
        self.started = Instant::now();
        Ok(())
    }

    /// What has been counted so far.
    pub(super) fn tick(&self) -> Result<CountsDrain, SessionError> {
        let at = self.started.elapsed();
        let read = |(counting, uncounted): &(Counting, Vec<Uncounted>)| {
            Ok(Part { readings: counting.read()?, uncounted: uncounted.clone() })
        };
        let parts = self.parts.iter().map(read).collect::<Result<_, _>>();
        let parts = parts.map_err(|error| SessionError::Io("cannot read the counters", error))?;
        Ok(CountsDrain { run: self.run, at, parts, ended: None })
    }

    /// Stops the counters; what they have counted in all.
    pub(super) fn finish(&self) -> Result<CountsDrain, SessionError> {
        let at = self.started.elapsed();
        self.all(Counting::disable, "cannot stop the counters")?;
        Ok(CountsDrain { at, ..self.tick()? })
    }

    /// CPU time of the command, if it has ended.
    pub(super) fn usage(&self, workload: Option<Workload>) -> Option<Usage> {
        let (before, used_waiting) = self.before?;
        workload.filter(|workload| *workload != Workload::Running)?;
        Some(children_usage().ok()?.since(&before).without(used_waiting))
    }

    fn all(
        &self,
        act: fn(&Counting) -> std::io::Result<()>,
        failed: &'static str,
    ) -> Result<(), SessionError> {
        let result = self.parts.iter().try_for_each(|(counting, _)| act(counting));
        result.map_err(|error| SessionError::Io(failed, error))
    }
}

/// CPU time that a process has used so far: first word of `/proc/PID/schedstat`, in ns. 0 if the kernel does not say.
fn cpu_time(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let used_ns = text.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(used_ns.unwrap_or(0))
}

/// What [`Counting`] is told: one target, or one for each cgroup. `waiting` is the process that becomes the command; a
/// plan is shown before there is one.
#[must_use]
pub fn count_targets(plan: &CountPlan, machine: &Machine, waiting: Option<u32>) -> Vec<CountTarget> {
    let mount = machine.cgroups.v2.clone().unwrap_or_else(|| PathBuf::from("/sys/fs/cgroup"));
    let folder = |path: PathBuf| mount.join(path.strip_prefix("/").unwrap_or(&path));
    match &plan.target {
        Target::System => vec![CountTarget::System(plan.cpus.clone())],
        Target::Processes(ids) => vec![CountTarget::Processes(ids.clone(), plan.inherit)],
        Target::Threads(ids) => vec![CountTarget::Threads(ids.clone(), plan.inherit)],
        Target::Command(_) => vec![CountTarget::Command(waiting.unwrap_or(0))],
        Target::Cgroups(cgroups) => cgroups
            .iter()
            .map(|cgroup| CountTarget::Cgroup(folder(cgroup.path.to_path()), plan.cpus.clone()))
            .collect(),
    }
}
