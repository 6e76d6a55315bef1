//! Uncore PMUs of one kind with the same request: the events of its metrics, and their groups.

use std::collections::BTreeMap;

use super::order::{KernelKnows, Limit, Placement, order};
use crate::{
    machine::pmu::{catalog::Catalog, counters::CountersSource},
    plan::schedule::{Capacity, Counters, Need, Packing, Resource, WantedMetric, capacity::Shares, schedule},
    table::{
        event_syntax::{List, Selected, SelectedGroup, family, resolve},
        formula::Expr,
        io::{IoTable, Of, ScopeKind, part_of},
        model,
    },
};

/// Request to a stack's uncore PMU about its parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parts {
    /// Sum of all parts, added up by the hardware: one event for all parts.
    Together,
    /// Each of these parts separately, and none of the others. An empty list requests no part.
    Each(Vec<u32>),
}

/// Groups that are multiplexed on uncore PMUs of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct UncorePlan {
    /// Kind of the uncore PMUs: `iio`.
    pub unit: String,
    /// Names of the PMUs.
    pub pmus: Vec<String>,
    /// Request about the parts.
    pub parts: Parts,
    /// Groups, of which one at a time is meant to be active. Events that share an uncore PMU's counters with
    /// a group decide the placement of its events.
    pub groups: Vec<UncoreGroup>,
    /// Groups that hold the events of each metric.
    pub homes: Vec<Home>,
}

/// Events that count together on each uncore PMU of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct UncoreGroup {
    /// Events of the group, as they are opened.
    pub group: SelectedGroup,
    /// Quantity that each event counts: sums of operands of the table's model, each equal to the count.
    pub sums: Vec<Vec<Vec<u32>>>,
    /// Placement of the events on counters that can count them.
    pub placement: Placement,
}

/// Groups that hold a metric's events on these uncore PMUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Number of the metric.
    pub metric: u32,
    /// Scope for which the metric is computed.
    pub of: Of,
    /// One group if the events count together. Otherwise several, and each event is scaled by its own group's
    /// time.
    pub groups: Vec<u32>,
}

/// Uncore PMUs of a kind with the same request.
pub(super) struct Class<'a> {
    pub(super) table: &'a IoTable,
    pub(super) unit: &'a str,
    pub(super) parts: &'a Parts,
    pub(super) metrics: &'a [u32],
}

/// An event that will be counted.
#[derive(Clone, Debug)]
struct CountedEvent {
    name: String,
    terms: String,
    counters: u32,
    /// Sums of operands that equal its count.
    sums: Vec<Vec<u32>>,
}

/// Metric for one scope, with its events on these uncore PMUs.
struct Question {
    metric: u32,
    of: Of,
    events: Vec<usize>,
}

