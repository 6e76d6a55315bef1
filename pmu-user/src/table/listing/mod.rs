//! Events and PMUs of a host, for `pmbpf list`: plain rows, each with the reason if it is not available here.
//! Uncore PMUs of a kind are one row.

mod events;

pub use self::events::{EventLister, EventOrigin, ListedEvent, SOURCES};
use super::{event_syntax::family, model::Tables};
use crate::machine::{
    Machine,
    cpu::Cpu,
    pmu::catalog::{Catalog, Entry, PmuCpus},
};

/// Host that is listed.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// Description of the machine.
    pub machine: &'a Machine,
    /// PMUs of the host in full.
    pub catalog: &'a Catalog,
    /// Tables of its CPU models.
    pub tables: &'a Tables,
}

/// Pattern of names: part of one in any case, or a whole one with `*` and `?`.
#[derive(Clone, Debug)]
pub struct Pattern(String);

impl Pattern {
    /// Returns a pattern as typed.
    pub fn new(text: &str) -> Self {
        Self(text.to_ascii_lowercase())
    }

    /// Returns the pattern in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether a name matches.
    pub fn matches(&self, name: &[u8]) -> bool {
        let name = name.to_ascii_lowercase();
        if self.0.contains(['*', '?']) {
            return crate::suggest::glob(self.0.as_bytes(), &name);
        }
        self.0.is_empty() || name.windows(self.0.len()).any(|part| part == self.0.as_bytes())
    }
}

/// A PMU, or uncore PMUs of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPmu {
    /// Name of the PMU, or the common beginning of the uncore PMUs' names.
    pub name: String,
    /// `perf_event_attr.type` of it, or of each uncore PMU.
    pub kinds: Vec<u32>,
    /// Names of the uncore PMUs; empty for any other PMU.
    pub instances: Vec<String>,
    /// CPUs on which it counts; `None` for any.
    pub cpus: Option<Vec<Cpu>>,
    /// Terms of its events, with their bits.
    pub terms: Vec<(String, String)>,
    /// Capabilities, with their values.
    pub caps: Vec<(String, String)>,
    /// Number of events that sysfs names.
    pub events: usize,
    /// Whether it counts what a core executes.
    pub of_cores: bool,
}

/// Returns every PMU of the host, by name.
pub fn pmus(host: &Host<'_>) -> Vec<ListedPmu> {
    let mut listed: Vec<ListedPmu> = Vec::new();
    for pmu in &host.catalog.pmus {
        let row = row(pmu);
        match listed.last_mut().filter(|last| last.is_like(&row)) {
            Some(last) => {
                last.kinds.extend(row.kinds);
                last.instances.extend(row.instances);
            }
            None => listed.push(row),
        }
    }
    listed
}

impl ListedPmu {
    /// Returns whether both are uncore PMUs of the same kind, which differ in number only.
    fn is_like(&self, other: &Self) -> bool {
        let alike = |pmu: &Self| (pmu.cpus.clone(), pmu.terms.clone(), pmu.caps.clone(), pmu.events);
        !self.instances.is_empty() && self.name == other.name && alike(self) == alike(other)
    }
}

fn row(pmu: &Entry) -> ListedPmu {
    let (name, instances, cpus) = match &pmu.place {
        PmuCpus::Uncore(cpus) => (family(&pmu.name), vec![pmu.name.clone()], Some(cpus.clone())),
        PmuCpus::Cores(cpus) => (pmu.name.as_str(), Vec::new(), Some(cpus.clone())),
        PmuCpus::Anywhere => (pmu.name.as_str(), Vec::new(), None),
    };
    ListedPmu {
        name: name.to_owned(),
        kinds: vec![pmu.kind],
        instances,
        cpus,
        terms: pmu.terms.iter().map(|(name, bits)| (name.clone(), bits.to_string())).collect(),
        caps: pmu.caps.clone(),
        events: pmu.events.len(),
        of_cores: pmu.is_core(),
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn a_pattern_is_a_part_of_a_name_or_all_of_it_with_wildcards() {
        assert!(Pattern::new("MISS").matches(b"llc-load-misses"));
        assert!(Pattern::new("llc-*-misses").matches(b"LLC-load-misses"));
        assert!(!Pattern::new("llc-*").matches(b"x-llc-loads"), "wildcards are for whole names");
        assert!(!Pattern::new("longer than the name").matches(b"name"));
        assert!(Pattern::new("").matches(b"anything"));
    }
}
