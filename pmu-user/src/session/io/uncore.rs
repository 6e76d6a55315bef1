//! Uncore PMUs of one kind. On each, one group of counters at a time is active, the same on all.
//!
//! Slices end at random, but the last of a tick ends with the tick. A drain's slices of every kind are thus
//! of the same time, and every group had as many turns as the others.

use std::time::{Duration, Instant};

use super::cpu_pinning::{Pinning, is_at};
use crate::{
    drain::{Absent, io::UncoreSlice},
    machine::duration_ns,
    perf::{Count, OpenError, PlannedGroup, Words},
    plan::io::UncoreKind,
    session::tasks::multiplexing::order::{self, Order},
};

/// The open uncore PMUs of one kind.
#[derive(Debug)]
pub(super) struct Rotation {
    /// Index of the kind in the plan.
    kind: u32,
    /// Slices between two ticks.
    turns: u32,
    /// Slices that are still to come before the next tick.
    left: u32,
    /// Planned time of the next tick.
    tick: Instant,
    order: Order,
    /// Uncore PMUs in the order of their CPUs, from the first or from the last.
    instances: Vec<OpenInstance>,
    slice: u64,
    group: Option<u32>,
    reading: Reading,
    /// Time at which the active slice is to end, if not with the tick.
    due: Option<Instant>,
    room: Room,
}

/// Memory that is reused from read to read.
#[derive(Debug, Default)]
struct Room {
    words: Words,
    counts: Vec<Count>,
}

/// Method of reading counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// Read while they count, if the same group stays active.
    Running,
    /// Stopped for the read, and started again.
    Stopped,
}

impl Reading {
    /// Returns whether an uncore PMU is only read, if the group after this slice is that one.
    fn is_all(self, before: Option<u32>, after: Option<u32>) -> bool {
        before == after && self == Self::Running
    }
}

#[derive(Debug)]
struct OpenInstance {
    at: u32,
    cpu: crate::machine::cpu::Cpu,
    /// One group for each of the plan; `None` if the uncore PMU does not have its events.
    groups: Vec<Option<OpenGroup>>,
}

#[derive(Debug)]
struct OpenGroup {
    group: PlannedGroup,
    /// Last reading of the counters.
    last: Vec<Count>,
}

impl Rotation {
    /// Opens every group on every uncore PMU, disabled. What an uncore PMU does not have is left out and
    /// named in `missing`.
    ///
    /// # Errors
    ///
    /// A refusal that every uncore PMU would return: permissions and limits.
    pub(super) fn open(
        kind: u32,
        plan: &UncoreKind,
        tick: Duration,
        missing: &mut Vec<Absent>,
    ) -> Result<Self, OpenError> {
        let mut instances = Vec::with_capacity(plan.instances.len());
        for (at, site) in plan.instances.iter().enumerate() {
            let mut groups = Vec::with_capacity(plan.turns.groups.len());
            for group in &plan.turns.groups {
                let opened = match PlannedGroup::on_box(group, site) {
                    Ok(group) => Some(OpenGroup { last: Vec::new(), group }),
                    Err(error) if error.holds_everywhere() => return Err(error),
                    Err(error) => {
                        let events: Vec<&str> =
                            group.events.iter().map(|event| event.name.as_str()).collect();
                        let what = format!("{} of {} (die {})", events.join(", "), site.pmu, site.die);
                        missing.push(Absent { what, why: error.absence() });
                        None
                    }
                };
                groups.push(opened);
            }
            instances.push(OpenInstance { at: at as u32, cpu: site.cpu, groups });
        }
        instances.sort_by_key(|open| open.cpu);
        let order = Order::new(plan.turns.groups.len() as u32, order::seed());
        Ok(Self {
            kind,
            turns: turns(tick, plan.turns.slice),
            left: 0,
            tick: Instant::now(),
            order,
            instances,
            slice: 0,
            group: None,
            reading: if plan.stops_to_be_read() { Reading::Stopped } else { Reading::Running },
            due: None,
            room: Room::default(),
        })
    }

    /// Returns the time at which the active slice is to end; `None` if it ends with the tick.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns whether the active slice is to end by `now`. A slice that ends with the tick is not.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Starts the first slice on every uncore PMU. `tick` is the time of the first tick.
    pub(super) fn start(&mut self, tick: Instant) {
        (self.left, self.tick) = (self.turns, tick);
        self.next();
        let mut pinning = Pinning::begin();
        for open in &mut self.instances {
            pinning.go(open.cpu, usize::MAX);
            if let Some(group) = in_force(&mut open.groups, self.group) {
                let _ = group.group.enable();
            }
        }
    }

    /// Ends the active slice on every uncore PMU, and starts the next. Returns the number of uncore PMUs that
    /// could not be read. Times in slices are since `started`.
    pub(super) fn turn(&mut self, started: Instant, into: &mut Vec<UncoreSlice>) -> u64 {
        let (slice, before) = (self.slice, self.group);
        self.next();
        self.read(slice, before, self.group, started, into)
    }

    /// Ends the active slice with a tick, and starts the first of the next one.
    pub(super) fn tick(&mut self, next: Instant, started: Instant, into: &mut Vec<UncoreSlice>) -> u64 {
        (self.left, self.tick) = (self.turns, next);
        self.turn(started, into)
    }

