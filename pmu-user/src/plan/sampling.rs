//! Events that trigger samples, and their periods: from perf's event syntax, a configuration, or what this
//! machine has.

mod event;

use std::path::Path;

use pmu_common::sample::EVENTS_MAX;

pub use self::event::{Need, Precision, Sampling};
pub(super) use self::event::{of_instance, resolved};
use super::{
    FREQUENCY, Lost, PlanError, metrics, profile,
    request::{Force, Rate, Request},
};
use crate::{
    machine::Machine,
    table::{
        event::{CPU_CLOCK, CYCLES, Counts},
        event_syntax::{List, ResolveError, SelectedGroup, Why},
    },
};

/// Approximate time that a core spends on an overflow: the interrupt and the program, in ns. A shorter period
/// leaves no time for anything else.
const OVERFLOW_NS: u64 = 2_000;

/// Returns the events of `request`, and the rows that a configuration had to leave out.
pub(super) fn sampling(
    request: &Request,
    machine: &Machine,
    root: &Path,
) -> Result<(Vec<Sampling>, Vec<Lost>), PlanError> {
    if request.rate == Rate::Off {
        return Ok((Vec::new(), Vec::new()));
    }
    let (mut events, lost) = match &request.profile {
        Some(name) => profile::plan(name, machine, root, &|| metrics::tables(&request.metrics, root))?,
        None => (of_notation(request, machine, root)?, Vec::new()),
    };
    if events.len() > EVENTS_MAX {
        return Err(PlanError::TooMany(events.len()));
    }
    let cycles_per_second = machine.cpu.cycles_per_second(root);
    let named = !request.events.is_empty();
    for event in &mut events {
        if event.period == 0 {
            set_period(event, request.rate, cycles_per_second, named)?;
        }
        check_period(event, request.force, cycles_per_second, machine.cpu.sample_rate_max(root))?;
    }
    Ok((events, lost))
}

fn of_notation(request: &Request, machine: &Machine, root: &Path) -> Result<Vec<Sampling>, PlanError> {
    let default = if machine.no_core_pmu().is_none() { CYCLES.name } else { CPU_CLOCK.name };
    let mut events = Vec::new();
    let texts = request.events.iter().map(String::as_str);
    for text in texts.chain(request.events.is_empty().then_some(default)) {
        let list = List::parse(text).map_err(PlanError::Notation)?;
        let tables = || metrics::tables(&request.metrics, root);
        for group in resolved(&list, machine, root, &tables).map_err(|error| refused(error, machine))? {
            add_group(&mut events, &group)?;
        }
    }
    Ok(events)
}

fn refused(error: ResolveError, machine: &Machine) -> PlanError {
    match (error.why, machine.no_core_pmu()) {
        (Why::NoEvent(near), _) => PlanError::NoEvent(error.event, near),
        (Why::NoCores, Some(why)) => PlanError::Unsupported(error.event, why),
        (why, _) => PlanError::Event(ResolveError { why, ..error }),
    }
}

/// Adds a group's events, once for every PMU that counts them.
fn add_group(events: &mut Vec<Sampling>, group: &SelectedGroup) -> Result<(), PlanError> {
    let places = group.events.iter().map(|event| event.instances.len()).max().unwrap_or(0);
    for place in 0..places {
        let leader = (group.events.len() > 1).then_some(events.len() as u32);
        for event in &group.events {
            let Some(at) = event.instance(place) else { continue };
            let mut sampling = of_instance(event, at, places)?;
            sampling.leader = leader.filter(|&leader| leader as usize != events.len());
            events.push(sampling);
        }
    }
    Ok(())
}

fn set_period(
    event: &mut Sampling,
    rate: Rate,
    cycles_per_second: u64,
    named: bool,
) -> Result<(), PlanError> {
    if event.is_tracepoint() && rate == Rate::Default {
        event.period = 1;
        return Ok(());
    }
    let per_second = match event.counts {
        Counts::WallNs => 1_000_000_000,
        Counts::Cycles => cycles_per_second,
        Counts::Occurrences => 0,
    };
    match rate {
        Rate::Period(period) => event.period = period,
        Rate::Frequency(_) | Rate::Default if per_second > 0 => {
            let frequency = if let Rate::Frequency(frequency) = rate { frequency } else { FREQUENCY };
            event.period = (per_second / u64::from(frequency.max(1))).max(1);
            event.frequency = Some(frequency);
        }
        _ if named => return Err(PlanError::NeedsPeriod(event.event.clone())),
        Rate::Frequency(_) | Rate::Default | Rate::Off => {}
    }
    Ok(())
}

