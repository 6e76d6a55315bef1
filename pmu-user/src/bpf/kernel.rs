//! What is known of the running kernel before anything is loaded: its types, and what it has.

use std::path::Path;

use pmu_common::config::Offsets;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    KERNEL_BTF, LoadError, Options,
    btf::Btf,
    ladder::{Attach, Probes},
    probe,
};
use crate::plan::{Plan, Sampling};

/// The limit of locked memory as it was: before Linux 5.11, where maps count as such, aya lifts it. A command that is
/// started later must not find it lifted.
pub(super) struct LockedMemory(Rlimit);

impl LockedMemory {
    /// Puts the limit back when it is dropped.
    pub(super) fn kept() -> Self {
        Self(getrlimit(Resource::Memlock))
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        if getrlimit(Resource::Memlock) != self.0 {
            // It was lifted a moment ago, and lowering it is always allowed.
            let _ = setrlimit(Resource::Memlock, self.0);
        }
    }
}

/// The running kernel.
pub struct Kernel {
    /// Where its fields are.
    pub offsets: Offsets,
    /// What it has.
    pub probes: Probes,
    /// Does it pass a timer's expiry by value?
    pub(super) timer_now_by_value: bool,
    /// Its own types, by which typed programs are attached.
    pub(super) types: Option<aya::Btf>,
}

impl Kernel {
    /// Reads the kernel's types, or those in the file that `options` name, and asks for what it has. Needs CAP_BPF to
    /// get answers.
    ///
    /// # Errors
    ///
    /// The types are not known, or lack a field.
    pub fn read(root: &Path, options: &Options) -> Result<Self, LoadError> {
        let own = Btf::read(&root.join(KERNEL_BTF));
        // Only the running kernel's own types have the ids that it attaches by.
        let given = options.btf.as_deref().map(Btf::read).transpose()?;
        let (offsets, timer_now_by_value, own) = match given {
            Some(given) => (given.offsets()?, given.timer_now_by_value(), own.ok()),
            None => own.and_then(|own| Ok((own.offsets()?, own.timer_now_by_value(), Some(own))))?,
        };
        let own = own.filter(|_| options.attach != Some(Attach::RawTp));
        let types = own.as_ref().map(Btf::attachable);
        let types = types.and_then(|bytes| aya::Btf::parse(&bytes, aya::Endianness::default()).ok());
        let tracepoint = own.as_ref().filter(|_| types.is_some()).and_then(Btf::tracepoint);
        Ok(Self { offsets, probes: probe::all(tracepoint), timer_now_by_value, types })
    }

    /// May the sampling program write hash maps? Software events never come as NMIs.
    pub(super) fn lets_insert(&self, plan: &Plan) -> bool {
        let nmi = plan.sampling.iter().any(Sampling::is_hardware);
        !nmi || probe::has_5_11()
    }
}
