//! Block requests and packets: who they belong to, how long they take.

mod bio;
mod complete;
mod config;
mod maps;
mod owner;
mod packet;
mod request;
mod slot;
mod start;
mod target;
