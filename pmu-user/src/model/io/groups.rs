//! Memory traffic of CPUs by owner, between readings of resctrl's groups.
//!
//! A control group's count includes those of its monitoring groups, so these are subtracted. They were read
//! between two readings of the whole, which bound the difference. A count that went down was reset, or its
//! hardware counter was given away and came back. It is not known for that tick.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    drain::{
        Owner,
        io::group::{GroupOwner, GroupRow, Groups},
    },
    machine::io::{
        Fact,
        resctrl::{Domain, MonitoringEvent},
    },
    untrusted::Untrusted,
};

/// Lower and upper bound of a number.
type Bounds = (u64, u64);

/// Owner or group to which a count belongs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerOrGroup {
    /// An owner, with all of its traffic.
    Owner(Owner),
    /// A group without a single owner, by its path.
    Group(Untrusted),
}

/// Count of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Lower and upper bound, in bytes, summed over the watched time. For a count that does not grow, the
    /// latest.
    pub bytes: Bounds,
    /// Time for which the count is known, in ns.
    pub watched_ns: u64,
    /// Reason why the count is not known for some of the time: the first one.
    pub why: Option<String>,
}

impl Amount {
    fn add(&mut self, event: MonitoringEvent, duration_ns: u64, found: Result<Bounds, String>) {
        match found {
            Ok((low, high)) => {
                let (sum_low, sum_high) =
                    if event == MonitoringEvent::LlcOccupancy { (0, 0) } else { self.bytes };
                self.bytes = (sum_low.saturating_add(low), sum_high.saturating_add(high));
                self.watched_ns = self.watched_ns.saturating_add(duration_ns);
            }
            Err(why) => drop(self.why.get_or_insert(why)),
        }
    }
}

/// Counts of one owner, or of a group without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Amounts by event.
    pub amounts: BTreeMap<MonitoringEvent, Amount>,
    /// Reason why a group has no single owner.
    pub nobody: Option<String>,
}

/// Counts between two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupsInterval {
    /// Length of the interval in ns.
    pub duration_ns: u64,
    /// Counts by owner or group.
    pub shares: BTreeMap<OwnerOrGroup, Share>,
}

impl GroupsInterval {
    /// Returns the counts from one drain to the next of `events`, which stand in that order in every domain.
    /// The traffic of threads that entered and left a group in between is the group's, and so its owner's.
    pub fn between(earlier: &Groups, later: &Groups, events: &[MonitoringEvent]) -> Self {
        let duration_ns = later.at_ns.saturating_sub(earlier.at_ns);
        let mut interval = Self { duration_ns, shares: BTreeMap::new() };
        let mut sums: BTreeMap<OwnerOrGroup, BTreeMap<MonitoringEvent, Result<Bounds, String>>> =
            BTreeMap::new();
        let steady = owners(earlier).intersection(&owners(later)).copied().collect();
        let all: BTreeSet<u64> = ids(earlier).chain(ids(later)).collect();
        for id in all {
            let (before, after) = (find(earlier, id), find(later, id));
            let Some(row) = after.or(before) else { continue };
            let told = told(before, after, &steady);
            for (index, &event) in events.iter().enumerate() {
                let found = match (before, after) {
                    (None, _) => Err("its group appeared".to_owned()),
                    (_, None) => Err("its group vanished".to_owned()),
                    (_, Some(after)) if event == MonitoringEvent::LlcOccupancy => {
                        own(later, after, index, Grows::No).map(|each| total(each.into_values()))
                    }
                    (Some(before), Some(after)) => difference((earlier, before), (later, after), index),
                };
                for owner in &told.owners {
                    let sum = sums.entry(OwnerOrGroup::Owner(owner.clone())).or_default();
                    let sum = sum.entry(event).or_insert(Ok((0, 0)));
                    *sum = plus(sum.clone(), found.clone());
                }
                for owner in &told.moved {
                    let sum = sums.entry(OwnerOrGroup::Owner(owner.clone())).or_default();
                    sum.insert(event, Err("its threads began, ended or changed their group".to_owned()));
                }
                if told.nobody.is_some() {
                    sums.entry(OwnerOrGroup::Group(row.group.path.clone())).or_default().insert(event, found);
                }
            }
            if let Some(why) = told.nobody {
                interval.shares.entry(OwnerOrGroup::Group(row.group.path.clone())).or_default().nobody =
                    Some(why);
            }
        }
        for (whom, events) in sums {
            let share = interval.shares.entry(whom).or_default();
            for (event, found) in events {
                share.amounts.entry(event).or_default().add(event, duration_ns, found);
            }
        }
        interval
    }

