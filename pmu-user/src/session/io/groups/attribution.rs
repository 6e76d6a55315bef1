//! Attribution of a group's count. The count is an owner's if every thread in the group is the owner's. The
//! owner has a number if every thread of it is in such a group, because then that is all of its traffic.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    drain::{Absent, Owner, io::group::GroupOwner},
    plan::Target,
};

/// Number of names in a reason.
const NAMES_MAX: usize = 3;

/// Threads of a group.
pub(super) struct Held {
    /// Reason why the group has no single owner, whatever threads are in it.
    pub(super) nobody: Option<String>,
    pub(super) threads: BTreeSet<u32>,
}

/// Threads, each with its owner.
#[derive(Default)]
pub(super) struct Threads {
    owners: Vec<Owner>,
    of: BTreeMap<u32, usize>,
}

/// Result of the attribution.
pub(super) struct Told {
    /// Owner of each group.
    pub(super) owners: Vec<GroupOwner>,
    /// Targets that have no number, with the reason.
    pub(super) untold: Vec<Absent>,
}

impl Threads {
    pub(super) fn put(&mut self, owner: Owner, threads: Vec<u32>) {
        let known = self.owners.iter().position(|known| *known == owner);
        let index = known.unwrap_or_else(|| {
            self.owners.push(owner);
            self.owners.len() - 1
        });
        self.of.extend(threads.into_iter().map(|thread| (thread, index)));
    }

    /// Adds the threads that another look found.
    pub(super) fn add(&mut self, later: Self) {
        let mut found: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        later.of.into_iter().for_each(|(thread, index)| found.entry(index).or_default().push(thread));
        for (index, owner) in later.owners.into_iter().enumerate() {
            self.put(owner, found.remove(&index).unwrap_or_default());
        }
    }

    pub(super) fn lacks(&self, threads: &BTreeSet<u32>) -> bool {
        threads.iter().any(|thread| !self.of.contains_key(thread))
    }

    /// Returns all threads of an owner and of those below.
    fn within(&self, outer: &Owner) -> Vec<u32> {
        let within: Vec<bool> = self.owners.iter().map(|owner| is_within(owner, outer)).collect();
        self.of.iter().filter(|(_, index)| within[**index]).map(|(thread, _)| *thread).collect()
    }
}

/// Returns the owner of each group. `is_gone` returns whether a thread has ended.
pub(super) fn of(held: &[Held], threads: &Threads, target: &Target, is_gone: impl Fn(u32) -> bool) -> Told {
    let everyone = matches!(target, Target::System);
    let alone: Vec<GroupOwner> = held.iter().map(|held| alone(held, threads, everyone, &is_gone)).collect();
    let mut owners: BTreeSet<&Owner> = alone.iter().filter_map(one).collect();
    if !everyone {
        owners.extend(&threads.owners);
    }
    let groups: Vec<(&Held, &GroupOwner)> = held.iter().zip(&alone).collect();
    let known: BTreeMap<&Owner, Option<String>> =
        owners.into_iter().map(|owner| (owner, lacking(owner, &groups, threads, &is_gone))).collect();
    let whose = |alone: &GroupOwner| {
        let Some(owner) = one(alone) else { return alone.clone() };
        let all = known.iter().filter(|(outer, why)| why.is_none() && is_within(owner, outer));
        let all: Vec<Owner> = all.map(|(outer, _)| Owner::clone(outer)).collect();
        match &known[owner] {
            Some(why) if all.is_empty() => GroupOwner::Nobody(why.clone()),
            _ => GroupOwner::Of(all),
        }
    };
    let untold = known.iter().filter(|_| !everyone).filter_map(|(owner, why)| {
        let what = format!("memory traffic of {}", owner.in_words());
        Some(Absent { what, why: format!("{}; a group for all of them would attribute it", why.as_ref()?) })
    });
    Told { owners: alone.iter().map(whose).collect(), untold: untold.collect() }
}

fn one(whose: &GroupOwner) -> Option<&Owner> {
    match whose {
        GroupOwner::Of(owners) => owners.first(),
        GroupOwner::Nobody(_) | GroupOwner::Outsider | GroupOwner::Empty => None,
    }
}

