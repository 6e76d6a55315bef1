//! Properties of this host. Every function takes the root of the file system, so that a folder can stand for
//! a machine.

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
    /// Host name: `/proc/sys/kernel/hostname`.
    #[serde(with = "exact")]
    pub host: Untrusted,
    /// Kernel release: `/proc/sys/kernel/osrelease`.
    #[serde(with = "exact")]
    pub kernel: Untrusted,
    /// Processor model and CPUs.
    pub cpu: cpu::Processor,
    /// Performance-monitoring units that the kernel offers.
    pub pmus: Vec<pmu::Pmu>,
    /// Mount points of the cgroup hierarchies.
    pub cgroups: cgroup::Layout,
    /// Sockets, cores, threads.
    #[serde(default)]
    pub topology: topology::Topology,
    /// Events that the core PMUs were found to count, where they were probed.
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

    /// Returns the probe result of the core PMU `pmu`, if it was probed.
    pub fn probed(&self, pmu: &str) -> Option<&pmu::probed::Probed> {
        self.probed.iter().find(|probed| probed.pmu == pmu)
    }

    /// Returns why nothing that needs a hardware PMU can be measured. Returns `None` if there is one.
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

/// Bytes of a file with untrusted text that are read, at most.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Reads a file with arbitrary contents, up to the limit.
pub(crate) fn bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the first line of a file below `root`, without the newline.
pub(crate) fn read_line(root: &Path, path: &str) -> std::io::Result<String> {
    let text = read(root, path)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Reads a whole file below `root`. The error names the file.
pub(crate) fn read(root: &Path, path: &str) -> std::io::Result<String> {
    let path: PathBuf = root.join(path);
    std::fs::read_to_string(&path).map_err(|error| {
        std::io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))
    })
}

/// Returns CLOCK_MONOTONIC in ns: the clock of the BPF programs and of the kernel's events.
pub fn monotonic_ns() -> u64 {
    now_ns(ClockId::Monotonic)
}

/// Returns the time of a clock in ns (clock_gettime(2)).
pub fn now_ns(clock: ClockId) -> u64 {
    nanoseconds(clock_gettime(clock))
}

/// Returns the CPU time of this process so far, in ns.
pub fn own_cpu_ns() -> u64 {
    now_ns(ClockId::ProcessCPUTime)
}

/// Returns a time of the kernel in ns.
pub const fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.unsigned_abs())
}

/// Returns a duration in ns, saturated at the maximum.
pub fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
