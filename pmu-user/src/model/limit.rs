//! Limits of cgroups at two moments: counts since the first, and current values of the rest.

use std::collections::{BTreeMap, btree_map::Entry};

use crate::{
    drain::{LimitsRow, Owner},
    machine::{
        io_limit::{IoLimit, IoLimitKind, Submitted},
        limit::{Limit, Limits},
    },
};

/// Contents of cgroups' files for an interval: events in it, all else as it was at its end.
pub type Limited = BTreeMap<Owner, BTreeMap<Limit, u64>>;

/// Limits of cgroups' I/O, as they were read last.
pub type IoLimited = BTreeMap<Owner, Vec<IoLimit>>;

/// Amounts that had been submitted to limits of I/O when each was read first.
#[derive(Debug, Default)]
pub(super) struct Submissions(BTreeMap<(Owner, (u32, u32), IoLimitKind), Submitted>);

impl Submissions {
    /// Returns the limits of I/O that were read, with the amounts submitted since the first reading.
    pub(super) fn advance(&mut self, rows: &[LimitsRow]) -> IoLimited {
        let mut limited = IoLimited::new();
        for LimitsRow { owner, io, .. } in rows.iter().filter(|row| !row.io.is_empty()) {
            let since = |limit: &IoLimit| {
                let submitted = limit.submitted.and_then(|now| {
                    match self.0.entry((owner.clone(), limit.device, limit.kind)) {
                        Entry::Occupied(first) => Some(now.since(first.get())),
                        Entry::Vacant(first) => {
                            first.insert(now);
                            None
                        }
                    }
                });
                IoLimit { submitted, ..limit.clone() }
            };
            limited.insert(owner.clone(), io.iter().map(since).collect());
        }
        limited
    }
}

/// The previous reading of every cgroup.
#[derive(Debug, Default)]
pub(super) struct Readings(BTreeMap<Owner, Limits>);

impl Readings {
    /// Returns the limits since the previous reading, without cgroups that had none.
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

/// Adds the limits of another interval.
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
    use super::{IoLimit, IoLimitKind, Limit, Limited, Readings, Submissions, Submitted, merge};
    use crate::drain::{LimitsRow, Owner};

    #[test]
    fn what_a_limit_was_submitted_counts_from_the_first_reading() {
        let owner = Owner::cgroup(7, "/web".into());
        let row = |bytes| {
            let submitted = Some(Submitted { bytes, bios: bytes / 4096 });
            let (device, kind) = ((8, 0), IoLimitKind::WriteBytes);
            let limit = IoLimit { device, name: "sda".into(), kind, most: 4096, v1: true, submitted };
            [LimitsRow { owner: owner.clone(), now: Vec::new(), io: vec![limit] }]
        };
        let mut submissions = Submissions::default();
        let mut since = |bytes| submissions.advance(&row(bytes))[&owner][0].submitted;
        assert_eq!(since(8192), None, "nothing is known of before");
        assert_eq!(since(20480), Some(Submitted { bytes: 12288, bios: 3 }));
    }

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
