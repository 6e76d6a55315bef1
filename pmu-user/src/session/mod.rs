//! One run: opens what is to be measured, starts it, drains it at every tick, and closes it by being dropped.

mod cgroup_names;
pub mod confine;
mod cost;
pub mod counts;
mod following;
pub mod io;
pub mod launch;
mod run;
mod tasks;
mod usage;
mod watch;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use rustix::time::ClockId;

use self::{
    cgroup_names::CgroupNames,
    counts::CountsSession,
    following::{Following, Found},
    io::IoSession,
    launch::LaunchError,
    tasks::{Occasion, TasksSession},
};
pub use self::{
    cost::Measure,
    run::{Next, Outcome, run, run_one_of_several},
    tasks::USER_LOSSES,
    watch::{Signals, Stop, runtime},
};
use crate::{
    bpf::{Kernel, LoadError},
    drain::{Absent, Drain, Followed, Header, Names},
    machine::{Machine, container::Monitors, duration_ns, io::Platform, monotonic_ns, now_ns},
    perf::OpenError,
    plan::{Plan, PlanError, Target, count::CountPlan, io::IoPlan, multiplexing::Unfit},
    symbol::Naming,
};

/// Why a session could not be opened or went wrong.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// A program or map.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// An event.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Counters that do not fit together.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// A configuration of which the kernel refused everything.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The command.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Anything else the system refused.
    #[error("{0}: {1}")]
    Io(&'static str, std::io::Error),
}

/// When counting started, on every clock.
struct Started {
    instant: Instant,
    /// CLOCK_MONOTONIC.
    monotonic_ns: u64,
    /// CLOCK_BOOTTIME, which goes on while the host sleeps.
    boot_ns: u64,
    /// Since 1970-01-01 UTC.
    unix_ns: u64,
}

impl Started {
    fn now() -> Self {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            instant: Instant::now(),
            monotonic_ns: monotonic_ns(),
            boot_ns: now_ns(ClockId::Boottime),
            unix_ns: duration_ns(since_1970),
        }
    }
}

/// Everything that is open during a run, by source.
pub struct Session {
    machine: Arc<Machine>,
    started_unix_ns: u64,
    tasks: Option<TasksSession>,
    io: Option<IoSession>,
    counts: Option<CountsSession>,
    root: PathBuf,
    /// Whose cgroups are; none where no source tells of any.
    cgroup_names: Option<CgroupNames>,
    /// Reads command lines of conmon; begun before system calls are refused.
    monitors: Option<Monitors>,
    /// What names come to mean; none where no name can mean anything else later.
    following: Option<Following>,
    /// Cgroups that became targets since the last drain.
    followed: Vec<Followed>,
    /// Those that the last drain told of.
    followed_before: Vec<Followed>,
    /// When counting started, in ns of CLOCK_MONOTONIC.
    started_ns: u64,
}

impl Session {
    /// A session of no source yet, on this host, whose files are below `root`.
    #[must_use]
    pub fn new(machine: Machine, root: &Path) -> Self {
        Self {
            machine: Arc::new(machine),
            started_unix_ns: 0,
            tasks: None,
            io: None,
            counts: None,
            root: root.to_owned(),
            cgroup_names: None,
            monitors: None,
            following: None,
            followed: Vec::new(),
            followed_before: Vec::new(),
            started_ns: 0,
        }
    }

    /// Loads and attaches everything that the plan of tasks needs. Nothing counts yet. Needs CAP_BPF and CAP_PERFMON (and CAP_SYSLOG
    /// for kernel names), and a tokio runtime.
    ///
    /// # Errors
    ///
    /// The kernel refused something; the error knows what would help.
    pub fn open_tasks(&mut self, plan: Plan, root: &Path, kernel: &Kernel) -> Result<(), SessionError> {
        self.monitors.get_or_insert_with(|| Monitors::new(root));
        self.tasks = Some(TasksSession::open(plan, self.machine.clone(), root, kernel)?);
        Ok(())
    }

    /// Opens everything that the plan of I/O names. Nothing counts yet; what this host does not have is in the header. `command`: the
    /// process that waits to become the command.
    ///
    /// # Errors
    ///
    /// The kernel refused what it would refuse everywhere; the error knows what would help.
    pub fn open_io(
        &mut self,
        plan: IoPlan,
        platform: Platform,
        from: (&Path, &Kernel),
        command: Option<u32>,
    ) -> Result<(), SessionError> {
        self.monitors.get_or_insert_with(|| Monitors::new(&self.root));
        self.io = Some(IoSession::open(plan, self.machine.clone(), platform, from, command)?);
        Ok(())
    }

