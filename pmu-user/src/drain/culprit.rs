//! Waits for a CPU, charged to what ran on it during the wait, as read in one tick.

use pmu_common::culprit::{CULPRIT_IDLE, CULPRIT_MIGRATED, CULPRIT_OUTSIDE, Charge, of_pair};
use serde::{Deserialize, Serialize};

use super::SlotId;
use crate::machine::cpu::Cpu;

/// Time for which tasks of one owner waited for a CPU that a culprit had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CulpritRow {
    /// CPU that the tasks got.
    pub cpu: Cpu,
    /// Slot of the owner that waited.
    pub victim: SlotId,
    /// Culprit that had the CPU.
    pub culprit: Culprit,
    /// Wait time in ns, so far.
    pub wait_ns: u64,
}

/// Owner or task that had a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Culprit {
    /// The owner of a slot.
    Slot(SlotId),
    /// The idle task.
    Idle,
    /// A task that no owner counts for.
    Outside,
    /// Not known: the victim waited for another CPU, from which it was moved to this one.
    Migrated,
}

impl CulpritRow {
    /// Returns the row of a CPU's charge, or `None` for a free entry. `slot_id` returns the present life of a
    /// slot.
    pub fn of(cpu: Cpu, charge: &Charge, slot_id: impl Fn(u32) -> SlotId) -> Option<Self> {
        let (victim, culprit) = of_pair(charge.pair)?;
        let culprit = match culprit {
            CULPRIT_IDLE => Culprit::Idle,
            CULPRIT_OUTSIDE => Culprit::Outside,
            CULPRIT_MIGRATED => Culprit::Migrated,
            slot => Culprit::Slot(slot_id(slot)),
        };
        Some(Self { cpu, victim: slot_id(victim), culprit, wait_ns: charge.wait_ns })
    }
}
