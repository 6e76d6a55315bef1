//! Performance-monitoring units, from `/sys/bus/event_source/devices`.
//!
//! [`Pmu`] is the form in every report. [`catalog::Catalog`] has all of sysfs about the PMUs. It is read when
//! events are to be resolved. [`counters`] has the number of events that can be counted at a time, which is
//! not in sysfs.

pub mod bits;
pub mod catalog;
pub mod counters;
pub mod cpuid;
pub mod probed;

use std::{io, path::Path};

use serde::{Deserialize, Serialize};

use super::read_line;
use crate::untrusted::{Untrusted, exact};

/// Folder in which the kernel lists the PMUs, below the root.
const FOLDER: &str = "sys/bus/event_source/devices";

/// One PMU that the kernel offers to `perf_event_open`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pmu {
    /// Name of the PMU's folder.
    #[serde(with = "exact")]
    pub name: Untrusted,
    /// Value of `perf_event_attr.type`.
    pub kind: u32,
}

impl Pmu {
    /// Returns whether the PMU counts what a core executes. (x86: `cpu`, `cpu_core`, `cpu_atom`; Arm:
    /// `armv8_…`, `arm_…pmu…`.)
    pub fn is_core(&self) -> bool {
        is_core(self.name.as_bytes())
    }
}

fn is_core(name: &[u8]) -> bool {
    matches!(name, b"cpu" | b"cpu_core" | b"cpu_atom" | b"cpu_lowpower")
        || name.starts_with(b"apple_")
        || name.starts_with(b"armv8")
        || name.starts_with(b"armv9")
}

/// Returns all PMUs below `root`, by name.
///
/// # Errors
///
/// The folder cannot be listed. A PMU without a type is left out.
pub fn read(root: &Path) -> io::Result<Vec<Pmu>> {
    let folder = FOLDER;
    let mut pmus = Vec::new();
    for entry in std::fs::read_dir(root.join(folder))? {
        let name = entry?.file_name();
        let kind = read_line(root, &format!("{folder}/{}/type", name.display())).ok();
        if let Some(kind) = kind.and_then(|kind| kind.parse().ok()) {
            pmus.push(Pmu { name: Untrusted::from(name.as_os_str()), kind });
        }
    }
    pmus.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(pmus)
}
