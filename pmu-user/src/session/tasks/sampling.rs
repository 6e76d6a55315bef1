//! Opens the sampling events, each with the highest available precision. Optional events that the kernel
//! refuses are left out.

use std::io;

use super::{SessionError, TasksSession};
use crate::{
    drain::Work,
    machine::{cpu::Cpu, monotonic_ns},
    perf::{Count, Counter, OpenError},
    plan::{Class, Lost, Need, Plan, PlanError, Sampling},
};

/// A sampling event on a CPU.
#[derive(Debug)]
pub(super) struct Sampler {
    pub(super) cpu: Cpu,
    pub(super) counter: Counter,
    /// Counts of earlier counters, which the CPU lost when it went offline.
    before: Count,
}

impl Sampler {
    /// Returns the count of the event on this CPU, however often it was opened.
    ///
    /// # Errors
    ///
    /// The kernel refused, or returned something that is not a reading.
    pub(super) fn read(&self) -> io::Result<Count> {
        let (Count { value, enabled_ns, running_ns }, before) = (self.counter.read()?, self.before);
        Ok(Count {
            value: value.wrapping_add(before.value),
            enabled_ns: enabled_ns.saturating_add(before.enabled_ns),
            running_ns: running_ns.saturating_add(before.running_ns),
        })
    }
}

/// Samplers of one event, by CPU.
pub(super) type Samplers = Vec<Sampler>;

/// Returns whether opening may leave fewer events than planned. If so, it comes first, since maps depend on
/// their number.
pub(super) fn may_shrink(plan: &Plan) -> bool {
    plan.sampling.iter().any(|event| event.need == Need::Optional)
}

/// Opens every event of the plan on its CPUs, disabled. Events of a configuration that the kernel refuses
/// move from the plan to the lost rows.
pub(super) fn open(plan: &mut Plan) -> Result<Vec<Samplers>, SessionError> {
    let mut opened: Vec<Samplers> = Vec::with_capacity(plan.sampling.len());
    let mut events = Vec::with_capacity(plan.sampling.len());
    for mut event in std::mem::take(&mut plan.sampling) {
        match open_event(&mut event, &plan.cpus, &opened) {
            Ok(counters) => {
                opened.push(counters);
                events.push(event);
            }
            Err(error) if event.need == Need::Optional && error.class() != Class::NotPermitted => {
                let row = event.quantity.map_or(event.event, |quantity| quantity.name().to_owned());
                plan.lost.push(Lost { row, why: error.to_string() });
            }
            Err(error) => return Err(error.into()),
        }
    }
    plan.sampling = events;
    match (&plan.profile, plan.sampling.is_empty()) {
        (Some(profile), true) => Err(PlanError::NothingLeft(profile.clone(), plan.lost.clone()).into()),
        _ => Ok(opened),
    }
}

fn open_event(event: &mut Sampling, cpus: &[Cpu], before: &[Samplers]) -> Result<Samplers, OpenError> {
    let on: Vec<Cpu> = cpus.iter().copied().filter(|&cpu| event.is_on(cpu)).collect();
    if let (true, Some(&cpu)) = (event.is_hardware(), on.first()) {
        event.precision = Some(Counter::precision(event, cpu));
    }
    on.into_iter().map(|cpu| open_on(event, cpu, before)).collect()
}

fn open_on(event: &Sampling, cpu: Cpu, opened: &[Samplers]) -> Result<Sampler, OpenError> {
    let leaders = event.leader.and_then(|leader| opened.get(leader as usize));
    let leader = leaders.and_then(|leaders| leaders.iter().find(|leader| leader.cpu == cpu));
    let counter = Counter::open(event, cpu, leader.map(|leader| &leader.counter))?;
    Ok(Sampler { cpu, counter, before: Count::default() })
}

impl TasksSession {
    /// Stops taking samples. The counts can still be read.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub(super) fn stop_samplers(&mut self) -> io::Result<()> {
        self.stop_periods();
        let stopped = self.samplers.iter().flatten().try_for_each(|sampler| sampler.counter.disable());
        // Detaching their programs takes the kernel some 50 ms, in which the events must not count on.
        self.anchors.clear();
        stopped
    }

    /// Starts the sampling events, one CPU after the other. On average, samples are taken from the middle on.
    pub(super) fn start_samplers(&mut self) -> Result<(), SessionError> {
        let from_ns = monotonic_ns();
        // Members of a group start with their leader.
        let leaders =
            self.header.plan.sampling.iter().zip(&self.samplers).filter(|(event, _)| event.leader.is_none());
        for sampler in leaders.flat_map(|(_, samplers)| samplers) {
            sampler
                .counter
                .enable()
                .map_err(|error| SessionError::Io("cannot start a sampling event", error))?;
        }
        let began_ns = from_ns.midpoint(monotonic_ns());
        self.before.samples_until_ns = Some(began_ns.saturating_sub(self.header.started_ns));
        Ok(())
    }

    /// Returns the time up to which samples are taken that are read at `now_ns`, in ns since counting
    /// started.
    pub(super) fn samples_until(&self, now_ns: u64) -> Option<u64> {
        Some(self.samples_ended_ns.unwrap_or(now_ns).saturating_sub(self.header.started_ns))
    }

    /// Opens the sampling events of a CPU that is back, or new. What the kernel refuses stays closed, and
    /// coverage shows that.
    pub(super) fn reopen_samplers(&mut self, cpu: Cpu) {
        if self.has_stopped(Work::Samples) {
            return;
        }
        let plan = &self.header.plan;
        for (index, event) in plan.sampling.iter().enumerate().filter(|(_, event)| event.is_on(cpu)) {
            let Ok(new) = open_on(event, cpu, &self.samplers) else { continue };
            // A tracepoint's program is on every CPU already.
            let bound =
                event.is_tracepoint() || self.object.sample_on(index, std::iter::once(&new.counter)).is_ok();
            if !bound {
                continue;
            }
            match self.samplers[index].iter_mut().find(|sampler| sampler.cpu == cpu) {
                Some(old) => {
                    let before = old.read().unwrap_or(old.before);
                    *old = Sampler { before, ..new };
                }
                None => self.samplers[index].push(new),
            }
        }
        let leaders = plan.sampling.iter().zip(&self.samplers).filter(|(event, _)| event.leader.is_none());
        for sampler in leaders.flat_map(|(_, samplers)| samplers).filter(|sampler| sampler.cpu == cpu) {
            // This starts nothing that runs already.
            let _ = sampler.counter.enable();
        }
    }
}
