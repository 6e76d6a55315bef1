//! Limits of cgroups at two moments: what was counted since, and what the rest is now.

use std::collections::BTreeMap;

use crate::{
    drain::{LimitsRow, Owner},
    machine::{
        io_limit::IoLimit,
        limit::{Limit, Limits},
    },
};

/// What cgroups' files say of an interval: events of it, all else as it was at its end.
pub type Limited = BTreeMap<Owner, BTreeMap<Limit, u64>>;

/// Limits of cgroups' I/O, as they were read last.
pub type IoLimited = BTreeMap<Owner, Vec<IoLimit>>;

/// Limits of I/O that were read.
pub(super) fn io_limits(rows: &[LimitsRow]) -> IoLimited {
    let limited = rows.iter().filter(|row| !row.io.is_empty());
    limited.map(|row| (row.owner.clone(), row.io.clone())).collect()
}

/// The first reading of every cgroup.
#[derive(Debug, Default)]
pub(super) struct Readings(BTreeMap<Owner, Limits>);

impl Readings {
    /// What is known since the reading before; nothing of whom there was none.
    pub(super) fn advance(&mut self, rows: &[LimitsRow]) -> Limited {
        let mut limited = Limited::new();
        for LimitsRow { owner, now, .. } in rows.iter().filter(|row| !row.now.is_empty()) {
            let Some(before) = self.0.insert(owner.clone(), now.clone()) else { continue };
            let before: BTreeMap<Limit, u64> = before.into_iter().collect();
            let since = |&(limit, value): &(Limit, u64)| {
                let of_before = before.get(&limit).filter(|_| limit.is_event()).copied().unwrap_or(0);
                (limit, value.saturating_sub(of_before))
            };
            limited.insert(owner.clone(), now.iter().map(since).collect());
        }
        limited
    }
}

/// Adds what came in another interval.
pub(super) fn merge(into: &mut Limited, more: &Limited) {
    for (owner, more) in more {
        let all = into.entry(owner.clone()).or_default();
        for (&limit, &value) in more {
            let before = all.get(&limit).filter(|_| limit.is_event()).copied().unwrap_or(0);
            all.insert(limit, value.saturating_add(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Limit, Limited, Readings, merge};
    use crate::drain::{LimitsRow, Owner};

    #[test]
    fn events_are_those_of_the_run_and_memory_is_what_it_was_last() {
        let owner = Owner::cgroup(7, "/web".into());
        let row = |bytes, kills| {
            [LimitsRow {
                owner: owner.clone(),
                now: vec![(Limit::MemoryCurrent, bytes), (Limit::OomKills, kills)],
                io: Vec::new(),
            }]
        };
        let (mut readings, mut whole) = (Readings::default(), Limited::new());
        for (bytes, kills) in [(90, 5), (70, 6), (80, 9)] {
            merge(&mut whole, &readings.advance(&row(bytes, kills)));
        }
        let all = [(Limit::MemoryCurrent, 80), (Limit::OomKills, 4)].into();
        assert_eq!(whole, [(owner, all)].into());
    }
}
