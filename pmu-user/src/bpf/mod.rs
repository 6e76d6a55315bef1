//! BPF programs: loads and attaches them, and provides their maps as rows. No other module uses aya.

pub mod btf;
mod built;
mod error;
mod events;
pub mod fallback;
pub mod io;
mod kernel;
mod kernel_names;
mod loaded;
mod log;
mod mapped;
pub mod pid_namespace;
mod probe;
pub mod ring;
mod statistics;
mod system_call;
mod tasks;

use std::{
    io::Error,
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
};

pub use self::{
    btf::KERNEL_BTF,
    built::{BY_ADDRESS, BY_TYPE, Built, IO_BY_ADDRESS, IO_BY_TYPE},
    error::LoadError,
    events::Events,
    fallback::{Attach, Refused},
    kernel::Kernel,
    kernel_names::KernelNames,
    loaded::Loaded,
    mapped::Mapped,
    ring::Ring,
    tasks::{Maps, Object, Verified},
};

/// Whether the programs log their rare paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Log {
    /// No log; the verifier drops the code.
    #[default]
    Off,
    /// Log to stderr.
    On,
}

/// Options of loading, beyond the plan. By default in the best way, with the types that the kernel carries,
/// and without a log.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Way of attaching; the best that works if none is given.
    pub attach: Option<Attach>,
    /// File with the kernel's types, for kernels that do not carry them.
    pub btf: Option<PathBuf>,
    /// Logging of rare paths.
    pub log: Log,
}

/// Returns whether maps count as locked memory here. They did before Linux 5.11.
#[must_use]
pub fn maps_are_locked_memory() -> bool {
    !probe::has_5_11()
}

/// Returns freed memory to the system. Memory used for loading, and holes between rows that stay, would
/// otherwise stay with this process.
pub fn release_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and any thread may call it at any time (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Makes the kernel measure the cost of every program on the host until the descriptor is closed. Costs about
/// 40 ns per run.
///
/// # Errors
///
/// Linux before 5.8, or missing rights.
pub fn measure_costs() -> Result<OwnedFd, Error> {
    let descriptor = aya::sys::enable_stats(aya::sys::Stats::RunTime).map_err(Error::other)?;
    descriptor.as_fd().try_clone_to_owned()
}
