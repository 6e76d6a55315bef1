//! Lets aya carry our wire types.

use pmu_common::wire::Wire;

/// A wire type in aya's hands.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Pod<T>(pub(super) T);

// SAFETY: aya asks that any bit pattern is valid and that the bytes can be copied; Wire promises both.
unsafe impl<T: Wire> aya::Pod for Pod<T> {}
