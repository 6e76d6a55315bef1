//! What an event counts, as far as another count can be held against it.

use super::{Selected, kernel};

/// What an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Time on a CPU, in ns.
    Clock,
    /// Cycles of a core.
    Cycles,
    /// Instructions.
    Instructions,
    /// Branches.
    Branches,
    /// Branches that were predicted wrongly.
    BranchMisses,
    /// Accesses to the last level of cache.
    CacheReferences,
    /// Misses there.
    CacheMisses,
    /// Cycles in which the front end delivered nothing.
    StalledFrontend,
    /// Cycles in which the back end took nothing.
    StalledBackend,
    /// Accesses to a cache of the kernel's list, by its numbers (`PERF_COUNT_HW_CACHE_*`).
    Cache {
        /// Which cache.
        cache: u8,
        /// Reading, writing or prefetching.
        operation: u8,
        /// Misses only?
        miss: bool,
    },
    /// Anything else.
    Occurrences,
}

impl Selected {
    /// What it counts: by the kernel's number, or by the name that a PMU has for it (`cpu/cycles/`).
    #[must_use]
    pub fn meaning(&self) -> Meaning {
        let Some(at) = self.instances.first() else { return Meaning::Occurrences };
        let config = at.words.0[0];
        if at.kind <= kernel::CACHE && at.kind != kernel::TRACEPOINT {
            return of_number(at.kind, config);
        }
        let mut parts = self.name.split('/');
        let named = parts.nth(1).and_then(kernel::find);
        named.map_or(Meaning::Occurrences, |known| of_number(known.kind, known.config))
    }
}

fn of_number(kind: u32, config: u64) -> Meaning {
    // Where cores differ, the upper half names the PMU (`PERF_HW_EVENT_MASK`).
    let config = config & u64::from(u32::MAX);
    match (kind, config) {
        (kernel::SOFTWARE, 0 | 1) => Meaning::Clock,
        (kernel::HARDWARE, 0) => Meaning::Cycles,
        (kernel::HARDWARE, 1) => Meaning::Instructions,
        (kernel::HARDWARE, 2) => Meaning::CacheReferences,
        (kernel::HARDWARE, 3) => Meaning::CacheMisses,
        (kernel::HARDWARE, 4) => Meaning::Branches,
        (kernel::HARDWARE, 5) => Meaning::BranchMisses,
        (kernel::HARDWARE, 7) => Meaning::StalledFrontend,
        (kernel::HARDWARE, 8) => Meaning::StalledBackend,
        (kernel::CACHE, _) => Meaning::Cache {
            cache: config as u8,
            operation: (config >> 8) as u8,
            miss: config >> 16 & 1 == 1,
        },
        _ => Meaning::Occurrences,
    }
}

#[cfg(test)]
mod tests {
    use super::Meaning;
    use crate::{
        machine::{pmu::catalog::Catalog, testing::Tree},
        table::notation::{List, resolve},
    };

    #[test]
    fn an_event_means_the_same_under_every_name() {
        let tree = Tree::new(&[]);
        let events = [("type", "4"), ("format/event", "config:0-7"), ("events/cpu-cycles", "event=0x3c")];
        tree.pmu("cpu", &events);
        let catalog = Catalog::read(&tree.root).unwrap();
        let meaning =
            |event: &str| resolve(&List::parse(event).unwrap(), &catalog).unwrap()[0].events[0].meaning();
        for name in ["cycles", "cpu-cycles:u", "cpu/cpu-cycles/", "cpu/cycles/k"] {
            assert_eq!(meaning(name), Meaning::Cycles, "{name}");
        }
        assert_eq!(meaning("task-clock"), Meaning::Clock);
        assert_eq!(meaning("cpu/event=0x3c/"), Meaning::Occurrences);
        assert_eq!(meaning("dTLB-store-misses"), Meaning::Cache { cache: 3, operation: 1, miss: true });
    }
}
