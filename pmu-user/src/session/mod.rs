//! One run: opens the sources to be measured, starts them, drains them at every tick, and closes them on
//! drop.

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

/// Error of opening or running a session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Error of a program or map.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Error of an event.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Counters that do not fit together.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// A configuration of which the kernel refused everything.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Error of the command.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Any other refusal of the system.
    #[error("{0}: {1}")]
    Io(&'static str, std::io::Error),
}

/// Start of counting, on every clock.
struct Started {
    instant: Instant,
    /// Start on CLOCK_MONOTONIC, in ns.
    monotonic_ns: u64,
    /// Start on CLOCK_BOOTTIME, which goes on while the host sleeps.
    boot_ns: u64,
    /// Start since 1970-01-01 UTC.
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
    /// Identities of cgroups; `None` if no source has any.
    cgroup_names: Option<CgroupNames>,
    /// Reader of command lines of conmon, started before system calls are refused.
    monitors: Option<Monitors>,
    /// Names that are followed; `None` if no name can match anything else later.
    following: Option<Following>,
    /// Cgroups that became targets since the last drain.
    followed: Vec<Followed>,
    /// Cgroups that the last drain reported as targets.
    followed_before: Vec<Followed>,
    /// Start of counting, in ns of CLOCK_MONOTONIC.
    started_ns: u64,
}

impl Session {
    /// Returns a session without sources on this host, with files below `root`.
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

    /// Loads and attaches everything that the plan of tasks needs. Nothing counts yet. Needs CAP_BPF and
    /// CAP_PERFMON (and CAP_SYSLOG for kernel names), and a tokio runtime.
    ///
    /// # Errors
    ///
    /// The kernel refused something. The error says what would help.
    pub fn open_tasks(&mut self, plan: Plan, root: &Path, kernel: &Kernel) -> Result<(), SessionError> {
        self.monitors.get_or_insert_with(|| Monitors::new(root));
        self.tasks = Some(TasksSession::open(plan, self.machine.clone(), root, kernel)?);
        Ok(())
    }

    /// Opens everything that the plan of I/O names. Nothing counts yet. What this host does not have is in
    /// the header. `command`: the process that waits to become the command.
    ///
    /// # Errors
    ///
    /// The kernel refused what it would refuse everywhere. The error says what would help.
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

    /// Opens counters without owners, for one run of the plan, numbered from 1. Nothing counts yet.
    /// `command`: the process that waits to become the command.
    ///
    /// # Errors
    ///
    /// The kernel refused an event that this host has.
    pub fn open_counts(&mut self, of: (CountPlan, u32), command: Option<u32>) -> Result<(), SessionError> {
        self.counts = Some(CountsSession::open(of, &self.machine, command)?);
        Ok(())
    }

    /// Returns the facts that are known before the first drain.
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

    /// Makes a process that waits to become a command the target of tasks, if the plan's target is a command.
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

    /// Starts counting, everything at the same time. `launched`: the time at which this process began, for
    /// the cost of starting.
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

    /// Returns what other hosts have and this host refused. A run without it looks complete.
    #[must_use]
    pub fn warning(&self) -> Option<&Absent> {
        self.io.as_ref()?.warning()
    }

    /// Looks up the names of functions that samples hit, from now on every second, later every 10 s. The
    /// names come with drains, for reports of stacks during the run.
    pub fn name_as_it_goes(&mut self) {
        self.tasks.iter_mut().for_each(TasksSession::name_as_it_goes);
    }

    /// Makes names of functions come with the drains whose samples hit them, from now on.
    pub fn name_with_drains(&mut self) {
        self.tasks.iter_mut().for_each(TasksSession::name_with_drains);
    }

    /// Looks up the names of hot code, once everything else is safe.
    pub fn name(&mut self, takes_long: impl FnOnce(&Naming)) -> Option<Names> {
        self.tasks.as_mut().map(|tasks| tasks.name(takes_long))
    }

    /// Returns the state of naming that other threads see.
    pub fn naming(&self) -> Arc<Naming> {
        self.tasks.as_ref().map(TasksSession::naming).unwrap_or_default()
    }

    /// Returns the time between two drains, if there are any before the last, the duration of counting, and
    /// the target. A run of nothing is over at once.
    fn schedule(&self) -> (Option<Duration>, Option<Duration>, &Target) {
        let tasks = self.tasks.as_ref().map(|tasks| &tasks.header.plan);
        let tasks = tasks.map(|plan| (Some(plan.tick), plan.duration, &plan.target));
        let io = self.io.as_ref().map(|io| &io.header.plan);
        let io = io.map(|plan| (Some(plan.tick), plan.duration, &plan.target));
        let counts = self.counts.as_ref().map(|counts| &counts.header.plan);
        let counts = counts.map(|plan| (plan.interval, plan.duration, &plan.target));
        tasks.or(io).or(counts).unwrap_or((None, Some(Duration::ZERO), &Target::System))
    }

    /// Returns the time at which something is to be done between two ticks.
    fn due(&self) -> Option<Instant> {
        let tasks = self.tasks.as_ref().and_then(TasksSession::due);
        let io = self.io.as_ref().and_then(IoSession::due);
        let following = self.following.as_ref().and_then(Following::due);
        let counts = self.counts.as_ref().and_then(CountsSession::due);
        tasks.into_iter().chain(io).chain(following).chain(counts).min()
    }

    /// Performs what is due.
    fn turn(&mut self) -> Result<(), SessionError> {
        if let Some(tasks) = &mut self.tasks {
            tasks.turn();
        }
        if let Some(io) = &mut self.io {
            io.turn();
        }
        self.counts.as_mut().map_or(Ok(()), CountsSession::turn)
    }

    /// Makes cgroups targets that match a name by now.
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

    /// Returns the cgroups that became targets since the last drain. Those before are adopted again, because
    /// program runs that had judged them are over by now. Those that were gone before they became targets are
    /// removed, because nothing else has removed them.
    fn take_followed(&mut self) -> Vec<Followed> {
        let Self { following: Some(following), tasks, io, .. } = self else { return Vec::new() };
        for Followed { cgroup, .. } in &self.followed_before {
            if let Some(tasks) = tasks {
                // Cgroups without room were counted before.
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

    /// Starts what counts from the moment at which a command is let go.
    fn begin(&mut self) -> Result<(), SessionError> {
        self.counts.as_mut().map_or(Ok(()), CountsSession::begin)
    }

    /// Returns the first drain: the state before anything is counted.
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

    /// Returns a drain with the identities of its cgroups.
    fn named(&mut self, mut drain: Drain) -> Drain {
        if let Some(names) = &mut self.cgroup_names {
            drain.cgroups = names.of(&drain);
        }
        drain
    }
}

/// Raises the soft limit of open files. Every CPU and event takes a descriptor, and so do some files. The
/// process may choose any value up to the hard limit.
fn raise_file_limit(needed: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|soft| soft < needed + 1024) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}
