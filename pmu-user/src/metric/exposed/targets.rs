//! Which targets have series of their own, never more than a server of metrics can be expected to take; what the others do is counted
//! together, as `_other`. A reader sees how much a series grew from one scrape to the next and nothing else: so each is 0 until every reader has
//! seen that, and stays as it ended until every reader has seen that too. Increases over all series are what happened.

#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    accounts::Accountable,
    seen::{Change, Seen},
    target::{self, Labels},
    value::Values,
};
use crate::{drain::Owner, untrusted::Untrusted};

/// How old a target is that has series of its own although it did next to nothing: what is younger may be gone before the next scrape.
const AGE_MIN_NS: u64 = 10_000_000_000;
/// CPU time after which it need not be that old.
const BUSY_NS: u64 = 1_000_000_000;
/// How often a target that has series gives way to a busier one that has none, if there is no room for both.
const REVIEW_EVERY_NS: u64 = 60_000_000_000;
/// Targets without series that are remembered.
const KEPT_MAX: usize = 8192;
/// How long the series of a target that has ended wait for readers: longer than three of the longest intervals that Prometheus can query.
const ENDED_MAX_NS: u64 = 900_000_000_000;

/// The most that is exposed.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Targets with series of their own.
    pub targets: usize,
    /// Series, as text.
    pub series: usize,
    /// For how long the series of a target stay that has ended, in ns.
    pub linger_ns: u64,
}

/// Is a target's doing its own, or everybody's?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Counted with all others.
    Other,
    /// Its series are 0 until every reader has seen them; until then it is counted with all others.
    Begins(Change),
    /// Counted by itself.
    Own,
    /// Its series do not grow any more since this change, which every reader is to see.
    Closed(Change, Why),
}

/// Why a target's series do not grow any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// It has ended.
    Ended,
    /// There is no room for it: it is counted with all others.
    Room,
}

/// A target.
#[derive(Debug)]
pub(super) struct Target {
    state: State,
    /// What is known of it.
    pub(super) info: Arc<Labels>,
    /// Its cgroups that have not ended.
    cgroups: BTreeSet<Owner>,
    first_ns: u64,
    last_ns: u64,
    /// When its series began.
    pub(super) since_ns: u64,
    busy_ns: u64,
    /// The same since the last review.
    recent_ns: u64,
    values: Arc<Values>,
    /// How it is now.
    states: Arc<Values>,
}

/// All targets that are known.
#[derive(Debug)]
pub(super) struct Targets {
    bounds: Bounds,
    known: BTreeMap<Arc<str>, Target>,
    /// Where each cgroup belongs.
    of: HashMap<Owner, Arc<str>>,
    reviewed_ns: u64,
    /// Targets that lost their series, because they ended, and because there was no room.
    pub(super) retired: [u64; 2],
}

