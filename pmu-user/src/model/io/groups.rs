//! Memory traffic of CPUs by owner, between readings of resctrl's groups.
//!
//! A control group's count holds those of its monitoring groups, so these are taken off; they were read between two readings of
//! the whole, which bound the difference. A count that went down was reset, or its hardware counter was given away and came back:
//! nothing is known of it for that tick.

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

/// Least and most that a number can be.
type Bounds = (u64, u64);

/// OwnerOrGroup a count belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerOrGroup {
    /// An owner: all that he did.
    Owner(Owner),
    /// A group that is nobody's in particular, by its path.
    Group(Untrusted),
}

/// What was counted of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Least and most that it can be, in bytes: added up over the time that was watched; of what does not grow, the latest.
    pub bytes: Bounds,
    /// Time for which it is known, in ns.
    pub watched_ns: u64,
    /// Why it is not known for some of the time: the first reason.
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

/// What one owner, or a group without one, did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// By event.
    pub amounts: BTreeMap<MonitoringEvent, Amount>,
    /// Why it is nobody's in particular, if it is a group's.
    pub nobody: Option<String>,
}

/// What was counted between two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupsInterval {
    /// Its length in ns.
    pub duration_ns: u64,
    /// By whom.
    pub shares: BTreeMap<OwnerOrGroup, Share>,
}

impl GroupsInterval {
    /// What was counted from one drain to the next, of `events`, which stand in that order in every domain. What threads did
    /// that came to a group and left it in between is the group's, and so its owner's.
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

/// Whose a group's count between two readings is.
#[derive(Default)]
struct Told {
    owners: Vec<Owner>,
    /// Whose it was at one of them only.
    moved: Vec<Owner>,
    /// Why it is nobody's.
    nobody: Option<String>,
}

/// `steady`: owners that had all their threads in groups of theirs at both readings. Of anyone else, something may be missing.
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

/// Whoever was there at one end, and nobody at the other, was there alone.
fn may_be(whose: &GroupOwner, owner: &Owner) -> bool {
    *whose == GroupOwner::Empty || matches!(whose, GroupOwner::Of(owners) if owners.contains(owner))
}

/// Everyone who has groups.
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

/// What a group's own count grew by, at all caches together.
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

/// Does a count grow?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Grows {
    Yes,
    No,
}

/// What was counted for a group itself, without its monitoring groups, by domain.
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

/// What is left of a whole that was read before and after its parts.
fn without(first: u64, again: u64, theirs: u64, grows: Grows) -> Result<Bounds, String> {
    let (low, high) = (first.min(again).checked_sub(theirs), first.max(again).saturating_sub(theirs));
    match (grows, low) {
        (Grows::No, low) => Ok((low.unwrap_or(0), high)),
        (Grows::Yes, _) if again < first => {
            Err("a monitoring group in it came or went between two readings".to_owned())
        }
        (Grows::Yes, _) if again == 0 && theirs == 0 => Ok((0, 0)),
        // The kernel leaves a part that it cannot read out of the whole, without a word.
        (Grows::Yes, None | Some(0)) => {
            Err("its own count cannot be told from those of the monitoring groups in it".to_owned())
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
