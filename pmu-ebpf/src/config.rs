//! Settings of the loader. They lie in read-only memory, so the verifier has their values and drops dead
//! branches.

use crate::Settings;

/// Configuration that the loader overwrites before the programs are loaded.
#[unsafe(no_mangle)]
pub(crate) static CONFIG: Settings = Settings::ZERO;

/// Reads one field of [`CONFIG`]. Volatile: the compiler must not take the zero it sees for the value.
macro_rules! config {
    ($($field:ident).+) => {
        // SAFETY: a field of a static is readable and aligned.
        unsafe { core::ptr::read_volatile(&raw const $crate::config::CONFIG.$($field).+) }
    };
}
pub(crate) use config;

// The loader overwrites CONFIG by name and size.
const _: () = assert!(size_of::<Settings>().is_multiple_of(8));
