//! Tasks of one run: opens what the plan names, starts it, drains it, and closes it on drop.

mod budget;
mod changed;
mod collect;
mod culprits;
mod followed;
mod hotplug;
mod interrupts;
mod limits;
mod losses;
pub(in crate::session) mod multiplexing;
mod occasion;
mod off_cpu;
mod off_cpu_stacks;
mod open;
mod owners;
mod pressure;
mod rare;
mod ring_reader;
mod sampling;
mod throttling;

use std::{io, path::PathBuf, sync::Arc, time::Instant};

use pmu_common::{config::TARGET_FROM_EXEC, cpu::COUNTED_WORD, off_cpu::OffCpu, owner::Rare};
use tokio::io::unix::AsyncFd;

pub use self::losses::USER_LOSSES;
pub(super) use self::occasion::Occasion;
use self::{
    budget::Budget, changed::Written, collect::Changes, culprits::Culprits, hotplug::Hotplug,
    interrupts::SeenInterrupts, multiplexing::Rotation, owners::Owners, pressure::Pressures,
    ring_reader::RingReader, sampling::Sampler, throttling::Limited,
};
use super::{Measure, SessionError, Started, cost::Meter, usage::Targets};
use crate::{
    bpf::{Object, Ring, release_memory},
    drain::{Absent, Cost, LimitsRow, Names, TasksDrain, TasksHeader, ThrottlingRow, reading::SliceRow},
    machine::{
        Machine,
        cpu::{self, Cpu, Times},
        monotonic_ns,
    },
    perf::Counter,
    symbol::{Named, Naming, Samples, Symbols},
};

/// Everything that is open for tasks during a run.
pub(in crate::session) struct TasksSession {
    /// Facts that are known before the first drain.
    pub header: TasksHeader,
    /// Parts that cannot be measured here, with the reason.
    pub missing: Vec<Absent>,
    machine: Arc<Machine>,
    object: Object,
    /// Sampling events, by event and CPU.
    samplers: Vec<Vec<Sampler>>,
    /// Counters that hold the programs of tracepoints.
    anchors: Vec<Counter>,
    rotations: Vec<Rotation>,
    /// Counts of owners in slices that ended since the last drain.
    slices: Vec<SliceRow>,
    hotplug: Hotplug,
    ring: AsyncFd<Ring>,
    owners: Owners,
    culprits: Culprits,
    symbols: Symbols,
    ring_reader: RingReader,
    meter: Option<Meter>,
    /// `None` if the cost of counting is not limited.
    budget: Option<Budget>,
    /// Number of the hot-address table that the programs write.
    table: u32,
    seen_changes: Vec<Changes>,
    /// Number of rows that had changed at the last drain.
    changed_rows: usize,
    lost_flushes: u64,
    lost_readings: u64,
    /// Skipped program runs, as last read.
    missed_runs: u64,
    /// Time of the last slow read.
    rarely: Option<Instant>,
    lost_waits: u64,
    /// Cgroups that match a name and for which there was no room among the targets.
    lost_targets: u64,
    /// Time off the CPU by slot, as it was last read.
    seen_off_cpu: Vec<OffCpu>,
    /// Rare events by slot, likewise.
    seen_rare: Vec<Rare>,
    interrupts: SeenInterrupts,
    ticks: u64,
    /// The process that becomes the command.
    command: Option<u32>,
    targets: Targets,
    limited: Limited,
    pressures: Pressures,
    /// The kernel's accounts before anything was counted.
    before: TasksDrain,
    /// Word that was last written to every CPU: see
    /// [`CpuCount::counted`](pmu_common::cpu::CpuCount::counted).
    counted: u64,
    unseen: u64,
    /// Time of the last samples (CLOCK_MONOTONIC); `None` while they are taken.
    samples_ended_ns: Option<u64>,
    root: PathBuf,
}

