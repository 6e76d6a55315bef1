//! Multiplexing of counters per owner: opens groups, rotates them, and reads the counts of every owner in a
//! slice.
//!
//! A slice ends CPU by CPU: the old group stops, the flush program accounts what runs there and makes the new
//! group the active one, and the new group starts. Rows of two slices exist side by side, so those of the old
//! one can be read later.

pub(in crate::session) mod order;
mod rows;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    time::Instant,
};

use pmu_common::turn::Turn;

use self::order::Order;
use super::{super::Next, SessionError, TasksSession, owners::Owners};
use crate::{
    bpf::{Maps, Object},
    drain::reading::SliceRow,
    machine::{
        cpu::Cpu,
        pmu::catalog::{self, PmuCpus},
    },
    perf::{PlannedGroup, Stay},
    plan::{
        Plan,
        multiplexing::{Multiplexing, Unfit},
    },
};

const WANTED_SLICE_WORD: usize = std::mem::offset_of!(Turn, wanted_slice) / 8;
const WANTED_SHIFT_WORD: usize = std::mem::offset_of!(Turn, wanted_shift) / 8;
const WANTED_LEADERS_WORD: usize = std::mem::offset_of!(Turn, wanted_leaders) / 8;
const WANTED_MEMBERS_WORD: usize = std::mem::offset_of!(Turn, wanted_members) / 8;
const ALWAYS_WORD: usize = std::mem::offset_of!(Turn, always) / 8;
const SLICE_WORD: usize = std::mem::offset_of!(Turn, slice) / 8;

/// The counters of one core PMU, taking turns.
#[derive(Debug)]
pub(super) struct Rotation {
    /// Index of the PMU in the plan.
    index: u32,
    turns: Multiplexing,
    /// Distance between the first descriptors of two CPUs.
    stride: u32,
    /// Open groups by CPU, without CPUs that went offline.
    open: BTreeMap<Cpu, OpenCpu>,
    /// CPUs of the plan that this PMU has.
    wanted: Vec<Cpu>,
    order: Order,
    /// The active slice, 0 before the first.
    slice: u64,
    /// The active group.
    group: Option<u32>,
    /// Time at which the slice is to end, if groups take turns.
    due: Option<Instant>,
}

/// Open groups of a CPU.
#[derive(Debug)]
struct OpenCpu {
    always: Vec<PlannedGroup>,
    groups: Vec<PlannedGroup>,
}

/// Opens all counters per owner, disabled.
pub(super) fn open(plan: &Plan, maps: &Maps, root: &Path) -> Result<Vec<Rotation>, SessionError> {
    let stride = plan.counters();
    let mut taken = BTreeSet::new();
    let open = |(index, turns): (usize, &Multiplexing)| {
        turns.check()?;
        let has = cores_of(root, &turns.pmu);
        let wanted: Vec<Cpu> = plan.cpus.iter().copied().filter(|&cpu| has(cpu)).collect();
        if let Some(shared) = wanted.iter().find(|cpu| !taken.insert(**cpu)) {
            return Err(Unfit::Shared(turns.pmu.clone(), shared.0).into());
        }
        let mut rotation = Rotation {
            index: index as u32,
            turns: turns.clone(),
            stride,
            open: BTreeMap::new(),
            wanted,
            order: Order::new(turns.groups.len() as u32, order::seed()),
            slice: 0,
            group: None,
            due: None,
        };
        if let Some(metrics) = plan.metrics.get(index) {
            rotation.keep_to(&metrics.first_groups());
        }
        for cpu in rotation.wanted.clone() {
            rotation.open(maps, cpu)?;
        }
        Ok(rotation)
    };
    plan.turns.iter().enumerate().map(open).collect()
}

/// Returns a test of whether a core PMU has a CPU. The PMU lists its CPUs if cores differ.
fn cores_of(root: &Path, pmu: &str) -> impl Fn(Cpu) -> bool + use<> {
    let place = catalog::place(root, pmu);
    move |cpu| match &place {
        Some(PmuCpus::Cores(cores)) => cores.contains(&cpu),
        _ => true,
    }
}

