//! Events of metrics: the form in which each is opened on one PMU, and the counters that can count it.

use crate::{
    machine::pmu::{
        bits::Word,
        catalog::{Catalog, Entry},
        probed::Probed,
    },
    plan::{
        multiplexing::PlannedEvent,
        schedule::{Counters, Need, Resource, WantedMetric},
    },
    table::{
        event_syntax::{List, resolve},
        model::{self, Encoding, Model, Modes, adds_up_threads},
    },
};

/// The core PMU on which events are resolved.
pub(super) struct OnPmu<'a> {
    /// PMU of the cores.
    pub(super) pmu: &'a Entry,
    /// Catalogue of all PMUs.
    pub(super) catalog: &'a Catalog,
    /// Events that it was found to count, if it was probed.
    pub(super) probed: Option<&'a Probed>,
}

/// Requested metrics with their events, resolved for one PMU.
#[derive(Default)]
pub(super) struct Operands {
    /// Needs of the metrics, one event each.
    pub(super) needs: Vec<Need>,
    /// Form in which each event is opened.
    pub(super) events: Vec<PlannedEvent>,
    /// Metrics, each with its events by index.
    metrics: Vec<(u32, Vec<usize>)>,
}

impl Operands {
    /// Resolves the `chosen` metrics. Adds those that are not available to `missing`, with the reason.
    pub(super) fn of(
        model: &Model,
        chosen: &[u32],
        on: &OnPmu<'_>,
        missing: &mut Vec<(String, String)>,
    ) -> Self {
        let mut all = Self::default();
        for &metric in chosen {
            let operands = model.operands_of(metric);
            let events: Result<Vec<usize>, String> = operands
                .iter()
                .map(|&operand| &model.operands[operand as usize])
                .filter(|operand| !is_latency(operand))
                .map(|operand| all.event(operand, model, on))
                .collect();
            match events {
                Ok(events) => all.metrics.push((metric, events)),
                Err(why) => missing.push((model.metrics[metric as usize].name.clone(), why)),
            }
        }
        all
    }

    fn event(&mut self, operand: &str, model: &Model, on: &OnPmu<'_>) -> Result<usize, String> {
        if let Some(known) = self.needs.iter().position(|need| need.name == operand) {
            return Ok(known);
        }
        let encoding = model.encoding(operand).map_err(|error| error.to_string())?;
        if encoding.unit != "core" {
            return Err(format!("{operand} is counted by `{}`, for all tasks together", encoding.unit));
        }
        if adds_up_threads(operand) {
            return Err(format!("{operand} adds up both threads of a core, which no CPU counts"));
        }
        let event = planned(operand, &encoding, on)?;
        if let Some(why) = on.probed.and_then(|probed| probed.why_dead(event.words[Word::Config as usize])) {
            return Err(why);
        }
        let name = operand.to_owned();
        self.needs.push(Need { name, counters: counters(&encoding, &event), resource: resource(&encoding) });
        self.events.push(event);
        Ok(self.needs.len() - 1)
    }

    /// Returns the metrics for the schedule.
    pub(super) fn wanted(&self, model: &Model) -> Vec<WantedMetric> {
        let wanted = |(index, events): &(u32, Vec<usize>)| {
            let metric = &model.metrics[*index as usize];
            WantedMetric { name: metric.name.clone(), level: metric.level, events: events.clone() }
        };
        self.metrics.iter().map(wanted).collect()
    }
}

/// Returns whether the operand is the latency of a retired instruction, which no counter holds.
fn is_latency(operand: &str) -> bool {
    operand.ends_with(":retire_latency")
}

fn planned(
    operand: &str,
    encoding: &Encoding,
    &OnPmu { pmu, catalog, .. }: &OnPmu<'_>,
) -> Result<PlannedEvent, String> {
    let modes = match encoding.modes {
        Modes::All => "",
        Modes::User => "u",
        Modes::Kernel => "k",
    };
    let notation = format!("{}/{}/{}", pmu.name, encoding.terms, modes);
    // A share has no meaning in the notation without `slots`, but it will be in a group with it.
    let list = match encoding.counters {
        model::Counters::Share => format!("{{{}/event=0x0,umask=0x4/,{notation}}}", pmu.name),
        _ => notation,
    };
    let list = List::parse(&list).map_err(|error| error.to_string())?;
    let groups = resolve(&list, catalog).map_err(|error| error.why.to_string())?;
    let selected = groups.first().and_then(|group| group.events.last());
    let instance = selected.and_then(|selected| selected.instances.first());
    let instance = instance.ok_or_else(|| format!("{operand} has no encoding on {}", pmu.name))?;
    Ok(PlannedEvent {
        name: operand.to_owned(),
        kind: instance.kind,
        words: instance.words.0,
        modes: modes.to_owned(),
    })
}

fn counters(encoding: &Encoding, event: &PlannedEvent) -> Counters {
    /// `slots` of Intel's cores (arch/x86/events/intel/core.c, `INTEL_TD_SLOTS`).
    const SLOTS: u64 = 0x400;
    match encoding.counters {
        model::Counters::Any => Counters::General(u32::MAX),
        model::Counters::General(mask) => Counters::General(mask),
        model::Counters::Share => Counters::Share,
        model::Counters::Fixed(_) if event.words[Word::Config as usize] == SLOTS => Counters::Slots,
        // A fixed counter counts only the plain event in all modes. The general event counts the same.
        model::Counters::Fixed(index) => {
            let general = if encoding.terms.starts_with("event=0x0,") { 0 } else { u32::MAX };
            Counters::Fixed { index: u8::try_from(index).unwrap_or(u8::MAX), general }
        }
    }
}

fn resource(encoding: &Encoding) -> Option<Resource> {
    let value = |name: &str| {
        let term = encoding.terms.split(',').find_map(|term| term.strip_prefix(name)?.strip_prefix('='))?;
        match term.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => term.parse().ok(),
        }
    };
    value("offcore_rsp")
        .map(Resource::Offcore)
        .or_else(|| value("frontend").map(Resource::FrontEnd))
        .or_else(|| value("ldlat").map(Resource::LoadLatency))
}
