//! Guests with the simulated PMUs, for benches: the output of a script there.

use std::{path::PathBuf, time::Duration};

use anyhow::bail;

use super::{
    Beds, PMUSIM, Series,
    bed::Bed,
    guest::{Kept, Output},
    image, in_work,
    kernel::Architecture,
    module,
    qemu::Work,
    shared_files,
};

/// Guests of one kernel, with pmbpf and the simulated PMUs on their disk.
pub(crate) struct Simulated {
    beds: Beds,
    bed: Bed,
    shared: PathBuf,
    /// Owns the disk.
    _work: Work,
}

impl Simulated {
    /// Saves a guest of this kernel and makes the disk. `more` are files, with their paths below `/work` in a
    /// guest.
    pub(crate) fn new(series: &Series, more: &[(PathBuf, &str)]) -> anyhow::Result<Self> {
        let mut beds = Beds::get()?;
        let bed = beds.bed(series, false)?;
        bed.save(&beds.tools)?;
        let work = Work::new("simulated")?;
        let mut files = shared_files(Architecture::HOST, &[])?;
        files.push((module::pmusim(&mut beds.apt, &beds.tools, &bed.parts.kernel)?, PMUSIM.to_owned()));
        files.extend(more.iter().map(|(path, name)| (path.clone(), (*name).to_owned())));
        let shared = image::shared(&beds.tools, &work.0, &files)?;
        Ok(Self { beds, bed, shared, _work: work })
    }

    /// Returns the output of a script of bash in a separate guest, in which the PMUs have these parameters.
    /// It must be a success.
    pub(crate) fn output(&self, parameters: &str, script: &str, within: Duration) -> anyhow::Result<String> {
        let kept = Kept::default();
        let mut guest = self.bed.restore(&self.beds.tools, &self.shared, &Output::Keep(kept.clone()))?;
        let words = ["bash", "-euc", script].map(Into::into);
        let code = guest.run(&in_work(Some(parameters), &words)?, within)?;
        guest.end();
        let text = kept.text();
        if code != 0 {
            bail!(
                "a script ended with {code} in a guest of Linux {}:\n{text}",
                self.bed.parts.kernel.release
            );
        }
        Ok(text)
    }
}
