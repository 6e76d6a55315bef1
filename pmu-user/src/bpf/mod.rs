//! The only module that names aya: loads the programs, attaches them, and hands out their maps as rows.

mod attach;
pub mod btf;
mod error;
mod events;
pub mod io;
mod kernel;
pub mod ladder;
mod log;
mod mapped;
mod maps;
pub mod pid_namespace;
mod pod;
mod probe;
pub mod ring;

use std::{
    io::Error,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use aya::{
    Ebpf, EbpfLoader, VerifierLogLevel,
    programs::{RawTracePoint, RawTracePointRunOptions, TestRun as _},
};
use pmu_common::{
    config::{ABSENT, Config, Offsets, UNWIND_ALL},
    name::{self, program},
};

pub use self::{
    error::LoadError,
    events::Events,
    kernel::Kernel,
    ladder::{Attach, Refused},
    mapped::Mapped,
    maps::Maps,
    ring::Ring,
};
use self::{kernel::LockedMemory, ladder::Choice, maps::Sizes, pod::Pod};
use crate::{
    machine::{Machine, cpu::Cpu},
    plan::{Class, Plan},
};

/// The programs by type, built by build.rs.
pub static BY_TYPE: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pmbpf-by-type"));
/// The programs by address, built by build.rs.
pub static BY_ADDRESS: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pmbpf-by-address"));

/// The programs for I/O by type, built by build.rs.
pub static IO_BY_TYPE: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pmbpf-io-by-type"));
/// The programs for I/O by address, built by build.rs.
pub static IO_BY_ADDRESS: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pmbpf-io-by-address"));

/// Where the running kernel's types are.
pub const KERNEL_BTF: &str = "sys/kernel/btf/vmlinux";

/// Do the programs log their rare paths?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Log {
    /// Nothing; the verifier drops the code.
    #[default]
    Off,
    /// To stderr.
    On,
}

/// How to load, beyond what the plan says. By default in the best way, with the types that the kernel carries, and silently.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A way of attaching; the best that works if none is named.
    pub attach: Option<Attach>,
    /// A file with the kernel's types, for kernels that do not carry them.
    pub btf: Option<PathBuf>,
    /// Logging.
    pub log: Log,
}

/// The loaded programs and their maps. Dropping it detaches and frees everything: nothing is pinned.
pub struct Object {
    ebpf: Ebpf,
    attach: Attach,
    refused: Vec<Refused>,
    log: Option<log::Reader>,
    /// Where the fields are.
    pub offsets: Offsets,
    /// Are user stacks of samples in the kernel copied, where stacks are unwound?
    pub finds_user_registers: bool,
    /// The maps.
    pub maps: Maps,
}

impl Object {
    /// Creates the maps for `plan` and has the kernel verify every program that it needs, in the best way that works.
    /// Needs CAP_BPF and CAP_PERFMON.
    ///
    /// # Errors
    ///
    /// The kernel's types are unknown, it lacks something essential, or it refused a map or a program. The error of a
    /// program holds the end of the verifier's log.
    pub fn load(plan: &Plan, machine: &Machine, root: &Path, options: &Options) -> Result<Self, LoadError> {
        let _limit = LockedMemory::kept();
        let kernel = Kernel::read(root, options)?;
        let Choice { ways, mut refused } = ladder::choose(&kernel.probes_for(plan), options.attach)?;
        let (last, better) = ways.split_last().expect("there is a way if nothing essential is missing");
        let load_as = |attach| -> Result<Self, LoadError> {
            let mut object = Self::create(attach, plan, machine, &kernel, options.log)?;
            object.load_programs(kernel.types.as_ref(), |program| attach::is_needed(plan, program))?;
            Ok(object)
        };
        for &attach in better {
            match load_as(attach) {
                // A kernel that nobody tried: what the probes saw was not all that the programs need.
                Err(error) if error.class() == Class::Unsupported => {
                    refused.push(Refused { attach, why: error.to_string() });
                }
                result => return result.map(|object| Self { refused, ..object }),
            }
        }
        Ok(Self { refused, ..load_as(*last)? })
    }

    /// Has the kernel verify every program of a way of attaching, and attaches none. Returns their number.
    ///
    /// # Errors
    ///
    /// As for [`Object::load`].
    pub fn verify(
        attach: Attach,
        plan: &Plan,
        machine: &Machine,
        kernel: &Kernel,
    ) -> Result<usize, LoadError> {
        ladder::choose(&kernel.probes, Some(attach))?;
        let mut object = Self::create(attach, plan, machine, kernel, Log::Off)?;
        object.load_programs(kernel.types.as_ref(), |_| true)
    }

