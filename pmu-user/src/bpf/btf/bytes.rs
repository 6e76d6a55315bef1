//! Bytes of a kernel's types. The kernel's own file is mapped where that is possible, since Linux 6.16
//! (kernel/bpf/sysfs_btf.c, `btf_sysfs_vmlinux_mmap`). A read returns one page, and a kernel's types take
//! 1,500 of them.

use std::{ffi::c_void, io, ops::Deref, path::Path, ptr::NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::file::{open_regular, read_regular};

/// Bytes that were read, or that the kernel maps.
#[derive(Debug)]
pub(super) enum Bytes {
    /// Bytes that were read.
    Here(Vec<u8>),
    /// Bytes that are mapped.
    Shown(Shown),
}

/// File of the kernel, mapped for reading.
#[derive(Debug)]
pub(super) struct Shown {
    base: NonNull<c_void>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, the value owns it, and it is never written.
unsafe impl Send for Shown {}
// SAFETY: as above.
unsafe impl Sync for Shown {}

impl Bytes {
    /// Reads the file at `path`.
    pub(super) fn read(path: &Path, bytes_max: u64) -> io::Result<Self> {
        read_regular(path, bytes_max).map(Self::Here)
    }

    /// Maps a file in sysfs, or reads any other file. Only in sysfs the length is certain not to change.
    pub(super) fn of_kernel(path: &Path, bytes_max: u64) -> io::Result<Self> {
        match Shown::new(path, bytes_max) {
            Some(shown) => Ok(Self::Shown(shown)),
            None => Self::read(path, bytes_max),
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Here(bytes)
    }
}

impl Shown {
    fn new(path: &Path, bytes_max: u64) -> Option<Self> {
        let file = open_regular(path).ok()?;
        let is_in_sysfs = rustix::fs::fstatfs(&file).is_ok_and(|system| system.f_type == SYSFS_MAGIC);
        let length = file.metadata().ok()?.len();
        if !is_in_sysfs || length == 0 || length > bytes_max {
            return None;
        }
        let length = usize::try_from(length).ok()?;
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(null, length, ProtFlags::READ, MapFlags::PRIVATE, &file, 0) };
        Some(Self { base: NonNull::new(base.ok()?)?, length })
    }
}

/// File system type `SYSFS_MAGIC`, include/uapi/linux/magic.h.
const SYSFS_MAGIC: rustix::fs::FsWord = 0x6265_6572;

impl Drop for Shown {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and nothing refers to it any longer.
        let _ = unsafe { munmap(self.base.as_ptr(), self.length) };
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Here(bytes) => bytes,
            // SAFETY: as many bytes are mapped as long as the value lives, and the kernel's types never
            // change.
            Self::Shown(Shown { base, length }) => unsafe {
                std::slice::from_raw_parts(base.as_ptr().cast_const().cast(), *length)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Bytes;

    #[test]
    fn what_is_shown_is_what_is_read() {
        let path = Path::new("/sys/kernel/btf/vmlinux");
        if let Ok(read) = Bytes::read(path, 64 << 20) {
            assert!(*Bytes::of_kernel(path, 64 << 20).unwrap() == *read);
        }
    }

    #[test]
    fn a_file_that_may_change_is_read() {
        let path = std::env::temp_dir().join(format!("pmbpf-bytes-{}", std::process::id()));
        std::fs::write(&path, b"types").unwrap();
        let bytes = Bytes::of_kernel(&path, 100).unwrap();
        assert!(matches!(bytes, Bytes::Here(_)) && *bytes == *b"types");
        assert!(Bytes::of_kernel(&path, 4).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
