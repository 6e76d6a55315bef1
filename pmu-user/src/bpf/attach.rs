//! Which program goes where, and the ways to run one: on a tracepoint, on an event, once over all tasks.

use std::{io, os::fd::AsFd as _};

use aya::programs::{BtfTracePoint, Iter, PerfEvent, Program, ProgramError, RawTracePoint};
use pmu_common::name::program;

use super::{Attach, LoadError, Object};
use crate::{
    perf::Counter,
    plan::{Class, Plan, Target, request::By},
};

/// Programs and their tracepoints, those that learn of new tasks first.
const TRACEPOINTS: [(&str, &str); 11] = [
    (program::FORK, "sched_process_fork"),
    (program::EXEC, "sched_process_exec"),
    (program::RELEASE, "sched_prepare_exec"),
    (program::EXIT, "sched_process_exit"),
    (program::CGROUP_CREATE, "cgroup_mkdir"),
    (program::CGROUP_REMOVE, "cgroup_rmdir"),
    (program::CGROUP_MOVE, "cgroup_attach_task"),
    (program::WAKE, "sched_wakeup"),
    (program::WAKE_NEW, "sched_wakeup_new"),
    (program::SWITCH, "sched_switch"),
    (program::TIMER, "hrtimer_expire_entry"),
];

/// Does `plan` need this program?
fn is_needed(plan: &Plan, name: &str) -> bool {
    let command = matches!(plan.target, Target::Command(_));
    match name {
        program::EXEC => plan.by == By::Process || plan.sampling.is_some() || command,
        program::RELEASE => command,
        program::EXIT => plan.by == By::Process,
        program::CGROUP_CREATE | program::CGROUP_REMOVE | program::CGROUP_MOVE => plan.uses_cgroups(),
        _ => true,
    }
}

impl Object {
    /// Attaches every program that `plan` needs, except the sampling program. They count nothing yet.
    ///
    /// # Errors
    ///
    /// The kernel refused one; the error holds the end of the verifier's log.
    pub fn attach(&mut self, plan: &Plan) -> Result<(), LoadError> {
        for (program, tracepoint) in TRACEPOINTS.into_iter().filter(|(program, _)| is_needed(plan, program)) {
            let name = self.twin(program);
            match self.attach_tracepoint(&name, tracepoint) {
                // Before Linux 6.10 a command counts from when its program is in place.
                Err(error) if program == program::RELEASE && error.class() != Class::NotPermitted => {}
                result => result?,
            }
        }
        if self.attach == Attach::RawTp {
            self.attach_tracepoint("free_raw", "sched_process_free")?;
        }
        let flush = self.twin(program::FLUSH);
        let program: &mut RawTracePoint = self.program(&flush)?;
        program.load().map_err(|error| refused(&flush, error))
    }

    /// Has the kernel's verifier check every program of this way of attaching, and attaches none. Returns their number.
    ///
    /// # Errors
    ///
    /// The first program that the kernel refused.
    pub fn verify(&mut self) -> Result<usize, LoadError> {
        let mut loaded = 0;
        for (program, tracepoint) in TRACEPOINTS {
            let name = self.twin(program);
            match self.load_tracepoint(&name, tracepoint) {
                Err(error) if program == program::RELEASE && error.class() != Class::NotPermitted => {}
                result => {
                    result?;
                    loaded += 1;
                }
            }
        }
        let sample = self.twin(program::SAMPLE);
        self.program::<PerfEvent>(&sample)?.load().map_err(|error| refused(&sample, error))?;
        let flush = self.twin(program::FLUSH);
        self.program::<RawTracePoint>(&flush)?.load().map_err(|error| refused(&flush, error))?;
        Ok(loaded + 2)
    }

    fn load_tracepoint(&mut self, name: &str, tracepoint: &str) -> Result<(), LoadError> {
        match self.attach {
            Attach::TpBtf => {
                let types = self.types.take().expect("BTF-typed programs are chosen only with types");
                let program = self.program::<BtfTracePoint>(name);
                let loaded = program.and_then(|program| {
                    program.load(tracepoint, &types).map_err(|error| refused(name, error))
                });
                self.types = Some(types);
                loaded
            }
            Attach::RawTp => {
                self.program::<RawTracePoint>(name)?.load().map_err(|error| refused(name, error))
            }
        }
    }

    fn attach_tracepoint(&mut self, name: &str, tracepoint: &str) -> Result<(), LoadError> {
        self.load_tracepoint(name, tracepoint)?;
        let failed = |error| unattached(name, error);
        match self.attach {
            Attach::TpBtf => self.program::<BtfTracePoint>(name)?.attach().map(|_| ()).map_err(failed),
            Attach::RawTp => {
                self.program::<RawTracePoint>(name)?.attach(tracepoint).map(|_| ()).map_err(failed)
            }
        }
    }

    /// Runs the sampling program at every overflow of `counters`.
    ///
    /// # Errors
    ///
    /// The kernel refused the program, or to bind it.
    pub fn sample_on(&mut self, counters: &[Counter]) -> Result<(), LoadError> {
        let name = self.twin(program::SAMPLE);
        let program: &mut PerfEvent = self.program(&name)?;
        program.load().map_err(|error| refused(&name, error))?;
        let descriptor = program.fd().map_err(|error| refused(&name, error))?;
        for counter in counters {
            counter
                .bind(descriptor.as_fd())
                .map_err(|error| LoadError::Attach { name: name.clone(), error })?;
        }
        Ok(())
    }

    /// Has every task's counters remembered as they are now. Call it last: no program can be attached after it. Does
    /// nothing where programs are not typed: there a task is remembered when it is first seen.
    ///
    /// # Errors
    ///
    /// The kernel refused the program, or to run it.
    pub fn prime(&mut self) -> Result<(), LoadError> {
        // The last program: the kernel's types are a dozen megabytes that nobody needs any more.
        let Some(types) = self.types.take() else { return Ok(()) };
        self.run_prime(&types)
    }

    fn run_prime(&mut self, types: &aya::Btf) -> Result<(), LoadError> {
        let name = program::PRIME;
        let failed = |error| unattached(name, error);
        let program: &mut Iter = self.program(name)?;
        program.load("task", types).map_err(|error| refused(name, error))?;
        let link = program.attach().map_err(failed)?;
        let link = program.take_link(link).map_err(failed)?;
        let attach = |error| LoadError::Attach { name: name.to_owned(), error };
        let mut file = link.into_file().map_err(|error| attach(io::Error::other(error)))?;
        // Reading the iterator to its end runs the program once per task; it prints nothing.
        io::copy(&mut file, &mut io::sink()).map_err(attach)?;
        Ok(())
    }

    fn program<'a, T>(&'a mut self, name: &str) -> Result<&'a mut T, LoadError>
    where
        &'a mut T: TryFrom<&'a mut Program, Error = ProgramError>,
    {
        let program = self.ebpf.program_mut(name).expect("tests/contract.rs checks the object's programs");
        program.try_into().map_err(|error| refused(name, error))
    }
}

fn refused(name: &str, error: ProgramError) -> LoadError {
    LoadError::Program { name: name.to_owned(), error: Box::new(error) }
}

fn unattached(name: &str, error: ProgramError) -> LoadError {
    let error = match error {
        ProgramError::SyscallError(error) => error.io_error,
        error => io::Error::other(error),
    };
    LoadError::Attach { name: name.to_owned(), error }
}
