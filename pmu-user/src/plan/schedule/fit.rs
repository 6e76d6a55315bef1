//! Fit of a group to the counters. Events are assigned to counters by augmenting paths, so a group fits
//! exactly if any placement does.
//!
//! Events are numbered densely here: only those that need a general counter.

/// Maximum number of general counters of a PMU.
const COUNTERS_MAX: usize = 32;

/// Requirements of an event in a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// General counters that can count it.
    pub(super) counters: u32,
    /// Register that it needs with a certain value.
    pub(super) resource: Option<super::Resource>,
}

impl Seat {
    /// Returns the difficulty of finding a counter: 32 if only one is usable, 1 if any of 32 is.
    pub(super) const fn scarcity(&self) -> u32 {
        match self.counters.count_ones() {
            0 => COUNTERS_MAX as u32,
            counters => COUNTERS_MAX as u32 / counters,
        }
    }
}

/// Events on general counters, each on a separate one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// Event that each counter counts.
    holder: [u16; COUNTERS_MAX],
    /// Counters that count nothing yet.
    free: u32,
    /// Counters with an event.
    taken: u32,
}

impl Group {
    /// Returns an empty group on these counters.
    pub(super) const fn new(counters: u32) -> Self {
        Self { holder: [0; COUNTERS_MAX], free: counters, taken: 0 }
    }

    /// Returns the number of counters left.
    pub(super) const fn room(&self) -> u32 {
        self.free.count_ones()
    }

    /// Returns its events, by counter.
    pub(super) fn events(&self) -> impl Iterator<Item = u16> + '_ {
        bits(self.taken).map(|counter| self.holder[counter])
    }

    /// Returns the group with these events as well, or `None` if they do not fit. Events that it has already
    /// cost nothing.
    pub(super) fn with(mut self, events: &[u16], seats: &[Seat]) -> Option<Self> {
        for &event in events {
            if self.events().any(|known| known == event) {
                continue;
            }
            let tried = &mut 0;
            if !self.has_register(event, seats) || !self.place(event, seats, tried) {
                return None;
            }
        }
        Some(self)
    }

    /// Adds events in order while they fit. Returns those that were added and those that were not.
    pub(super) fn filled(mut self, events: &[u16], seats: &[Seat]) -> (Vec<u16>, Vec<u16>) {
        events.iter().partition(|&&event| match self.with(&[event], seats) {
            Some(group) => {
                self = group;
                true
            }
            None => false,
        })
    }

    /// Returns whether there is a register for the event's value, or one that holds it already.
    fn has_register(&self, event: u16, seats: &[Seat]) -> bool {
        let Some(asked) = seats[usize::from(event)].resource else { return true };
        let mut others: [Option<super::Resource>; COUNTERS_MAX] = [None; COUNTERS_MAX];
        let mut different = 0;
        for known in self.events() {
            match seats[usize::from(known)].resource {
                Some(other) if other == asked => return true,
                Some(other) if other.competes_with(asked) && !others[..different].contains(&Some(other)) => {
                    others[different] = Some(other);
                    different += 1;
                }
                _ => {}
            }
        }
        different < asked.registers()
    }

    /// Finds a counter, moving other events if needed. `tried` keeps counters from being tried twice.
    fn place(&mut self, event: u16, seats: &[Seat], tried: &mut u32) -> bool {
        let usable = seats[usize::from(event)].counters;
        // From the top: events that can use only few counters can use the low ones, as a rule.
        if let Some(counter) = (usable & self.free).checked_ilog2() {
            self.free &= !(1 << counter);
            self.taken |= 1 << counter;
            self.holder[counter as usize] = event;
            return true;
        }
        loop {
            let left = usable & self.taken & !*tried;
            if left == 0 {
                return false;
            }
            let counter = left.trailing_zeros() as usize;
            *tried |= 1 << counter;
            if self.place(self.holder[counter], seats, tried) {
                self.holder[counter] = event;
                return true;
            }
        }
    }
}

/// Returns the positions of the ones, ascending.
fn bits(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let bit = left.trailing_zeros();
        left &= left.checked_sub(1)?;
        Some(bit as usize)
    })
}

/// A set of densely numbered events.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Set(Vec<u64>);

impl Set {
    /// Returns the empty set of events below `count`.
    pub(super) fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    /// Returns the set of these events, all below `count`.
    pub(super) fn of(events: &[u16], count: usize) -> Self {
        let mut set = Self::new(count);
        events.iter().for_each(|&event| set.insert(event));
        set
    }

    /// Adds an event.
    pub(super) fn insert(&mut self, event: u16) {
        self.0[usize::from(event) / 64] |= 1 << (event % 64);
    }

    /// Removes an event.
    pub(super) fn remove(&mut self, event: u16) {
        self.0[usize::from(event) / 64] &= !(1 << (event % 64));
    }

    /// Returns whether the event is in the set.
    pub(super) fn contains(&self, event: u16) -> bool {
        self.0[usize::from(event) / 64] >> (event % 64) & 1 == 1
    }

    /// Adds all of `other`.
    pub(super) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    /// Adds the events that are in both of these.
    pub(super) fn add_common(&mut self, one: &Self, other: &Self) {
        let both = one.0.iter().zip(&other.0).map(|(one, other)| one & other);
        self.0.iter_mut().zip(both).for_each(|(word, both)| *word |= both);
    }

    /// Removes all of `other`.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, less)| *word &= !less);
    }

    /// Returns the number of events of `other` that it lacks.
    pub(super) fn lacks(&self, other: &Self) -> u32 {
        self.0.iter().zip(&other.0).map(|(word, other)| (other & !word).count_ones()).sum()
    }

    /// Returns the number of its events.
    pub(super) fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns its events, ascending.
    pub(super) fn events(&self) -> Vec<u16> {
        let mut events = Vec::with_capacity(COUNTERS_MAX);
        for (index, word) in (0_u16..).zip(&self.0) {
            let mut left = *word;
            while left != 0 {
                events.push(index * 64 + left.trailing_zeros() as u16);
                left &= left - 1;
            }
        }
        events
    }

    /// Returns whether all of `other` are in it.
    pub(super) fn holds(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(word, other)| other & !word == 0)
    }
}
