//! Owners of slots. A slot is used again after its owner has ended.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs,
    mem::offset_of,
};

use pmu_common::{count::SLOT_OTHER, owner::Owner as Row};
use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

use super::changed::Written;
use crate::{
    bpf::{LoadError, Maps},
    drain::{Id, Owner, OwnerRow, SlotId},
    machine::{
        cgroup::{Layout, ancestors},
        stat,
    },
    plan::request::By,
    untrusted::Untrusted,
};

/// Time for which an ended owner keeps its slot: its last task may still be exiting.
const GRACE_NS: u64 = 1_000_000_000;
/// The same time when slots run short.
const GRACE_UNDER_PRESSURE_NS: u64 = 50_000_000;
/// Time for which a process keeps its slot because its id is still in use: another process may have that by
/// now.
const TEARDOWN_MAX_NS: u64 = 30_000_000_000;

/// Paths of cgroups that are kept, including those of gone ones. The limit rises to twice the number of
/// existing ones. A tick may bring more.
const PATHS_MAX: usize = 16_384;

/// Words of a row that show whether it has changed: a name changes only with the program.
const ID_WORD: usize = offset_of!(Row, key) / 8;
const ENDED_WORD: usize = offset_of!(Row, ended_ns) / 8;
/// Word with the number of executions in its lower half.
const EXECS_WORD: usize = offset_of!(Row, execs) / 8;

/// The lives of slots.
#[derive(Debug)]
pub(super) struct Owners {
    by: By,
    layout: Layout,
    /// Paths of cgroups by id.
    paths: HashMap<u64, Untrusted>,
    /// Number of paths beyond which those of gone cgroups are dropped.
    paths_max: usize,
    /// Rows as last read, and the number of earlier uses of each slot, up to the highest that was in use.
    /// Slots are given lowest first, so there is none beyond it except [`Owners::ahead`].
    slots: Vec<(Option<Row>, u32)>,
    /// Slots of owners that have ended.
    ended: BTreeSet<usize>,
    /// Slots of ended owners with unread changes when they were last to be freed.
    unread: Vec<u32>,
    /// Number of existing slots.
    slots_max: usize,
    /// Number of slots that CPUs may have taken without having reported the owner.
    ahead: usize,
}

impl Owners {
    /// Returns the owners of this many slots, which programs on this many CPUs give to owners.
    pub(super) fn new(by: By, layout: Layout, slots: u32, cpus: u32) -> Self {
        let mut owners = Self {
            by,
            layout,
            paths: HashMap::new(),
            paths_max: PATHS_MAX,
            slots: vec![(None, 0)],
            ended: BTreeSet::new(),
            unread: Vec::new(),
            slots_max: slots as usize,
            // A program, and one that interrupts it to sample.
            ahead: 2 * cpus as usize + 1,
        };
        if by == By::Cgroup {
            owners.read_paths();
        }
        owners
    }

    /// Records the path of a cgroup that was created.
    pub(super) fn learn_path(&mut self, id: u64, path: Untrusted) {
        self.paths.insert(id, path);
    }

    fn read_paths(&mut self) {
        let list = self.layout.list(&Untrusted::from("/")).unwrap_or_default();
        self.paths.extend(list.into_iter().map(|cgroup| (cgroup.id.0, cgroup.path)));
    }

    /// Drops the paths of cgroups that are gone and have no slot, if there are many.
    fn forget_paths(&mut self) {
        if self.paths.len() <= self.paths_max {
            return;
        }
        let in_use: HashSet<u64> =
            self.slots.iter().filter_map(|(row, _)| Some(row.as_ref()?.key.id)).collect();
        self.paths.retain(|id, _| in_use.contains(id));
        self.read_paths();
        self.paths.shrink_to_fit();
        self.paths_max = PATHS_MAX.max(2 * self.paths.len());
    }

    /// Returns the cgroups above those in `rows`, parents first.
    pub(super) fn above(&self, rows: &[OwnerRow]) -> Vec<Owner> {
        let path = |row: &OwnerRow| match &row.owner {
            Owner::Cgroup { path, .. } => Some(path.clone()),
            _ => None,
        };
        let paths: Vec<Untrusted> = rows.iter().filter_map(path).collect();
        let wanted: HashSet<&[u8]> = paths.iter().flat_map(|path| ancestors(path.as_bytes())).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let known = self.paths.iter().filter(|(_, path)| wanted.contains(path.as_bytes()));
        let mut above: Vec<_> = known.map(|(&id, path)| (path.clone(), id)).collect();
        above.sort();
        above.into_iter().map(|(path, id)| Owner::cgroup(id, path)).collect()
    }

