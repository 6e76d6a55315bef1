//! Counts without owners of one run. Opens the counters of a [`CountPlan`] without a BPF program, and reads
//! them at every interval and at the end.

use std::{path::PathBuf, time::Instant};

use super::{SessionError, raise_file_limit};
use crate::{
    drain::{
        CountsDrain, CountsHeader,
        counts::{Part, Uncounted},
    },
    machine::Machine,
    perf::{CountTarget, Counting, WithoutRights},
    plan::{Target, count::CountPlan, request::Inherit},
};

/// Open counters of a run, by target.
pub struct CountsSession {
    /// Facts that are known before the first reading.
    pub header: CountsHeader,
    /// Number of the run of the command, from 1.
    run: u32,
    parts: Vec<(Counting, Vec<Uncounted>)>,
    started: Instant,
    /// Time at which the counters are to be started, if that is later than the run.
    starts: Option<Instant>,
}

impl CountsSession {
    /// Opens the counters of `plan`. Nothing counts yet.
    ///
    /// # Errors
    ///
    /// This process is not permitted to count, and the plan does not leave out what is not permitted.
    pub(super) fn open(
        (plan, run): (CountPlan, u32),
        machine: &Machine,
        command: Option<u32>,
    ) -> Result<Self, SessionError> {
        let targets = count_targets(&plan, machine, command);
        let planned: usize = targets.iter().map(|target| Counting::planned(&plan.groups, target)).sum();
        raise_file_limit(planned as u64 + 64);
        let without_rights = if plan.if_possible { WithoutRights::LeaveOut } else { WithoutRights::Fail };
        let open = |target: &CountTarget| -> Result<(Counting, Vec<Uncounted>), SessionError> {
            let counting = Counting::open_what_exists(&plan.groups, target, without_rights)?;
            let uncounted = counting.unopened().iter().flat_map(|unopened| {
                let why = unopened.error.absence();
                let row = move |index| Uncounted { index, pmu: unopened.pmu.clone(), why: why.clone() };
                unopened.events.clone().map(row)
            });
            let uncounted = uncounted.collect();
            Ok((counting, uncounted))
        };
        let parts = targets.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { header: CountsHeader { plan }, run, parts, started: Instant::now(), starts: None })
    }

    /// Starts the counters, right before a command is let go. The command's own counters start by themselves
    /// when it executes.
    pub(super) fn begin(&mut self) -> Result<(), SessionError> {
        self.starts = self.header.plan.delay.map(|delay| Instant::now() + delay);
        if self.starts.is_none() && !matches!(self.header.plan.target, Target::Command(_)) {
            self.all(Counting::enable, "cannot start the counters")?;
        }
        self.started = Instant::now();
        Ok(())
    }

    /// Returns the time at which the counters are to be started, if they are not yet.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.starts
    }

    /// Starts the counters if that is due.
    pub(super) fn turn(&mut self) -> Result<(), SessionError> {
        if self.starts.is_some_and(|starts| starts <= Instant::now()) {
            self.starts = None;
            if self.header.plan.interval.is_none() {
                self.started = Instant::now();
            }
            self.all(Counting::enable, "cannot start the counters")?;
        }
        Ok(())
    }

    /// Returns the counts so far.
    pub(super) fn tick(&self) -> Result<CountsDrain, SessionError> {
        let at = self.started.elapsed();
        let read = |(counting, uncounted): &(Counting, Vec<Uncounted>)| {
            Ok(Part { readings: counting.read()?, uncounted: uncounted.clone() })
        };
        let parts = self.parts.iter().map(read).collect::<Result<_, _>>();
        let parts = parts.map_err(|error| SessionError::Io("cannot read the counters", error))?;
        Ok(CountsDrain { run: self.run, at, parts, ended: None })
    }

    /// Stops the counters and returns their final counts.
    pub(super) fn finish(&self) -> Result<CountsDrain, SessionError> {
        let at = self.started.elapsed();
        self.all(Counting::disable, "cannot stop the counters")?;
        Ok(CountsDrain { at, ..self.tick()? })
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

/// Returns the targets for [`Counting`]: one, or one for each cgroup. `waiting` is the process that becomes
/// the command; a plan is shown before there is one.
#[must_use]
pub fn count_targets(plan: &CountPlan, machine: &Machine, waiting: Option<u32>) -> Vec<CountTarget> {
    let mount = machine.cgroups.v2.clone().unwrap_or_else(|| PathBuf::from("/sys/fs/cgroup"));
    let folder = |path: PathBuf| mount.join(path.strip_prefix("/").unwrap_or(&path));
    match &plan.target {
        _ if !plan.threads().is_empty() => vec![CountTarget::Threads(plan.threads(), plan.inherit)],
        Target::System => vec![CountTarget::System(plan.cpus.clone())],
        Target::Processes(ids) => vec![CountTarget::Processes(ids.clone(), plan.inherit)],
        Target::Threads(ids) => vec![CountTarget::Threads(ids.clone(), plan.inherit)],
        // Delayed counters do not start when the command executes.
        Target::Command(_) if plan.delay.is_some() => {
            vec![CountTarget::Threads(vec![waiting.unwrap_or(0)], Inherit::Yes)]
        }
        Target::Command(_) => vec![CountTarget::Command(waiting.unwrap_or(0))],
        Target::Cgroups(cgroups) => cgroups
            .iter()
            .map(|cgroup| CountTarget::Cgroup(folder(cgroup.path.to_path()), plan.cpus.clone()))
            .collect(),
    }
}