impl Class<'_> {
    /// Plans the groups for `pmus`.
    pub(super) fn plan(&self, pmus: Vec<String>, catalog: &Catalog) -> UncorePlan {
        let mut counted: Vec<CountedEvent> = Vec::new();
        let questions = self.questions(&mut counted);
        let mut wanted = Vec::new();
        for question in &questions {
            self.want(question, &mut counted, &mut wanted);
        }
        let found = schedule(&self.needs(&counted), &wanted, &self.capacity(), Packing::Whole);
        let home = |Question { metric, of, events }: &Question| {
            let groups = homes(events, &found.groups);
            Home { metric: *metric, of: *of, groups }
        };
        UncorePlan {
            unit: self.unit.to_owned(),
            parts: self.parts.clone(),
            homes: questions.iter().map(home).collect(),
            groups: found.groups.iter().map(|group| self.group(group, &counted, &pmus, catalog)).collect(),
            pmus,
        }
    }

    fn questions(&self, counted: &mut Vec<CountedEvent>) -> Vec<Question> {
        let mut questions = Vec::new();
        for &metric in self.metrics {
            let about: Vec<Of> = match (self.table.scope(metric), self.parts) {
                (Some(ScopeKind::Part), Parts::Each(parts)) => {
                    parts.iter().map(|&part| Of::Part(part)).collect()
                }
                _ => vec![Of::All],
            };
            for of in about {
                let operands = self.table.events_of(metric, of);
                let events = self.events(&operands, counted);
                questions.push(Question { metric, of, events });
            }
        }
        questions
    }

    /// Returns the events that count these operands, as far as these uncore PMUs count them. Adds new events
    /// to `counted`. Parts that differ in bits of masks are counted as one event.
    fn events(&self, operands: &[u32], counted: &mut Vec<CountedEvent>) -> Vec<usize> {
        let mut sums: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for &operand in operands.iter().filter(|&&operand| unit_of(self.table, operand) == self.unit) {
            let name = self.table.operand(operand).unwrap_or("?");
            let stem = match (part_of(name), self.parts) {
                (Some(_), Parts::Together) if self.has_masks(operand) => without_number(name),
                _ => name,
            };
            sums.entry(stem.to_owned()).or_default().push(operand);
        }
        let mut events: Vec<usize> = sums.into_values().map(|sum| self.event(sum, counted)).collect();
        events.sort_unstable();
        events.dedup();
        events
    }

    fn terms(&self, operand: u32) -> &str {
        let event = self.table.operand(operand).and_then(|name| self.table.model.event(name));
        event.map_or("", |event| &event.terms)
    }

    /// Returns whether all parts of an event have the same code, so that only masks distinguish them.
    fn has_masks(&self, operand: u32) -> bool {
        let stem = self.table.operand(operand).map(without_number);
        let all = (0..self.table.model.operands.len() as u32)
            .filter(|&other| self.table.operand(other).map(without_number) == stem);
        let code = value(self.terms(operand), "event");
        all.map(|other| value(self.terms(other), "event")).all(|other| other == code)
    }

    /// Returns the event that counts a sum of operands.
    fn event(&self, sum: Vec<u32>, counted: &mut Vec<CountedEvent>) -> usize {
        let encoded = |&operand: &u32| self.table.model.event(self.table.operand(operand)?);
        let all: Vec<&model::ModelEvent> = sum.iter().filter_map(encoded).collect();
        let terms = merge(all.iter().map(|event| event.terms.as_str()));
        if let Some(known) = counted.iter().position(|event| event.terms == terms) {
            if !counted[known].sums.contains(&sum) {
                counted[known].sums.push(sum);
            }
            return known;
        }
        let name = all.first().map_or("?", |event| event.name.as_str());
        let name = match sum.len() {
            1 => name.to_owned(),
            _ => format!("{}S", without_number(name)),
        };
        let counters = all.iter().fold(u32::MAX, |left, event| left & CountedEvent::of(event).counters);
        counted.push(CountedEvent { name, terms, counters, sums: vec![sum] });
        counted.len() - 1
    }

    /// Requests one group for a metric's events, and as the second choice one group for each part of its
    /// formula. A metric that other uncore PMUs count as well needs no common group, since those multiplex
    /// separately anyway.
    fn want(&self, question: &Question, counted: &mut Vec<CountedEvent>, wanted: &mut Vec<WantedMetric>) {
        let name = &self.table.model.metrics[question.metric as usize].name;
        let mut want =
            |level: u32, events: Vec<usize>| wanted.push(WantedMetric { name: name.clone(), level, events });
        let operands = self.table.model.operands_of(question.metric);
        if operands.iter().any(|&operand| unit_of(self.table, operand) != self.unit) {
            question.events.iter().for_each(|&event| want(1, vec![event]));
            return;
        }
        want(1, question.events.clone());
        self.table.model.metrics[question.metric as usize].formula.visit(&mut |part| {
            let mut operands = Vec::new();
            part.visit(&mut |leaf| {
                if let Expr::Event(operand) = leaf {
                    operands.push(*operand);
                }
            });
            operands
                .retain(|&operand| self.table.operand(operand).is_some_and(|event| question.of.needs(event)));
            let whole = matches!(self.parts, Parts::Each(_)) || !self.is_part_of_a_sum(&operands);
            if operands.len() > 1 && whole {
                let events = self.events(&operands, counted);
                want(2, events);
            }
        });
    }

    /// Returns whether these are some parts of an event, but not all. They are counted together with the
    /// others.
    fn is_part_of_a_sum(&self, operands: &[u32]) -> bool {
        let parts =
            operands.iter().filter(|&&operand| self.table.operand(operand).and_then(part_of).is_some());
        let count = parts.count();
        self.table.parts > 0 && count % self.table.parts as usize != 0
    }

    /// Returns the needs that separate events: a register of the uncore PMU, or a counter that the kernel
    /// would assign to the wrong event.
    fn needs(&self, counted: &[CountedEvent]) -> Vec<Need> {
        let shared = self.table.kind(self.unit).and_then(|kind| kind.shared.as_deref());
        let limits: Vec<Limit> = counted.iter().map(|event| self.limit(event)).collect();
        let need = |(event, limit): (&CountedEvent, &Limit)| Need {
            name: event.name.clone(),
            counters: Counters::General(event.counters),
            resource: match shared {
                Some(term) => Some(Resource::Filter(value(&event.terms, term))),
                None => limit.robs(&limits).or(limit.is_robbed(&limits)).map(Resource::Filter),
            },
        };
        counted.iter().zip(&limits).map(need).collect()
    }

    fn limit(&self, event: &CountedEvent) -> Limit {
        Limit { counters: event.counters, known: KernelKnows::of(self.unit, value(&event.terms, "event")) }
    }

    fn counters(&self) -> u32 {
        self.table.kind(self.unit).map_or(0, |kind| kind.counters)
    }

    fn capacity(&self) -> Capacity {
        let general = 1_u32.checked_shl(self.counters()).map_or(u32::MAX, |above| above - 1);
        let source = CountersSource::Model(self.table.name().to_owned());
        Capacity { general, fixed: 0, shares: Shares::Missing, holds: Vec::new(), source }
    }

    fn group(
        &self,
        group: &[usize],
        counted: &[CountedEvent],
        pmus: &[String],
        catalog: &Catalog,
    ) -> UncoreGroup {
        let mut group: Vec<&CountedEvent> = group.iter().map(|&event| &counted[event]).collect();
        let filler = self.filler();
        let (order, placement) = loop {
            let limits: Vec<Limit> = group.iter().map(|event| self.limit(event)).collect();
            let (order, placement) = order(&limits, self.counters());
            // The kernel assigns counters from the lowest: an event that needs a high counter needs others
            // below it.
            match &filler {
                Some(filler) if placement == Placement::Hoped && group.len() < self.counters() as usize => {
                    group.push(filler);
                }
                _ => break (order, placement),
            }
        };
        let (mut events, mut sums) = (Vec::new(), Vec::new());
        for event in order.into_iter().map(|index| group[index]) {
            let found = selected(self.unit, &event.name, &event.terms, catalog);
            let mut found = found.expect("each operand of the event was found on this host with these terms");
            found.instances.retain(|at| pmus.contains(&at.pmu));
            events.push(found);
            sums.push(event.sums.clone());
        }
        UncoreGroup { group: SelectedGroup { events, weak: false }, sums, placement }
    }

    /// Returns an event that may be on any counter and counts for no metric.
    fn filler(&self) -> Option<CountedEvent> {
        let mut events = self.table.model.events.iter();
        let clock = events.find(|event| event.unit == self.unit && event.name.ends_with("CLOCKTICKS"))?;
        Some(CountedEvent { sums: Vec::new(), ..CountedEvent::of(clock) })
    }
}

