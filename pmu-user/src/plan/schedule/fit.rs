//! Does a group fit the counters? Events go to counters by augmenting paths, so a group fits exactly if any placement does.
//!
//! Events are numbered densely here: only those that need a general counter.

/// Most general counters that a PMU can have.
const COUNTERS_MAX: usize = 32;

/// What an event asks of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// General counters that can count it.
    pub(super) counters: u32,
    /// Register with a value of its own.
    pub(super) resource: Option<super::Resource>,
}

impl Seat {
    /// How hard it is to find a counter: 32 if one alone will do, 1 if any of 32 will.
    pub(super) const fn scarcity(&self) -> u32 {
        match self.counters.count_ones() {
            0 => COUNTERS_MAX as u32,
            counters => COUNTERS_MAX as u32 / counters,
        }
    }
}

/// Events on general counters, each on its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// Which event a counter counts.
    holder: [u16; COUNTERS_MAX],
    /// Counters that count nothing yet.
    free: u32,
    /// Counters with an event.
    taken: u32,
}

impl Group {
    /// An empty group on these counters.
    pub(super) const fn new(counters: u32) -> Self {
        Self { holder: [0; COUNTERS_MAX], free: counters, taken: 0 }
    }

    /// Counters left.
    pub(super) const fn room(&self) -> u32 {
        self.free.count_ones()
    }

    /// Its events, by counter.
    pub(super) fn events(&self) -> impl Iterator<Item = u16> + '_ {
        bits(self.taken).map(|counter| self.holder[counter])
    }

    /// The group with these events as well; those it has already cost nothing. `None` if they do not fit.
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

    /// Adds events in order while they fit; returns those that went in and those that did not.
    pub(super) fn filled(mut self, events: &[u16], seats: &[Seat]) -> (Vec<u16>, Vec<u16>) {
        events.iter().partition(|&&event| match self.with(&[event], seats) {
            Some(group) => {
                self = group;
                true
            }
            None => false,
        })
    }

    /// Is there a register for the event's value, or one that holds it already?
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

    /// Finds a counter, moving others if need be. `tried` keeps counters from being asked twice.
    fn place(&mut self, event: u16, seats: &[Seat], tried: &mut u32) -> bool {
        let usable = seats[usize::from(event)].counters;
        // From the top: what can only use few counters can use the low ones, as a rule.
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

/// Positions of the ones, ascending.
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
    /// The empty set of events below `count`.
    pub(super) fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    /// The set of these events, all below `count`.
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

    /// Is it one of them?
    pub(super) fn contains(&self, event: u16) -> bool {
        self.0[usize::from(event) / 64] >> (event % 64) & 1 == 1
    }

    /// Adds all of `other`.
    pub(super) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    /// Adds what is in both of these.
    pub(super) fn add_common(&mut self, one: &Self, other: &Self) {
        let both = one.0.iter().zip(&other.0).map(|(one, other)| one & other);
        self.0.iter_mut().zip(both).for_each(|(word, both)| *word |= both);
    }

    /// Removes all of `other`.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, less)| *word &= !less);
    }

    /// How many of `other` it lacks.
    pub(super) fn lacks(&self, other: &Self) -> u32 {
        self.0.iter().zip(&other.0).map(|(word, other)| (other & !word).count_ones()).sum()
    }

    /// How many it has.
    pub(super) fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Its events, ascending.
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

    /// Are all of `other` in it?
    pub(super) fn holds(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(word, other)| other & !word == 0)
    }
}