impl Targets {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, known: BTreeMap::new(), of: HashMap::new(), reviewed_ns: 0, retired: [0; 2] }
    }

    /// From now on no more is exposed than this.
    pub(super) const fn bound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Takes that an owner, whose target is called so, was busy for so long until `next`, the time of the next snapshot.
    pub(super) fn meet(&mut self, (owner, name): (&Owner, Arc<str>), busy_ns: u64, next: Change) {
        let now_ns = next.at_ns;
        let name: Arc<str> = match self.of.get(owner) {
            Some(known) if **known == *name => Arc::clone(known),
            // Its name has become known, or has changed.
            Some(_) => {
                self.end(owner, next);
                name
            }
            None => name,
        };
        self.of.entry(owner.clone()).or_insert_with(|| Arc::clone(&name));
        let target = self.known.entry(name).or_insert_with(|| Target {
            state: State::Other,
            info: Arc::new(target::info(owner)),
            cgroups: BTreeSet::new(),
            first_ns: now_ns,
            last_ns: now_ns,
            since_ns: 0,
            busy_ns: 0,
            recent_ns: 0,
            values: Arc::default(),
            states: Arc::default(),
        });
        if let State::Closed(_, Why::Ended) = target.state {
            // One of the same name goes on where it ended.
            target.state = State::Own;
            target.info = Arc::new(target::info(owner));
        }
        target.cgroups.insert(owner.clone());
        target.last_ns = now_ns;
        target.busy_ns += busy_ns;
        target.recent_ns += busy_ns;
    }

    /// Takes that an owner has ended, or is another target's, by the next snapshot.
    pub(super) fn end(&mut self, owner: &Owner, next: Change) {
        let Some(name) = self.of.remove(owner) else { return };
        let Some(target) = self.known.get_mut(&name) else { return };
        target.cgroups.remove(owner);
        match target.state {
            _ if !target.cgroups.is_empty() => {}
            State::Other | State::Begins(_) => drop(self.known.remove(&name)),
            State::Own => target.state = State::Closed(next, Why::Ended),
            State::Closed(..) => {}
        }
    }

    /// Begins to count those by themselves whose 0 every reader has seen by `now_ns`.
    pub(super) fn scraped(&mut self, seen: Seen, now_ns: u64) {
        for target in self.known.values_mut() {
            if matches!(target.state, State::Begins(first) if seen.has(first, now_ns)) {
                target.state = State::Own;
            }
        }
    }

    /// The values of an owner, if they are its target's own.
    pub(super) fn values(&mut self, owner: &Owner) -> Option<&mut Values> {
        let target = self.known.get_mut(self.of.get(owner)?)?;
        (target.state == State::Own).then(|| Arc::make_mut(&mut target.values))
    }

    /// Those with series, by name.
    pub(super) fn exposed(&self) -> impl Iterator<Item = (&Arc<str>, &Target)> {
        self.known.iter().filter(|(_, target)| target.state != State::Other)
    }

    /// How many are counted together.
    pub(super) fn others(&self) -> usize {
        self.known.values().filter(|target| target.state == State::Other).count()
    }

    /// Gives series to those that are there when counting begins, the busiest first.
    pub(super) fn begin(&mut self, now_ns: u64, room: usize) {
        let mut all: Vec<(Reverse<u64>, Arc<str>)> =
            self.known.iter().map(|(name, target)| (Reverse(target.busy_ns), Arc::clone(name))).collect();
        all.sort();
        for (_, name) in all.into_iter().take(room.min(self.bounds.targets)) {
            self.open(&name, State::Own, 0);
        }
        self.reviewed_ns = now_ns;
    }

    /// Decides which targets have series from the next snapshot on, in which there is room for so many; `seen` is what readers have seen
    /// by then.
    pub(super) fn review(&mut self, seen: Seen, next: Change, room: usize) {
        let now_ns = next.at_ns;
        let room = room.min(self.bounds.targets);
        let linger_ns = self.bounds.linger_ns;
        self.remove(usize::MAX, |target| match target.state {
            State::Closed(end, why) => {
                let since_ns = now_ns.saturating_sub(end.at_ns);
                let is_over = why == Why::Room || since_ns >= linger_ns;
                let is_due = is_over && seen.has(end, now_ns) || since_ns >= linger_ns.max(ENDED_MAX_NS);
                is_due.then_some(end.at_ns)
            }
            _ => None,
        });
        let waiting = self.waiting(now_ns);
        let wanted = self.exposed().count() + waiting.len();
        // Those that have ended and were seen so, the first first.
        self.remove(wanted.saturating_sub(room), |target| match target.state {
            State::Closed(end, _) if seen.has(end, now_ns) => Some(end.at_ns),
            _ => None,
        });
        // There is less room than there was: nothing else is above the bound.
        let over = self.exposed().count().saturating_sub(room);
        self.remove(over, |target| match target.state {
            State::Begins(_) => Some(0),
            _ => Some(target.recent_ns.max(1)),
        });
        let free = room.saturating_sub(self.exposed().count());
        for (_, name) in waiting.iter().take(free) {
            self.open(name, State::Begins(next), now_ns);
        }
        if now_ns.saturating_sub(self.reviewed_ns) >= REVIEW_EVERY_NS {
            self.reviewed_ns = now_ns;
            if let Some((Reverse(busiest), _)) = waiting.get(free) {
                self.give_way(*busiest, next);
            }
            self.known.values_mut().for_each(|target| target.recent_ns = 0);
        }
        self.forget(now_ns);
    }

    /// Targets without series that may have some, the busiest first.
    fn waiting(&self, now_ns: u64) -> Vec<(Reverse<u64>, Arc<str>)> {
        let is_waiting = |target: &Target| {
            let age_ns = now_ns.saturating_sub(target.first_ns);
            target.state == State::Other && (age_ns >= AGE_MIN_NS || target.busy_ns >= BUSY_NS)
        };
        let all = self.known.iter().filter(|(_, target)| is_waiting(target));
        let mut all: Vec<_> =
            all.map(|(name, target)| (Reverse(target.recent_ns), Arc::clone(name))).collect();
        all.sort();
        all
    }

    /// Of those with series the one that did least gives way if somebody waits who did more than twice as much, and a second: one at a
    /// time, so that series do not come and go.
    fn give_way(&mut self, busiest_ns: u64, next: Change) {
        let own = self.known.values_mut().filter(|target| target.state == State::Own);
        if let Some(least) = own.min_by_key(|target| target.recent_ns)
            && busiest_ns > BUSY_NS.max(2 * least.recent_ns)
        {
            least.state = State::Closed(next, Why::Room);
        }
    }

    fn open(&mut self, name: &Arc<str>, state: State, now_ns: u64) {
        if let Some(target) = self.known.get_mut(name) {
            (target.state, target.since_ns, target.values) = (state, now_ns, Arc::default());
        }
    }

    /// Takes their series from at most so many of those for which `order` says when they are due, the first first.
    fn remove(&mut self, most: usize, order: impl Fn(&Target) -> Option<u64>) {
        let due = |(name, target): (&Arc<str>, &Target)| Some((order(target)?, Arc::clone(name)));
        let mut all: Vec<(u64, Arc<str>)> = self.exposed().filter_map(due).collect();
        all.sort();
        for (_, name) in all.into_iter().take(most) {
            let has_ended = self.known.get(&name).is_none_or(|target| target.cgroups.is_empty());
            self.retired[usize::from(!has_ended)] += 1;
            match self.known.get_mut(&name) {
                Some(target) if !has_ended => {
                    (target.state, target.values) = (State::Other, Arc::default());
                    target.states = Arc::default();
                }
                _ => drop(self.known.remove(&name)),
            }
        }
    }

    /// Forgets targets without series of which nothing was heard for longest, if there are many: not of every end we are told.
    fn forget(&mut self, now_ns: u64) {
        if self.known.len() <= KEPT_MAX {
            return;
        }
        let is_kept = |target: &Target| {
            target.state != State::Other || target.last_ns.saturating_add(AGE_MIN_NS) > now_ns
        };
        let known = &mut self.known;
        known.retain(|_, target| is_kept(target));
        self.of.retain(|_, name| known.contains_key(name));
    }

    /// The values of a target with series.
    pub(super) fn values_of(target: &Target) -> &Arc<Values> {
        &target.values
    }

    /// How a target with series is now.
    pub(super) fn states_of(target: &Target) -> &Arc<Values> {
        &target.states
    }

    /// Those with series of which the kernel may account something, and where.
    pub(super) fn accountable(&self) -> Vec<Accountable> {
        let of = |(name, target): (&Arc<str>, &Target)| {
            let is_counted = match target.state {
                State::Own => true,
                State::Begins(_) => false,
                State::Other | State::Closed(..) => return None,
            };
            let paths: BTreeSet<Untrusted> = target.cgroups.iter().filter_map(target::outermost).collect();
            Some(Accountable {
                target: Arc::clone(name),
                info: Arc::clone(&target.info),
                paths: paths.into_iter().collect(),
                is_counted,
            })
        };
        self.exposed().filter_map(of).collect()
    }

    /// The sums and the states of a target that has series and has not ended.
    pub(super) fn accounts(&mut self, name: &str) -> Option<(&mut Values, &mut Values)> {
        let target = self.known.get_mut(name)?;
        let is_open = matches!(target.state, State::Own | State::Begins(_));
        is_open.then(|| (Arc::make_mut(&mut target.values), Arc::make_mut(&mut target.states)))
    }

    /// Forgets how targets were.
    pub(super) fn forget_states(&mut self) {
        let have = self.known.values_mut().filter(|target| !target.states.0.is_empty());
        have.for_each(|target| target.states = Arc::default());
    }
}