impl Rotation {
    /// Opens every group on `cpu` and lends the events to the programs, which read none of them yet.
    fn open(&mut self, maps: &Maps, cpu: Cpu) -> Result<(), SessionError> {
        let mut first = cpu.0 * self.stride;
        let mut open = |group, stay| -> Result<PlannedGroup, SessionError> {
            let opened = PlannedGroup::on_cpu(group, &self.turns.pmu, cpu, stay)?;
            // The place behind a leader's holds no descriptor: the program reads the leader once for both.
            let places = std::iter::once(first).chain(first + 2..);
            for (place, event) in places.zip(opened.events()) {
                maps.counters
                    .set(place, event)
                    .map_err(|error| SessionError::Io("cannot lend a counter to the programs", error))?;
            }
            first += group.places() as u32;
            Ok(opened)
        };
        let always =
            self.turns.always.iter().map(|group| open(group, Stay::Pinned)).collect::<Result<_, _>>()?;
        let groups =
            self.turns.groups.iter().map(|group| open(group, Stay::IfItFits)).collect::<Result<_, _>>()?;
        maps.turns.write_word(cpu.0 as usize, ALWAYS_WORD, self.turns.always_places() as u64);
        self.open.insert(cpu, OpenCpu { always, groups });
        Ok(())
    }

    /// Limits turns to these groups from the next slice on. A single group counts all the time anyway.
    fn keep_to(&mut self, groups: &[u32]) {
        if self.turns.take_turns() {
            self.order.keep_to(groups);
        }
    }

    /// Starts what always counts, and the first slice. The CPUs count by now. Returns the number of CPUs that
    /// could not be flushed.
    fn start(&mut self, object: &mut Object) -> io::Result<u64> {
        self.slice = 1;
        self.group = self.order.next();
        self.set_due();
        let mut lost = 0;
        for (&cpu, open) in &self.open {
            open.always.iter().try_for_each(PlannedGroup::enable)?;
            self.want(&object.maps, cpu);
            lost += u64::from(object.flush(cpu).is_err());
            self.in_force(open).map_or(Ok(()), PlannedGroup::enable)?;
        }
        Ok(lost)
    }

    /// Begins the next slice on every CPU. Returns the number of CPUs that could not be flushed.
    fn turn(&mut self, object: &mut Object) -> u64 {
        let before = self.group;
        self.slice += 1;
        self.group = self.order.next();
        self.set_due();
        let mut lost = 0;
        for (&cpu, open) in &self.open {
            let changes = before != self.group;
            let old = before.and_then(|group| open.groups.get(group as usize)).filter(|_| changes);
            // A counter that cannot be stopped or started shows by the time it ran.
            let _ = old.map_or(Ok(()), PlannedGroup::disable);
            self.want(&object.maps, cpu);
            lost += u64::from(object.flush(cpu).is_err());
            let _ = self.in_force(open).filter(|_| changes).map_or(Ok(()), PlannedGroup::enable);
        }
        lost
    }

    /// Requests the next slice of counters that are not multiplexed: it begins on a CPU when that is flushed.
    fn want_next(&mut self, maps: &Maps) {
        self.slice += 1;
        self.open.keys().for_each(|&cpu| self.want(maps, cpu));
    }

    fn want(&self, maps: &Maps, cpu: Cpu) {
        let wanted = self.turns.in_force(self.group);
        let row = cpu.0 as usize;
        maps.turns.write_word(row, WANTED_SHIFT_WORD, wanted.shift);
        maps.turns.write_word(row, WANTED_LEADERS_WORD, wanted.leaders);
        maps.turns.write_word(row, WANTED_MEMBERS_WORD, wanted.members);
        maps.turns.write_word(row, WANTED_SLICE_WORD, self.slice);
    }

    fn in_force<'a>(&self, open: &'a OpenCpu) -> Option<&'a PlannedGroup> {
        open.groups.get(self.group? as usize)
    }

    fn set_due(&mut self) {
        self.due = self.turns.take_turns().then(|| Instant::now() + self.order.jitter(self.turns.slice));
    }

    fn rows(&self, maps: &Maps, owners: &Owners, cpus: u32, slice: u64, group: Option<u32>) -> Vec<SliceRow> {
        let sums = rows::read(maps, cpus, self.open.keys().copied(), slice);
        sums.into_iter()
            .map(|(slot, sum)| SliceRow {
                slot: owners.slot_id(slot),
                turns: self.index,
                slice,
                ..sum.row(&self.turns, group)
            })
            .collect()
    }

    /// Ends the counting. Otherwise the map would keep the events going until it is closed.
    fn stop(&self) {
        for open in self.open.values() {
            let _ = open.always.iter().chain(self.in_force(open)).try_for_each(PlannedGroup::disable);
        }
    }
}

