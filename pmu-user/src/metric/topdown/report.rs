//! The metrics of everyone in an interval.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use super::{Around, Prepared, TopDown};
use crate::{
    drain::{TasksHeader, slice::SliceRow},
    machine::topology::{Smt, Topology},
    metric::{Who, owners::Above},
    model::{Interval, Ledger, OwnerIndex, slice::sums},
    plan::{extent, metrics::Extent},
    table::model::Model,
};

impl Prepared {
    /// The metrics of everyone in `interval`.
    #[must_use]
    pub fn topdown(&self, header: &TasksHeader, ledger: &Ledger, interval: &Interval) -> TopDown {
        let around = Around {
            topology: &header.machine.topology,
            cpus: header.plan.cpus.len(),
            extent: extent(&header.plan.target),
            seconds: interval.length_ns() as f64 / 1e9,
        };
        let around_one = Around { extent: Extent::Some, ..around };
        let mut owners = Vec::new();
        if let Some(turns) = header.plan.turns.first() {
            let everyone = sums(interval.slices.values().flatten());
            owners.push((Who::Target, self.tree(turns, &everyone, &around)));
            let above = Above::new(header, ledger);
            let mut by_owner: BTreeMap<OwnerIndex, Vec<&SliceRow>> = BTreeMap::new();
            for (&index, rows) in &interval.slices {
                above.with(index).for_each(|owner| by_owner.entry(owner).or_default().extend(rows));
            }
            let mut rows: Vec<(Who, Vec<SliceRow>)> = by_owner
                .into_iter()
                .map(|(index, rows)| (Who::Owner(ledger.owner(index).clone()), sums(rows)))
                .collect();
            let time = |rows: &[SliceRow]| rows.iter().map(|row| row.time_ns).fold(0, u64::saturating_add);
            rows.sort_by_cached_key(|(who, rows)| (Reverse(time(rows)), who.clone()));
            owners.extend(rows.into_iter().map(|(who, rows)| (who, self.tree(turns, &rows, &around_one))));
        }
        let Model { name, source, formulas_version, .. } = &self.model;
        TopDown {
            model: name.clone(),
            source: source.clone(),
            formulas: formulas_version.clone(),
            notes: self.notes(around.topology),
            shapes: Arc::clone(&self.layout.shapes),
            owners,
            runs: None,
        }
    }

    /// What several threads on a core do to the numbers.
    fn notes(&self, topology: &Topology) -> Vec<String> {
        if topology.smt != Smt::On {
            return Vec::new();
        }
        let halves = self.model.operands.iter().any(|operand| operand.ends_with(".ONE_THREAD_ACTIVE"))
            && self.model.event("CPU_CLK_UNHALTED.DISTRIBUTED").is_none();
        let note = if halves {
            "cores run two threads: an owner has half of its core's slots while something runs beside it, and may fill \
             more than its half"
        } else {
            "cores run two threads: shares of core cycles (ports, dividers, decoders) hold what ran beside it"
        };
        vec![note.to_owned()]
    }
}
