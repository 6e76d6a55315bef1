//! Intervals from drains: pure arithmetic on readings. Nothing here opens, reads or waits for anything.

mod cpu_counts;
mod cpu_time;
mod culprit;
mod difference;
mod fold;
mod followed;
pub mod gap;
pub mod histogram;
mod interrupt;
pub mod interval;
pub mod io;
mod ledger;
pub mod limit;
mod names;
mod off_cpu;
mod owner;
pub mod pressure;
pub mod rare;
mod samples;
pub mod slice;
mod sum;
mod tree;

pub use self::{
    cpu_counts::{CpuCounts, CpuEvent},
    cpu_time::CpuTime,
    culprit::{CulpritIndex, added_up},
    difference::OwnCost,
    fold::{BOUNDS, Bounds, is_kernel, is_rest},
    followed::FollowedPaths,
    interrupt::{HandlerRuns, Interrupted, SpareInterrupts},
    interval::{Counts, HotKey, Interval, OFF_CPU, OwnerEvent, StackKey},
    ledger::Ledger,
    names::NamedCode,
    owner::OwnerIndex,
    samples::{Ran, WeightedSamples},
};
