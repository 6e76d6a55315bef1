//! Targets with their own series. Their number is bounded by what a monitoring server can be expected to
//! take. All others are counted together as `_other`. A reader sees only how much a series grew from one
//! scrape to the next. So each series is 0 until every reader has seen that, and keeps its last value until
//! every reader has seen that too. Increases over all series are what happened.

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

/// Minimum age of an almost idle target with its own series: a younger one may be gone before the next
/// scrape.
const AGE_MIN_NS: u64 = 10_000_000_000;
/// CPU time after which a target need not be that old.
const BUSY_NS: u64 = 1_000_000_000;
/// Interval at which a target with series may give way to a busier one without, if there is no room for both.
const REVIEW_EVERY_NS: u64 = 60_000_000_000;
/// Number of targets above which those without series are forgotten.
const KEPT_MAX: usize = 8192;
/// Maximum time that the series of an ended target wait for readers: longer than three of the longest
/// intervals that Prometheus can query.
const ENDED_MAX_NS: u64 = 900_000_000_000;

/// Bounds on what is exposed.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Targets with their own series.
    pub targets: usize,
    /// Number of series in text.
    pub series: usize,
    /// Time for which the series of an ended target stay, in ns.
    pub linger_ns: u64,
}

/// State of a target's series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Counted with all others.
    Other,
    /// Series that are 0 until every reader has seen them. Until then the target is counted with all others.
    Begins(Change),
    /// Counted in its own series.
    Own,
    /// Series that no longer grow since this change, which every reader is to see.
    Closed(Change, Why),
}

/// Reason why a target's series no longer grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The target has ended.
    Ended,
    /// There is no room for the target: it is counted with all others.
    Room,
}

/// Target and its series.
#[derive(Debug)]
pub(super) struct Target {
    state: State,
    /// Labels that describe the target.
    pub(super) info: Arc<Labels>,
    /// Cgroups of the target that have not ended.
    cgroups: BTreeSet<Owner>,
    first_ns: u64,
    last_ns: u64,
    /// Start of its series.
    pub(super) since_ns: u64,
    busy_ns: u64,
    /// Busy time since the last review.
    recent_ns: u64,
    values: Arc<Values>,
    /// Current states of the target.
    states: Arc<Values>,
}

/// All targets that are known.
#[derive(Debug)]
pub(super) struct Targets {
    bounds: Bounds,
    known: BTreeMap<Arc<str>, Target>,
    /// Name of the target of each cgroup.
    of: HashMap<Owner, Arc<str>>,
    reviewed_ns: u64,
    /// Targets that lost their series, because they ended, and because there was no room.
    pub(super) retired: [u64; 2],
}

impl Targets {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, known: BTreeMap::new(), of: HashMap::new(), reviewed_ns: 0, retired: [0; 2] }
    }

    /// Sets the bounds from now on.
    pub(super) const fn bound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Registers that an owner of the target `name` was busy for `busy_ns` until `next`, the time of the next
    /// snapshot.
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
            // A target of the same name continues where it ended.
            target.state = State::Own;
            target.info = Arc::new(target::info(owner));
        }
        target.cgroups.insert(owner.clone());
        target.last_ns = now_ns;
        target.busy_ns += busy_ns;
        target.recent_ns += busy_ns;
    }

    /// Registers that an owner has ended, or belongs to another target, by the next snapshot.
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

    /// Starts separate counts for the targets whose 0 every reader has seen by `now_ns`.
    pub(super) fn scraped(&mut self, seen: Seen, now_ns: u64) {
        for target in self.known.values_mut() {
            if matches!(target.state, State::Begins(first) if seen.has(first, now_ns)) {
                target.state = State::Own;
            }
        }
    }

    /// Returns the values of an owner's target, if it is counted in its own series.
    pub(super) fn values(&mut self, owner: &Owner) -> Option<&mut Values> {
        let target = self.known.get_mut(self.of.get(owner)?)?;
        (target.state == State::Own).then(|| Arc::make_mut(&mut target.values))
    }

    /// Returns the targets with series, by name.
    pub(super) fn exposed(&self) -> impl Iterator<Item = (&Arc<str>, &Target)> {
        self.known.iter().filter(|(_, target)| target.state != State::Other)
    }

    /// Returns the number of targets that are counted together.
    pub(super) fn others(&self) -> usize {
        self.known.values().filter(|target| target.state == State::Other).count()
    }

    /// Gives series to the targets that exist when counting begins, the busiest first.
    pub(super) fn begin(&mut self, now_ns: u64, room: usize) {
        let mut all: Vec<(Reverse<u64>, Arc<str>)> =
            self.known.iter().map(|(name, target)| (Reverse(target.busy_ns), Arc::clone(name))).collect();
        all.sort();
        for (_, name) in all.into_iter().take(room.min(self.bounds.targets)) {
            self.open(&name, State::Own, 0);
        }
        self.reviewed_ns = now_ns;
    }

    /// Decides which targets have series from the next snapshot on, in which there is room for `room`
    /// targets. `seen` is what readers have seen by then.
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
        // Targets that have ended and were seen so, the earliest first.
        self.remove(wanted.saturating_sub(room), |target| match target.state {
            State::Closed(end, _) if seen.has(end, now_ns) => Some(end.at_ns),
            _ => None,
        });
        // Only less room than before can leave more targets than there is room for.
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

    /// Returns the targets without series that may have some, the busiest first.
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

    /// Closes the least busy target with series if a waiting one was busy more than twice as long, and more
    /// than a second. Only one target gives way at a time, so that series do not come and go.
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

    /// Removes the series of at most `most` targets, in ascending order of `order`. A target for which it
    /// returns `None` is not due.
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

    /// Forgets targets without series that no recent report contained, if there are many. Not every end is
    /// reported.
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

    /// Returns the values of a target with series.
    pub(super) fn values_of(target: &Target) -> &Arc<Values> {
        &target.values
    }

    /// Returns the current states of a target with series.
    pub(super) fn states_of(target: &Target) -> &Arc<Values> {
        &target.states
    }

    /// Returns the targets with series for which the kernel may account figures, with their paths.
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

    /// Returns the sums and the states of a target that has series and has not ended.
    pub(super) fn accounts(&mut self, name: &str) -> Option<(&mut Values, &mut Values)> {
        let target = self.known.get_mut(name)?;
        let is_open = matches!(target.state, State::Own | State::Begins(_));
        is_open.then(|| (Arc::make_mut(&mut target.values), Arc::make_mut(&mut target.states)))
    }

    /// Forgets the states of all targets.
    pub(super) fn forget_states(&mut self) {
        let have = self.known.values_mut().filter(|target| !target.states.0.is_empty());
        have.for_each(|target| target.states = Arc::default());
    }
}
