//! Programs on tasks: switches, wake-ups, samples, timers. They are a separate object, with separate maps.

mod attach;
mod maps;

use std::io::Error;

use aya::programs::{RawTracePoint, RawTracePointRunOptions, TestRun as _};
use pmu_common::{
    config::{ABSENT, Config, FUTEXES_FREEZE, Offsets, UNWIND_ALL},
    name::{map, program},
};

pub use self::maps::Maps;
use super::{
    BY_ADDRESS, BY_TYPE, Kernel, LoadError, Loaded, Log,
    fallback::{self, Attach, Way},
    kernel::Facts,
    loaded::in_best_way,
    log, probe,
};
use crate::{
    drain::ToldWaits,
    machine::{Machine, cpu::Cpu},
    plan::{Plan, Sampling},
};

/// Loaded programs on tasks and their maps.
pub struct Object {
    /// Part that is common to all objects.
    pub loaded: Loaded,
    log: Option<log::Reader>,
    offsets: Offsets,
    /// Whether user stacks of samples in the kernel are copied, where stacks are unwound.
    pub finds_user_registers: bool,
    finds_futexes: bool,
    /// Whether programs time the throttling of run queues, because the kernel does not.
    times_throttling: bool,
    /// Whether handlers of x86's vectors are wanted, but this kernel has no tracepoints for them.
    pub without_vectors: bool,
    /// Maps of the object.
    pub maps: Maps,
}

/// Data that the kernel reports on an object.
#[derive(Debug, Default)]
pub struct Verified {
    /// Programs by name, each with the number of instructions that the verifier processed on all paths
    /// together (`verified_insns`, since Linux 5.16; 0 before).
    pub instructions: Vec<(String, u32)>,
    /// Maps by name, each with its memory in bytes ([`Loaded::map_bytes`]).
    pub map_bytes: Vec<(String, u64)>,
}

impl Object {
    /// Creates the maps for `plan` and makes the kernel verify every program that it needs, in the best way
    /// that works. Needs CAP_BPF and CAP_PERFMON.
    ///
    /// # Errors
    ///
    /// The kernel's types are unknown, it lacks a required feature, or it refused a map or a program. The
    /// error of a program holds the end of the verifier's log.
    pub fn load(plan: &Plan, machine: &Machine, kernel: &Kernel) -> Result<Self, LoadError> {
        let (facts, options) = (kernel.facts()?, &kernel.options);
        in_best_way(&facts.probes_for(plan), options.attach, |way| {
            let mut object = Self::create(way, plan, machine, facts, options.log)?;
            object.load_programs(facts.types.as_ref(), |program| attach::is_needed(plan, program))?;
            Ok(object)
        })
    }

    /// Returns the data that the kernel reports on every program of a way of attaching, and on its maps.
    /// Attaches none.
    ///
    /// # Errors
    ///
    /// As for [`Object::load`].
    pub fn verify(
        attach: Attach,
        plan: &Plan,
        machine: &Machine,
        kernel: &Kernel,
    ) -> Result<Verified, LoadError> {
        let facts = kernel.facts()?;
        fallback::choose(&facts.probes, Some(attach))?;
        let way = Way { attach, refused: Vec::new() };
        let mut object = Self::create(way, plan, machine, facts, Log::Off)?;
        object.load_programs(facts.types.as_ref(), |_| true)?;
        Ok(Verified { instructions: object.loaded.verified(), map_bytes: object.loaded.bytes_by_map() })
    }