    /// Returns a slot in its present life.
    pub(super) fn slot_id(&self, slot: u32) -> SlotId {
        SlotId { slot, generation: self.slots.get(slot as usize).map_or(0, |&(_, generation)| generation) }
    }

    /// Returns whether a slot is in use, or the common one.
    pub(super) fn is_in_use(&self, slot: u32) -> bool {
        slot == SLOT_OTHER || self.slots.get(slot as usize).is_some_and(|(row, _)| row.is_some())
    }

    /// Takes the slots that are freed once their rows have been read, whether or not these are marked.
    pub(super) fn take_unread(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unread)
    }

    /// Returns the slots in use, the common one included.
    pub(super) fn in_use(&self) -> impl Iterator<Item = u32> + '_ {
        let used = |(index, (row, _)): (usize, &(Option<Row>, u32))| {
            (index == 0 || row.is_some()).then_some(index as u32)
        };
        self.slots.iter().enumerate().filter_map(used)
    }

    /// Returns the rows of `written` slots that are new or have changed since the last look.
    pub(super) fn look(&mut self, maps: &Maps, written: &Written, started_ns: u64) -> Vec<OwnerRow> {
        let mut changed = Vec::new();
        match written.slots() {
            Some(slots) => {
                let look = |slot: u32| Some((slot, self.look_at(maps, slot as usize)?));
                changed.extend(slots.filter(|&slot| slot != SLOT_OTHER).filter_map(look));
            }
            None => self.look_at_all(maps, &mut changed),
        }
        if self.by == By::Cgroup && changed.iter().any(|(_, row)| !self.paths.contains_key(&row.key.id)) {
            self.read_paths();
        }
        changed.into_iter().map(|(slot, row)| self.describe(slot, &row, started_ns)).collect()
    }

    fn look_at_all(&mut self, maps: &Maps, changed: &mut Vec<(u32, Row)>) {
        let mut slot = 1;
        while slot < self.slots_max.min(self.slots.len() + self.ahead) {
            changed.extend(self.look_at(maps, slot).map(|row| (slot as u32, row)));
            slot += 1;
        }
    }

    /// Returns the row of a slot, if it is new or has changed.
    fn look_at(&mut self, maps: &Maps, slot: usize) -> Option<Row> {
        let id = maps.owners.read_word(slot, ID_WORD);
        if id == 0 || self.is_known(maps, slot, id) {
            return None;
        }
        let row = maps.owners.read(slot);
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, (None, 0));
        }
        self.slots[slot].0 = Some(row);
        if row.ended_ns != 0 {
            self.ended.insert(slot);
        }
        Some(row)
    }

    /// Returns whether the owner in a slot, with this id, is as last seen.
    fn is_known(&self, maps: &Maps, slot: usize, id: u64) -> bool {
        let Some((Some(row), _)) = self.slots.get(slot) else { return false };
        row.key.id == id
            && row.ended_ns == maps.owners.read_word(slot, ENDED_WORD)
            && row.execs == maps.owners.read_word(slot, EXECS_WORD) as u32
    }

    fn describe(&self, slot: u32, row: &Row, started_ns: u64) -> OwnerRow {
        let name = || Untrusted::from_zero_terminated(&row.name);
        let owner = match self.by {
            By::Process => Owner::Process { pid: row.key.id as u32, born_ns: row.key.born_ns, name: name() },
            By::Thread => Owner::Thread {
                tid: row.thread,
                pid: row.parent as u32,
                born_ns: row.key.born_ns,
                name: name(),
            },
            By::Comm => Owner::Comm { name: name() },
            By::Exe => Owner::Exe { name: name() },
            By::Cgroup => {
                let path = self.paths.get(&row.key.id).cloned();
                let unknown = || Untrusted::from(format!("[cgroup {}]", row.key.id));
                Owner::cgroup(row.key.id, path.unwrap_or_else(unknown))
            }
        };
        let ends = row.ended_ns != 0 && !owner.is_of_many();
        let ended_ns = ends.then(|| row.ended_ns.saturating_sub(started_ns));
        OwnerRow { slot: self.slot_id(slot), owner, ended_ns }
    }

    /// Clears the slots of owners that ended long enough ago and of which all counts have been read, as
    /// `is_read` returns. Returns these slots. They have no owner until they are offered. Rows of counters
    /// need no clearing: those of another slice count as zero.
    pub(super) fn recycle(
        &mut self,
        maps: &Maps,
        (cpus, events): (u32, u32),
        now_ns: u64,
        pressed: bool,
        is_read: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let mut freed = Vec::new();
        let grace_ns = if pressed { GRACE_UNDER_PRESSURE_NS } else { GRACE_NS };
        for slot in self.ended.iter().rev().copied().collect::<Vec<_>>() {
            let row = self.slots[slot].0.as_ref();
            if row.is_none_or(|row| row.ended_ns + grace_ns > now_ns) {
                continue;
            }
            // Its counts in this slice, or since its rows were read, are not read yet.
            let is_counting = maps.is_counting(slot as u32, cpus);
            if is_counting || self.is_being_torn_down(slot, now_ns) {
                continue;
            }
            if !is_read(slot as u32) {
                self.unread.push(slot as u32);
                continue;
            }
            for row in (0..cpus as usize).map(|cpu| slot * cpus as usize + cpu) {
                maps.counts.clear(row);
                maps.latencies.clear(row);
                let samples = row * events as usize..(row + 1) * events as usize;
                if samples.end <= maps.samples.len() {
                    samples.for_each(|row| maps.samples.clear(row));
                }
                if row < maps.off_cpu.len() {
                    maps.off_cpu.clear(row);
                }
                if row < maps.interrupted.len() {
                    maps.interrupted.clear(row);
                }
            }
            if slot < maps.waiting.len() {
                maps.waiting.clear(slot);
            }
            maps.owners.clear(slot);
            self.slots[slot].0 = None;
            self.slots[slot].1 += 1;
            self.ended.remove(&slot);
            freed.push(slot as u32);
        }
        self.forget_paths();
        freed
    }

    /// Offers cleared slots again: an owner that takes one counts there from then on. The last, which is the
    /// lowest, goes on top of the stack, so that the slots in use stay together.
    pub(super) fn offer(maps: &mut Maps, freed: &[u32]) -> Result<(), LoadError> {
        freed.iter().try_for_each(|&slot| maps.offer_slot(slot))
    }

    /// Returns whether the ended process of this slot is still giving back its memory. That takes the longer
    /// the more there is. Since Linux 6.16 it comes after the hook that reports the end (kernel/exit.c,
    /// `do_exit`).
    fn is_being_torn_down(&self, slot: usize, now_ns: u64) -> bool {
        let Some(row) = self.slots[slot].0.as_ref().filter(|_| self.by != By::Cgroup) else { return false };
        let id = if self.by == By::Thread { row.thread } else { row.key.id as u32 };
        now_ns.saturating_sub(row.ended_ns) < TEARDOWN_MAX_NS && has_tasks(id)
    }
}

/// Returns whether a process has a task that is more than a zombie.
fn has_tasks(pid: u32) -> bool {
    // Nothing reports processes outside of this PID namespace.
    let Some(pid) = Id::of(pid).here() else { return false };
    // Most are gone, and the kernel reports that sooner than /proc.
    let id = Pid::from_raw(pid.cast_signed());
    if id.is_none_or(|id| test_kill_process(id) == Err(Errno::SRCH)) {
        return false;
    }
    stat::has_tasks(&fs::read(format!("/proc/{pid}/stat")).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::{process::Command, thread::sleep, time::Duration};

    use super::has_tasks;

    #[test]
    fn a_zombie_has_no_tasks_and_neither_has_what_is_gone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(has_tasks(child.id()) && has_tasks(std::process::id()));
        child.kill().unwrap();
        // The process was not waited for: it is a zombie as soon as it is dead.
        let zombie = (0..500).any(|_| {
            sleep(Duration::from_millis(10));
            !has_tasks(child.id())
        });
        assert!(zombie && std::fs::exists(format!("/proc/{}", child.id())).unwrap());
        child.wait().unwrap();
        assert!(!has_tasks(child.id()));
    }
}
