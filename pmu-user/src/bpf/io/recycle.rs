//! Recycling of slots of block requests and of packets: the lifecycle of each kind, and its operations on the
//! maps.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::offset_of,
    path::Path,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use aya::maps::MapError;
use pmu_common::{
    io::{
        IoKey, Recent,
        block::{BY_REQUEST, HISTOGRAMS, INSERTED, InFlight, SLOT_BITS, of_device_word},
        net::{NetCount, OWNER_MANY, OWNER_OUTSIDER},
    },
    name::io::map as names,
};
use rustix::thread::{MembarrierCommand, membarrier};

use super::{
    lifecycle::{Eviction, Lifecycle, Rows, is_same},
    maps::{Maps, owner_slots},
    rows::{CHANGES_WORD, has_ended, holder_of, net_owner_of},
    slots::Slots,
};
use crate::{
    bpf::{LoadError, loaded::failed, mapped::Pod},
    drain::io::{
        block::{DeviceNumber, Whose},
        net::NetOwner,
        traffic::Retired,
    },
    machine::cpu,
    plan::request::By,
};

/// Word of a request in flight that holds its slot.
const STATE_WORD: usize = offset_of!(InFlight, state) / 8;
/// Time after which every program is taken to have ended, where the kernel gives no sign: a task cannot
/// interrupt a program.
const LONG: Duration = Duration::from_secs(1);

/// Holder of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Owner of requests of a device.
    Block(DeviceNumber, Whose),
    /// Owner of packets.
    Net(NetOwner),
}

/// State of recycling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recycling {
    /// There are enough slots.
    Idle,
    /// More than half of the slots are in use.
    Short,
    /// Some slots are on their way to reuse; each step takes a few milliseconds.
    Busy,
}

/// Lifecycles of the slots of both kinds, and the last counts of reused slots.
pub(super) struct Recycler {
    block: (Lifecycle, Grace),
    net: (Lifecycle, Grace),
    retired: Retired,
}

impl Recycler {
    pub(super) fn new() -> Self {
        let begun = || (Lifecycle::new(), Grace::default());
        Self { block: begun(), net: begun(), retired: Retired::default() }
    }

    /// Schedules a retry for owners that share a row: see [`Lifecycle::judge_again`].
    pub(super) const fn judge_again(&mut self) {
        self.block.0.judge_again();
        self.net.0.judge_again();
    }

    /// Returns the rows that were given up since the last call.
    pub(super) fn take(&mut self) -> Retired {
        std::mem::take(&mut self.retired)
    }

    pub(super) const fn state(&self) -> Recycling {
        let (block, net) = (&self.block.0, &self.net.0);
        if block.is_busy() || net.is_busy() {
            Recycling::Busy
        } else if block.is_short() || net.is_short() {
            Recycling::Short
        } else {
            Recycling::Idle
        }
    }

    /// Continues with the slots on their way, and looks for more.
    pub(super) fn recycle(
        &mut self,
        maps: &mut Maps,
        by: By,
        now_ns: u64,
        fate: &mut impl FnMut(Holder) -> Eviction,
    ) -> Result<(), LoadError> {
        let refused = maps.refused();
        for (kind, (lifecycle, grace)) in [(Kind::Block, &mut self.block), (Kind::Net, &mut self.net)] {
            let mut rows = KindRows { kind, maps, by, grace, retired: &mut self.retired };
            lifecycle.advance(&mut rows)?;
            lifecycle.look(&mut rows, now_ns, refused, &mut |key| {
                fate(match kind {
                    Kind::Block => {
                        let (device, _, whose) = holder_of(key, by);
                        Holder::Block(device, whose)
                    }
                    Kind::Net => Holder::Net(net_owner_of(key)),
                })
            })?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Block,
    Net,
}

struct KindRows<'a> {
    kind: Kind,
    maps: &'a mut Maps,
    by: By,
    grace: &'a mut Grace,
    retired: &'a mut Retired,
}

impl KindRows<'_> {
    const fn of(&self) -> &Slots {
        match self.kind {
            Kind::Block => &self.maps.block,
            Kind::Net => &self.maps.net,
        }
    }

    const fn of_mut(&mut self) -> &mut Slots {
        match self.kind {
            Kind::Block => &mut self.maps.block,
            Kind::Net => &mut self.maps.net,
        }
    }

    /// Clears rows of `IO_RECENT`. Packets have none, because each looks its key up. A row may be written
    /// while it is read or cleared: its seal detects a mixture.
    fn clear_recent(&mut self, is_wrong: impl Fn(&Slots, &Recent) -> bool) -> Result<(), LoadError> {
        let Kind::Block = self.kind else { return Ok(()) };
        let Maps { recent, block, .. } = &mut *self.maps;
        let mut clear = || -> Result<(), MapError> {
            for index in 0..recent.len() {
                let row = recent.get(&index, 0)?.0;
                if row.seal != 0 && is_wrong(block, &row) {
                    recent.set(index, Pod(Recent::ZERO), 0)?;
                }
            }
            Ok(())
        };
        clear().map_err(|error| failed(names::RECENT, error))
    }

