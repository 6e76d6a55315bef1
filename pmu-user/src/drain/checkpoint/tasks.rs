//! The last reading of every row of tasks.

use std::collections::{BTreeMap, BTreeSet};

use pmu_common::{off_cpu::OffCpu, owner::Rare};

use crate::{
    drain::{
        At, CountRow, CpuRow, Culprit, CulpritRow, Handler, HandlerRow, InterruptedRow, Located, Name,
        OffCpuRow, Owner, OwnerRow, RareRow, SlotId, SourceRow, SpareInterruptsRow, TasksDrain,
        reading::SamplingReading, unwinding::Unwinding,
    },
    machine::{cgroup::ancestors, cpu::Cpu},
    untrusted::Untrusted,
};

/// Last rows of tasks.
#[derive(Debug, Default)]
pub(super) struct TasksRows {
    /// Time, ticks, costs and pressure of the last drain that held them.
    last: TasksDrain,
    cpus: BTreeMap<Cpu, CpuRow>,
    /// Owners by slot, each in the newest life of the slot.
    owners: BTreeMap<u32, OwnerRow>,
    /// Cgroups above those of the owners, by path.
    above: BTreeMap<Untrusted, Owner>,
    counts: BTreeMap<(SlotId, Cpu), CountRow>,
    culprits: BTreeMap<(Cpu, SlotId, Culprit), u64>,
    off_cpu: BTreeMap<SlotId, OffCpu>,
    rare: BTreeMap<SlotId, Rare>,
    handlers: BTreeMap<(Cpu, Handler), HandlerRow>,
    spare_interrupts: BTreeMap<Cpu, SpareInterruptsRow>,
    interrupted: BTreeMap<SlotId, InterruptedRow>,
    uncovered: BTreeMap<Cpu, u64>,
    sampled: BTreeMap<(u32, Cpu), SamplingReading>,
    losses: BTreeMap<String, u64>,
    sources: BTreeMap<u32, SourceRow>,
    first: BTreeSet<At>,
    /// Names of code that were looked up during counting.
    names: BTreeMap<At, Name>,
}

impl TasksRows {
    pub(super) fn take(&mut self, drain: &TasksDrain) {
        self.meet(drain);
        self.cpus.extend(drain.cpus.iter().map(|row| (row.cpu, row.clone())));
        for row in &drain.counts {
            self.count(row);
        }
        let charges = drain.culprits.iter().map(|row| ((row.cpu, row.victim, row.culprit), row.wait_ns));
        self.culprits.extend(charges);
        for OffCpuRow { slot, so_far } in &drain.off_cpu {
            // As in the model: a sum that is smaller than before lacks a wait for a moment.
            let most = self.off_cpu.entry(*slot).or_insert(OffCpu::ZERO);
            most.ns.iter_mut().zip(so_far.ns).for_each(|(most, ns)| *most = ns.max(*most));
        }
        self.rare.extend(drain.rare.iter().map(|row| (row.slot, row.so_far)));
        self.handlers.extend(drain.handlers.iter().map(|row| ((row.cpu, row.handler), row.clone())));
        self.spare_interrupts.extend(drain.spare_interrupts.iter().map(|row| (row.cpu, *row)));
        self.interrupted.extend(drain.interrupted.iter().map(|row| (row.slot, *row)));
        self.uncovered.extend(drain.uncovered.iter().copied());
        self.sampled.extend(drain.sampled.iter().map(|reading| ((reading.event, reading.cpu), *reading)));
        self.losses.extend(drain.losses.iter().cloned());
        self.sources.extend(drain.located.sources.iter().map(|row| (row.source, row.clone())));
        self.first.extend(&drain.located.unwinding.first);
        self.names.extend(drain.located.names.iter().map(|name| (name.at, name.clone())));
        self.last.at_ns = drain.at_ns;
        self.last.ticks = drain.ticks;
        self.last.programs.clone_from(&drain.programs);
        self.last.cost = drain.cost;
        // A drain that came early has no pressure.
        if !drain.pressure.is_empty() {
            self.last.pressure.clone_from(&drain.pressure);
        }
    }

