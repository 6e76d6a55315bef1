//! From drains to intervals: pure arithmetic on what was read. Nothing here opens, reads or waits for anything.

pub mod gap;
pub mod histogram;
pub mod interval;
pub mod io;
mod ledger;
pub mod slice;
mod tally;

pub use self::{
    interval::{Counts, CpuCounts, CpuEvent, HotKey, Interval, OwnerEvent},
    ledger::{Ledger, Located, OwnerIndex},
    tally::{Ran, Tally},
};
