//! From drains to intervals: pure arithmetic on what was read. Nothing here opens, reads or waits for anything.

mod difference;
mod fold;
pub mod gap;
pub mod histogram;
pub mod interval;
pub mod io;
mod ledger;
mod names;
mod samples;
pub mod slice;
mod tree;

pub use self::{
    fold::{BOUNDS, Bounds, is_kernel, is_rest},
    interval::{Counts, CpuCounts, CpuEvent, HotKey, Interval, OwnerEvent, OwnerIndex, StackKey},
    ledger::Ledger,
    names::NamedCode,
    samples::{Ran, WeightedSamples},
};
