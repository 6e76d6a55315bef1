//! Waits for a CPU, charged to whoever had it meanwhile, as one tick read them.

use pmu_common::culprit::{CULPRIT_IDLE, CULPRIT_MIGRATED, CULPRIT_OUTSIDE, Charge, of_pair};
use serde::{Deserialize, Serialize};

use super::SlotId;
use crate::machine::cpu::Cpu;

/// How long tasks of one owner waited for a CPU while another had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CulpritRow {
    /// The CPU that they got.
    pub cpu: Cpu,
    /// Slot of the owner that waited.
    pub victim: SlotId,
    /// Who had the CPU.
    pub culprit: Culprit,
    /// That time in ns, so far.
    pub wait_ns: u64,
}

/// Who had a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Culprit {
    /// The owner of a slot.
    Slot(SlotId),
    /// The idle task.
    Idle,
    /// A task that no owner counts for.
    Outside,
    /// Not told: the victim waited for another CPU, from which it was moved to this one.
    Migrated,
}

impl CulpritRow {
    /// What a CPU charged; `None` of a free place. `slot_id` tells the present life of a slot.
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
