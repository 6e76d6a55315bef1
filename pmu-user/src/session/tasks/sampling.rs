//! Opens the sampling events: as exactly as they can be had, and without those that a configuration can do without.

use std::io;

use super::{SessionError, TasksSession};
use crate::{
    drain::Work,
    machine::{cpu::Cpu, monotonic_ns},
    perf::{Count, Counter, OpenError},
    plan::{Class, Lost, Need, Plan, PlanError, Sampling},
};

/// An event on a CPU.
#[derive(Debug)]
pub(super) struct Sampler {
    pub(super) cpu: Cpu,
    pub(super) counter: Counter,
    /// What those before it had counted, which their CPU lost when it went offline.
    before: Count,
}

impl Sampler {
    /// What the event has counted on this CPU, however often it was opened.
    ///
    /// # Errors
    ///
    /// The kernel refused, or said something that is no reading.
    pub(super) fn read(&self) -> io::Result<Count> {
        let (Count { value, enabled_ns, running_ns }, before) = (self.counter.read()?, self.before);
        Ok(Count {
            value: value.wrapping_add(before.value),
            enabled_ns: enabled_ns.saturating_add(before.enabled_ns),
            running_ns: running_ns.saturating_add(before.running_ns),
        })
    }
}

/// One event, by CPU.
pub(super) type Samplers = Vec<Sampler>;

/// May opening find out that there are fewer events than planned? Then it comes first, since maps depend on their number.
pub(super) fn may_shrink(plan: &Plan) -> bool {
    plan.sampling.iter().any(|event| event.need == Need::Optional)
}

/// Opens every event of the plan on its CPUs, held back. What the kernel refuses of a configuration goes from the plan to
/// the rows that are lost.
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
    /// Takes no more samples. What the counters have counted can still be read.
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

    /// Starts the sampling events. On a CPU after the other: on average, samples are taken from the middle on.
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

    /// Up to when samples are taken that are read at `now_ns`, in ns since counting started.
    pub(super) fn samples_until(&self, now_ns: u64) -> Option<u64> {
        Some(self.samples_ended_ns.unwrap_or(now_ns).saturating_sub(self.header.started_ns))
    }

    /// A CPU is back, or new: opens its sampling events. What the kernel refuses stays closed, and coverage says so.
    pub(super) fn reopen_samplers(&mut self, cpu: Cpu) {
        if self.has_stopped(Work::Samples) {
            return;
        }
        let plan = &self.header.plan;
        for (index, event) in plan.sampling.iter().enumerate().filter(|(_, event)| event.is_on(cpu)) {
            let Ok(new) = open_on(event, cpu, &self.samplers) else { continue };
            // A tracepoint's program is on every CPU as it is.
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
            // Starts nothing that runs.
            let _ = sampler.counter.enable();
        }
    }
}
