//! What `pmbpf io` was asked for.

use std::time::Duration;

use crate::plan::request::{Descend, Inherit, Target};

/// Everything `pmbpf io` was told.
#[derive(Clone, Debug)]
pub struct IoRequest {
    /// Whose bytes are told apart.
    pub target: Target,
    /// Children of processes.
    pub inherit: Inherit,
    /// Cgroups below.
    pub descend: Descend,
    /// The model whose table is used; this machine's if none is named.
    pub model: Option<String>,
    /// Time between reports.
    pub interval: Option<Duration>,
    /// Stop after.
    pub duration: Option<Duration>,
}
