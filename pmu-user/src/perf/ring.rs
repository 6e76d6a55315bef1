//! Ring buffer that the kernel writes an event's records to (`perf_event_mmap_page`), read without a system
//! call.

use std::{
    io,
    mem::offset_of,
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use perf_event_open_sys::bindings::perf_event_mmap_page;
use rustix::{
    mm::{MapFlags, ProtFlags, mmap, munmap},
    param::page_size,
};

/// Bytes of a record's header: type, flags, size.
pub(super) const HEADER_BYTES: usize = 8;

/// Records of an event on one CPU. They may be read on any one thread.
#[derive(Debug)]
pub(super) struct Ring {
    base: NonNull<u8>,
    /// Bytes for records, a power of two.
    bytes: usize,
    /// Record that is being read.
    record: Vec<u8>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and the value owns it.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps room for at least `bytes` of records of `event`: a power of two, and at least a page.
    ///
    /// # Errors
    ///
    /// Memory is short, or more than `kernel.perf_event_mlock_kb` and RLIMIT_MEMLOCK allow.
    pub(super) fn map(event: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(page_size()).next_power_of_two();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let all = bytes + page_size();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(std::ptr::null_mut(), all, protection, MapFlags::SHARED, event, 0) }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        Ok(Self { base, bytes, record: Vec::new() })
    }

    /// Takes out every present record, in the order of this CPU.
    pub(super) fn take_all(&mut self, mut each: impl FnMut(&[u8])) {
        // Records before the head are complete when the head is read.
        let head = self.word(offset_of!(perf_event_mmap_page, data_head)).load(Ordering::Acquire);
        let mut tail = self.word(offset_of!(perf_event_mmap_page, data_tail)).load(Ordering::Relaxed);
        let mut record = std::mem::take(&mut self.record);
        while head.wrapping_sub(tail) >= HEADER_BYTES as u64 {
            self.copy(tail, HEADER_BYTES, &mut record);
            let size = usize::from(u16::from_ne_bytes([record[6], record[7]]));
            if size < HEADER_BYTES || size > self.bytes || size as u64 > head.wrapping_sub(tail) {
                // The kernel does not write such a record, and the start of the next one is unknown.
                break;
            }
            self.copy(tail, size, &mut record);
            each(&record);
            tail = tail.wrapping_add(size as u64);
        }
        self.record = record;
        // The kernel may write there again from here on.
        self.word(offset_of!(perf_event_mmap_page, data_tail)).store(head, Ordering::Release);
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        let word = self.base.as_ptr().wrapping_add(offset).cast();
        // SAFETY: the first page is mapped for as long as `self`, the word in it is aligned, and the kernel
        // changes it atomically.
        unsafe { AtomicU64::from_ptr(word) }
    }

    /// Replaces `into` by the `length` bytes at a position, which may wrap to the beginning.
    fn copy(&self, position: u64, length: usize, into: &mut Vec<u8>) {
        into.clear();
        let from = position as usize & (self.bytes - 1);
        let first = length.min(self.bytes - from);
        for (start, length) in [(from, first), (0, length - first)] {
            let start = self.base.as_ptr().wrapping_add(page_size() + start);
            // SAFETY: the bytes are mapped, and the kernel does not change them until the tail is moved past
            // them.
            into.extend_from_slice(unsafe { std::slice::from_raw_parts(start, length) });
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference into it outlives the value.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes + page_size()) };
        debug_assert!(unmapped.is_ok());
    }
}
