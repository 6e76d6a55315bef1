//! What exists on a host, for `pmbpf list`: plain rows, each with the reason if it cannot be had here.

mod events;
mod pmus;

pub use self::{
    events::{Kind, ListedEvent, SOURCES, Source},
    pmus::{ListedPmu, pmus},
};
use crate::machine::{Machine, pmu::catalog::Catalog};
use crate::table::model::Model;

/// The host that is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// What it is.
    pub machine: &'a Machine,
    /// Its PMUs in full.
    pub catalog: &'a Catalog,
    /// The table of its CPU model, if there is one.
    pub model: Option<&'a Model>,
}

/// What names are wanted: part of one in any case, or a whole one with `*` and `?`.
#[derive(Clone, Debug)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern as typed.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_ascii_lowercase())
    }

    /// As typed, in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Does a name match?
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        let name = name.to_ascii_lowercase();
        if self.0.contains(['*', '?']) {
            return super::notation::glob(self.0.as_bytes(), &name);
        }
        self.0.is_empty() || name.windows(self.0.len()).any(|part| part == self.0.as_bytes())
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
