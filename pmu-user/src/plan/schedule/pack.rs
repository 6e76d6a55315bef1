//! Packing of items into as few groups as it finds: best fit, then taking some groups apart and packing them
//! again.
//!
//! The search is bounded by rounds, not by time, and its random numbers are seeded: the same input gives the
//! same groups.

use std::cmp::Reverse;

use super::fit::{Group, Seat, Set};

/// Maximum number of times that groups are taken apart. On the trees of three generations of servers, 100
/// times as many found one group less in one of six cases.
const ROUNDS_MAX: usize = 300;

/// Events that belong in one group.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Events of the item.
    pub(super) events: Vec<u16>,
    /// Events of the item, as a set.
    pub(super) set: Set,
    /// Events to which it should be near; its own if there are no others.
    near: Set,
    /// Difficulty of placing its events, added up.
    scarcity: u32,
}

impl Item {
    /// Returns an item of events that fit an empty group.
    pub(super) fn new(events: Vec<u16>, seats: &[Seat]) -> Self {
        let set = Set::of(&events, seats.len());
        let scarcity = events.iter().map(|&event| seats[usize::from(event)].scarcity()).sum();
        Self { events, near: set.clone(), set, scarcity }
    }

    /// Returns an item of one event, of many that do not fit a group.
    pub(super) fn part(event: u16, of: &Set, seats: &[Seat]) -> Self {
        Self { near: of.clone(), ..Self::new(vec![event], seats) }
    }
}

/// Items to pack, and the group that they start from.
pub(super) struct Table<'a> {
    /// Requirements of each event.
    pub(super) seats: &'a [Seat],
    /// Items that are packed.
    pub(super) items: &'a [Item],
    /// Group before any event is added.
    pub(super) empty: Group,
}

/// A group that is being filled.
#[derive(Clone, Debug)]
struct Bin {
    group: Group,
    set: Set,
    /// Items that were put here.
    items: Vec<usize>,
}

/// Packs all items, each into one group.
pub(super) fn pack(table: &Table<'_>) -> Vec<Set> {
    let mut order: Vec<usize> = (0..table.items.len()).collect();
    order.sort_by_key(|&item| Reverse(table.items[item].scarcity));
    let mut bins = Vec::new();
    order.into_iter().for_each(|item| table.insert(item, &mut bins));
    let mut chance = Chance(1);
    let mut merit = table.merit(&bins);
    // Few groups can be taken apart in few ways.
    for _ in 0..(bins.len() * bins.len()).min(ROUNDS_MAX) {
        if bins.len() < 2 {
            break;
        }
        let mut tried = bins.clone();
        for item in take_apart(table, &mut tried, &mut chance) {
            table.insert(item, &mut tried);
        }
        let reached = table.merit(&tried);
        if reached <= merit {
            (bins, merit) = (tried, reached);
        }
    }
    bins.into_iter().map(|bin| bin.set).collect()
}

impl Table<'_> {
    /// Puts an item where it adds the fewest events, the fullest group first. Opens a new group if none has
    /// room.
    fn insert(&self, item: usize, bins: &mut Vec<Bin>) {
        let Item { set, near, .. } = &self.items[item];
        let place = |(index, bin): (usize, &Bin)| {
            let (lacks, room) = (bin.set.lacks(set), bin.group.room());
            (lacks <= room).then(|| (lacks, bin.set.lacks(near), room, index))
        };
        let mut places: Vec<(u32, u32, u32, usize)> = bins.iter().enumerate().filter_map(place).collect();
        places.sort_unstable();
        if !places.iter().any(|&(.., index)| self.put(item, &mut bins[index])) {
            let mut bin = Bin { group: self.empty, set: Set::new(self.seats.len()), items: Vec::new() };
            self.put(item, &mut bin);
            bins.push(bin);
        }
    }

    /// Puts an item into a group, if it fits.
    fn put(&self, item: usize, bin: &mut Bin) -> bool {
        let added = &self.items[item];
        let Some(group) = bin.group.with(&added.events, self.seats) else { return false };
        bin.group = group;
        bin.set.add(&added.set);
        bin.items.push(item);
        true
    }

    /// Returns the merit of a packing, of which less is better. Few groups come first. Among as many, some
    /// should be full and others nearly empty, since those may vanish next.
    fn merit(&self, bins: &[Bin]) -> (usize, Reverse<u64>) {
        let square = |bin: &Bin| {
            let scarcity = |event: u16| u64::from(self.seats[usize::from(event)].scarcity());
            bin.group.events().map(scarcity).sum::<u64>().pow(2)
        };
        (bins.len(), Reverse(bins.iter().map(square).sum()))
    }
}

/// Removes two to four groups and returns their items: the hardest first, or nearly so.
fn take_apart(table: &Table<'_>, bins: &mut Vec<Bin>, chance: &mut Chance) -> Vec<usize> {
    let count = (2 + chance.below(3) as usize).min(bins.len());
    let mut loose = Vec::new();
    for _ in 0..count {
        let index = chance.below(bins.len() as u32) as usize;
        loose.extend(bins.swap_remove(index).items);
    }
    let most = [1, 32, 64][chance.below(3) as usize];
    loose.sort_by_cached_key(|&item| Reverse(table.items[item].scarcity + chance.below(most)));
    loose
}

/// Seeded random numbers (SplitMix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Returns a number below `end`.
    fn below(&mut self, end: u32) -> u32 {
        (((self.next() >> 32) * u64::from(end)) >> 32) as u32
    }
}
