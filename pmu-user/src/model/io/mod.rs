//! I/O between two drains.

pub mod groups;
mod interval;
mod ledger;
pub mod traffic;

pub use self::{
    interval::{BoxId, IoInterval},
    ledger::IoLedger,
};
