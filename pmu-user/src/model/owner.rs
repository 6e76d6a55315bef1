//! Owners as the ledger numbers them.

/// An owner in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerIndex(pub(super) u32);