    /// Takes the owners of a drain. Drops the rows of slot lives that are over.
    fn meet(&mut self, drain: &TasksDrain) {
        for owner in &drain.above {
            if let Owner::Cgroup { path, .. } = owner {
                self.above.insert(path.clone(), owner.clone());
            }
        }
        let mut is_reused = false;
        for row in &drain.owners {
            let before = self.owners.insert(row.slot.slot, row.clone());
            is_reused |= before.is_some_and(|before| before.slot != row.slot);
        }
        if is_reused {
            let owners = &self.owners;
            let lives =
                |id: &SlotId| owners.get(&id.slot).is_none_or(|row| row.slot.generation <= id.generation);
            self.counts.retain(|(slot, _), _| lives(slot));
            self.off_cpu.retain(|slot, _| lives(slot));
            self.rare.retain(|slot, _| lives(slot));
            self.interrupted.retain(|slot, _| lives(slot));
            self.culprits.retain(|(_, victim, culprit), _| {
                lives(victim) && !matches!(culprit, Culprit::Slot(slot) if !lives(slot))
            });
        }
    }

    fn count(&mut self, row: &CountRow) {
        let mut kept = row.clone();
        if let (true, Some(last)) = (row.latencies.is_empty(), self.counts.get(&(row.slot, row.cpu))) {
            // Empty latencies are omitted, not zero: only the samples have changed.
            kept.latencies.clone_from(&last.latencies);
        }
        self.counts.insert((row.slot, row.cpu), kept);
    }

    /// Returns the paths of the cgroups that rows refer to.
    pub(super) fn cgroups(&self) -> impl Iterator<Item = &Untrusted> {
        let own = self.owners.values().filter_map(|row| path(&row.owner));
        own.chain(self.above.keys())
    }

    /// Returns all rows as a drain.
    pub(super) fn drain(&mut self) -> TasksDrain {
        let own = self.owners.values().filter_map(|row| path(&row.owner));
        let above: BTreeSet<&[u8]> = own.flat_map(|path| ancestors(path.as_bytes())).collect();
        self.above.retain(|path, _| above.contains(path.as_bytes()));
        let mut owners: Vec<OwnerRow> = self.owners.values().cloned().collect();
        // Of two cgroups with one path, the live one comes last.
        owners.sort_by_key(|row| (row.ended_ns.is_none(), row.ended_ns, row.slot));
        let charge = |(&(cpu, victim, culprit), &wait_ns): (&(Cpu, SlotId, Culprit), &u64)| CulpritRow {
            cpu,
            victim,
            culprit,
            wait_ns,
        };
        let off_cpu = |(&slot, &so_far): (&SlotId, &OffCpu)| OffCpuRow { slot, so_far };
        TasksDrain {
            cpus: self.cpus.values().cloned().collect(),
            owners,
            above: self.above.values().cloned().collect(),
            counts: self.counts.values().cloned().collect(),
            culprits: self.culprits.iter().map(charge).collect(),
            off_cpu: self.off_cpu.iter().map(off_cpu).collect(),
            rare: self.rare.iter().map(|(&slot, &so_far)| RareRow { slot, so_far }).collect(),
            handlers: self.handlers.values().cloned().collect(),
            spare_interrupts: self.spare_interrupts.values().copied().collect(),
            interrupted: self.interrupted.values().copied().collect(),
            uncovered: self.uncovered.iter().map(|(&cpu, &ns)| (cpu, ns)).collect(),
            sampled: self.sampled.values().copied().collect(),
            losses: self.losses.iter().map(|(reason, &count)| (reason.clone(), count)).collect(),
            located: Located {
                sources: self.sources.values().cloned().collect(),
                names: self.names.values().cloned().collect(),
                unwinding: Unwinding { first: self.first.iter().copied().collect(), ..Unwinding::default() },
                ..Located::default()
            },
            ..self.last.clone()
        }
    }
}

fn path(owner: &Owner) -> Option<&Untrusted> {
    match owner {
        Owner::Cgroup { path, .. } => Some(path),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::TasksRows;
    use crate::drain::{At, Located, Name, TasksDrain};

    #[test]
    fn names_that_were_told_before_a_checkpoint_are_in_it() {
        let name = |offset: u64, why: &str| Name::new(At { source: 0, offset }, Err(why.to_owned()));
        let drain = |names: Vec<Name>| TasksDrain {
            located: Located { names, ..Located::default() },
            ..TasksDrain::default()
        };
        let mut rows = TasksRows::default();
        rows.take(&drain(vec![name(1, "a"), name(2, "b")]));
        rows.take(&drain(vec![name(2, "c")]));
        assert_eq!(rows.drain().located.names, [name(1, "a"), name(2, "c")]);
        assert_eq!(rows.drain().located.names.len(), 2, "and in the next one");
    }
}
