//! pmbpf: an eBPF-augmented collector for CPU performance-monitoring units.
//!
//! Data flows in one direction, and each seam is a plain value that can be printed and made by a test:
//!
//! ```text
//! argv → Request → Plan → Session ═► Drain → Interval → Report → bytes
//!        command   plan   perf+bpf   drain   model      metric   view
//! ```
//!
//! The modules are listed in that order. Each imports only from those above it, and `model`, `metric` and
//! `view` never from `perf`, `bpf`, `symbol` and `session`: everything after [`drain`] is pure.
//! `tests/architecture.rs` checks it.

#[forbid(unsafe_code)]
mod named;

#[forbid(unsafe_code)]
pub mod file;
#[forbid(unsafe_code)]
pub mod suggest;
#[forbid(unsafe_code)]
pub mod untrusted;

#[forbid(unsafe_code)]
pub mod drain;
#[forbid(unsafe_code)]
pub mod machine;
#[forbid(unsafe_code)]
pub mod plan;
#[forbid(unsafe_code)]
pub mod redact;
#[forbid(unsafe_code)]
pub mod table;

pub mod bpf;
pub mod perf;
pub mod session;
pub mod symbol;

#[forbid(unsafe_code)]
pub mod command;
#[forbid(unsafe_code)]
pub mod metric;
#[forbid(unsafe_code)]
pub mod model;
#[forbid(unsafe_code)]
pub mod view;

#[cfg(test)]
#[path = "../../tests/schema.rs"]
mod schema;