    /// Reads a slot for the last time and clears its rows.
    fn retire(&mut self, slot: u32) {
        let maps = &*self.maps;
        let cpus = maps.cpus.len();
        match self.kind {
            Kind::Block => {
                let row = maps.block_row(slot as usize, cpus, self.by);
                if row.count.changes > 0 {
                    self.retired.block.push(row);
                }
                let lanes = maps.block_latencies.len() / maps.block.owners.len();
                debug_assert!(lanes.is_multiple_of(HISTOGRAMS as usize));
                let lanes = slot as usize * lanes..(slot as usize + 1) * lanes;
                maps.by_cpu(slot).for_each(|row| maps.block_counts.clear(row));
                lanes.for_each(|row| maps.block_latencies.clear(row));
            }
            Kind::Net => {
                let row = maps.net_row(slot as usize, cpus);
                if row.count != NetCount::ZERO {
                    self.retired.net.push(row);
                }
                maps.by_cpu(slot).for_each(|row| maps.net_counts.clear(row));
            }
        }
        self.of().owners.clear(slot as usize);
    }
}

impl Rows for KindRows<'_> {
    fn owner_slots(&self) -> u32 {
        owner_slots(self.slots())
    }

    fn slots(&self) -> u32 {
        self.of().len()
    }

    fn key(&self, slot: u32) -> IoKey {
        self.of().key(slot)
    }

    fn changes(&self, slot: u32) -> u64 {
        let changes = |row| match self.kind {
            Kind::Block => self.maps.block_counts.read_word(row, CHANGES_WORD),
            Kind::Net => {
                let packets = self.maps.net_counts.read(row).packets;
                packets.into_iter().flatten().fold(0, u64::wrapping_add)
            }
        };
        self.maps.by_cpu(slot).map(changes).fold(0, u64::wrapping_add)
    }

    fn is_published(&self, slot: u32) -> bool {
        self.of().is_published(slot)
    }

    fn forget(&mut self, slots: &BTreeSet<u32>) -> Result<BTreeSet<u32>, LoadError> {
        let kind = self.kind;
        self.of_mut().forget(slots, |key| match kind {
            Kind::Block => of_device_word(key.device).3 > BY_REQUEST,
            Kind::Net => matches!(key.owner, OWNER_MANY | OWNER_OUTSIDER),
        })
    }

    fn forget_recent(&mut self, slots: &BTreeMap<u32, IoKey>) -> Result<(), LoadError> {
        self.clear_recent(|_, row| {
            slots.contains_key(&row.slot) || slots.values().any(|key| is_same(key, &row.key))
        })
    }

    fn unshare(&mut self) -> Result<(), LoadError> {
        self.of_mut().unshare()
    }

    fn unshare_recent(&mut self) -> Result<(), LoadError> {
        self.clear_recent(|slots, row| row.slot >= slots.len() || !is_same(&slots.key(row.slot), &row.key))
    }

    /// Returns the slots of requests in flight. A packet is counted at once. A request that waits in a queue
    /// counts even if it has ended, as merged requests have. Where the kernel keeps no start time of a
    /// request, the next one at its place begins with its state.
    fn held(&self, slots: &BTreeSet<u32>) -> BTreeSet<u32> {
        let Kind::Block = self.kind else { return BTreeSet::new() };
        let of = |index: usize| {
            let [a, b, c, d, ..] = self.maps.in_flight.read_word(index, STATE_WORD).to_ne_bytes();
            let state = u32::from_ne_bytes([a, b, c, d]);
            let slot = state & SLOT_BITS;
            let is_held = slots.contains(&slot) && (state & INSERTED != 0 || !has_ended(self.maps, index));
            is_held.then_some(slot)
        };
        (0..self.maps.in_flight.len()).filter_map(of).collect()
    }

    fn give_up(&mut self, slots: &BTreeSet<u32>) {
        slots.iter().for_each(|&slot| self.retire(slot));
        let limit = self.owner_slots();
        self.of_mut().offer(slots, limit);
    }

    fn begin_grace(&mut self) {
        self.grace.begin();
    }

    fn is_grace_over(&mut self) -> bool {
        self.grace.is_over()
    }
}

/// Last grace period that began: when one is over, every program that ran when it began has ended.
#[derive(Debug, Default)]
struct Grace {
    waits: Option<JoinHandle<()>>,
    until: Option<Instant>,
}

impl Grace {
    /// Begins a grace period. Another thread waits for its end, which takes the kernel some 10 ms.
    fn begin(&mut self) {
        let wait = || wait(cpu::online(Path::new("/")).map_or(0, |cpus| cpus.len()));
        self.waits = thread::Builder::new().name("pmbpf-grace".to_owned()).spawn(wait).ok();
        self.until = if self.waits.is_some() { None } else { Some(Instant::now() + LONG) };
    }

    /// Returns whether the grace period is over.
    fn is_over(&self) -> bool {
        self.waits.as_ref().is_none_or(JoinHandle::is_finished)
            && self.until.is_none_or(|until| Instant::now() >= until)
    }
}

/// Waits for a grace period. `MEMBARRIER_CMD_GLOBAL` is a `synchronize_rcu` (kernel/sched/membarrier.c), and
/// programs on tracepoints and on packets run inside `rcu_read_lock` (`__bpf_trace_run`,
/// `bpf_prog_run_array_cg`). It is refused where CPUs run without a tick, and does nothing where only one CPU
/// is online.
fn wait(online: usize) {
    if online < 2 || membarrier(MembarrierCommand::Global).is_err() {
        thread::sleep(LONG);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Grace, LONG, wait};

    #[test]
    fn a_grace_period_ends_by_itself() {
        let mut grace = Grace::default();
        assert!(grace.is_over());
        grace.begin();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !grace.is_over() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(grace.is_over());
    }

    #[test]
    fn where_the_kernel_does_not_tell_it_is_long() {
        let begun = Instant::now();
        wait(1);
        assert!(begun.elapsed() >= LONG);
    }
}