    /// Creates the maps of the object.
    fn create(way: Way, plan: &Plan, machine: &Machine, facts: &Facts, log: Log) -> Result<Self, LoadError> {
        let offsets = facts.btf.offsets()?;
        let planned = plan.config(machine);
        let finds_user_registers =
            |wanted| wanted && way.attach == Attach::TpBtf && probe::finds_user_registers();
        let finds_futexes = finds_user_registers(
            ![offsets.regs_call, offsets.regs_second, offsets.regs_third].contains(&ABSENT),
        );
        let finds_user_registers = finds_user_registers(!plan.unwind.is_fp());
        let times_throttling = must_time_throttling(&offsets, facts);
        let config = Config {
            offsets,
            pids: facts.pids,
            timer_now_by_value: u32::from(facts.btf.timer_now_by_value()),
            sample_inserts: u32::from(lets_insert(plan)),
            unwind: if finds_user_registers { UNWIND_ALL } else { planned.unwind },
            finds_futexes: match finds_futexes {
                true if probe::futexes_freeze(machine.kernel.as_bytes()) => FUTEXES_FREEZE,
                found => u32::from(found),
            },
            times_throttling: u32::from(times_throttling),
            ..planned
        };
        let run_queues = if times_throttling { maps::RUN_QUEUES } else { 1 };
        let sizes = maps::sizes(plan, machine, log, run_queues);
        let mut loaded = Loaded::create([BY_TYPE, BY_ADDRESS], way, config, sizes, log)?;
        let maps = Maps::open(&mut loaded)?;
        let log = match log {
            Log::On => Some(
                log::Reader::new(loaded.ebpf()).map_err(|error| LoadError::Map { name: map::LOGS, error })?,
            ),
            Log::Off => None,
        };
        Ok(Self {
            loaded,
            log,
            offsets,
            finds_user_registers,
            finds_futexes,
            times_throttling,
            without_vectors: false,
            maps,
        })
    }

    /// Writes what the programs have logged since the last call to stderr.
    pub fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }

    /// Returns whether the kernel reports the time that the hypervisor took.
    #[must_use]
    pub const fn knows_steal(&self) -> bool {
        self.offsets.rq_steal != ABSENT
            && self.offsets.task_cfs_rq != ABSENT
            && self.offsets.cfs_rq_rq != ABSENT
    }

    /// Returns whether the kernel excludes that time from the time of tasks.
    #[must_use]
    pub const fn excludes_steal(&self) -> bool {
        self.offsets.rq_excluded_steal != ABSENT
    }

    /// Returns the waits that are distinguished where time off the CPU counts.
    #[must_use]
    pub fn told_waits(&self) -> ToldWaits {
        ToldWaits {
            futexes: self.finds_futexes,
            throttling: (self.offsets.cfs_rq_throttled != ABSENT || self.times_throttling)
                && self.offsets.task_cfs_rq != ABSENT,
            before_first_switch: self.loaded.attach_kind() == Attach::TpBtf,
        }
    }

    /// Returns whether there are limits of CPU time, and run-queue latency includes the time that they take.
    #[must_use]
    pub fn confuses_limits(&self) -> bool {
        self.offsets.cfs_rq_throttle_count != ABSENT && !self.told_waits().throttling
    }

    /// Accounts the task that runs on `cpu` now. Interrupts that CPU for about a microsecond.
    ///
    /// # Errors
    ///
    /// The CPU is offline (ENXIO), or the kernel refused.
    pub fn flush(&mut self, cpu: Cpu) -> Result<(), Error> {
        let flush: &mut RawTracePoint = self.loaded.program(program::FLUSH).map_err(Error::other)?;
        let mut options = RawTracePointRunOptions::new();
        options.cpu = Some(cpu.0);
        flush.test_run(options).map(|_| ()).map_err(Error::other)
    }
}

/// Returns whether the sampling programs may write hash maps for `plan`. Software events never come as NMIs.
fn lets_insert(plan: &Plan) -> bool {
    let nmi = plan.sampling.iter().any(Sampling::is_hardware);
    !nmi || probe::has_5_11()
}

/// Returns whether programs are to time the throttling of run queues: where the kernel does not, and has the
/// functions that do it.
fn must_time_throttling(offsets: &Offsets, facts: &Facts) -> bool {
    let fields =
        [offsets.task_cfs_rq, offsets.cfs_rq_throttle_count, offsets.task_group_cfs_rq, offsets.rq_cpu];
    offsets.cfs_rq_throttled == ABSENT
        && !fields.contains(&ABSENT)
        && facts
            .types
            .as_ref()
            .is_some_and(|types| program::THROTTLING.iter().all(|(_, function)| types.has_function(function)))
}
