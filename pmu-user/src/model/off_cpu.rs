//! Time for which owners' tasks were off the CPU, between readings.

use foldhash::HashMap;

use pmu_common::off_cpu::OffCpu;

use crate::drain::{OffCpuRow, SlotId};

/// Largest reading of every slot.
#[derive(Debug, Default)]
pub(super) struct Waits(HashMap<SlotId, OffCpu>);

impl Waits {
    /// Returns the time since the previous reading. A wait that ended while a drain was being read may be in
    /// none of its rows. The sum is then smaller than before, and the missing part comes with the next drain.
    pub(super) fn advance(&mut self, row: &OffCpuRow) -> OffCpu {
        let most = self.0.entry(row.slot).or_default();
        let mut new = OffCpu::ZERO;
        for ((new, most), &so_far) in new.ns.iter_mut().zip(&mut most.ns).zip(&row.so_far.ns) {
            *new = so_far.saturating_sub(*most);
            *most = (*most).max(so_far);
        }
        new
    }

    /// Drops slot lives that are over.
    pub(super) fn retain(&mut self, alive: impl Fn(&SlotId) -> bool) {
        self.0.retain(|slot, _| alive(slot));
    }
}

#[cfg(test)]
mod tests {
    use pmu_common::off_cpu::{OffCpu, SLEEP};

    use super::{OffCpuRow, SlotId, Waits};

    fn row(generation: u32, ns: u64) -> OffCpuRow {
        let mut so_far = OffCpu::ZERO;
        so_far.add(SLEEP, ns);
        OffCpuRow { slot: SlotId { slot: 3, generation }, so_far }
    }

    #[test]
    fn what_a_drain_misses_comes_with_the_next_and_nothing_comes_twice() {
        let mut waits = Waits::default();
        let sleeps = [100, 250, 180, 300].map(|so_far| waits.advance(&row(0, so_far)).ns[SLEEP as usize]);
        assert_eq!(sleeps, [100, 150, 0, 50]);
    }

    #[test]
    fn a_slot_in_another_life_begins_at_zero() {
        let mut waits = Waits::default();
        waits.advance(&row(0, 100));
        assert_eq!(waits.advance(&row(1, 30)).ns[SLEEP as usize], 30);
        waits.retain(|slot| slot.generation > 0);
        assert_eq!(waits.0.len(), 1);
    }
}