    /// Opens counters without owners, for one run of the plan, from 1. Nothing counts yet. `command`: the process that waits to become
    /// the command.
    ///
    /// # Errors
    ///
    /// The kernel refused an event that this host has.
    pub fn open_counts(&mut self, of: (CountPlan, u32), command: Option<u32>) -> Result<(), SessionError> {
        self.counts = Some(CountsSession::open(of, &self.machine, command)?);
        Ok(())
    }

    /// What is known before the first drain.
    #[must_use]
    pub fn header(&self) -> Header {
        let of_tasks = self.tasks.iter().flat_map(|tasks| &tasks.missing);
        let of_io = self.io.iter().flat_map(|io| &io.missing);
        Header {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_ns: self.started_unix_ns,
            machine: (*self.machine).clone(),
            missing: of_tasks.chain(of_io).cloned().collect(),
            tasks: self.tasks.as_ref().map(|tasks| tasks.header.clone()),
            io: self.io.as_ref().map(|io| io.header.clone()),
            counts: self.counts.as_ref().map(|counts| counts.header.clone()),
            begins_midway: false,
        }
    }

    /// Makes a process that waits to become a command the target of tasks, if it is to be.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn target_command(&mut self, pid: u32) -> Result<(), SessionError> {
        match &mut self.tasks {
            Some(tasks) if matches!(tasks.header.plan.target, Target::Command(_)) => {
                tasks.target_command(pid)
            }
            _ => Ok(()),
        }
    }

    /// Starts counting, everything at the same time. `launched` is when this process began, for what starting cost.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn start(&mut self, measure: Measure, launched: Instant) -> Result<(), SessionError> {
        self.tasks.as_mut().map_or(Ok(()), TasksSession::seed)?;
        self.io.iter_mut().for_each(IoSession::look);
        let started = Started::now();
        (self.started_unix_ns, self.started_ns) = (started.unix_ns, started.monotonic_ns);
        if let Some(tasks) = &mut self.tasks {
            tasks.start(&started, measure, launched)?;
        }
        if let Some(io) = &mut self.io {
            io.start(&started, launched);
        }
        Ok(())
    }

    /// What others have here and this host refused: a run without it looks complete.
    #[must_use]
    pub fn warning(&self) -> Option<&Absent> {
        self.io.as_ref()?.warning()
    }

    /// From now on names of functions that samples hit are looked up every second, later every 10 s, and come with drains, for who
    /// reports stacks while the run goes on.
    pub fn name_as_it_goes(&mut self) {
        self.tasks.iter_mut().for_each(TasksSession::name_as_it_goes);
    }

    /// From now on names of functions come with the drains whose samples hit them.
    pub fn name_with_drains(&mut self) {
        self.tasks.iter_mut().for_each(TasksSession::name_with_drains);
    }

    /// Looks up the names of what was hot, once everything else is safe.
    pub fn name(&mut self, takes_long: impl FnOnce(&Naming)) -> Option<Names> {
        self.tasks.as_mut().map(|tasks| tasks.name(takes_long))
    }

    /// What others see of that.
    pub fn naming(&self) -> Arc<Naming> {
        self.tasks.as_ref().map(TasksSession::naming).unwrap_or_default()
    }

    /// The time between two drains, if there are any before the last, for how long to count, and whom. A run of nothing is over at once.
    fn schedule(&self) -> (Option<Duration>, Option<Duration>, &Target) {
        let tasks = self.tasks.as_ref().map(|tasks| &tasks.header.plan);
        let tasks = tasks.map(|plan| (Some(plan.tick), plan.duration, &plan.target));
        let io = self.io.as_ref().map(|io| &io.header.plan);
        let io = io.map(|plan| (Some(plan.tick), plan.duration, &plan.target));
        let counts = self.counts.as_ref().map(|counts| &counts.header.plan);
        let counts = counts.map(|plan| (plan.interval, plan.duration, &plan.target));
        tasks.or(io).or(counts).unwrap_or((None, Some(Duration::ZERO), &Target::System))
    }

    /// When something is to be done between two ticks.
    fn due(&self) -> Option<Instant> {
        let tasks = self.tasks.as_ref().and_then(TasksSession::due);
        let io = self.io.as_ref().and_then(IoSession::due);
        let following = self.following.as_ref().and_then(Following::due);
        let counts = self.counts.as_ref().and_then(CountsSession::due);
        tasks.into_iter().chain(io).chain(following).chain(counts).min()
    }

    /// Does what is due.
    fn turn(&mut self) -> Result<(), SessionError> {
        if let Some(tasks) = &mut self.tasks {
            tasks.turn();
        }
        if let Some(io) = &mut self.io {
            io.turn();
        }
        self.counts.as_mut().map_or(Ok(()), CountsSession::turn)
    }

    /// Makes cgroups targets that a name means by now.
    fn follow(&mut self) {
        let Some(following) = &mut self.following else { return };
        let told = self.tasks.as_mut().map(TasksSession::take_others).unwrap_or_default();
        let found = following.find(told);
        let given_up = following.take_given_up();
        match (&mut self.tasks, &mut self.io) {
            (Some(tasks), _) => tasks.lose_targets(given_up),
            (None, io) => io.iter_mut().for_each(|io| io.lose_targets(given_up)),
        }
        for Found { cgroup, late_ns } in found {
            if let Some(tasks) = &mut self.tasks {
                let refused = tasks.adopt(&cgroup, || following.those_below(&cgroup));
                tasks.lose_targets(refused);
            }
            if let Some(io) = &mut self.io {
                io.adopt(cgroup.id);
            }
            let at_ns = monotonic_ns().saturating_sub(self.started_ns);
            self.followed.push(Followed { cgroup, at_ns, late_ns });
        }
    }

    /// What became a target since the last drain. Of those before, programs that had judged them are over by now; and if one had been gone
    /// before it became a target, nobody has taken it back.
    fn take_followed(&mut self) -> Vec<Followed> {
        let Self { following: Some(following), tasks, io, .. } = self else { return Vec::new() };
        for Followed { cgroup, .. } in &self.followed_before {
            if let Some(tasks) = tasks {
                // Who finds no room was counted before.
                let _ = tasks.adopt(cgroup, || following.those_below(cgroup));
            }
            if following.is_gone(cgroup) {
                tasks.iter_mut().for_each(|tasks| tasks.forget(cgroup.id));
                io.iter_mut().for_each(|io| io.forget(cgroup.id));
            }
        }
        self.followed_before = std::mem::take(&mut self.followed);
        self.followed_before.clone()
    }

    /// Starts what counts from the moment in which a command is let go.
    fn begin(&mut self) -> Result<(), SessionError> {
        self.counts.as_mut().map_or(Ok(()), CountsSession::begin)
    }

    /// The first drain: what there is before anything is counted.
    fn baseline(&mut self) -> Result<Drain, SessionError> {
        let tasks = self.tasks.as_mut().map(TasksSession::baseline).transpose()?;
        let io = self.io.as_mut().map(IoSession::baseline);
        let of_tasks = self.tasks.as_ref().is_some_and(|tasks| tasks.header.plan.uses_cgroups());
        let monitors = self.monitors.take();
        let of_names = monitors.clone().filter(|_| of_tasks || io.is_some());
        self.cgroup_names = of_names.map(|monitors| CgroupNames::new(&self.root, monitors));
        let plan = self.tasks.as_ref().map(|tasks| &tasks.header.plan);
        let plan = plan.map(|plan| (&plan.target, plan.follow.as_slice(), plan.descend));
        let of_io = self.io.as_ref().map(|io| &io.header.plan);
        let plan = plan.or(of_io.map(|plan| (&plan.target, plan.follow.as_slice(), plan.descend)));
        let at = (&self.machine.cgroups, self.root.as_path());
        self.following = plan
            .zip(monitors)
            .and_then(|(plan, monitors)| Following::new(plan, at, self.tasks.is_some(), monitors));
        self.follow();
        Ok(self.named(Drain { tasks, io, ..Drain::default() }))
    }

    /// Reads everything that has happened since the last drain.
    fn tick(&mut self) -> Result<Drain, SessionError> {
        self.follow();
        let io = self.io.as_mut().map(IoSession::tick);
        let counts = self.counts.as_ref().map(CountsSession::tick).transpose()?;
        if let (Some(tasks), Some(io)) = (&mut self.tasks, &io) {
            tasks.spend_beside(&io.programs, io.at_ns);
        }
        let tasks = self.tasks.as_mut().map(|tasks| tasks.drain(Occasion::Tick)).transpose()?;
        let followed = self.take_followed();
        Ok(self.named(Drain { tasks, io, counts, followed, ..Drain::default() }))
    }

    /// Stops counting and drains for the last time.
    fn finish(&mut self) -> Result<Drain, SessionError> {
        let io = self.io.as_mut().map(IoSession::finish);
        let counts = self.counts.as_ref().map(CountsSession::finish).transpose()?;
        let tasks = self.tasks.as_mut().map(TasksSession::finish).transpose()?;
        let followed = std::mem::take(&mut self.followed);
        Ok(self.named(Drain { tasks, io, counts, followed, ..Drain::default() }))
    }

    /// A drain, with whose the cgroups are that it tells of.
    fn named(&mut self, mut drain: Drain) -> Drain {
        if let Some(names) = &mut self.cgroup_names {
            drain.cgroups = names.of(&drain);
        }
        drain
    }
}

/// One descriptor per CPU and event, and some for files: up to the hard limit the choice is ours.
fn raise_file_limit(needed: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|soft| soft < needed + 1024) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}