    /// Adds the interval that follows.
    pub fn extend(&mut self, next: &Self) {
        self.duration_ns = self.duration_ns.saturating_add(next.duration_ns);
        for (whom, share) in &next.shares {
            let known = self.shares.entry(whom.clone()).or_default();
            known.nobody = share.nobody.clone().or(known.nobody.take());
            for (event, amount) in &share.amounts {
                let sum = known.amounts.entry(*event).or_default();
                if amount.watched_ns > 0 {
                    sum.add(*event, amount.watched_ns, Ok(amount.bytes));
                }
                if let Some(why) = &amount.why {
                    sum.add(*event, 0, Err(why.clone()));
                }
            }
        }
    }
}

/// Owners of a group's count between two readings.
#[derive(Default)]
struct Told {
    owners: Vec<Owner>,
    /// Owners at one of the readings only.
    moved: Vec<Owner>,
    /// Reason why there is no single owner.
    nobody: Option<String>,
}

/// Attributes the count of a group. `steady` has the owners with all their threads in groups of theirs at
/// both readings. Counts of any other owner may be incomplete.
fn told(before: Option<&GroupRow>, after: Option<&GroupRow>, steady: &BTreeSet<&Owner>) -> Told {
    use GroupOwner::{Empty, Nobody, Of, Outsider};
    let (before, after) = (before.map_or(&Empty, |row| &row.whose), after.map_or(&Empty, |row| &row.whose));
    let each = [before, after].into_iter().flat_map(|whose| match whose {
        Of(owners) => owners.as_slice(),
        Nobody(_) | Outsider | Empty => &[],
    });
    let each: BTreeSet<&Owner> = each.collect();
    let is_his = |owner: &&Owner| steady.contains(owner) && may_be(before, owner) && may_be(after, owner);
    let (owners, moved): (Vec<&Owner>, Vec<&Owner>) = each.into_iter().partition(is_his);
    let nobody = match (after, before) {
        (Nobody(why), _) | (_, Nobody(why)) => Some(why.clone()),
        (Of(_), Of(_)) if owners.is_empty() => Some("other threads came into it".to_owned()),
        _ => None,
    };
    let owned = |owners: Vec<&Owner>| owners.into_iter().cloned().collect();
    Told { owners: owned(owners), moved: owned(moved), nobody }
}

/// Returns whether the owner may have been alone in the group. An owner at one reading was alone if the group
/// was empty at the other.
fn may_be(whose: &GroupOwner, owner: &Owner) -> bool {
    *whose == GroupOwner::Empty || matches!(whose, GroupOwner::Of(owners) if owners.contains(owner))
}

/// Returns all owners that have groups.
fn owners(groups: &Groups) -> BTreeSet<&Owner> {
    let owners = groups.rows.iter().filter_map(|row| match &row.whose {
        GroupOwner::Of(owners) => Some(owners),
        GroupOwner::Nobody(_) | GroupOwner::Outsider | GroupOwner::Empty => None,
    });
    owners.flatten().collect()
}

fn ids(groups: &Groups) -> impl Iterator<Item = u64> {
    groups.rows.iter().map(|row| row.group.id)
}

fn find(groups: &Groups, id: u64) -> Option<&GroupRow> {
    groups.rows.iter().find(|row| row.group.id == id)
}

