//! The vDSO of 32-bit processes, which differs from the 64-bit one. It is read from the memory of a process
//! that has it mapped. The contents are not trusted, so each content is a separate source, which names only
//! the code of processes with the same contents.

use std::{
    fs::File,
    io::{self, Write as _},
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::{IDENTIFYING, SOURCES_MAX, Tracker};
use crate::{
    symbol::{
        address_map::Region,
        open::{Ask, Given},
        source::{CodeSource, CodeSourceKind, Image},
    },
    untrusted::Untrusted,
};

/// Bytes of a vDSO, at most.
const BYTES_MAX: u64 = 64 << 10;
/// Contents that are kept. The kernel has one.
const CONTENTS_MAX: usize = 16;

impl Tracker {
    /// Returns the source of names for a 32-bit vDSO that is mapped in a process. Returns `None` if it cannot
    /// be read.
    pub(super) fn small_vdso(&mut self, tgid: u32, region: &Region) -> Option<u32> {
        let (start, bytes) = (region.start, region.end.checked_sub(region.start)?);
        if bytes > BYTES_MAX {
            return None;
        }
        let whose = self.patience.whose(&self.processes.kin(tgid));
        let Ok(Given::Bytes(content)) =
            self.patience.call((&whose, tgid), Ask::Memory { tgid, start, bytes }, &[])?
        else {
            return None;
        };
        if let Some(&known) = self.small_vdsos.get(&content) {
            return Some(known);
        }
        if self.sources.len() >= SOURCES_MAX || self.small_vdsos.len() >= CONTENTS_MAX {
            return None;
        }
        let file = in_memory(&content).ok()?;
        self.symbolizer.charge(std::slice::from_ref(&whose));
        let until = self.symbolizer.within(IDENTIFYING);
        let identity = self.symbolizer.identify(&file, until).ok()?;
        let path = Untrusted::from("[vdso]");
        let number = self.sources.len() as u32;
        let image = Image { path, file: Ok(file), identity, debug: None, openings: 1 };
        self.sources.push(CodeSource::of(CodeSourceKind::File(image), &Some(whose)));
        self.small_vdsos.insert(content, number);
        Some(number)
    }
}

/// Returns a private, sealed file with this content.
fn in_memory(content: &[u8]) -> io::Result<File> {
    let file = memfd_create("pmbpf-vdso", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(file);
    file.write_all(content)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
    Ok(file)
}