/// Minimum number of moments between two ticks, evenly spread, at which a clock must sample.
const MOMENTS_MIN: u64 = 8;

/// Returns the clocks that sample at few moments between two ticks, every `tick_ns`, with the remedy. Tasks
/// that share a CPU yield at ticks, so that some of them are always sampled, and some never.
pub fn in_step(sampling: &[Sampling], tick_ns: u64) -> Vec<Lost> {
    let clocks = sampling.iter().filter_map(|event| Some((event, event.period_ns()?)));
    let told = clocks.filter(|&(_, period_ns)| moments(period_ns, tick_ns) < MOMENTS_MIN);
    told.map(|(event, period_ns)| {
        let other = (1..8).map(|less| (1_000_000_000 / period_ns).saturating_sub(less));
        let is_good = |hertz: &u64| *hertz > 0 && moments(1_000_000_000 / *hertz, tick_ns) >= MOMENTS_MIN;
        let fix = other.into_iter().find(is_good).map_or_else(String::new, |hertz| format!("; -F {hertz} does not"));
        let [period, tick] = [period_ns, tick_ns].map(|time_ns| time_ns as f64 / 1e6);
        Lost {
            row: "samples at all moments between two ticks".to_owned(),
            why: format!(
                "{} every {period} ms keeps step with the scheduler's tick, every {tick} ms: of tasks that take turns on a CPU, some get too \
                 many samples and others too few{fix}",
                event.event
            ),
        }
    })
    .collect()
}

/// Returns the number of moments between two ticks at which a clock with this period samples.
fn moments(period_ns: u64, tick_ns: u64) -> u64 {
    let (mut tick, mut period) = (tick_ns, period_ns);
    while period != 0 {
        (tick, period) = (period, tick % period);
    }
    tick_ns / tick.max(1)
}

/// Refuses a period that is shorter than the kernel allows, or than a core can take.
fn check_period(
    event: &Sampling,
    force: Force,
    cycles_per_second: u64,
    limit: Option<u64>,
) -> Result<(), PlanError> {
    let too_often =
        |least, limit| PlanError::TooOften { event: event.event.clone(), period: event.period, least, limit };
    if event.period == 0 {
        return Err(too_often(1, None));
    }
    let Some(per_second) = event.per_second_max(cycles_per_second) else { return Ok(()) };
    let least = |limit: u64| per_second.div_ceil(limit.max(1));
    let overrun = 1_000_000_000 / OVERFLOW_NS;
    if event.period < least(overrun) {
        return Err(too_often(least(overrun.min(limit.unwrap_or(overrun))), None));
    }
    match limit {
        Some(limit) if force == Force::No && per_second / event.period > limit => {
            Err(too_often(least(limit), Some(limit)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{CPU_CLOCK, CYCLES, Sampling, in_step, moments};

    const TICK_NS: u64 = 4_000_000;

    fn every(event: &crate::table::event::SamplingEvent, period: u64) -> Sampling {
        let written = serde_json::json!({
            "event": event.name, "kind": event.kind, "config": event.config, "counts": event.counts, "period": period, "frequency": null,
        });
        serde_json::from_value(written).unwrap()
    }

    #[test]
    fn a_clock_that_keeps_step_with_the_tick_is_told_with_one_that_does_not() {
        let told = |period| in_step(&[every(&CPU_CLOCK, period)], TICK_NS);
        for (period, fix) in
            [(1_000_000, "-F 999"), (4_000_000, "-F 249"), (10_000_000, "-F 99"), (20_000_000, "-F 49")]
        {
            let lost = told(period);
            assert!(
                lost.len() == 1 && lost[0].why.ends_with(&format!("; {fix} does not")),
                "{period}: {lost:?}"
            );
        }
        // 99, 999 and 400 Hz, and cycles, which no clock of the scheduler counts.
        for period in [10_101_010, 1_001_001, 2_500_000] {
            assert!(told(period).is_empty(), "{period}");
        }
        assert!(in_step(&[every(&CYCLES, 1_000_000)], TICK_NS).is_empty());
    }

    #[test]
    fn moments_are_those_until_the_clock_comes_with_a_tick_again() {
        assert_eq!(
            (moments(1_000_000, TICK_NS), moments(10_000_000, TICK_NS), moments(TICK_NS, TICK_NS)),
            (4, 2, 1)
        );
        assert_eq!((moments(7, 4), moments(5, 0)), (4, 0));
    }
}
