//! Which owners share a row for people: processes of one name that have ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{
    drain::Owner,
    model::{Interval, Ledger, OwnerIndex},
    untrusted::Untrusted,
};

/// Owners that share a row.
#[derive(Debug, Default)]
pub(super) struct Groups {
    of: HashMap<OwnerIndex, OwnerIndex>,
    together: HashMap<OwnerIndex, Owner>,
}

impl Groups {
    /// Ended processes of an interval by their names; `None` if no two share one.
    pub(super) fn ended(ledger: &Ledger, interval: &Interval) -> Option<Self> {
        let mut present: BTreeSet<OwnerIndex> = interval.owners.keys().copied().collect();
        present.extend(interval.hot.keys().map(|key| key.owner));
        let mut by_name: BTreeMap<&Untrusted, (Vec<OwnerIndex>, u64)> = BTreeMap::new();
        for index in present {
            let (name, processes) = match ledger.owner(index) {
                Owner::Process { name, .. } | Owner::Thread { name, .. }
                    if ledger.ended_ns(index).is_some() =>
                {
                    (name, 1)
                }
                Owner::Ended { name, processes } => (name, *processes),
                _ => continue,
            };
            let (members, all) = by_name.entry(name).or_default();
            members.push(index);
            *all += processes;
        }
        let mut groups = Self::default();
        for (name, (members, processes)) in by_name.into_iter().filter(|(_, (members, _))| members.len() > 1)
        {
            groups.together.insert(members[0], Owner::Ended { name: name.clone(), processes });
            groups.of.extend(members.iter().map(|&member| (member, members[0])));
        }
        (!groups.of.is_empty()).then_some(groups)
    }

    /// Whose row an owner's numbers are in.
    pub(super) fn of(&self, index: OwnerIndex) -> OwnerIndex {
        self.of.get(&index).copied().unwrap_or(index)
    }

    /// Whom a row is of.
    pub(super) fn owner(&self, ledger: &Ledger, index: OwnerIndex) -> Owner {
        self.together.get(&index).unwrap_or_else(|| ledger.owner(index)).clone()
    }
}
