//! Tables of a CPU model: how its events are encoded, and formulas of metrics over them.
//!
//! Facts only: names, encodings, constraints, formulas, thresholds. Built-in tables are text files under `tables/`: those of
//! Intel's servers made by `cargo xtask tables import` from a perfmon directory, which [`super::perfmon`] reads at run time
//! too, those of AMD and Arm written by hand.

mod builtin;
mod coverage;
mod operand;
mod shares;
mod tables;
mod task;
mod text;

pub use self::{
    builtin::{FindError, GENERIC, KNOWN, for_machine, load, matches, of_folder},
    coverage::{Check, Coverage, coverage},
    operand::{CountScope, Encoding, Modes, OperandError, adds_up_threads},
    tables::Tables,
    task::TaskForms,
    text::{TextError, read, write},
};
use super::{
    formula::{Binary, Expr, Names},
    unit::Unit,
};

/// Everything known about one CPU model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// Its name: `icelakex`.
    pub name: String,
    /// CPUs it is for, as [`matches()`] takes them: `GenuineIntel-6-55-[01234]`.
    pub cpus: Vec<String>,
    /// Where its facts come from: repository and commit, or a folder.
    pub source: String,
    /// Version of the events.
    pub events_version: String,
    /// Version of the formulas.
    pub formulas_version: String,
    /// Events, by name.
    pub events: Vec<ModelEvent>,
    /// Latencies of retired instructions for events that counting cannot measure: operand and cycles.
    pub latencies: Vec<(String, f64)>,
    /// Events as formulas write them, with modifiers: `IDQ.MITE_UOPS:c4`. By name.
    pub operands: Vec<String>,
    /// What formulas need to know about the machine and the interval: `SOCKET_COUNT`. By name.
    pub constants: Vec<String>,
    /// Metrics, in the order of the source.
    pub metrics: Vec<Metric>,
}

/// An event and how it is encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelEvent {
    /// Its name.
    pub name: String,
    /// What counts it: `core`, or a kind of uncore PMU as the kernel calls it (`cha`).
    pub unit: String,
    /// Terms in perf's event syntax, without a PMU.
    pub terms: String,
    /// Counters that can count it.
    pub counters: Counters,
    /// Counts from one sample to the next that its maker suggests; 0 if none.
    pub period: u64,
    /// Whether samples can be precise.
    pub precise: Precise,
}

/// Counters that can count an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counters {
    /// Any that the PMU has.
    Any,
    /// These general ones, a bit each.
    General(u32),
    /// A fixed one.
    Fixed(u32),
    /// None: a share of what the slots counter counts.
    Share,
}

/// Can samples of an event name the instruction that caused it?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precise {
    /// No.
    No,
    /// Yes.
    Yes,
    /// Only so: it counts nothing without.
    Only,
}

/// A formula with its place in the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name, as its source writes it.
    pub name: String,
    /// Depth in the tree, from 1.
    pub level: u32,
    /// The metric it is a part of.
    pub parent: Option<u32>,
    /// Unit of its value.
    pub unit: Unit,
    /// What kind it is: `TMA`, `BW`.
    pub category: String,
    /// What a fraction of it is a fraction of: `Slots`, `Clocks_Estimated`. Empty where that means nothing.
    pub domain: String,
    /// Groups it belongs to.
    pub groups: Vec<String>,
    /// What the formula's result is multiplied by: 100 where it is a fraction and the unit is percent.
    pub scale: f64,
    /// Results of other metrics in it are not scaled.
    pub formula: Expr,
    /// When its value deserves attention. Other metrics in it are values, scaled.
    pub threshold: Option<Expr>,
    /// Events to sample on to find the code behind it, the best first. Empty where its source names none.
    pub locate: Vec<String>,
}

impl Model {
    /// The event of that name, in any case.
    pub fn event(&self, name: &str) -> Option<&ModelEvent> {
        let found = self.events.binary_search_by(|event| event.name.as_str().cmp(name));
        match found {
            Ok(index) => self.events.get(index),
            Err(_) => self.events.iter().find(|event| event.name.eq_ignore_ascii_case(name)),
        }
    }

    /// Index of the metric of that name, in any case.
    pub fn metric(&self, name: &str) -> Option<u32> {
        let index = self.metrics.iter().position(|metric| metric.name.eq_ignore_ascii_case(name));
        index.and_then(|index| u32::try_from(index).ok())
    }

    /// Every metric with its depth: each below the one it is a part of, otherwise in the order of the source.
    pub fn tree(&self) -> Vec<(u32, u32)> {
        let above: Vec<Option<u32>> = (0..self.metrics.len() as u32).map(|index| self.above(index)).collect();
        let children = |of: Option<u32>| {
            let all = above.iter().enumerate().rev();
            all.filter(move |(_, above)| **above == of).map(|(index, _)| index as u32)
        };
        let mut open: Vec<(u32, u32)> = children(None).map(|index| (index, 0)).collect();
        let mut tree = Vec::with_capacity(self.metrics.len());
        while let Some((index, depth)) = open.pop() {
            tree.push((index, depth));
            open.extend(children(Some(index)).map(|child| (child, depth + 1)));
        }
        tree
    }

    /// Metrics of the tree: those that are a part of another, those that have parts, and the shares of its first level, of which some
    /// have none.
    pub fn tree_nodes(&self) -> impl Iterator<Item = u32> {
        let all = 0..self.metrics.len() as u32;
        let above: Vec<Option<u32>> = all.clone().map(|index| self.above(index)).collect();
        all.filter(move |&index| {
            above[index as usize].is_some() || above.contains(&Some(index)) || self.is_first_level(index)
        })
    }

