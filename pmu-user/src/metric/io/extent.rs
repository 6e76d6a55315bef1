//! What a place is, and what can be asked about it: each kind of place has metrics of its own, so only those are computed.

use crate::{
    metric::formulas::Formulas,
    table::io::{IoTable, Scope},
};

/// What a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// A socket, or everything.
    Whole,
    /// An I/O stack.
    Stack,
    /// Part of a stack.
    Part,
    /// A channel of memory.
    Channel,
    /// A link between sockets.
    Link,
}

/// In the order of [`Extent`].
const ALL: [Extent; 5] = [Extent::Whole, Extent::Stack, Extent::Part, Extent::Channel, Extent::Link];

/// Metrics that mean something for an extent, ready to be evaluated.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Each with the operands that it needs.
    pub(super) metrics: Vec<(u32, Vec<u32>)>,
    /// What any of them needs.
    pub(super) operands: Vec<u32>,
    /// Their formulas.
    pub(super) formulas: Formulas,
}

impl Extent {
    /// Does a metric of this scope mean something here? What is known of small places adds up to that of larger ones.
    const fn has(self, scope: Scope) -> bool {
        match self {
            Self::Whole => true,
            Self::Stack => matches!(scope, Scope::Stack | Scope::Part),
            Self::Part => matches!(scope, Scope::Part),
            Self::Channel => matches!(scope, Scope::Channel),
            Self::Link => matches!(scope, Scope::Link),
        }
    }
}

/// What can be asked about each extent, in their order.
pub(super) fn asked(table: &IoTable) -> [Asked; 5] {
    ALL.map(|extent| {
        let is_here = |metric: u32| table.scope(metric).is_some_and(|scope| extent.has(scope));
        let all = 0..table.model.metrics.len() as u32;
        let metrics = all.filter(|metric| is_here(*metric));
        let metrics: Vec<_> = metrics.map(|metric| (metric, table.model.operands_of(metric))).collect();
        let mut operands: Vec<u32> = metrics.iter().flat_map(|(_, operands)| operands).copied().collect();
        operands.sort_unstable();
        operands.dedup();
        Asked { metrics, operands, formulas: Formulas::of(&table.model, is_here) }
    })
}

#[cfg(test)]
mod tests {
    use super::{ALL, Extent, asked};
    use crate::table::io::load;

    #[test]
    fn a_place_is_asked_only_what_means_something_there() {
        let table = load("sapphirerapids").unwrap();
        let asked = asked(&table);
        let names = |extent: Extent| -> Vec<&str> {
            let metrics = asked[extent as usize].metrics.iter();
            metrics.map(|(metric, _)| table.model.metrics[*metric as usize].name.as_str()).collect()
        };
        assert_eq!(names(Extent::Whole).len(), table.model.metrics.len());
        assert!(
            names(Extent::Part).iter().all(|name| name.starts_with("pcie.")),
            "{:?}",
            names(Extent::Part)
        );
        assert!(names(Extent::Channel).iter().all(|name| name.starts_with("dram.")));
        assert!(names(Extent::Link).iter().all(|name| name.starts_with("upi.")));
        assert!(names(Extent::Part).iter().all(|name| names(Extent::Stack).contains(name)));
        assert!(ALL.iter().enumerate().all(|(at, extent)| *extent as usize == at));
    }
}
