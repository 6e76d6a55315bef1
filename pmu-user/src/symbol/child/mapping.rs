//! A file in memory, for the symbolizer process alone: whoever cuts the file off while it is read ends this process
//! (SIGBUS), and no other.

use std::{fs::File, ops::Deref, ptr::NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::wire::Why;

/// A file's bytes.
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
        // SAFETY: a new mapping, wherever the kernel has room, of a file that is open; it is read-only.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::PRIVATE, file, 0) };
        let start = start.map_err(|_| Why::Unreadable)?;
        Ok(Self { start: NonNull::new(start.cast()).ok_or(Why::Unreadable)?, bytes })
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is live, readable and as long as `self`. Others may write the file meanwhile: what is parsed
        // is not trusted in any state, and this process holds nothing that it could harm.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is our own mapping, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