    /// Ends the active slice, and the counting.
    pub(super) fn stop(&mut self, started: Instant, into: &mut Vec<UncoreSlice>) -> u64 {
        let (slice, before) = (self.slice, self.group.take());
        self.due = None;
        self.read(slice, before, None, started, into)
    }

    fn next(&mut self) {
        self.slice += 1;
        self.group = self.order.next();
        // The remaining turns share the rest of the tick. The last one has what remains.
        self.due = self.group.filter(|_| self.left > 1).map(|_| {
            let now = Instant::now();
            now + self.order.jitter(self.tick.saturating_duration_since(now) / self.left)
        });
        self.left = self.left.saturating_sub(1);
    }

    fn read(
        &mut self,
        slice: u64,
        before: Option<u32>,
        after: Option<u32>,
        started: Instant,
        into: &mut Vec<UncoreSlice>,
    ) -> u64 {
        let Some(number) = before else { return 0 };
        let only_read = self.reading.is_all(before, after);
        let calls = self.instances.len() * if only_read { 1 } else { 3 };
        // The next read begins where the thread was pinned last, which saves a move.
        if self.instances.last().is_some_and(|last| is_at(last.cpu)) {
            self.instances.reverse();
        }
        let mut pinning = Pinning::begin();
        let mut lost = 0;
        for open in &mut self.instances {
            pinning.go(open.cpu, calls);
            if let Some(group) = in_force(&mut open.groups, before) {
                // A counter that cannot be stopped shows by the time it ran.
                let _ = if only_read { Ok(()) } else { group.group.disable() };
                match group.since(&mut self.room) {
                    Ok((counts, enabled_ns, running_ns)) => into.push(UncoreSlice {
                        kind: self.kind,
                        at: open.at,
                        slice,
                        group: number,
                        // Separate from the others': the last may be read milliseconds after the first.
                        ended_ns: duration_ns(started.elapsed()),
                        counts,
                        enabled_ns,
                        running_ns,
                    }),
                    Err(_) => lost += 1,
                }
            }
            if !only_read && let Some(group) = in_force(&mut open.groups, after) {
                let _ = group.group.enable();
            }
        }
        lost
    }
}

/// Returns the number of slices of this mean length between two ticks.
fn turns(tick: Duration, mean: Duration) -> u32 {
    (tick.as_secs_f64() / mean.as_secs_f64()).round().max(1.0) as u32
}

fn in_force(groups: &mut [Option<OpenGroup>], group: Option<u32>) -> Option<&mut OpenGroup> {
    groups.get_mut(group? as usize)?.as_mut()
}

impl OpenGroup {
    /// Returns the counts since the last call, and the times for which the group was enabled and running, in
    /// ns.
    fn since(&mut self, room: &mut Room) -> std::io::Result<(Vec<u64>, u64, u64)> {
        self.group.read(&mut room.words, &mut room.counts)?;
        std::mem::swap(&mut self.last, &mut room.counts);
        let before = |index: usize| room.counts.get(index).copied().unwrap_or_default();
        let each = self.last.iter().enumerate();
        let values = each.map(|(index, count)| count.value.wrapping_sub(before(index).value)).collect();
        // The group is on counters as a whole: the times of its leader are those of all events.
        let leader = self.last.first().copied().unwrap_or_default();
        let enabled_ns = leader.enabled_ns.saturating_sub(before(0).enabled_ns);
        Ok((values, enabled_ns, leader.running_ns.saturating_sub(before(0).running_ns)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Order, Reading, Room, Rotation, turns};

    #[test]
    fn a_counter_that_must_be_stopped_is_so_at_every_reading() {
        assert!(Reading::Running.is_all(Some(0), Some(0)) && !Reading::Running.is_all(Some(0), Some(1)));
        assert!(!Reading::Stopped.is_all(Some(0), Some(0)) && !Reading::Stopped.is_all(Some(0), None));
    }

    #[test]
    fn a_tick_has_as_many_slices_as_the_plan_says_and_the_last_ends_with_it() {
        let tick = Duration::from_secs(1);
        assert_eq!(turns(tick, Duration::from_micros(41_667)), 24);
        assert_eq!(turns(Duration::from_millis(1), Duration::from_millis(20)), 1);
        let mut rotation = Rotation {
            kind: 0,
            turns: 6,
            left: 0,
            tick: Instant::now(),
            order: Order::new(3, 7),
            instances: Vec::new(),
            slice: 0,
            group: None,
            reading: Reading::Running,
            due: None,
            room: Room::default(),
        };
        let until = Instant::now() + tick;
        rotation.start(until);
        let mut groups = vec![rotation.group];
        for _ in 0..5 {
            assert!(rotation.is_due(until + tick / 12) && !rotation.is_due(Instant::now()));
            rotation.turn(Instant::now(), &mut Vec::new());
            groups.push(rotation.group);
        }
        assert!(rotation.due().is_none() && !rotation.is_due(until + tick), "the tick ends the last one");
        for group in 0..3 {
            assert_eq!(groups.iter().filter(|&&turn| turn == Some(group)).count(), 2);
        }
        rotation.tick(until + tick, Instant::now(), &mut Vec::new());
        assert!(rotation.due().is_some());
    }
}
