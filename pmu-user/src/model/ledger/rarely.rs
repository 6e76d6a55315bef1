//! Rare events of owners. A process's own row reports its end, and separate rows report the rest.

use pmu_common::owner::Rare;

use super::Ledger;
use crate::{
    drain::{Owner, OwnerRow, TasksDrain},
    model::{Interval, rare},
};

impl Ledger {
    /// Returns the exit that a row reports, if it is the process's first row to do so. To be called before
    /// the ledger takes the row.
    pub(super) fn exits(&self, row: &OwnerRow) -> Rare {
        let lived = || self.known.get(&row.owner).is_none_or(|&index| self.ended_ns(index).is_none());
        let is_exit = row.ended_ns.is_some() && matches!(row.owner, Owner::Process { .. }) && lived();
        Rare { exits: u64::from(is_exit), ..Rare::ZERO }
    }

    /// Adds the rare events of a drain's rows.
    pub(super) fn happen(&mut self, drain: &TasksDrain, interval: &mut Interval) {
        for row in &drain.rare {
            let new = self.rare.advance(row);
            rare::add(&mut interval.rare, self.index_of(row.slot), &new);
        }
    }
}
