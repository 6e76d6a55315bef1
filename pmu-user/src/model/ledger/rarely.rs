//! What seldom happened to owners: the end of a process is told by its own row, the rest by rows of its own.

use pmu_common::owner::Rare;

use super::Ledger;
use crate::{
    drain::{Owner, OwnerRow, TasksDrain},
    model::{Interval, rare},
};

impl Ledger {
    /// The exit that a row tells of, if it is the first of a process to do so. Call before the ledger takes the row.
    pub(super) fn exits(&self, row: &OwnerRow) -> Rare {
        let lived = || self.known.get(&row.owner).is_none_or(|&index| self.ended_ns(index).is_none());
        let is_exit = row.ended_ns.is_some() && matches!(row.owner, Owner::Process { .. }) && lived();
        Rare { exits: u64::from(is_exit), ..Rare::ZERO }
    }

    /// Adds what rows of rare events say.
    pub(super) fn happen(&mut self, drain: &TasksDrain, interval: &mut Interval) {
        for row in &drain.rare {
            let new = self.rare.advance(row);
            rare::add(&mut interval.rare, self.index_of(row.slot), &new);
        }
    }
}