impl TasksSession {
    /// Starts the counters per owner. The CPUs count by now.
    pub(super) fn start_turns(&mut self) -> Result<(), SessionError> {
        for rotation in &mut self.rotations {
            self.lost_flushes += rotation
                .start(&mut self.object)
                .map_err(|error| SessionError::Io("cannot start the counters", error))?;
        }
        Ok(())
    }

    /// Returns the time at which the next slice is to end, if counters take turns.
    pub(in crate::session) fn turn_due(&self) -> Option<Instant> {
        self.rotations.iter().filter_map(|rotation| rotation.due).min()
    }

    /// Gives turns to these groups of the metrics' counters only, by core PMU.
    pub(in crate::session) fn keep_to(&mut self, next: &Next) {
        for (rotation, groups) in self.rotations.iter_mut().zip(next) {
            groups.iter().for_each(|groups| rotation.keep_to(groups));
        }
    }

    /// Ends the slices that are due, and reads their counts.
    pub(in crate::session) fn take_turns(&mut self) {
        let now = Instant::now();
        self.take_turns_that(|due| due <= now);
    }

    /// Ends every slice of counters that take turns.
    pub(super) fn end_turns(&mut self) {
        self.take_turns_that(|_| true);
    }

    fn take_turns_that(&mut self, is_due: impl Fn(Instant) -> bool) {
        let cpus = self.machine.cpu.possible;
        for rotation in &mut self.rotations {
            if !rotation.due.is_some_and(&is_due) {
                continue;
            }
            let (slice, group) = (rotation.slice, rotation.group);
            self.lost_flushes += rotation.turn(&mut self.object);
            self.slices.extend(rotation.rows(&self.object.maps, &self.owners, cpus, slice, group));
        }
    }

    /// Requests the next slice if nothing takes turns. A flush of every CPU must follow. Groups that always
    /// count start again if another user had their counters.
    pub(super) fn want_next_slices(&mut self) {
        for open in self.rotations.iter().flat_map(|rotation| rotation.open.values()) {
            // The kernel does nothing for a group that counts.
            let _ = open.always.iter().try_for_each(PlannedGroup::enable);
        }
        for rotation in self.rotations.iter_mut().filter(|rotation| rotation.due.is_none()) {
            rotation.want_next(&self.object.maps);
        }
    }

    /// Returns the counts of owners in slices that ended since the last drain.
    pub(super) fn take_slices(&mut self) -> Vec<SliceRow> {
        let cpus = self.machine.cpu.possible;
        for rotation in self.rotations.iter().filter(|rotation| rotation.due.is_none()) {
            let ended = rotation.slice - 1;
            self.slices.extend(rotation.rows(&self.object.maps, &self.owners, cpus, ended, rotation.group));
        }
        std::mem::take(&mut self.slices)
    }

    /// Stops the counters per owner.
    pub(super) fn stop_turns(&mut self) {
        self.rotations.drain(..).for_each(|rotation| rotation.stop());
    }

    /// Closes the counters of a CPU that went offline: its events are gone for good.
    pub(super) fn close_counters(&mut self, cpu: Cpu) {
        for rotation in &mut self.rotations {
            if rotation.open.remove(&cpu).is_some() {
                self.object.maps.turns.write_word(cpu.0 as usize, SLICE_WORD, 0);
            }
        }
    }

    /// Adds the counters of a CPU that is new to the plan to the wanted ones.
    pub(super) fn want_counters(&mut self, cpu: Cpu) {
        for rotation in &mut self.rotations {
            if cores_of(&self.root, &rotation.turns.pmu)(cpu) {
                rotation.wanted.push(cpu);
            }
        }
    }

    /// Opens the events of a CPU that is back, or new, in the active slice. What cannot be opened stays
    /// closed.
    pub(super) fn reopen_counters(&mut self, cpu: Cpu) {
        for rotation in self.rotations.iter_mut().filter(|rotation| rotation.wanted.contains(&cpu)) {
            if rotation.open(&self.object.maps, cpu).is_err() {
                continue;
            }
            rotation.want(&self.object.maps, cpu);
            let Some(open) = rotation.open.get(&cpu) else { continue };
            let _ = open.always.iter().try_for_each(PlannedGroup::enable);
            self.lost_flushes += u64::from(self.object.flush(cpu).is_err());
            let _ = rotation.in_force(open).map_or(Ok(()), PlannedGroup::enable);
        }
    }
}
