//! Recycling of the programs' rows: of block requests, and of packets.

use std::collections::{BTreeMap, BTreeSet};

use pmu_common::{
    io::{
        IoKey,
        block::{BY_REQUEST, HISTOGRAMS, of_device_word},
        net::{NetCount, OWNER_MANY, OWNER_OUTSIDER},
    },
    name::io::map as names,
};

use super::{
    grace::Grace,
    maps::{Maps, owner_slots},
    recycle::{Fate, Recycler, Rows},
    rows::{CHANGES_WORD, holder_of, net_owner_of},
    slots::{forget, forget_recent, held, key, leads_to, offer, unshare, unshare_recent},
};
use crate::{
    bpf::{LoadError, maps::failed},
    drain::io::{
        block::{DeviceNumber, Whose},
        net::NetOwner,
        traffic::Retired,
    },
    plan::request::By,
};

/// Whose row it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Requests of a device.
    Block(DeviceNumber, Whose),
    /// Packets.
    Net(NetOwner),
}

/// Which slots are on their way to be used again, and what those had counted that are.
pub(super) struct Lives {
    block: Recycler,
    net: Recycler,
    block_grace: Grace,
    net_grace: Grace,
    retired: Retired,
}

impl Lives {
    pub(super) fn new() -> Self {
        Self {
            block: Recycler::new(),
            net: Recycler::new(),
            block_grace: Grace::default(),
            net_grace: Grace::default(),
            retired: Retired::default(),
        }
    }

    /// Rows that were given up since the last call.
    pub(super) fn take(&mut self) -> Retired {
        std::mem::take(&mut self.retired)
    }

    pub(super) const fn state(&self) -> Recycling {
        if self.block.is_busy() || self.net.is_busy() {
            Recycling::Busy
        } else if self.block.is_short() || self.net.is_short() {
            Recycling::Short
        } else {
            Recycling::Idle
        }
    }

    /// Goes on with what is on its way, and looks for more.
    pub(super) fn recycle(
        &mut self,
        maps: &mut Maps,
        by: By,
        now_ns: u64,
        fate: &mut impl FnMut(Holder) -> Fate,
    ) -> Result<(), LoadError> {
        let refused = maps.refused();
        let retired = &mut self.retired;
        let mut rows = BlockRows { maps, by, grace: &mut self.block_grace, retired };
        self.block.advance(&mut rows)?;
        self.block.look(&mut rows, now_ns, refused, &mut |key| {
            let (device, _, whose) = holder_of(key, by);
            fate(Holder::Block(device, whose))
        })?;
        let mut rows = NetRows { maps, grace: &mut self.net_grace, retired };
        self.net.advance(&mut rows)?;
        self.net.look(&mut rows, now_ns, refused, &mut |key| fate(Holder::Net(net_owner_of(key))))
    }
}

/// Is anything on its way?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recycling {
    /// There are slots enough.
    Idle,
    /// More than half of them are in use.
    Short,
    /// Some are on their way to be used again; each step takes a few milliseconds.
    Busy,
}

struct BlockRows<'a> {
    maps: &'a mut Maps,
    by: By,
    grace: &'a mut Grace,
    retired: &'a mut Retired,
}

