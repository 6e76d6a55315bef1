//! The only module that names aya: loads the programs, attaches them, and hands out their maps as rows.

mod attach;
pub mod btf;
mod error;
mod log;
mod mapped;
mod maps;
mod pod;
pub mod ring;

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use aya::{
    Ebpf, EbpfLoader, VerifierLogLevel,
    programs::{RawTracePoint, RawTracePointRunOptions, TestRun as _},
};
use pmu_common::{
    config::{ABSENT, Config, Offsets},
    name::{self, program},
};

pub use self::{error::LoadError, mapped::Mapped, maps::Maps, ring::Ring};
use self::{maps::Sizes, pod::Pod};
use crate::{
    machine::{Machine, cpu::Cpu},
    plan::Plan,
};

/// The programs, built by build.rs.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pmbpf-programs"));

/// Where the running kernel's types are.
pub const KERNEL_BTF: &str = "sys/kernel/btf/vmlinux";

/// How programs reach kernel memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Attach {
    /// By type, on BTF-typed tracepoints (Linux 5.11 and CONFIG_DEBUG_INFO_BTF).
    TpBtf,
    /// By address, on raw tracepoints.
    RawTp,
}

impl Attach {
    /// The name of this way in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TpBtf => "tp_btf",
            Self::RawTp => "raw_tp",
        }
    }
}

/// Do the programs log their rare paths?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// Nothing; the verifier drops the code.
    Off,
    /// To stderr.
    On,
}

/// How to load, beyond what the plan says.
#[derive(Clone, Debug)]
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
    types: Option<aya::Btf>,
    log: Option<log::Reader>,
    /// Where the fields are.
    pub offsets: Offsets,
    /// The maps.
    pub maps: Maps,
}

impl Object {
    /// Creates the maps for `plan` and makes the programs ready to be attached. Needs CAP_BPF and CAP_PERFMON.
    ///
    /// # Errors
    ///
    /// The kernel's types are unknown, or it refused a map.
    pub fn load(plan: &Plan, machine: &Machine, root: &Path, options: &Options) -> Result<Self, LoadError> {
        let own_types = root.join(KERNEL_BTF);
        let btf = btf::Btf::read(options.btf.as_deref().unwrap_or(&own_types))?;
        let offsets = btf.offsets()?;
        // Only the running kernel's own types have the ids that it attaches by.
        let types = match (options.attach, &options.btf) {
            (Some(Attach::RawTp), _) => None,
            (_, None) => Some(btf),
            (_, Some(_)) => btf::Btf::read(&own_types).ok(),
        };
        let types = types.map(|btf| btf.attachable());
        let types = types.and_then(|bytes| aya::Btf::parse(&bytes, aya::Endianness::default()).ok());
        let attach = if types.is_some() { Attach::TpBtf } else { Attach::RawTp };
        let config = Config { offsets, ..plan.config(machine) };
        let sizes = Sizes::new(plan, machine, attach, options.log);
        let config = Pod(config);
        let level: u8 = if options.log == Log::On { 5 } else { 0 };
        let mut loader = EbpfLoader::new();
        loader.btf(types.as_ref()).allow_unsupported_maps();
        loader.verifier_log_level(VerifierLogLevel::STATS);
        loader.override_global(name::CONFIG, &config, true).override_global(name::LOG_LEVEL, &level, true);
        for &(map, entries) in sizes.entries() {
            loader.map_max_entries(map, entries);
        }
        let mut ebpf = loader.load(OBJECT).map_err(|error| LoadError::Object(Box::new(error)))?;
        let maps = Maps::open(&mut ebpf, &sizes)?;
        let log = match options.log {
            Log::On => Some(
                log::Reader::new(&mut ebpf)
                    .map_err(|error| LoadError::Map { name: name::map::LOGS, error })?,
            ),
            Log::Off => None,
        };
        Ok(Self { ebpf, attach, types, log, offsets, maps })
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

    /// Does the kernel tell how much time the hypervisor took?
    #[must_use]
    pub const fn knows_steal(&self) -> bool {
        self.offsets.rq_steal != ABSENT
            && self.offsets.task_cfs_rq != ABSENT
            && self.offsets.cfs_rq_rq != ABSENT
    }

    /// Name of a program that has a twin, in the way they are attached here.
    fn twin(&self, base: &str) -> String {
        match self.attach {
            Attach::TpBtf => base.to_owned(),
            Attach::RawTp => format!("{base}{}", program::RAW),
        }
    }

    /// Accounts the task that runs on `cpu` now. Interrupts that CPU for about a microsecond.
    ///
    /// # Errors
    ///
    /// The CPU is offline (ENXIO), or the kernel refused.
    pub fn flush(&mut self, cpu: Cpu) -> io::Result<()> {
        let name = self.twin(program::FLUSH);
        let flush: &mut RawTracePoint = self
            .ebpf
            .program_mut(&name)
            .and_then(|program| program.try_into().ok())
            .expect("tests/contract.rs checks the object's programs");
        let mut options = RawTracePointRunOptions::new();
        options.cpu = Some(cpu.0);
        flush.test_run(options).map(|_| ()).map_err(io::Error::other)
    }

    /// What each loaded program has cost while the kernel measured it: name, runs, ns. By name.
    #[must_use]
    pub fn program_costs(&self) -> Vec<(String, u64, u64)> {
        let cost = |(name, program): (&str, &aya::programs::Program)| {
            let info = program.info().ok()?;
            let nanoseconds = u64::try_from(info.run_time().as_nanos()).unwrap_or(u64::MAX);
            let name = name.strip_suffix(program::RAW).unwrap_or(name);
            Some((name.to_owned(), info.run_count(), nanoseconds))
        };
        let mut costs: Vec<_> = self.ebpf.programs().filter_map(cost).collect();
        costs.sort();
        costs
    }

    /// Kernel memory of the maps in bytes, as the kernel accounts it (`memlock` in their fdinfo).
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        self.maps.memory_bytes() + self.ebpf.maps().map(|(_, map)| maps::memory_of(map)).sum::<u64>()
    }
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
pub fn measure_costs() -> io::Result<OwnedFd> {
    let descriptor = aya::sys::enable_stats(aya::sys::Stats::RunTime).map_err(io::Error::other)?;
    descriptor.as_fd().try_clone_to_owned()
}
