//! What is known of the running kernel before anything is loaded: its types, and what it has.

use std::path::Path;

use pmu_common::config::{Offsets, PidNamespace};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    KERNEL_BTF, LoadError, Options,
    btf::{Btf, BtfError},
    ladder::{Answer, Attach, Probes},
    pid_namespace, probe,
};
use crate::plan::{Plan, Sampling, Target};

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
    /// The PID namespace whose ids the programs give.
    pub(super) pids: PidNamespace,
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
        let Known { btf, probes, pids, types } = Known::read(root, options)?;
        let (offsets, timer_now_by_value) = (btf.offsets()?, btf.timer_now_by_value());
        Ok(Self { offsets, probes, pids, timer_now_by_value, types })
    }

    /// What of it serves `plan`: iterators reach the tasks of this PID namespace and of those below.
    pub(super) fn probes_for(&self, plan: &Plan) -> Probes {
        let elsewhere = self.pids.inode != 0 && matches!(plan.target, Target::System | Target::Cgroups(_));
        Probes { every_task: if elsewhere { Answer::No } else { Answer::Yes }, ..self.probes }
    }

    /// May the sampling program write hash maps? Software events never come as NMIs.
    pub(super) fn lets_insert(&self, plan: &Plan) -> bool {
        let nmi = plan.sampling.iter().any(Sampling::is_hardware);
        !nmi || probe::has_5_11()
    }
}

/// The running kernel, before it is known what of its types is needed.
pub(super) struct Known {
    /// Types to find fields by.
    pub(super) btf: Btf,
    /// What it has.
    pub(super) probes: Probes,
    /// The PID namespace whose ids the programs give.
    pub(super) pids: PidNamespace,
    /// Its own types, by which typed programs are attached; none if they are not to be.
    pub(super) types: Option<aya::Btf>,
}

impl Known {
    /// As [`Kernel::read`].
    pub(super) fn read(root: &Path, options: &Options) -> Result<Self, LoadError> {
        let own = Btf::read(&root.join(KERNEL_BTF));
        let types = |own: &Btf| {
            let typed = options.attach != Some(Attach::RawTp);
            typed.then(|| aya::Btf::parse(&own.attachable(), aya::Endianness::default()).ok()).flatten()
        };
        // Only the running kernel's own types have the ids that it attaches by.
        let typed = own.as_ref().ok().and_then(types);
        let tracepoint = own.as_ref().ok().filter(|_| typed.is_some()).and_then(Btf::tracepoint);
        let btf = match options.btf.as_deref() {
            Some(given) => of_this_kernel(given, own.as_ref().ok())?,
            None => own?,
        };
        let pids = pid_namespace::read(root, &btf)?;
        Ok(Self { btf, probes: probe::all(tracepoint), pids, types: typed })
    }
}

/// The types in a file, where they agree with the kernel's own; one that carries none is believed what the file says.
fn of_this_kernel(file: &Path, own: Option<&Btf>) -> Result<Btf, LoadError> {
    let given = Btf::read(file)?;
    let Some(Ok(offsets)) = own.map(Btf::offsets) else { return Ok(given) };
    if given.offsets().is_ok_and(|given| given == offsets) {
        Ok(given)
    } else {
        Err(BtfError::OtherKernel(file.display().to_string()).into())
    }
}
