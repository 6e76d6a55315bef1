//! What is known of the running kernel before anything is loaded: its types, and what it has.

use std::{
    cell::OnceCell,
    path::{Path, PathBuf},
};

use pmu_common::config::{Offsets, PidNamespace};

use super::{
    LoadError, Options,
    btf::{Attachable, Btf, BtfError},
    fallback::{Answer, Attach, Probes},
    pid_namespace, probe,
};
use crate::plan::{Plan, Target};

/// The running kernel. It is read when the first object asks for it, and once for all of them: its types are 5 MB, and reading
/// them takes longer than loading an object does.
pub struct Kernel {
    root: PathBuf,
    pub(super) options: Options,
    facts: OnceCell<Facts>,
}

impl Kernel {
    /// The kernel below `root`, for objects that are loaded as `options` say. Reads nothing yet.
    #[must_use]
    pub fn new(root: &Path, options: Options) -> Self {
        Self { root: root.to_owned(), options, facts: OnceCell::new() }
    }

    /// Offsets of the fields that the programs on tasks read.
    ///
    /// # Errors
    ///
    /// The types are not known, or lack a field.
    pub fn offsets(&self) -> Result<Offsets, LoadError> {
        Ok(self.facts()?.btf.offsets()?)
    }

    /// What is known of it. What failed is tried again at the next call.
    pub(super) fn facts(&self) -> Result<&Facts, LoadError> {
        if let Some(facts) = self.facts.get() {
            return Ok(facts);
        }
        let facts = Facts::read(&self.root, &self.options)?;
        Ok(self.facts.get_or_init(|| facts))
    }
}

/// What is known of the running kernel.
pub(super) struct Facts {
    /// Types to find fields by.
    pub(super) btf: Btf,
    /// What it has.
    pub(super) probes: Probes,
    /// The PID namespace whose ids the programs give.
    pub(super) pids: PidNamespace,
    /// Its own types, by which typed programs are attached; none if they are not to be.
    pub(super) types: Option<Attachable>,
}

impl Facts {
    /// Reads the kernel's types, or those in the file that `options` name, and asks for what it has. Needs CAP_BPF to get answers.
    fn read(root: &Path, options: &Options) -> Result<Self, LoadError> {
        let own = Btf::of_kernel(root);
        // Only the running kernel's own types have the ids that it attaches by.
        let typed = own.as_ref().ok().filter(|_| options.attach != Some(Attach::RawTp)).map(Btf::attachable);
        let tracepoint = own.as_ref().ok().filter(|_| typed.is_some()).and_then(Btf::tracepoint);
        let btf = match options.btf.as_deref() {
            Some(given) => of_this_kernel(given, own.as_ref().ok())?,
            None => own?,
        };
        let (pids, probes) = (pid_namespace::read(root, &btf)?, probe::all(tracepoint));
        Ok(Self { btf, probes, pids, types: typed })
    }

    /// What of the kernel serves `plan`: iterators reach the tasks of this PID namespace and of those below.
    pub(super) fn probes_for(&self, plan: &Plan) -> Probes {
        let elsewhere = self.pids.inode != 0 && matches!(plan.target, Target::System | Target::Cgroups(_));
        Probes { every_task: if elsewhere { Answer::No } else { Answer::Yes }, ..self.probes }
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Kernel, LoadError, Options};

    #[test]
    fn the_kernel_is_read_once_for_every_object() {
        let kernel = Kernel::new(Path::new("/"), Options::default());
        // Without the kernel's types, or in another PID namespace without rights, there is nothing to keep.
        if let Ok(facts) = kernel.facts() {
            assert!(std::ptr::eq(facts, kernel.facts().unwrap()));
        }
    }

    #[test]
    fn a_kernel_that_could_not_be_read_is_read_again() {
        let kernel = Kernel::new(Path::new("/nowhere"), Options::default());
        assert!([kernel.facts(), kernel.facts()].iter().all(|facts| matches!(facts, Err(LoadError::Btf(_)))));
    }
}
