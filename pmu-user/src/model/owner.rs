//! Owners as the ledger numbers them.

/// Index of an owner in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerIndex(pub(super) u32);
