//! Facts about the running kernel that are read before an object is loaded: its types, and its features.

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

/// Running kernel. It is read when the first object needs it, once for all of them: its types are 5 MB, and
/// reading them takes longer than loading an object.
pub struct Kernel {
    root: PathBuf,
    pub(super) options: Options,
    facts: OnceCell<Facts>,
}

impl Kernel {
    /// Returns the kernel below `root`, for objects that are loaded with `options`. Reads nothing yet.
    #[must_use]
    pub fn new(root: &Path, options: Options) -> Self {
        Self { root: root.to_owned(), options, facts: OnceCell::new() }
    }

    /// Returns the offsets of the fields that the programs on tasks read.
    ///
    /// # Errors
    ///
    /// The types are not known, or lack a field.
    pub fn offsets(&self) -> Result<Offsets, LoadError> {
        Ok(self.facts()?.btf.offsets()?)
    }

    /// Returns the facts about the kernel. A failed read is retried at the next call.
    pub(super) fn facts(&self) -> Result<&Facts, LoadError> {
        if let Some(facts) = self.facts.get() {
            return Ok(facts);
        }
        let facts = Facts::read(&self.root, &self.options)?;
        Ok(self.facts.get_or_init(|| facts))
    }
}

/// Facts about the running kernel.
pub(super) struct Facts {
    /// Types for looking up fields.
    pub(super) btf: Btf,
    /// Features of the kernel.
    pub(super) probes: Probes,
    /// PID namespace of the reported ids.
    pub(super) pids: PidNamespace,
    /// Types that the kernel carries, through which typed programs are attached; `None` if they are not used.
    pub(super) types: Option<Attachable>,
}

impl Facts {
    /// Reads the kernel's types, or those in the file given in `options`, and probes its features. Needs
    /// CAP_BPF for complete results.
    fn read(root: &Path, options: &Options) -> Result<Self, LoadError> {
        let own = Btf::of_kernel(root);
        // Only the running kernel's own types have the ids that it attaches through.
        let typed = own.as_ref().ok().filter(|_| options.attach != Some(Attach::RawTp)).map(Btf::attachable);
        let tracepoint = own.as_ref().ok().filter(|_| typed.is_some()).and_then(Btf::tracepoint);
        let btf = match options.btf.as_deref() {
            Some(given) => of_this_kernel(given, own.as_ref().ok())?,
            None => own?,
        };
        let (pids, probes) = (pid_namespace::read(root, &btf)?, probe::all(tracepoint));
        Ok(Self { btf, probes, pids, types: typed })
    }

    /// Returns the probes for `plan`: iterators reach the tasks of this PID namespace and of those below.
    pub(super) fn probes_for(&self, plan: &Plan) -> Probes {
        let elsewhere = self.pids.inode != 0 && matches!(plan.target, Target::System | Target::Cgroups(_));
        Probes { every_task: if elsewhere { Answer::No } else { Answer::Yes }, ..self.probes }
    }
}

/// Returns the types in a file, if they agree with the kernel's own. If the kernel carries none, the file is
/// trusted.
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
