//! A mapped file, for the symbolizer process alone: if the file is truncated while it is read, only this
//! process ends (SIGBUS).

use std::{fs::File, ops::Deref, ptr::NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::wire::Why;

/// Mapped bytes of a file.
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Maps all of a file.
    pub(super) fn of(file: &File) -> Result<Self, Why> {
        let status = rustix::fs::fstat(file).map_err(|_| Why::Unreadable)?;
        let bytes = usize::try_from(status.st_size).map_err(|_| Why::TooLarge)?;
        if bytes == 0 {
            return Err(Why::Damaged);
        }
        // SAFETY: this is a new read-only mapping of an open file, at an address that the kernel chooses.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::PRIVATE, file, 0) };
        let start = start.map_err(|_| Why::Unreadable)?;
        Ok(Self { start: NonNull::new(start.cast()).ok_or(Why::Unreadable)?, bytes })
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is live, readable and as long as `self`. Other processes may write the file at
        // the same time: parsed data is not trusted in any state, and this process holds nothing that it
        // could harm.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made above, and nothing borrows from it any longer.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
