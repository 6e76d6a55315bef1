//! Block requests and packets: their owners and their latencies.

mod bio;
mod cgroup;
mod complete;
mod limit;
pub(crate) mod maps;
mod owner;
mod packet;
mod request;
mod slot;
mod start;
