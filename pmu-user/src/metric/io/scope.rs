//! Classes of scopes, and the metrics of each. Each class has its own metrics, and only those are computed.

use crate::{
    metric::formulas::{Formulas, Inputs, Results},
    table::{
        io::{IoTable, SECONDS, ScopeKind},
        model::Model,
    },
};

/// Class of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScopeClass {
    /// A socket, or the whole platform.
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

/// Classes in the order of [`ScopeClass`].
const ALL: [ScopeClass; 5] =
    [ScopeClass::Whole, ScopeClass::Stack, ScopeClass::Part, ScopeClass::Channel, ScopeClass::Link];

/// Metrics that apply to a scope, ready to be evaluated.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Metrics, each with its operands.
    pub(super) metrics: Vec<(u32, Vec<u32>)>,
    /// Operands of all of these metrics.
    pub(super) operands: Vec<u32>,
    formulas: Formulas,
    /// Number of constants of the table, and index of the time among them.
    constants: (usize, Option<usize>),
}

impl Asked {
    /// Returns the metrics that apply to a class of scope.
    pub(super) fn new(table: &IoTable, extent: ScopeClass) -> Self {
        Self::of(table, |metric| table.scope(metric).is_some_and(|scope| extent.has(scope)))
    }

    /// Returns the metrics selected by `is_here`.
    pub(super) fn of(table: &IoTable, is_here: impl Fn(u32) -> bool) -> Self {
        let all = 0..table.model.metrics.len() as u32;
        let metrics = all.filter(|metric| is_here(*metric));
        let metrics: Vec<_> = metrics.map(|metric| (metric, table.model.operands_of(metric))).collect();
        let mut operands: Vec<u32> = metrics.iter().flat_map(|(_, operands)| operands).copied().collect();
        operands.sort_unstable();
        operands.dedup();
        let constants = &table.model.constants;
        let constants = (constants.len(), constants.iter().position(|name| name == SECONDS));
        Self { metrics, operands, formulas: Formulas::of(&table.model, is_here), constants }
    }

    /// Computes every metric from counts by operand over `seconds`. NaN is an unknown count. Counts of
    /// several uncore PMUs are combined to a sum, or to their mean ([`IoTable::is_averaged`]).
    pub(super) fn evaluate<const CASES: usize>(
        &self,
        counts: &[[f64; CASES]],
        seconds: f64,
    ) -> Results<CASES> {
        let (constants, time) = self.constants;
        let mut constants = vec![f64::NAN; constants];
        if let Some(time) = time {
            constants[time] = seconds;
        }
        self.formulas.evaluate(Inputs { counts, constants: &constants })
    }

    /// Returns the value of one of these metrics, in its unit.
    pub(super) fn value(&self, metric: u32, results: &Results) -> Option<f64> {
        self.formulas.value(metric, results)
    }

    /// Returns the values of a metric in every case. A value that is not finite is undefined.
    pub(super) fn values<'a, const CASES: usize>(
        &self,
        metric: u32,
        results: &'a Results<CASES>,
    ) -> Option<&'a [f64; CASES]> {
        self.formulas.values(metric, results)
    }

    /// Returns why a metric has no value although its counts are known. Meaningless if it has one.
    pub(super) fn why(&self, metric: u32, model: &Model, results: &Results) -> String {
        self.formulas.why(metric, model, results).words(model)
    }
}

impl ScopeClass {
    /// Returns whether a metric of this kind of scope applies to the class. Values of small scopes add up to
    /// those of larger ones.
    const fn has(self, scope: ScopeKind) -> bool {
        match self {
            Self::Whole => true,
            Self::Stack => matches!(scope, ScopeKind::Stack | ScopeKind::Part),
            Self::Part => matches!(scope, ScopeKind::Part),
            Self::Channel => matches!(scope, ScopeKind::Channel),
            Self::Link => matches!(scope, ScopeKind::Link),
        }
    }
}

/// Returns the metrics of each class of scope, in the order of the classes.
pub(super) fn asked(table: &IoTable) -> [Asked; 5] {
    ALL.map(|extent| Asked::new(table, extent))
}

/// Watched bandwidths: sums of metrics, all of which one group of a kind counts.
pub(super) const WATCHED: [Watched; 3] = [
    Watched { name: "dram.bandwidth", metrics: &["dram.read_bw", "dram.write_bw"], kind: "imc" },
    Watched { name: "upi.utilization", metrics: &["upi.utilization"], kind: "upi" },
    Watched {
        name: "pcie.inbound",
        metrics: &["pcie.inbound_read_bw", "pcie.inbound_write_bw"],
        kind: "iio",
    },
];

/// Watched bandwidth, the metrics of its sum, and the uncore PMUs that count them.
pub(super) struct Watched {
    pub(super) name: &'static str,
    pub(super) metrics: &'static [&'static str],
    pub(super) kind: &'static str,
}

/// Returns the metrics of each watched bandwidth, if the table has all of them.
pub(super) fn watched(table: &IoTable) -> Vec<Option<Asked>> {
    let metrics = |watched: &Watched| {
        let metrics: Option<Vec<u32>> = watched.metrics.iter().map(|name| table.model.metric(name)).collect();
        metrics.map(|metrics| Asked::of(table, |metric| metrics.contains(&metric)))
    };
    WATCHED.iter().map(metrics).collect()
}

#[cfg(test)]
mod tests {
    use super::{ALL, ScopeClass, asked};
    use crate::table::io::load;

    #[test]
    fn a_place_is_asked_only_what_means_something_there() {
        let table = load("sapphirerapids").unwrap();
        let asked = asked(&table);
        let names = |extent: ScopeClass| -> Vec<&str> {
            let metrics = asked[extent as usize].metrics.iter();
            metrics.map(|(metric, _)| table.model.metrics[*metric as usize].name.as_str()).collect()
        };
        assert_eq!(names(ScopeClass::Whole).len(), table.model.metrics.len());
        assert!(
            names(ScopeClass::Part).iter().all(|name| name.starts_with("pcie.")),
            "{:?}",
            names(ScopeClass::Part)
        );
        assert!(names(ScopeClass::Channel).iter().all(|name| name.starts_with("dram.")));
        assert!(names(ScopeClass::Link).iter().all(|name| name.starts_with("upi.")));
        assert!(names(ScopeClass::Part).iter().all(|name| names(ScopeClass::Stack).contains(name)));
        assert!(ALL.iter().enumerate().all(|(at, extent)| *extent as usize == at));
    }
}
