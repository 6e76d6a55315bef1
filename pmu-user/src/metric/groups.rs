//! Groups of owners that share a row: processes of one program.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{
    drain::Owner,
    model::{Interval, Ledger, OwnerIndex},
    plan::request::By,
    untrusted::Untrusted,
};

/// Owners that share a row.
#[derive(Debug, Default)]
pub(super) struct Groups {
    of: HashMap<OwnerIndex, OwnerIndex>,
    together: HashMap<OwnerIndex, Group>,
}

/// Owners of one row.
#[derive(Debug)]
struct Group {
    /// Owner that stands for all of them.
    owner: Owner,
    /// Whether all of them have ended.
    ended: bool,
}

impl Groups {
    /// Groups processes of an interval by program, and ended threads by name; `None` if no two share a row.
    /// Live threads were requested individually.
    pub(super) fn programs(ledger: &Ledger, interval: &Interval, by: By) -> Option<Self> {
        let mut present: BTreeSet<OwnerIndex> = interval.owners.keys().copied().collect();
        present.extend(interval.hot.keys().map(|key| key.owner));
        let mut by_name: BTreeMap<&Untrusted, (Vec<OwnerIndex>, u64)> = BTreeMap::new();
        for index in present {
            let (name, processes) = match ledger.owner(index) {
                Owner::Process { name, .. } => (name, 1),
                Owner::Thread { name, .. } if ledger.ended_ns(index).is_some() => (name, 1),
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
            let name = name.clone();
            let owner = match by {
                By::Thread => Owner::Ended { name, processes },
                _ => Owner::Program { name, processes },
            };
            let ended = members.iter().all(|&member| ledger.ended_ns(member).is_some());
            groups.together.insert(members[0], Group { owner, ended });
            groups.of.extend(members.iter().map(|&member| (member, members[0])));
        }
        (!groups.of.is_empty()).then_some(groups)
    }

    /// Returns the owner that holds the shared row, for each owner that shares one.
    pub(super) const fn all(&self) -> &HashMap<OwnerIndex, OwnerIndex> {
        &self.of
    }

    /// Returns the owner that holds an owner's row.
    pub(super) fn of(&self, index: OwnerIndex) -> OwnerIndex {
        self.of.get(&index).copied().unwrap_or(index)
    }

    /// Returns the owner that a row shows.
    pub(super) fn owner(&self, ledger: &Ledger, index: OwnerIndex) -> Owner {
        self.together.get(&index).map_or_else(|| ledger.owner(index), |group| &group.owner).clone()
    }

    /// Returns each owner that shares a row, with the owner that the row shows.
    pub(super) fn members(&self, ledger: &Ledger) -> BTreeMap<Owner, Owner> {
        self.of
            .keys()
            .map(|&member| (ledger.owner(member).clone(), self.owner(ledger, self.of(member))))
            .collect()
    }

    /// Returns the owners of a row.
    pub(super) fn members_of(&self, index: OwnerIndex) -> impl Iterator<Item = OwnerIndex> {
        let shares = self.together.contains_key(&index);
        let members =
            self.of.iter().filter(move |(_, of)| shares && **of == index).map(|(&member, _)| member);
        members.chain((!shares).then_some(index))
    }

    /// Returns whether all owners of a row have ended.
    pub(super) fn has_ended(&self, ledger: &Ledger, index: OwnerIndex) -> bool {
        self.together.get(&index).map_or_else(|| ledger.ended_ns(index).is_some(), |group| group.ended)
    }
}
