//! Block requests and packets: who they belong to, how long they take.

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
