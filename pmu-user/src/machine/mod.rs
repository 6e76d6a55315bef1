//! What this host is. Every function takes the root of the file system, so that a folder can be a machine.

pub mod accounting;
pub mod cgroup;
pub mod container;
pub mod cpu;
pub mod disk;
pub mod io;
pub mod io_limit;
pub mod kernel_symbols;
pub mod limit;
pub mod memory_limit;
pub(crate) mod mount;
pub mod network;
pub(crate) mod own_process;
pub mod pid_namespace;
pub mod pmu;
pub mod pressure;
pub mod privilege;
pub(crate) mod stat;
#[cfg(test)]
pub(crate) mod testing;
pub mod throttling;
pub mod topology;
pub mod tracepoint;

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::untrusted::{Untrusted, exact};

/// A host, as far as a report names it. Part of every recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// `/proc/sys/kernel/hostname`.
    #[serde(with = "exact")]
    pub host: Untrusted,
    /// `/proc/sys/kernel/osrelease`.
    #[serde(with = "exact")]
    pub kernel: Untrusted,
    /// Processor model and CPUs.
    pub cpu: cpu::Processor,
    /// Performance-monitoring units that the kernel offers.
    pub pmus: Vec<pmu::Pmu>,
    /// Where the cgroup hierarchies are mounted.
    pub cgroups: cgroup::Layout,
    /// Sockets, cores, threads.
    #[serde(default)]
    pub topology: topology::Topology,
    /// What the core PMUs turned out to count, where that was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probed: Vec<pmu::probed::Probed>,
}

impl Machine {
    /// Reads the host below `root` (`/` for this one). Needs no privilege.
    ///
    /// # Errors
    ///
    /// `/proc` or `/sys` cannot be read.
    pub fn read(root: &Path) -> std::io::Result<Self> {
        let cpu = cpu::Processor::read(root)?;
        Ok(Self {
            host: Untrusted::from(read_line(root, "proc/sys/kernel/hostname")?),
            kernel: Untrusted::from(read_line(root, "proc/sys/kernel/osrelease")?),
            topology: topology::Topology::read(root, &cpu.online),
            cpu,
            pmus: pmu::read(root)?,
            cgroups: cgroup::Layout::read(root)?,
            probed: Vec::new(),
        })
    }

    /// What the core PMU `pmu` turned out to count, if that was asked.
    pub fn probed(&self, pmu: &str) -> Option<&pmu::probed::Probed> {
        self.probed.iter().find(|probed| probed.pmu == pmu)
    }

    /// Why nothing that needs a hardware PMU can be measured; `None` if there is one.
    pub fn no_core_pmu(&self) -> Option<String> {
        if self.pmus.iter().any(pmu::Pmu::is_core) {
            return None;
        }
        let because = if self.cpu.guest {
            "this is a virtual machine and its hypervisor gives it no PMU"
        } else {
            "the kernel has no driver for one, or it is switched off in the firmware"
        };
        Some(format!("no hardware PMU is exposed: {because}"))
    }
}

/// Bytes of a file with somebody else's text that are looked at.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// A file that may hold anything, as far as it is looked at.
pub(crate) fn bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// First line of a file below `root`, without its end.
pub(crate) fn read_line(root: &Path, path: &str) -> std::io::Result<String> {
    let text = read(root, path)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// A whole file below `root`. The error names the file.
pub(crate) fn read(root: &Path, path: &str) -> std::io::Result<String> {
    let path: PathBuf = root.join(path);
    std::fs::read_to_string(&path).map_err(|error| {
        std::io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))
    })
}

/// CLOCK_MONOTONIC now, in ns: the clock of the programs and of what the kernel tells.
pub fn monotonic_ns() -> u64 {
    now_ns(ClockId::Monotonic)
}

/// The time of a clock now, in ns (clock_gettime(2)).
pub fn now_ns(clock: ClockId) -> u64 {
    nanoseconds(clock_gettime(clock))
}

/// CPU time of this process so far, in ns.
pub fn own_cpu_ns() -> u64 {
    now_ns(ClockId::ProcessCPUTime)
}

/// A time of the kernel in ns.
pub const fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.unsigned_abs())
}

/// A duration in ns; one that is too long for that is the longest.
pub fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
