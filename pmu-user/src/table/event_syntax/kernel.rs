//! Events numbered by the kernel itself (include/uapi/linux/perf_event.h): hardware, caches and software.

use crate::table::event;

/// `perf_event_attr.type` of the kernel's hardware events.
pub const HARDWARE: u32 = 0;
/// `perf_event_attr.type` of the kernel's software events.
pub const SOFTWARE: u32 = 1;
/// `perf_event_attr.type` of tracepoints.
pub const TRACEPOINT: u32 = 2;
/// `perf_event_attr.type` of the kernel's cache events.
pub const CACHE: u32 = 3;
/// `perf_event_attr.type` of breakpoints.
pub const BREAKPOINT: u32 = 5;

/// An event of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelEvent {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// Unit of its count; `None` for plain occurrences.
    pub unit: Option<&'static str>,
}

/// Events that can be counted, but not usefully sampled on.
const ONLY_COUNTED: [(&str, u32, u64); 8] = [
    ("task-clock", SOFTWARE, 1),
    ("dummy", SOFTWARE, 9),
    ("bpf-output", SOFTWARE, 10),
    ("cgroup-switches", SOFTWARE, 11),
    ("bus-cycles", HARDWARE, 6),
    ("stalled-cycles-frontend", HARDWARE, 7),
    ("idle-cycles-frontend", HARDWARE, 7),
    ("stalled-cycles-backend", HARDWARE, 8),
];

/// `PERF_COUNT_HW_CACHE_*`, in the order of their numbers.
const CACHES: [&str; 7] = ["L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node"];
/// Accesses and misses of an operation, in the order of its number.
const OPERATIONS: [[&str; 2]; 3] =
    [["loads", "load-misses"], ["stores", "store-misses"], ["prefetches", "prefetch-misses"]];

/// Returns the event of that name, in any case.
pub(super) fn find(name: &str) -> Option<KernelEvent> {
    all().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, known)| known)
}

/// Returns the other name of an event: PMUs use `cpu-cycles`, users `cycles`.
pub(super) fn other_name(name: &str) -> Option<&'static str> {
    event::ALL.iter().find_map(|event| match name {
        _ if event.name.eq_ignore_ascii_case(name) => Some(event.alias),
        _ if event.alias.eq_ignore_ascii_case(name) => Some(event.name),
        _ => None,
    })
}

/// Returns every name with its event. The two names of an event come one after the other.
pub fn all() -> impl Iterator<Item = (String, KernelEvent)> {
    let sampled = event::ALL
        .iter()
        .flat_map(|event| [event.name, event.alias].map(|name| (name.to_owned(), event.kind, event.config)));
    let counted = ONLY_COUNTED.iter().map(|&(name, kind, config)| (name.to_owned(), kind, config));
    let caches = CACHES.iter().zip(0_u64..).flat_map(|(cache, id)| {
        OPERATIONS.iter().zip(0_u64..).flat_map(move |(names, operation)| {
            names.iter().zip(0_u64..).map(move |(name, result)| {
                (format!("{cache}-{name}"), CACHE, id | operation << 8 | result << 16)
            })
        })
    });
    sampled.chain(counted).chain(caches).map(|(name, kind, config)| {
        let clock = kind == SOFTWARE && config <= 1;
        (name, KernelEvent { kind, config, unit: clock.then_some("ns") })
    })
}

/// Returns all names, for suggestions.
pub(super) fn names() -> impl Iterator<Item = String> {
    all().map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::{KernelEvent, find, names, other_name};

    #[test]
    fn a_cache_event_has_the_kernel_s_number() {
        // PERF_COUNT_HW_CACHE_LL, OP_READ, RESULT_MISS.
        assert_eq!(find("llc-LOAD-misses"), Some(KernelEvent { kind: 3, config: 0x1_0002, unit: None }));
        assert_eq!(find("dTLB-stores"), Some(KernelEvent { kind: 3, config: 0x103, unit: None }));
    }

    #[test]
    fn clocks_count_nanoseconds() {
        assert_eq!(find("task-clock").unwrap().unit, Some("ns"));
        assert_eq!(find("page-faults").unwrap().unit, None);
    }

    #[test]
    fn branch_misses_are_no_cache_event() {
        assert_eq!(find("branch-misses").unwrap().kind, super::HARDWARE);
        assert_eq!(other_name("cycles"), Some("cpu-cycles"));
    }

    #[test]
    fn two_names_for_one_number_are_the_same_event() {
        for name in names() {
            assert_eq!(find(&name), find(&name.to_uppercase()), "{name}");
        }
    }
}