    /// Creates the maps.
    fn create(
        attach: Attach,
        plan: &Plan,
        machine: &Machine,
        kernel: &Kernel,
        log: Log,
    ) -> Result<Self, LoadError> {
        let offsets = kernel.offsets;
        let planned = plan.config(machine);
        let finds_user_registers =
            !plan.unwind.is_fp() && attach == Attach::TpBtf && probe::finds_user_registers();
        let config = Pod(Config {
            offsets,
            pids: kernel.pids,
            timer_now_by_value: u32::from(kernel.timer_now_by_value),
            sample_inserts: u32::from(kernel.lets_insert(plan)),
            unwind: if finds_user_registers { UNWIND_ALL } else { planned.unwind },
            ..planned
        });
        let sizes = Sizes::new(plan, machine, log);
        let level: u8 = if log == Log::On { 5 } else { 0 };
        let mut loader = EbpfLoader::new();
        loader.btf(kernel.types.as_ref()).allow_unsupported_maps();
        loader.verifier_log_level(VerifierLogLevel::STATS);
        loader.override_global(name::CONFIG, &config, true).override_global(name::LOG_LEVEL, &level, true);
        for &(map, entries) in &sizes.entries {
            loader.map_max_entries(map, entries);
        }
        let object = match attach {
            Attach::TpBtf => BY_TYPE,
            Attach::RawTp => BY_ADDRESS,
        };
        let mut ebpf = loader.load(object).map_err(|error| LoadError::Object(Box::new(error)))?;
        let maps = Maps::open(&mut ebpf, &sizes)?;
        let log = match log {
            Log::On => Some(
                log::Reader::new(&mut ebpf)
                    .map_err(|error| LoadError::Map { name: name::map::LOGS, error })?,
            ),
            Log::Off => None,
        };
        Ok(Self { ebpf, attach, refused: Vec::new(), log, offsets, finds_user_registers, maps })
    }

    /// Writes what the programs have logged since the last call to stderr.
    pub fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }

    /// How the programs reach kernel memory.
    #[must_use]
    pub const fn attach_kind(&self) -> Attach {
        self.attach
    }

    /// Better ways, and why they are not used.
    #[must_use]
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Does the kernel tell how much time the hypervisor took?
    #[must_use]
    pub const fn knows_steal(&self) -> bool {
        self.offsets.rq_steal != ABSENT
            && self.offsets.task_cfs_rq != ABSENT
            && self.offsets.cfs_rq_rq != ABSENT
    }

    /// Accounts the task that runs on `cpu` now. Interrupts that CPU for about a microsecond.
    ///
    /// # Errors
    ///
    /// The CPU is offline (ENXIO), or the kernel refused.
    pub fn flush(&mut self, cpu: Cpu) -> Result<(), Error> {
        let flush: &mut RawTracePoint = self
            .ebpf
            .program_mut(program::FLUSH)
            .and_then(|program| program.try_into().ok())
            .expect("tests/contract.rs checks the object's programs");
        let mut options = RawTracePointRunOptions::new();
        options.cpu = Some(cpu.0);
        flush.test_run(options).map(|_| ()).map_err(Error::other)
    }

    /// What each loaded program has cost while the kernel measured it: name, runs, ns. By name.
    #[must_use]
    pub fn program_costs(&self) -> Vec<(String, u64, u64)> {
        costs_of(&self.ebpf)
    }

    /// Runs of programs that the kernel left out: each is an event that is in no count.
    #[must_use]
    pub fn missed_runs(&self) -> u64 {
        missed_by(&self.ebpf).iter().map(|(_, count)| count).sum()
    }

    /// Kernel memory of the maps in bytes, as the kernel accounts it (`memlock` in their fdinfo).
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        self.maps.memory_bytes() + self.ebpf.maps().map(|(_, map)| maps::memory_of(map)).sum::<u64>()
    }
}

/// Runs that the kernel left out because the program was at work on that CPU already, by program; only those that occurred.
/// Kernels older than 5.12 do not say (`recursion_misses` in fdinfo, kernel/bpf/syscall.c).
fn missed_by(ebpf: &Ebpf) -> Vec<(String, u64)> {
    let missed = |(name, program): (&str, &aya::programs::Program)| {
        let count = maps::fdinfo(program.fd().ok()?.as_fd(), "recursion_misses:");
        (count > 0).then(|| (name.to_owned(), count))
    };
    let mut missed: Vec<_> = ebpf.programs().filter_map(missed).collect();
    missed.sort();
    missed
}

fn costs_of(ebpf: &Ebpf) -> Vec<(String, u64, u64)> {
    let cost = |(name, program): (&str, &aya::programs::Program)| {
        let info = program.info().ok()?;
        let nanoseconds = u64::try_from(info.run_time().as_nanos()).unwrap_or(u64::MAX);
        Some((name.to_owned(), info.run_count(), nanoseconds))
    };
    let mut costs: Vec<_> = ebpf.programs().filter_map(cost).collect();
    costs.sort();
    costs
}

/// Do maps count as locked memory here? They did before Linux 5.11.
#[must_use]
pub fn maps_are_locked_memory() -> bool {
    !probe::has_5_11()
}

/// Gives freed memory back to the system: what loading took would stay with this process for good otherwise.
pub fn release_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and any thread may call it at any time (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Has the kernel measure the cost of every program on the host until the descriptor is closed. Costs about 40 ns a run.
///
/// # Errors
///
/// Linux before 5.8, or no rights.
pub fn measure_costs() -> Result<OwnedFd, Error> {
    let descriptor = aya::sys::enable_stats(aya::sys::Stats::RunTime).map_err(Error::other)?;
    descriptor.as_fd().try_clone_to_owned()
}