fn plus(left: Result<Bounds, String>, right: Result<Bounds, String>) -> Result<Bounds, String> {
    let ((low, high), (more_low, more_high)) = (left?, right?);
    Ok((low.saturating_add(more_low), high.saturating_add(more_high)))
}

fn total(each: impl IntoIterator<Item = Bounds>) -> Bounds {
    each.into_iter().fold((0, 0), |(low, high), (more_low, more_high)| {
        (low.saturating_add(more_low), high.saturating_add(more_high))
    })
}

/// Returns the growth of a group's own count, over all caches.
fn difference(
    (earlier, before): (&Groups, &GroupRow),
    (later, after): (&Groups, &GroupRow),
    index: usize,
) -> Result<Bounds, String> {
    let (before, after) = (own(earlier, before, index, Grows::Yes)?, own(later, after, index, Grows::Yes)?);
    if !before.keys().eq(after.keys()) {
        return Err("an L3 cache came or went".to_owned());
    }
    let mut grown = Vec::new();
    for (before, after) in before.into_values().zip(after.into_values()) {
        let most = after.1.checked_sub(before.0);
        let most = most.ok_or("its count went down: it was reset, or given to another group for a while")?;
        grown.push((after.0.saturating_sub(before.1), most));
    }
    Ok(total(grown))
}

/// Kind of count: whether it grows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Grows {
    Yes,
    No,
}

/// Returns the count of a group itself, without its monitoring groups, by domain.
fn own<'a>(
    groups: &'a Groups,
    row: &'a GroupRow,
    index: usize,
    grows: Grows,
) -> Result<BTreeMap<&'a Untrusted, Bounds>, String> {
    let inside: Vec<&GroupRow> =
        groups.rows.iter().filter(|inner| inner.group.of == Some(row.group.id)).collect();
    let of_domain = |domain: &'a Domain| {
        let first = count(domain, index)?;
        if inside.is_empty() && row.group.again.is_empty() {
            return Ok((&domain.name, (first, first)));
        }
        let again = count(named(&row.group.again, domain)?, index)?;
        let mut theirs = 0_u64;
        for inner in &inside {
            theirs = theirs.saturating_add(count(named(&inner.group.domains, domain)?, index)?);
        }
        Ok((&domain.name, without(first, again, theirs, grows)?))
    };
    if row.group.domains.is_empty() {
        return Err("it is counted at no L3 cache".to_owned());
    }
    row.group.domains.iter().map(of_domain).collect()
}

/// Returns the rest of a whole that was read before and after its parts.
fn without(first: u64, again: u64, theirs: u64, grows: Grows) -> Result<Bounds, String> {
    let (low, high) = (first.min(again).checked_sub(theirs), first.max(again).saturating_sub(theirs));
    match (grows, low) {
        (Grows::No, low) => Ok((low.unwrap_or(0), high)),
        (Grows::Yes, _) if again < first => {
            Err("a monitoring group in it came or went between two readings".to_owned())
        }
        (Grows::Yes, _) if again == 0 && theirs == 0 => Ok((0, 0)),
        // The kernel silently omits a part that it cannot read from the whole.
        (Grows::Yes, None | Some(0)) => {
            Err("its own count cannot be separated from those of the monitoring groups in it".to_owned())
        }
        (Grows::Yes, Some(low)) => Ok((low, high)),
    }
}

fn named<'a>(domains: &'a [Domain], like: &Domain) -> Result<&'a Domain, String> {
    let found = domains.iter().find(|domain| domain.name == like.name);
    found.ok_or_else(|| "an L3 cache came or went".to_owned())
}

fn count(domain: &Domain, index: usize) -> Result<u64, String> {
    match domain.counts.get(index) {
        Some(Fact::Known(count)) => Ok(*count),
        Some(Fact::Missing(why)) => Err(why.clone()),
        None => Err("it was not counted".to_owned()),
    }
}