impl TasksSession {
    /// Makes a process that waits to become a command the target.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub(super) fn target_command(&mut self, pid: u32) -> Result<(), SessionError> {
        self.command = Some(pid);
        Ok(self.object.maps.add_target(u64::from(pid), TARGET_FROM_EXEC)?)
    }

    /// Makes the state of the existing tasks, so that starting takes no time, and reads the kernel's accounts
    /// up to now. Records up to then are dropped.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub(super) fn seed(&mut self) -> Result<(), SessionError> {
        self.object.seed()?;
        release_memory();
        self.flush();
        self.read_ring();
        let others = std::mem::take(&mut self.ring_reader.others);
        self.ring_reader = RingReader::default();
        self.ring_reader.others = others;
        self.before = TasksDrain {
            times: self.times(),
            throttling: self.throttling(),
            pressure: self.pressures.read(true),
            limits: self.limits(),
            ..TasksDrain::default()
        };
        Ok(())
    }

    /// Starts counting. `launched`: the time at which this process began, for the cost of starting.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub(super) fn start(
        &mut self,
        started: &Started,
        measure: Measure,
        launched: Instant,
    ) -> Result<(), SessionError> {
        self.header.started_ns = started.monotonic_ns;
        self.header.started_boot_ns = started.boot_ns;
        self.write_started();
        self.count(1);
        self.read_cpus_first();
        self.start_samplers()?;
        self.start_periods();
        self.start_turns()?;
        self.targets = Targets::that_run(&self.header.plan, &self.machine, self.command);
        self.meter = Some(Meter::start(&self.object, measure, launched.elapsed()));
        Ok(())
    }

    /// Returns the first drain. The contents of the CPUs' rows and the kernel's accounts before counting
    /// belong to no interval.
    ///
    /// # Errors
    ///
    /// As for [`TasksSession::drain`].
    pub(super) fn baseline(&mut self) -> Result<TasksDrain, SessionError> {
        let TasksDrain { times, throttling, pressure, limits, cpus, sampled, samples_until_ns, .. } =
            std::mem::take(&mut self.before);
        let drain = self.drain(Occasion::Begin)?;
        Ok(TasksDrain { times, throttling, pressure, limits, cpus, sampled, samples_until_ns, ..drain })
    }

    /// Reads everything that has happened since the last drain.
    ///
    /// # Errors
    ///
    /// A slot could not be freed.
    pub(super) fn drain(&mut self, occasion: Occasion) -> Result<TasksDrain, SessionError> {
        let (begun, begun_ns) = (Instant::now(), monotonic_ns());
        let regular = matches!(occasion, Occasion::Tick | Occasion::End);
        let rarely = self.is_time_for_what_is_slow(occasion, begun);
        self.ticks += u64::from(regular);
        self.look_at_cpus(rarely);
        self.want_next_slices();
        self.flush();
        let now_ns = monotonic_ns();
        // At once: what is taken from here on belongs to the next interval.
        let (sampled, cpus) = (self.sampling_readings(), self.cpu_rows());
        // The ring buffer first: it has the paths of cgroups that may be gone already.
        self.read_ring();
        let written = if occasion.is_an_end() { Written::All } else { self.take_marks() };
        let owners = self.owners.look(&self.object.maps, &written, self.header.started_ns);
        if rarely {
            self.read_missed_runs();
        }
        let (handlers, spare_interrupts) = self.handler_rows();
        let mut drain = TasksDrain {
            at_ns: self.flushed_ns(begun_ns).unwrap_or(now_ns).saturating_sub(self.header.started_ns),
            ticks: self.ticks,
            above: self.owners.above(&owners),
            owners,
            uncovered: self.hotplug.uncovered(),
            samples_until_ns: self.samples_until(now_ns),
            sampled,
            cpus,
            counts: self.count_rows(&written),
            culprits: self.culprit_rows(),
            off_cpu: self.off_cpu_rows(now_ns),
            rare: self.rare_rows(&written),
            handlers,
            spare_interrupts,
            interrupted: self.interrupted_rows(),
            slices: self.take_slices(),
            gaps: self.ring_reader.take_gaps(
                &self.owners,
                &self.object.maps.interrupts,
                self.header.started_ns,
            ),
            pressure: if regular { self.pressures.read(rarely) } else { Vec::new() },
            losses: self.user_losses(),
            ..TasksDrain::default()
        };
        self.targets.see(&drain);
        // Before slots are reused.
        let samples = self.take_samples(&drain);
        self.free_slots(now_ns)?;
        drain.located = self.symbols.locate(samples);
        drain.located.unwinding.append(std::mem::take(&mut self.ring_reader.unwinding));
        self.object.flush_log();
        if let Some(meter) = &mut self.meter {
            let handled = |program: &str| self.interrupts.runs_of(program);
            drain.programs = meter.programs(&self.object, &drain.cpus, handled);
            meter.refreshed(begun.elapsed());
        }
        drain.cost = self.cost();
        drain.shed = self.budget.as_ref().map_or_else(Vec::new, Budget::shed);
        self.keep_to_budget(&drain);
        Ok(drain)
    }

    /// Takes the samples since the last drain, and the kernel code in which the gaps of this one ended.
    fn take_samples(&mut self, drain: &TasksDrain) -> Samples {
        Samples {
            hot: self.hot_rows(),
            stacks: self.ring_reader.take_stacks(&self.owners),
            off_cpu: self.ring_reader.off_cpu.take(),
            kernel: drain.gaps.iter().flat_map(|gap| gap.stack.iter().copied()).collect(),
        }
    }

    /// Offers slots again whose owners have ended and whose rows have been read.
    fn free_slots(&mut self, now_ns: u64) -> Result<(), SessionError> {
        let pressed = std::mem::take(&mut self.ring_reader.pressed);
        let strides = (self.machine.cpu.possible, self.header.plan.events());
        let (maps, seen) = (&self.object.maps, &self.seen_changes);
        let is_read = |slot| collect::is_read(maps, seen, slot, strides);
        let freed = self.owners.recycle(maps, strides, now_ns, pressed, is_read);
        self.forget_changes(&freed);
        self.forget_off_cpu(&freed);
        self.forget_rare(&freed);
        self.forget_interrupted(&freed);
        self.culprits.forget(&self.object.maps.culprits, &freed);
        Ok(Owners::offer(&mut self.object.maps, &freed)?)
    }

    /// Returns the time at which something is to be done between two drains.
    pub(super) fn due(&self) -> Option<Instant> {
        let cost = self.meter.as_ref().and_then(Meter::due);
        self.turn_due().into_iter().chain(cost).min()
    }

    /// Performs what is due.
    pub(super) fn turn(&mut self) {
        self.take_turns();
        if let Some(meter) = &mut self.meter {
            meter.read(&self.object);
        }
    }

    /// Stops counting and drains for the last time.
    ///
    /// # Errors
    ///
    /// As for [`TasksSession::drain`].
    pub(super) fn finish(&mut self) -> Result<TasksDrain, SessionError> {
        self.end_turns();
        // No sample may be taken between the last reading of the counters and that of the samples. A counter
        // that the kernel does not stop ends with its descriptor.
        let _ = self.stop_samplers();
        self.samples_ended_ns = Some(monotonic_ns());
        self.read_ring();
        self.ring_reader.off_cpu.end_all(monotonic_ns());
        let mut last = self.drain(Occasion::End)?;
        last.times = self.times();
        last.throttling = self.throttling();
        last.limits = self.limits();
        self.unseen = self.targets.unseen().count() as u64;
        last.losses = self.user_losses();
        self.count(0);
        // Names and the report take a while, in which programs would run for nothing. Those that cannot be
        // detached end with the object.
        let _ = self.object.detach();
        self.samplers.clear();
        self.stop_turns();
        last.cost = self.cost();
        Ok(last)
    }

    /// Makes the CPUs count, and check tasks again that were not targets, unless the word is 0.
    fn count(&mut self, word: u64) {
        self.counted = word;
        for cpu in &self.header.plan.cpus {
            self.object.maps.cpus.write_word(cpu.0 as usize, COUNTED_WORD, word);
        }
    }

    /// Waits until the ring buffer holds something, and takes it. Returns whether slots run short.
    pub(super) async fn told(&mut self) -> Result<bool, SessionError> {
        let ready = |result: io::Result<_>| {
            result.map_err(|error| SessionError::Io("cannot watch the ring buffer", error))
        };
        ready(self.ring.readable_mut().await)?.clear_ready();
        self.read_ring();
        Ok(self.ring_reader.pressed)
    }

    /// Makes names of functions come with drains, too, from now on.
    pub(super) fn name_as_it_goes(&mut self) {
        self.symbols.name_as_it_goes();
    }

    /// Makes names of functions come with the drains whose samples hit them, from now on.
    pub(super) fn name_with_drains(&mut self) {
        self.symbols.name_with_drains();
    }

    /// Looks up the names of hot code, once everything else is safe.
    pub(super) fn name(&mut self, takes_long: impl FnOnce(&Naming)) -> Names {
        let Named { names, located } = self.symbols.name_all(takes_long);
        Names { names, located, cost: self.cost() }
    }

    /// Returns the state of naming that other threads see.
    pub(super) fn naming(&self) -> Arc<Naming> {
        self.symbols.naming()
    }

    /// Returns the cost of this process and of the one that names functions; zero if cost is not measured.
    fn cost(&self) -> Cost {
        let Some(meter) = &self.meter else { return Cost::default() };
        let mut cost = meter.process();
        cost.cpu_ns += self.symbols.cpu_ns();
        cost
    }

    /// Returns the kernel's account of the time of the counted CPUs.
    fn times(&self) -> Vec<(Cpu, Times)> {
        let times = cpu::times(&self.root).unwrap_or_default();
        times.into_iter().filter(|(cpu, _)| self.header.plan.cpus.contains(cpu)).collect()
    }

    /// Returns the throttling by limits of CPU time so far.
    fn throttling(&mut self) -> Vec<ThrottlingRow> {
        self.limited.read(&self.header.plan, &self.machine.cgroups, &self.root)
    }

    /// Returns the limits of the target cgroups.
    fn limits(&self) -> Vec<LimitsRow> {
        limits::read(&self.header.plan, &self.machine.cgroups, &self.root)
    }
}
