//! Owner of a process, for limits of shared resources that one user could exhaust. The owner is the
//! container, the user's slice or the service in which the process runs, and elsewhere its user. A cgroup
//! counts only if root made it: a delegated cgroup could contain any number of them.

use std::{
    collections::{HashMap, VecDeque},
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::Duration,
};

use crate::machine::container::tenant;

/// Processes that are kept, at most.
const KEPT_MAX: usize = 8192;
/// Mount points of cgroups that are searched.
const MOUNTS: [&str; 3] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"];
/// Size of a range of subordinate ids, which counts as one user (subuid(5)).
const SUBORDINATES: u32 = 65_536;

/// Owner that shares a limited resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Whose {
    /// Cgroup of a container, of a user or of a service.
    place: Option<String>,
    /// User id, where the cgroup does not belong to one user.
    user: Option<u32>,
}

impl Whose {
    /// Reads the owner of a live process. Nothing is known of a process that is gone.
    fn read(tgid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{tgid}/status")).unwrap_or_default();
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        // User that started the process: its real id, not its effective one.
        let uid = uid.and_then(|uids| uids.split_whitespace().next()?.parse::<u32>().ok());
        let cgroups = fs::read_to_string(format!("/proc/{tgid}/cgroup")).unwrap_or_default();
        let path =
            cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).max_by_key(|path| path.len());
        let tenant = path.and_then(tenant).filter(|(own, _)| is_of_root(own));
        let user = uid.map(|uid| if uid < SUBORDINATES { uid } else { uid - uid % SUBORDINATES });
        match tenant {
            Some((own, true)) => Self { place: Some(own.to_owned()), user: None },
            Some((own, false)) => Self { place: Some(own.to_owned()), user },
            None => Self { place: None, user },
        }
    }

    /// Returns the owner in words, for a report of losses.
    pub(super) fn in_words(&self) -> String {
        match (&self.place, self.user) {
            (Some(place), None) => format!("cgroup {place}"),
            (Some(place), Some(user)) => format!("user {user} in cgroup {place}"),
            (None, Some(user)) => format!("user {user}"),
            (None, None) => "a process that ended".to_owned(),
        }
    }

    #[cfg(test)]
    pub(super) fn named(name: &str) -> Self {
        Self { place: Some(name.to_owned()), user: None }
    }
}

/// Returns whether root made the cgroup.
fn is_of_root(path: &str) -> bool {
    let at = |mount: &&str| Path::new(mount).join(path.trim_start_matches('/')).metadata().ok();
    MOUNTS.iter().find_map(at).is_some_and(|metadata| metadata.uid() == 0)
}

/// Owner that is charged, or `None` for the host's own files.
pub(super) type Payer = Option<Whose>;

/// Room that owners share: each may take half of what the others leave.
#[derive(Debug)]
pub(super) struct Room {
    max: usize,
    all: usize,
    taken: HashMap<Payer, usize>,
}

impl Room {
    pub(super) fn new(max: usize) -> Self {
        Self { max, all: 0, taken: HashMap::new() }
    }

    /// Takes a place for an owner, if there is one.
    pub(super) fn take(&mut self, payer: &Payer) -> bool {
        let own = self.taken.get(payer).copied().unwrap_or(0);
        let others = self.all - own;
        // The host's own files may take all.
        let most = if payer.is_none() {
            self.max - others.min(self.max)
        } else {
            self.max.saturating_sub(others) / 2
        };
        if own >= most {
            return false;
        }
        self.all += 1;
        *self.taken.entry(payer.clone()).or_default() += 1;
        true
    }
}

/// Items of several owners in turn: the next is always one of the owner with the least time spent.
#[derive(Debug)]
pub(super) struct Turns<T> {
    queues: Vec<(Duration, VecDeque<T>)>,
    last: usize,
}

impl<T> Turns<T> {
    /// Returns the queue of these items, those of each owner in their order.
    pub(super) fn of(all: impl Iterator<Item = (Payer, T)>) -> Self {
        let mut places: HashMap<Payer, usize> = HashMap::new();
        let mut queues: Vec<(Duration, VecDeque<T>)> = Vec::new();
        for (payer, one) in all {
            let at = *places.entry(payer).or_insert_with(|| {
                queues.push(Default::default());
                queues.len() - 1
            });
            queues[at].1.push_back(one);
        }
        Self { queues, last: 0 }
    }

    /// Returns the next item, and the number of owners with items left, including this one.
    pub(super) fn next(&mut self) -> Option<(T, u32)> {
        let with = || self.queues.iter().enumerate().filter(|(_, (_, queue))| !queue.is_empty());
        let owners = u32::try_from(with().count()).unwrap_or(u32::MAX);
        let (last, _) = with().min_by_key(|(_, (spent, _))| *spent)?;
        self.last = last;
        Some((self.queues[last].1.pop_front()?, owners))
    }

    /// Adds the time spent for the last item.
    pub(super) fn spend(&mut self, time: Duration) {
        if let Some((spent, _)) = self.queues.get_mut(self.last) {
            *spent += time;
        }
    }
}

/// Owners of processes, as of the first time they were seen.
#[derive(Debug, Default)]
pub(super) struct Owners(HashMap<u32, Whose>);

impl Owners {
    /// Returns the owner of the first of these processes that exists, or that existed when it was first seen.
    pub(super) fn of(&mut self, kin: &[u32]) -> Whose {
        if self.0.len() >= KEPT_MAX {
            self.0.clear();
        }
        for &tgid in kin {
            let whose = self.0.entry(tgid).or_insert_with(|| Whose::read(tgid));
            if whose.user.is_some() || whose.place.is_some() {
                return whose.clone();
            }
        }
        Whose { place: None, user: None }
    }

    /// Discards the owner of this id, which now belongs to another process.
    pub(super) fn forget(&mut self, tgid: u32) {
        self.0.remove(&tgid);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Room, Turns, Whose};

    fn owner(name: &str) -> Option<Whose> {
        Some(Whose::named(name))
    }

    #[test]
    fn an_owner_takes_half_of_what_the_others_leave() {
        let mut room = Room::new(1000);
        let mut take = |payer: &Option<Whose>| (0..2000).filter(|_| room.take(payer)).count();
        assert_eq!(take(&owner("greedy")), 500);
        assert_eq!(take(&owner("second")), 250);
        assert_eq!(take(&owner("greedy")), 0);
        assert!(take(&owner("third")) > 100);
        assert!(take(&None) > 100, "the host's own");
    }

    #[test]
    fn the_owner_for_whom_least_was_spent_is_next() {
        let slow = (0..4).map(|number| (owner("slow"), number));
        let mut turns = Turns::of(slow.chain([(owner("quick"), 10), (None, 20), (owner("quick"), 11)]));
        let mut order = Vec::new();
        while let Some((number, owners)) = turns.next() {
            order.push((number, owners));
            turns.spend(Duration::from_millis(if number < 4 { 400 } else { 1 }));
        }
        assert_eq!(order, [(0, 3), (10, 3), (20, 3), (11, 2), (1, 1), (2, 1), (3, 1)]);
    }
}