impl CountedEvent {
    fn of(event: &model::ModelEvent) -> Self {
        let counters = match event.counters {
            model::Counters::General(mask) => mask,
            _ => u32::MAX,
        };
        Self { name: event.name.clone(), terms: event.terms.clone(), counters, sums: Vec::new() }
    }
}

/// Returns the groups that hold these events: one if it holds all, otherwise as few as the order of the
/// groups gives.
fn homes(events: &[usize], groups: &[Vec<usize>]) -> Vec<u32> {
    let has = |group: &[usize], event: &usize| group.contains(event);
    if let Some(one) = groups.iter().position(|group| events.iter().all(|event| has(group, event))) {
        return vec![one as u32];
    }
    let mut left = events.to_vec();
    let mut homes = Vec::new();
    for (index, group) in (0_u32..).zip(groups) {
        let before = left.len();
        left.retain(|event| !has(group, event));
        if left.len() < before {
            homes.push(index);
        }
    }
    homes
}

fn without_number(name: &str) -> &str {
    name.trim_end_matches(|digit: char| digit.is_ascii_digit())
}

/// Merges the terms of events that differ in bits of masks into one event that counts all of them.
fn merge<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let mut merged: Vec<(&str, u64)> = Vec::new();
    for terms in all {
        for term in terms.split(',') {
            let (name, _) = term.split_once('=').unwrap_or((term, ""));
            let number = value(terms, name);
            match merged.iter_mut().find(|(known, _)| *known == name) {
                Some((_, bits)) => *bits |= number,
                None => merged.push((name, number)),
            }
        }
    }
    merged.iter().map(|(name, bits)| format!("{name}={bits:#x}")).collect::<Vec<_>>().join(",")
}

/// Returns the number to which a term is set; 0 if the term is missing.
fn value(terms: &str, name: &str) -> u64 {
    let values = terms.split(',').filter_map(|term| term.strip_prefix(name)?.strip_prefix('='));
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    values.filter_map(number).next().unwrap_or(0)
}

/// Returns the kind of uncore PMU that counts an operand.
pub(super) fn unit_of(table: &IoTable, operand: u32) -> &str {
    let event = table.operand(operand).and_then(|name| table.model.event(name));
    event.map_or("?", |event| event.unit.as_str())
}

/// Resolves an event of a kind of uncore PMU by its terms, with all PMUs of that kind.
pub(super) fn selected(unit: &str, name: &str, terms: &str, catalog: &Catalog) -> Result<Selected, String> {
    let list = List::parse(&format!("{unit}/{terms},name={name}/")).map_err(|error| error.to_string())?;
    let groups = resolve(&list, catalog).map_err(|error| match pmus(unit, catalog).as_slice() {
        [] => format!("this host shows no {unit} PMU"),
        _ => format!("{name}: {}", error.why),
    })?;
    let mut events = groups.into_iter().flat_map(|group| group.events);
    events.next().ok_or_else(|| format!("{name} is not an event"))
}

/// Returns the names of the PMUs of a kind.
pub(super) fn pmus(unit: &str, catalog: &Catalog) -> Vec<String> {
    let is = |name: &str| {
        let plain = name.strip_prefix("uncore_").unwrap_or(name);
        plain == unit || family(plain) == unit
    };
    catalog.pmus.iter().map(|pmu| pmu.name.clone()).filter(|name| is(name)).collect()
}
