//! The only module that names aya: loads the programs, attaches them, and hands out their maps as rows.

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

/// Do maps count as locked memory here? They did before Linux 5.11.
#[must_use]
pub fn maps_are_locked_memory() -> bool {
    !probe::has_5_11()
}

/// Gives freed memory back to the system: what loading took would stay with this process for good otherwise, and so would holes between
/// rows that stay.
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
