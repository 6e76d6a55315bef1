//! The loader's settings. They lie in read-only memory, so the verifier knows their values and drops dead branches.

use pmu_common::config::Config;

/// Overwritten by the loader before the programs are loaded.
#[unsafe(no_mangle)]
pub(crate) static CONFIG: Config = Config::ZERO;

/// Reads one field of [`CONFIG`]. Volatile: the compiler must not take the zero it sees for the value.
macro_rules! config {
    ($($field:ident).+) => {
        // SAFETY: a field of a static is readable and aligned.
        unsafe { core::ptr::read_volatile(&raw const $crate::config::CONFIG.$($field).+) }
    };
}
pub(crate) use config;
