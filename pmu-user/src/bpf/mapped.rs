//! Array map as memory, read and written without a system call, and wire types for aya.

use std::{io, marker::PhantomData, mem::MaybeUninit, os::fd::AsFd, ptr::NonNull};

use pmu_common::wire::Wire;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Wire type that is passed through aya.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Pod<T>(pub(super) T);

// SAFETY: aya requires that any bit pattern is valid and that the bytes can be copied; Wire guarantees both.
unsafe impl<T: Wire> aya::Pod for Pod<T> {}

/// Rows of an array map created with `BPF_F_MMAPABLE`. The programs write while this reads. Every access is
/// one volatile word, so a row may mix two moments, but never a word.
#[derive(Debug)]
pub struct Mapped<T> {
    base: NonNull<u64>,
    rows: usize,
    bytes: usize,
    holds: PhantomData<T>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and the value owns it.
unsafe impl<T> Send for Mapped<T> {}

impl<T: Wire> Mapped<T> {
    /// Number of words of a row: the kernel rounds values up to 8 bytes (kernel/bpf/arraymap.c,
    /// `array_map_alloc`).
    pub const WORDS: usize = size_of::<T>().div_ceil(8);

    /// Maps the `rows` rows of the map `descriptor`.
    ///
    /// # Errors
    ///
    /// The kernel refused; the map is not mappable or memory is short.
    pub fn new(descriptor: impl AsFd, rows: u32) -> io::Result<Self> {
        assert!(size_of::<T>().is_multiple_of(8), "rows are read and written by words");
        let rows = rows as usize;
        let bytes = (rows * Self::WORDS * 8).next_multiple_of(rustix::param::page_size());
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, of a map that is at least this large.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, descriptor, 0) }?;
        let base = NonNull::new(base.cast::<u64>()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        Ok(Self { base, rows, bytes, holds: PhantomData })
    }

    /// Returns the number of rows.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows
    }

    /// Returns whether there are no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    #[inline]
    fn word(&self, row: usize, word: usize) -> *mut u64 {
        assert!(row < self.rows && word < Self::WORDS, "no such row, or no such word of it");
        // SAFETY: row and word are inside the mapping, as just checked.
        unsafe { self.base.as_ptr().add(row * Self::WORDS + word) }
    }

    /// Reads one word of a row.
    #[must_use]
    #[inline]
    pub fn read_word(&self, row: usize, word: usize) -> u64 {
        let word = self.word(row, word);
        // SAFETY: the word is mapped and aligned; volatile, because a program may write it.
        unsafe { word.read_volatile() }
    }

    /// Prefetches the cache lines of `words` of a row, which another CPU wrote. Where many rows are read, the
    /// processor fetches several at a time.
    #[inline]
    pub fn prefetch(&self, row: usize, words: std::ops::Range<usize>) {
        /// Words of a cache line.
        const LINE: usize = 8;
        for word in words.step_by(LINE) {
            let word = self.word(row, word);
            // SAFETY: a hint, which affects only time.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(word.cast());
            }
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            unsafe {
                std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) word, options(nostack, preserves_flags, readonly));
            }
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            let _ = word;
        }
    }

    /// Reads a whole row.
    #[must_use]
    #[inline]
    pub fn read(&self, row: usize) -> T {
        let mut value = MaybeUninit::<T>::uninit();
        let first = self.word(row, 0);
        for word in 0..Self::WORDS {
            let into = value.as_mut_ptr().cast::<u64>().wrapping_add(word);
            // SAFETY: the word is one of the row's, mapped and aligned; volatile, because a program may write
            // it.
            let read = unsafe { first.wrapping_add(word).read_volatile() };
            // SAFETY: `new` checked that the type is a whole number of words, so this is inside `value`.
            unsafe { into.write_unaligned(read) };
        }
        // SAFETY: every word was written, and any bit pattern is a valid value of a wire type.
        unsafe { value.assume_init() }
    }

    /// Writes one word of a row.
    pub fn write_word(&self, row: usize, word: usize, value: u64) {
        let word = self.word(row, word);
        // SAFETY: the word is mapped, aligned and writable; volatile, because a program may read it.
        unsafe { word.write_volatile(value) }
    }

    /// Sets a byte of a row to zero, and leaves the others to programs that write them.
    pub fn clear_byte(&self, row: usize, byte: usize) {
        let byte = self.word(row, byte / 8).cast::<u8>().wrapping_add(byte % 8);
        // SAFETY: the byte belongs to a word that is mapped and writable; volatile, because a program may
        // write it.
        unsafe { byte.write_volatile(0) };
    }

    /// Sets a row to zero.
    pub fn clear(&self, row: usize) {
        for word in 0..Self::WORDS {
            self.write_word(row, word, 0);
        }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference into it outlives the value.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
