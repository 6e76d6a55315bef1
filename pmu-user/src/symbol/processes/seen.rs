//! Processes that samples hit: their mappings and their ancestors.

use super::{ANCESTORS_MAX, FILES_AHEAD_MAX, Processes};
use crate::symbol::address_map::Region;

impl Processes {
    /// Registers that a process was sampled. The first time, returns the files mapped in it by the kernel's
    /// records.
    pub(in crate::symbol) fn see(&mut self, tgid: u32) -> Vec<Region> {
        let process = self.meet(tgid);
        if process.files_ahead.is_some() {
            return Vec::new();
        }
        let told = process.maps.told.iter().flat_map(|told| told.regions());
        let files = told.filter(|region| region.file.is_some());
        let files: Vec<Region> = files.take(FILES_AHEAD_MAX).cloned().collect();
        process.files_ahead = Some(files.len());
        files
    }

    /// Returns whether samples hit a process's program.
    pub(in crate::symbol) fn is_seen(&self, tgid: u32) -> bool {
        self.of.get(&tgid).is_some_and(|process| process.files_ahead.is_some())
    }

    /// Returns whether any mapping of a process satisfies `is`.
    pub(in crate::symbol) fn is_any_mapped(&self, tgid: u32, is: impl Fn(&Region) -> bool) -> bool {
        self.of.get(&tgid).is_some_and(|process| process.maps.regions().any(is))
    }

    /// Returns a process and its ancestors, the nearest first.
    pub(in crate::symbol) fn kin(&self, tgid: u32) -> Vec<u32> {
        let parent = |&tgid: &u32| self.of.get(&tgid)?.parent.map(|(parent, _)| parent);
        std::iter::successors(Some(tgid), parent).take(ANCESTORS_MAX).collect()
    }
}