/// Returns the reason why an owner's groups do not hold all of its threads; `None` if they do.
fn lacking(
    owner: &Owner,
    groups: &[(&Held, &GroupOwner)],
    threads: &Threads,
    is_gone: &impl Fn(u32) -> bool,
) -> Option<String> {
    let is_his = |alone: &GroupOwner| one(alone).is_some_and(|one| is_within(one, owner));
    let his = groups.iter().filter(|(_, alone)| is_his(alone)).flat_map(|(held, _)| &held.threads);
    let (inside, all): (BTreeSet<&u32>, _) = (his.collect(), threads.within(owner));
    let outside = all.iter().filter(|thread| !inside.contains(thread) && !is_gone(**thread)).count();
    let (all, owner) = (all.len(), owner.in_words());
    let why = || format!("{outside} of the {all} threads of {owner} are in groups that are not all its own");
    (outside > 0).then(why)
}

/// Returns the owner of all threads in a group: one owner, or the nearest cgroup above them if they are of
/// several.
fn alone(held: &Held, threads: &Threads, everyone: bool, is_gone: &impl Fn(u32) -> bool) -> GroupOwner {
    if let Some(why) = &held.nobody {
        return GroupOwner::Nobody(why.clone());
    }
    let known = held.threads.iter().filter_map(|thread| threads.of.get(thread));
    let owners: BTreeSet<&Owner> = known.map(|&index| &threads.owners[index]).collect();
    let is_strange = |thread: &u32| !threads.of.contains_key(thread) && !is_gone(*thread);
    let strange = held.threads.iter().any(is_strange);
    let nobody = |why: &str| GroupOwner::Nobody(why.to_owned());
    match (owners.first(), strange) {
        (None, false) => GroupOwner::Empty,
        (None, true) if !everyone => GroupOwner::Outsider,
        (_, true) if everyone => nobody("it holds threads of cgroups that cannot be seen from here"),
        (_, true) => nobody("it holds threads that are not the target's"),
        (Some(first), false) if owners.len() == 1 => GroupOwner::Of(vec![Owner::clone(first)]),
        (Some(_), false) => above(&owners, threads),
    }
}

/// Returns the cgroup above all of these, unless that is the root.
fn above(owners: &BTreeSet<&Owner>, threads: &Threads) -> GroupOwner {
    let paths = owners.iter().map(|owner| path(owner));
    let common =
        paths.reduce(|common, path| Some(shared(common?, path?))).flatten().filter(|top| *top != b"/");
    let above = common.and_then(|top| threads.owners.iter().find(|owner| path(owner) == Some(top)));
    if let Some(above) = above {
        return GroupOwner::Of(vec![above.clone()]);
    }
    let mut names: Vec<String> = owners.iter().map(|owner| owner.in_words()).collect();
    names.sort();
    let more = if names.len() > NAMES_MAX { ", …" } else { "" };
    let shown = names[..names.len().min(NAMES_MAX)].join(", ");
    GroupOwner::Nobody(format!("it holds threads of {} owners: {shown}{more}", names.len()))
}

fn path(owner: &Owner) -> Option<&[u8]> {
    match owner {
        Owner::Cgroup { path, .. } => Some(path.as_bytes()),
        _ => None,
    }
}

/// Returns the longest path that both lie at or below.
fn shared<'a>(left: &'a [u8], right: &[u8]) -> &'a [u8] {
    let mut end = left.len();
    while !is_at_or_below(right, &left[..end]) {
        end = left[..end].iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    }
    if end == 0 { b"/" } else { &left[..end] }
}

fn is_at_or_below(path: &[u8], top: &[u8]) -> bool {
    path.strip_prefix(top).is_some_and(|rest| top == b"/" || rest.is_empty() || rest.starts_with(b"/"))
}

fn is_within(owner: &Owner, outer: &Owner) -> bool {
    match (path(owner), path(outer)) {
        (Some(path), Some(top)) => is_at_or_below(path, top),
        _ => owner == outer,
    }
}
