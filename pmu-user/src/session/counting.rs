//! Counting without BPF programs: opens what a [`CountPlan`] says, reads it at every interval and at the end, and runs a
//! command as often as it was asked for.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use super::{
    SessionError,
    launch::{Inherited, LaunchError, Launched},
    raise_file_limit,
    watch::{Moment, Signals, Watch},
};
use crate::{
    drain::{
        Ending, Workload,
        tally::{Ended, Part, Tally, Uncounted},
    },
    machine::Machine,
    perf::{CountTarget, Counting, children_usage},
    plan::{Target, count::CountPlan},
};

/// Counts until something stops it; a command as often as the plan says, or until a run fails. `keep` gets every
/// reading: one an interval, and one at the end of each run; `ready` is called when a run has begun. What ended the last run is
/// returned.
///
/// # Errors
///
/// An event could not be opened, the command not be started, or `keep` failed.
pub async fn count<E: From<SessionError> + From<LaunchError>>(
    plan: &CountPlan,
    machine: &Machine,
    (command, inherited): (&[OsString], &Inherited),
    ready: &mut impl FnMut(),
    keep: &mut impl FnMut(Tally) -> Result<(), E>,
) -> Result<Ended, E> {
    let mut signals = Signals::new()?;
    let mut run = 1;
    loop {
        let launched = if command.is_empty() { None } else { Some(Launched::start(command, inherited)?) };
        let ended =
            Run { plan, number: run, signals: &mut signals }.count(machine, launched, ready, keep).await?;
        if run >= plan.runs || !ended.succeeded() {
            signals.let_the_second_kill();
            return Ok(ended);
        }
        run += 1;
    }
}

/// What one run needs.
struct Run<'a> {
    plan: &'a CountPlan,
    number: u32,
    signals: &'a mut Signals,
}

impl Run<'_> {
    async fn count<E: From<SessionError> + From<LaunchError>>(
        self,
        machine: &Machine,
        mut launched: Option<Launched>,
        ready: &mut impl FnMut(),
        keep: &mut impl FnMut(Tally) -> Result<(), E>,
    ) -> Result<Ended, E> {
        let Self { plan, number, signals } = self;
        let waiting = launched.as_ref().and_then(|launched| launched.child.id());
        let counters = Counters::open(plan, machine, waiting)?;
        let usage_before = children_usage().ok();
        let used_waiting = waiting.map_or(Duration::ZERO, cpu_time);
        counters.start(launched.as_mut(), &plan.target)?;
        ready();
        let mut watch = Watch::begin(plan.interval, plan.duration, &plan.target, launched);
        let stop = loop {
            match watch.next(signals, None).await {
                Moment::Over(stop) => break stop,
                Moment::Failed(error) => return Err(error.into()),
                Moment::Due | Moment::Tick => keep(counters.tally(number, watch.elapsed(), None)?)?,
            }
        };
        let over = watch.over(stop);
        counters.stop()?;
        let mut tally = counters.tally(number, over.duration, None)?;
        let Ending { stopped, workload, .. } = over.ending().await;
        let reaped = workload.is_some_and(|workload| workload != Workload::Running);
        let usage = match (reaped, usage_before, children_usage().ok()) {
            (true, Some(before), Some(after)) => Some(after.since(&before).without(used_waiting)),
            _ => None,
        };
        let ended = Ended { stopped, workload, usage };
        tally.ended = Some(ended);
        keep(tally)?;
        Ok(ended)
    }
}

/// CPU time that a process has used so far: first word of `/proc/PID/schedstat`, in ns. 0 if the kernel does not say.
fn cpu_time(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let used_ns = text.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(used_ns.unwrap_or(0))
}

/// Everything that is open during a run: counters by target.
struct Counters {
    parts: Vec<(Counting, Vec<Uncounted>)>,
}

impl Counters {
    fn open(plan: &CountPlan, machine: &Machine, waiting: Option<u32>) -> Result<Self, SessionError> {
        let targets = count_targets(plan, machine, waiting);
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
        Ok(Self { parts: targets.iter().map(open).collect::<Result<_, _>>()? })
    }

    /// Starts counting. A command's counters start by themselves when it executes.
    fn start(&self, launched: Option<&mut Launched>, target: &Target) -> Result<(), SessionError> {
        if !matches!(target, Target::Command(_)) {
            self.all(Counting::enable, "cannot start the counters")?;
        }
        launched.map_or(Ok(()), |launched| Ok(launched.release()?))
    }

    fn stop(&self) -> Result<(), SessionError> {
        self.all(Counting::disable, "cannot stop the counters")
    }

    fn all(
        &self,
        act: fn(&Counting) -> std::io::Result<()>,
        failed: &'static str,
    ) -> Result<(), SessionError> {
        let result = self.parts.iter().try_for_each(|(counting, _)| act(counting));
        result.map_err(|error| SessionError::Io(failed, error))
    }

    fn tally(&self, run: u32, at: Duration, ended: Option<Ended>) -> Result<Tally, SessionError> {
        let read = |(counting, uncounted): &(Counting, Vec<Uncounted>)| {
            Ok(Part { readings: counting.read()?, uncounted: uncounted.clone() })
        };
        let parts = self.parts.iter().map(read).collect::<Result<_, _>>();
        let parts = parts.map_err(|error| SessionError::Io("cannot read the counters", error))?;
        Ok(Tally { run, at, parts, ended })
    }
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