impl Rows for BlockRows<'_> {
    fn owner_slots(&self) -> u32 {
        owner_slots(self.slots())
    }

    fn slots(&self) -> u32 {
        self.maps.block_owners.len() as u32
    }

    fn key(&self, slot: u32) -> IoKey {
        key(&self.maps.block_owners, slot)
    }

    fn changes(&self, slot: u32) -> u64 {
        let changes = |row| self.maps.block_counts.read_word(row, CHANGES_WORD);
        self.maps.by_cpu(slot).map(changes).fold(0, u64::wrapping_add)
    }

    fn is_published(&self, slot: u32) -> bool {
        leads_to(&self.maps.block_slot_of, &self.key(slot), slot)
    }

    fn forget(&mut self, slots: &BTreeSet<u32>) -> Result<BTreeSet<u32>, LoadError> {
        let is_shared = |slot: &u32| of_device_word(self.key(*slot).device).3 > BY_REQUEST;
        let keys = slots.iter().map(|&slot| self.key(slot)).collect();
        let keys = if slots.iter().any(is_shared) { None } else { Some(keys) };
        forget(&mut self.maps.block_slot_of, keys, slots).map_err(|error| failed(names::BLOCK_SLOT_OF, error))
    }

    fn forget_recent(&mut self, slots: &BTreeMap<u32, IoKey>) -> Result<(), LoadError> {
        forget_recent(&mut self.maps.recent, slots).map_err(|error| failed(names::RECENT, error))
    }

    fn unshare(&mut self) -> Result<(), LoadError> {
        let maps = &mut *self.maps;
        unshare(&mut maps.block_slot_of, &maps.block_owners)
            .map_err(|error| failed(names::BLOCK_SLOT_OF, error))
    }

    fn unshare_recent(&mut self) -> Result<(), LoadError> {
        let maps = &mut *self.maps;
        unshare_recent(&mut maps.recent, &maps.block_owners).map_err(|error| failed(names::RECENT, error))
    }

    fn held(&self, slots: &BTreeSet<u32>) -> BTreeSet<u32> {
        held(&self.maps.in_flight, &self.maps.in_flight_ended, slots)
    }

    fn give_up(&mut self, slots: &BTreeSet<u32>) {
        let cpus = self.maps.cpus.len();
        let lanes = self.maps.block_latencies.len() / self.maps.block_owners.len();
        debug_assert!(lanes.is_multiple_of(HISTOGRAMS as usize));
        for &slot in slots {
            let row = self.maps.block_row(slot as usize, cpus, self.by);
            if row.count.changes > 0 {
                self.retired.block.push(row);
            }
            self.maps.by_cpu(slot).for_each(|row| self.maps.block_counts.clear(row));
            let lanes = slot as usize * lanes..(slot as usize + 1) * lanes;
            lanes.for_each(|row| self.maps.block_latencies.clear(row));
            self.maps.block_owners.clear(slot as usize);
        }
        let limit = self.owner_slots();
        offer(&mut self.maps.block_free, slots, limit);
    }

    fn begin_grace(&mut self) {
        self.grace.begin();
    }

    fn is_grace_over(&mut self) -> bool {
        self.grace.is_over()
    }
}

struct NetRows<'a> {
    maps: &'a mut Maps,
    grace: &'a mut Grace,
    retired: &'a mut Retired,
}

impl Rows for NetRows<'_> {
    fn owner_slots(&self) -> u32 {
        owner_slots(self.slots())
    }

    fn slots(&self) -> u32 {
        self.maps.net_owners.len() as u32
    }

    fn key(&self, slot: u32) -> IoKey {
        key(&self.maps.net_owners, slot)
    }

    fn changes(&self, slot: u32) -> u64 {
        let packets =
            |row| self.maps.net_counts.read(row).packets.into_iter().flatten().fold(0, u64::wrapping_add);
        self.maps.by_cpu(slot).map(packets).fold(0, u64::wrapping_add)
    }

    fn is_published(&self, slot: u32) -> bool {
        leads_to(&self.maps.net_slot_of, &self.key(slot), slot)
    }

    fn forget(&mut self, slots: &BTreeSet<u32>) -> Result<BTreeSet<u32>, LoadError> {
        let is_shared = |slot: &u32| matches!(self.key(*slot).owner, OWNER_MANY | OWNER_OUTSIDER);
        let keys = slots.iter().map(|&slot| self.key(slot)).collect();
        let keys = if slots.iter().any(is_shared) { None } else { Some(keys) };
        forget(&mut self.maps.net_slot_of, keys, slots).map_err(|error| failed(names::NET_SLOT_OF, error))
    }

    /// Packets have none: each looks its key up.
    fn forget_recent(&mut self, _: &BTreeMap<u32, IoKey>) -> Result<(), LoadError> {
        Ok(())
    }

    fn unshare(&mut self) -> Result<(), LoadError> {
        let maps = &mut *self.maps;
        unshare(&mut maps.net_slot_of, &maps.net_owners).map_err(|error| failed(names::NET_SLOT_OF, error))
    }

    fn unshare_recent(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// A packet is counted at once.
    fn held(&self, _: &BTreeSet<u32>) -> BTreeSet<u32> {
        BTreeSet::new()
    }

    fn give_up(&mut self, slots: &BTreeSet<u32>) {
        let cpus = self.maps.cpus.len();
        for &slot in slots {
            let row = self.maps.net_row(slot as usize, cpus);
            if row.count != NetCount::ZERO {
                self.retired.net.push(row);
            }
            self.maps.by_cpu(slot).for_each(|row| self.maps.net_counts.clear(row));
            self.maps.net_owners.clear(slot as usize);
        }
        let limit = self.owner_slots();
        offer(&mut self.maps.net_free, slots, limit);
    }

    fn begin_grace(&mut self) {
        self.grace.begin();
    }

    fn is_grace_over(&mut self) -> bool {
        self.grace.is_over()
    }
}
