//! From drains to intervals: pure arithmetic on what was read. Nothing here opens, reads or waits for anything.

pub mod gap;
pub mod histogram;
pub mod interval;
mod ledger;
pub mod slice;

pub use self::{
    interval::{Counts, CpuCounts, Interval},
    ledger::{Ledger, OwnerIndex},
};
