//! Places where each program on tasks is attached: a tracepoint, a perf event, or the iterator over tasks
//! that seeds their state.

use std::{io, os::fd::AsFd as _};

use aya::programs::{Iter, PerfEvent, RawTracePoint, TracePoint};
use pmu_common::name::{map, program};

use super::{
    super::{
        btf::Attachable,
        loaded::{failed, refused, unattached},
    },
    Attach, LoadError, Object,
};
use crate::{
    perf::Counter,
    plan::{
        Class, Plan, Sampling, Target,
        request::{By, OffCpu},
    },
};

/// Programs and their tracepoints, those that detect new tasks first.
const TRACEPOINTS: [(&str, &str); 12] = [
    (program::FORK, "sched_process_fork"),
    (program::EXEC, "sched_process_exec"),
    (program::RELEASE, "sched_prepare_exec"),
    (program::RENAME, "task_rename"),
    (program::EXIT, "sched_process_exit"),
    (program::CGROUP_CREATE, "cgroup_mkdir"),
    (program::CGROUP_REMOVE, "cgroup_rmdir"),
    (program::CGROUP_MOVE, "cgroup_attach_task"),
    (program::WAKE, "sched_wakeup"),
    (program::WAKE_NEW, "sched_wakeup_new"),
    (program::SWITCH, "sched_switch"),
    (program::TIMER, "hrtimer_expire_entry"),
];

/// Name of the iterator over tasks.
const TASKS: &str = "task";

/// Message for programs by type.
const TYPED: &str = "typed programs are chosen only with types";

/// Returns whether `plan` needs this program.
pub(super) fn is_needed(plan: &Plan, name: &str) -> bool {
    let command = matches!(plan.target, Target::Command(_));
    match name {
        program::EXEC => plan.by != By::Cgroup || !plan.sampling.is_empty() || command,
        program::RELEASE => command || plan.by == By::Exe,
        program::RENAME => !matches!(plan.by, By::Cgroup | By::Exe),
        program::WAITS => plan.off_cpu == OffCpu::Yes,
        name if program::INTERRUPTS.iter().any(|(program, _)| *program == name) => !plan.interrupts.is_no(),
        program::CGROUP_CREATE | program::CGROUP_REMOVE | program::CGROUP_MOVE => plan.uses_cgroups(),
        _ => match program::event_of(name) {
            Some(event) => {
                plan.sampling.get(event).is_some_and(|sampling| program_of_event(event, sampling) == name)
            }
            None => true,
        },
    }
}

/// Returns the program for the plan's event number `event`.
fn program_of_event(event: usize, sampling: &Sampling) -> &'static str {
    let programs = if sampling.is_tracepoint() { program::TRACEPOINT_SAMPLES } else { program::SAMPLES };
    programs[event]
}