    /// Is a metric a share of all slots, or of all cycles where nothing counts slots?
    pub fn is_first_level(&self, metric: u32) -> bool {
        self.metrics.get(metric as usize).is_some_and(|metric| {
            metric.level == 1
                && metric.category == "TMA"
                && ["Slots", "Clocks"].contains(&metric.domain.as_str())
                && !metric.name.starts_with("Info_")
        })
    }

    /// The metric that another is a part of: its parent, or where its source leaves that out, the one a level above it
    /// without which it is not flagged.
    pub fn above(&self, metric: u32) -> Option<u32> {
        let Metric { parent, level, threshold, .. } = self.metrics.get(metric as usize)?;
        if parent.is_some() || *level < 2 {
            return *parent;
        }
        let mut above = None;
        threshold.as_ref()?.visit(&mut |part| {
            if let Expr::Metric(other) = part
                && self.metrics.get(*other as usize).is_some_and(|other| other.level + 1 == *level)
            {
                above = above.or(Some(*other));
            }
        });
        above
    }

    /// Metrics of that name or of the group of that name, in any case.
    pub fn named(&self, name: &str) -> Vec<u32> {
        let is = |one: &String| one.eq_ignore_ascii_case(name);
        let all = self.metrics.iter().enumerate();
        let found = all.filter(|(_, metric)| is(&metric.name) || metric.groups.iter().any(is));
        found.map(|(index, _)| index as u32).collect()
    }

    /// Indices of the operands that a metric's formula needs, those of metrics in it included. Sorted.
    pub fn operands_of(&self, metric: u32) -> Vec<u32> {
        let (mut operands, mut seen, mut open) = (Vec::new(), Vec::new(), vec![metric]);
        while let Some(index) = open.pop() {
            if seen.contains(&index) {
                continue;
            }
            seen.push(index);
            let Some(metric) = self.metrics.get(index as usize) else { continue };
            metric.formula.visit(&mut |expr| match expr {
                Expr::Event(index) => operands.push(*index),
                Expr::Metric(index) => open.push(*index),
                _ => {}
            });
        }
        operands.sort_unstable();
        operands.dedup();
        operands
    }

    /// A metric's formula as text, of its value in its unit: `@NAME` is another metric's result before it is multiplied, `#NAME` a constant.
    pub fn formula_of(&self, metric: &Metric) -> String {
        match metric.scale {
            1.0 => metric.formula.write(self),
            scale => Expr::binary(Binary::Multiply, Expr::Number(scale), metric.formula.clone()).write(self),
        }
    }
}

impl Names for Model {
    fn event_name(&self, index: u32) -> &str {
        self.operands.get(index as usize).map_or("?", String::as_str)
    }

    fn constant_name(&self, index: u32) -> &str {
        self.constants.get(index as usize).map_or("?", String::as_str)
    }

    fn metric_name(&self, index: u32) -> &str {
        self.metrics.get(index as usize).map_or("?", |metric| metric.name.as_str())
    }
}

/// Something in a table that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableFault {
    /// A formula counts an event that has no encoding.
    #[error("`{0}` counts `{1}`, which the table does not encode")]
    NoEvent(String, String),
    /// What would find a metric's code has no encoding.
    #[error("the code behind `{0}` is found by `{1}`, which the table does not encode")]
    NoLocation(String, String),
    /// A metric's parents lead back to it.
    #[error("`{0}` is above itself in the tree")]
    NoTree(String),
    /// A metric is computed from itself.
    #[error("`{0}` is computed from itself")]
    Circular(String),
    /// Two things have one name.
    #[error("`{0}` is there twice")]
    Twice(String),
}

impl Model {
    /// Everything that cannot be, none if the table is sound.
    pub fn faults(&self) -> Vec<TableFault> {
        let mut faults = self.twice();
        for (index, metric) in self.metrics.iter().enumerate() {
            for operand in self.operands_of(index as u32) {
                let name = &self.operands[operand as usize];
                if self.encoding(name).is_err() {
                    faults.push(TableFault::NoEvent(metric.name.clone(), name.clone()));
                }
            }
            let lost = metric.locate.iter().filter(|event| self.encoding(event).is_err());
            faults.extend(lost.map(|event| TableFault::NoLocation(metric.name.clone(), event.clone())));
            if self.parents(index as u32).any(|above| above == index as u32) {
                faults.push(TableFault::NoTree(metric.name.clone()));
            }
            if self.reaches(index as u32, index as u32) {
                faults.push(TableFault::Circular(metric.name.clone()));
            }
        }
        faults
    }

    /// The metrics above, nearest first; at most as many as there are metrics.
    pub fn parents(&self, metric: u32) -> impl Iterator<Item = u32> {
        let above = |index: &u32| self.metrics.get(*index as usize).and_then(|metric| metric.parent);
        std::iter::successors(above(&metric), above).take(self.metrics.len())
    }

    fn twice(&self) -> Vec<TableFault> {
        let mut names: Vec<&str> = self.metrics.iter().map(|metric| metric.name.as_str()).collect();
        names.extend(self.events.iter().map(|event| event.name.as_str()));
        names.sort_unstable();
        let pairs = names.windows(2).filter(|pair| pair[0] == pair[1]);
        pairs.map(|pair| TableFault::Twice(pair[0].to_owned())).collect()
    }

    /// Is `wanted` in the formula of `from`, or in one of the metrics there?
    fn reaches(&self, from: u32, wanted: u32) -> bool {
        let (mut open, mut seen, mut found) = (vec![from], Vec::new(), false);
        while let Some(index) = open.pop() {
            let Some(metric) = self.metrics.get(index as usize) else { continue };
            metric.formula.visit(&mut |part| {
                if let Expr::Metric(other) = part {
                    found |= *other == wanted;
                    if !seen.contains(other) {
                        seen.push(*other);
                        open.push(*other);
                    }
                }
            });
        }
        found
    }
}
