//! An array map as memory, read and written without a system call; and wire types in aya's hands.

use std::{io, marker::PhantomData, mem::MaybeUninit, os::fd::AsFd, ptr::NonNull};

use pmu_common::wire::Wire;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A wire type that aya carries.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Pod<T>(pub(super) T);

// SAFETY: aya asks that any bit pattern is valid and that the bytes can be copied; Wire promises both.
unsafe impl<T: Wire> aya::Pod for Pod<T> {}

/// The rows of an array map created with `BPF_F_MMAPABLE`. The programs write while this reads: every access is one
/// volatile word, so a row may mix two moments, but never a word.
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
    /// Words of a row: the kernel rounds values up to 8 bytes (kernel/bpf/arraymap.c, `array_map_alloc`).
    const WORDS: usize = size_of::<T>().div_ceil(8);

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

    /// Number of rows.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows
    }

    /// No rows?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    fn word(&self, row: usize, word: usize) -> *mut u64 {
        assert!(row < self.rows && word < Self::WORDS, "row {row} of {}", self.rows);
        // SAFETY: row and word are inside the mapping, as just checked.
        unsafe { self.base.as_ptr().add(row * Self::WORDS + word) }
    }

    /// One word of a row.
    #[must_use]
    pub fn read_word(&self, row: usize, word: usize) -> u64 {
        let word = self.word(row, word);
        // SAFETY: the word is mapped and aligned; volatile, because a program may write it.
        unsafe { word.read_volatile() }
    }

    /// A row.
    #[must_use]
    pub fn read(&self, row: usize) -> T {
        let mut value = MaybeUninit::<T>::uninit();
        for word in 0..Self::WORDS {
            let into = value.as_mut_ptr().cast::<u64>().wrapping_add(word);
            // SAFETY: `new` checked that the type is a whole number of words, so this is inside `value`.
            unsafe { into.write_unaligned(self.read_word(row, word)) };
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

    /// Makes a row zero.
    pub fn clear(&self, row: usize) {
        for word in 0..Self::WORDS {
            self.write_word(row, word, 0);
        }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives the value.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