/// Returns the wanted programs on tracepoints, in the order in which they are attached.
fn tracepoints(wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = (&'static str, &'static str)> {
    TRACEPOINTS.into_iter().chain(program::INTERRUPTS).filter(move |(program, _)| wanted(program))
}

/// Returns whether a program is of a vector's handler. Not every kernel has tracepoints there.
fn is_of_vector(program: &str) -> bool {
    program::INTERRUPTS[program::INTERRUPTS_ANYWHERE..].iter().any(|(name, _)| *name == program)
}

/// Returns whether a program that fails with this error can be left out. Before Linux 6.10 a command counts
/// from when its program is in place. Where the kernel does not report new names, the first one stays.
fn is_spared(program: &str, error: &LoadError) -> bool {
    ([program::RELEASE, program::RENAME].contains(&program) || is_of_vector(program))
        && error.class() != Class::NotPermitted
}

impl Object {
    /// Makes the kernel verify the wanted programs.
    pub(super) fn load_programs(
        &mut self,
        types: Option<&Attachable>,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(), LoadError> {
        let named = tracepoints(&wanted).map(|(_, tracepoint)| tracepoint);
        let of_tracepoints = types.map(|types| types.of_tracepoints(named)).transpose();
        let of_tracepoints = of_tracepoints.map_err(|error| refused(program::SWITCH, error.into()))?;
        for (program, tracepoint) in tracepoints(&wanted) {
            match self.loaded.load_tracepoint(program, tracepoint, of_tracepoints.as_ref()) {
                Err(error) if is_spared(program, &error) => {}
                result => result?,
            }
        }
        for name in program::SAMPLES.into_iter().filter(|program| wanted(program)) {
            self.loaded.program::<PerfEvent>(name)?.load().map_err(|error| refused(name, error))?;
        }
        for name in program::TRACEPOINT_SAMPLES.into_iter().filter(|program| wanted(program)) {
            self.loaded.program::<TracePoint>(name)?.load().map_err(|error| refused(name, error))?;
        }
        let flush = self.loaded.program::<RawTracePoint>(program::FLUSH)?;
        flush.load().map_err(|error| refused(program::FLUSH, error))?;
        match self.loaded.attach_kind() {
            Attach::TpBtf => {
                let over_tasks = types.expect(TYPED).of_iterator(TASKS);
                let over_tasks = over_tasks.map_err(|error| refused(program::SEED, error.into()))?;
                for name in [program::SEED, program::WAITS].into_iter().filter(|&name| wanted(name)) {
                    let iterator = self.loaded.program::<Iter>(name)?;
                    iterator.load(TASKS, &over_tasks).map_err(|error| refused(name, error))?;
                }
            }
            Attach::RawTp => {
                let free = self.loaded.program::<RawTracePoint>(program::FREE)?;
                free.load().map_err(|error| refused(program::FREE, error))?;
            }
        }
        // Some kernels allow no program on a function: time taken by a limit is then in the waits for a CPU.
        self.times_throttling = self.times_throttling
            && types.is_some_and(|types| self.loaded.load_functions(&program::THROTTLING, types).is_ok());
        Ok(())
    }

    /// Attaches every program that `plan` needs, except the sampling program. They do not count yet.
    ///
    /// # Errors
    ///
    /// The kernel refused one of them.
    pub fn attach(&mut self, plan: &Plan) -> Result<(), LoadError> {
        for (program, tracepoint) in tracepoints(|program| is_needed(plan, program)) {
            match self.loaded.attach_tracepoint(program, tracepoint) {
                Err(error) if is_spared(program, &error) => self.without_vectors |= is_of_vector(program),
                result => result?,
            }
        }
        if self.times_throttling {
            let mut programs = program::THROTTLING.into_iter().map(|(name, _)| name);
            self.times_throttling = programs.all(|name| self.loaded.attach_function(name).is_ok());
        }
        if self.loaded.attach_kind() == Attach::RawTp {
            self.loaded.attach_tracepoint(program::FREE, "sched_process_free")?;
        }
        Ok(())
    }

    /// Detaches every program from its tracepoint.
    ///
    /// # Errors
    ///
    /// The kernel refused to detach one.
    pub fn detach(&mut self) -> Result<(), LoadError> {
        self.loaded.detach_all()
    }

    /// Detaches the programs on interrupt handlers.
    ///
    /// # Errors
    ///
    /// The kernel refused to detach one.
    pub fn detach_interrupts(&mut self) -> Result<(), LoadError> {
        program::INTERRUPTS.into_iter().try_for_each(|(program, _)| self.loaded.detach(program))
    }

    /// Detaches the programs on wake-ups.
    ///
    /// # Errors
    ///
    /// As for [`Object::detach_interrupts`].
    pub fn detach_wake_ups(&mut self) -> Result<(), LoadError> {
        [program::WAKE, program::WAKE_NEW].into_iter().try_for_each(|program| self.loaded.detach(program))
    }

    /// Runs the sampling program of the plan's event number `event` at every overflow of `counters`.
    ///
    /// # Errors
    ///
    /// The kernel refused the program, or to attach it.
    pub fn sample_on<'a>(
        &mut self,
        event: usize,
        counters: impl Iterator<Item = &'a Counter>,
    ) -> Result<(), LoadError> {
        let name = program::SAMPLES[event];
        let program: &mut PerfEvent = self.loaded.program(name)?;
        let descriptor = program.fd().map_err(|error| refused(name, error))?;
        for counter in counters {
            counter.bind(descriptor.as_fd()).map_err(|error| LoadError::Attach { name, error })?;
        }
        Ok(())
    }

    /// Runs the sampling program of the plan's event number `event` at every hit of the tracepoint `name`, as
    /// long as `anchor` is open.
    ///
    /// # Errors
    ///
    /// The kernel refused the program, or to attach it.
    pub fn sample_at(&mut self, event: usize, name: &str, anchor: &Counter) -> Result<(), LoadError> {
        let program_name = program::TRACEPOINT_SAMPLES[event];
        let program: &mut TracePoint = self.loaded.program(program_name)?;
        let descriptor = program.fd().map_err(|error| refused(program_name, error))?;
        let unbound = |error| LoadError::Tracepoint { event: name.to_owned(), error };
        anchor.bind(descriptor.as_fd()).map_err(unbound)
    }

    /// Saves the present counters of every task as its start. Does nothing where programs are not typed:
    /// there a task's state begins when it is first seen.
    ///
    /// # Errors
    ///
    /// The kernel refused to run the program.
    pub fn seed(&mut self) -> Result<(), LoadError> {
        match self.loaded.attach_kind() {
            Attach::RawTp => Ok(()),
            Attach::TpBtf => self.for_every_task(program::SEED),
        }
    }

    /// Adds the waits that last at `until_ns`, which the programs have received, to the rows of their owners.
    ///
    /// # Errors
    ///
    /// The kernel refused to run the program, or to read the map.
    pub fn add_waits(&mut self, until_ns: u64) -> Result<(), LoadError> {
        match self.loaded.attach_kind() {
            Attach::RawTp => {
                self.maps.add_waits(until_ns).map_err(|error| failed(map::TASKS_BY_ADDRESS, error))
            }
            Attach::TpBtf => self.for_every_task(program::WAITS),
        }
    }

    /// Runs an iterator's program on every task.
    fn for_every_task(&mut self, name: &'static str) -> Result<(), LoadError> {
        let failed = |error| unattached(name, error);
        let program: &mut Iter = self.loaded.program(name)?;
        let link = program.attach().map_err(failed)?;
        let link = program.take_link(link).map_err(failed)?;
        let attach = |error| LoadError::Attach { name, error };
        let mut file = link.into_file().map_err(|error| attach(io::Error::other(error)))?;
        // Reading the iterator to its end runs the program once per task. The program prints nothing.
        io::copy(&mut file, &mut io::sink()).map_err(attach)?;
        Ok(())
    }
}
