//! Opens the sampling events: as exactly as they can be had, and without those that a configuration can do without.

use super::SessionError;
use crate::{
    machine::cpu::Cpu,
    perf::{Counter, OpenError},
    plan::{Class, Lost, Need, Plan, PlanError, Sampling},
};

/// Counters of one event, by CPU.
type Counters = Vec<(Cpu, Counter)>;

/// May opening find out that there are fewer events than planned? Then it comes first, since maps depend on their number.
pub(super) fn may_shrink(plan: &Plan) -> bool {
    plan.sampling.iter().any(|event| event.need == Need::Optional)
}

/// Opens every event of the plan on its CPUs, held back. What the kernel refuses of a configuration goes from the plan to
/// the rows that are lost.
pub(super) fn open(plan: &mut Plan) -> Result<Vec<Counters>, SessionError> {
    let mut opened: Vec<Counters> = Vec::with_capacity(plan.sampling.len());
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

fn open_event(event: &mut Sampling, cpus: &[Cpu], before: &[Counters]) -> Result<Counters, OpenError> {
    let on: Vec<Cpu> = cpus.iter().copied().filter(|&cpu| event.is_on(cpu)).collect();
    if let (true, Some(&cpu)) = (event.is_hardware(), on.first()) {
        event.precision = Some(Counter::precision(event, cpu));
    }
    let leaders = event.leader.and_then(|leader| before.get(leader as usize));
    let leader_on = |cpu: Cpu| leaders?.iter().find(|(on, _)| *on == cpu).map(|(_, counter)| counter);
    on.into_iter().map(|cpu| Ok((cpu, Counter::open(event, cpu, leader_on(cpu))?))).collect()
}
