//! Rows of the whole run: packed for the scripts, and parsed again for the tables.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
};

use serde::Deserialize;
use serde_json::Value as Json;

use super::{
    intervals::Island,
    island::{Lines, Packing},
};

/// Maximum bytes of the packed rows. Rows beyond that are left out. Base64 makes them four thirds of it.
const BYTES_MAX: u64 = 1_500_000;
/// Maximum bytes for numbers of owners and devices. Stacks and waits keep room, however many owners there
/// are.
const NUMBER_BYTES_MAX: u64 = 1_200_000;
/// Maximum number of functions in the table of the hottest ones.
const HOT_MAX: usize = 60;

/// Row of a number, with the fields that tables need.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Number {
    pub(super) owner: Option<Who>,
    pub(super) subject: Option<BTreeMap<String, Json>>,
    pub(super) metric: String,
    pub(super) parent: Option<String>,
    pub(super) unit: String,
    pub(super) value: Option<f64>,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
    pub(super) coverage: Option<f64>,
    pub(super) how: Option<String>,
    pub(super) pmu: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) level: Option<u64>,
    pub(super) threshold: Option<String>,
    pub(super) flagged: Option<bool>,
    pub(super) quantiles: Option<BTreeMap<String, Bound>>,
}

/// Quantile with its interval.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Bound {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: Option<f64>,
}

/// Owner of a number.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct Who {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) path: Option<String>,
    pub(super) called: Option<String>,
    pub(super) generation: Option<u64>,
    pub(super) pid: Option<u64>,
    pub(super) tid: Option<u64>,
    pub(super) host_pid: Option<u64>,
    pub(super) id: Option<u64>,
    pub(super) processes: Option<u64>,
}

impl Who {
    /// Returns the label of the owner in a table, not escaped yet.
    pub(super) fn label(&self) -> String {
        match (&*self.kind, &self.path, self.pid.or(self.host_pid), self.tid) {
            ("target", ..) => "all".to_owned(),
            (_, Some(path), ..) => {
                let called = self.called.as_ref().unwrap_or(path);
                let later = self.generation.filter(|generation| *generation > 1);
                later.map_or_else(|| called.clone(), |generation| format!("{called} #{generation}"))
            }
            (_, _, _, Some(tid)) => format!("{} {tid}", self.name),
            (_, _, Some(pid), _) => format!("{} {pid}", self.name),
            _ => match self.processes {
                Some(processes) => format!("{} × {processes}", self.name),
                None => self.name.clone(),
            },
        }
    }
}

/// Share of a culprit in a victim's waits for a CPU.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Charge {
    /// Owner that waited.
    pub(super) owner: Who,
    pub(super) culprit: Who,
    pub(super) wait_ns: f64,
    pub(super) share: f64,
    pub(super) of_ns: f64,
}

/// Rows by kind.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) header: Json,
    pub(super) summary: Json,
    pub(super) findings: Vec<Json>,
    pub(super) numbers: Vec<Number>,
    /// Numbers of the processes of one program combined.
    pub(super) of_programs: Vec<Number>,
    pub(super) bottlenecks: Vec<Json>,
    /// Charges, grouped by victim, in the order of the report.
    pub(super) charges: Vec<Charge>,
    /// Same charges, with processes of one program combined. Empty if no two processes of a program ran.
    pub(super) charges_of_programs: Vec<Charge>,
    /// Time for which bandwidths were low, medium and high.
    pub(super) levels: Vec<Json>,
    /// Formulas of metrics from tables.
    pub(super) formulas: Vec<Json>,
    /// The hottest functions over the target.
    pub(super) hot: Vec<Json>,
    /// Number of hot functions.
    pub(super) hot_count: usize,
    /// Numbers of rows that the scripts do not have, by kind.
    pub(super) left_out: BTreeMap<String, u64>,
}

/// Collector of the rows of the whole run, as they are written.
pub struct Whole {
    lines: Lines,
    packing: Packing,
    rows: Rows,
}

impl Default for Whole {
    fn default() -> Self {
        Self::new()
    }
}

impl Whole {
    /// Returns a collector without rows.
    #[must_use]
    pub fn new() -> Self {
        Self { lines: Lines::default(), packing: Packing::new(), rows: Rows::default() }
    }

    /// Returns the count of known numbers.
    #[must_use]
    pub fn numbers(&self) -> u64 {
        let known = |number: &&Number| number.value.is_some() || number.quantiles.is_some();
        self.rows.numbers.iter().filter(known).count() as u64
    }

    pub(super) fn end(self) -> io::Result<(Rows, Island)> {
        Ok((self.rows, Island { base64: self.packing.end()?, ticks: 1, owners: 0 }))
    }
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { lines, packing, rows } = self;
        lines.feed(bytes, |line| rows.add(line, packing))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Deserialize)]
struct Kind<'a> {
    kind: &'a str,
}

/// Returns the CPU time of an owner with these numbers. The target ranks above all owners.
fn cpu_time(numbers: &[&Number]) -> f64 {
    let of = |number: &&&Number| number.metric == "cpu_time";
    let is_target = numbers[0].owner.as_ref().is_some_and(|owner| owner.kind == "target");
    let time = numbers.iter().find(of).and_then(|number| number.value).unwrap_or(0.0);
    if is_target { f64::INFINITY } else { time }
}

impl Rows {
    /// Returns the numbers of owners and of the target, with processes of one program combined. They are
    /// sorted by CPU time if `numbers` is. Otherwise, a program takes the place of its first process.
    pub(super) fn by_program<'a>(&'a self, numbers: &[&'a Number]) -> Vec<&'a Number> {
        let mut programs: BTreeMap<&str, Vec<&Number>> = BTreeMap::new();
        for number in &self.of_programs {
            let Some(owner) = &number.owner else { continue };
            programs.entry(&owner.name).or_default().push(number);
        }
        let names: BTreeSet<&str> = programs.keys().copied().collect();
        let mut rows: Vec<Vec<&Number>> = Vec::new();
        for same in numbers.chunk_by(|one, other| one.owner == other.owner) {
            let owner = same[0].owner.as_ref().filter(|owner| matches!(&*owner.kind, "process" | "ended"));
            match owner.map(|owner| owner.name.as_str()).filter(|name| names.contains(name)) {
                None => rows.push(same.to_vec()),
                Some(name) => rows.extend(programs.remove(name)),
            }
        }
        let of_owners = numbers.chunk_by(|one, other| one.owner == other.owner).map(cpu_time);
        if of_owners.is_sorted_by(|one, next| one >= next) {
            rows.sort_by(|one, other| cpu_time(other).total_cmp(&cpu_time(one)));
        }
        rows.concat()
    }

    /// Keeps a row. The header, the summary and the findings are always packed.
    fn add(&mut self, line: &[u8], packing: &mut Packing) -> io::Result<()> {
        let Kind { kind } = serde_json::from_slice(line)?;
        let is_needed = matches!(kind, "header" | "summary" | "finding" | "bottleneck");
        let is_number = matches!(kind, "metric" | "histogram" | "program_metric" | "program_histogram");
        let room = if is_number { NUMBER_BYTES_MAX } else { BYTES_MAX };
        if is_needed || packing.bytes() < room {
            packing.push(line)?;
        } else {
            *self.left_out.entry(kind.to_owned()).or_default() += 1;
        }
        match kind {
            "header" => self.header = serde_json::from_slice(line)?,
            "summary" => self.summary = serde_json::from_slice(line)?,
            "finding" => self.findings.push(serde_json::from_slice(line)?),
            "bottleneck" => self.bottlenecks.push(serde_json::from_slice(line)?),
            "metric" | "histogram" => self.numbers.push(serde_json::from_slice(line)?),
            "program_metric" | "program_histogram" => self.of_programs.push(serde_json::from_slice(line)?),
            "program_culprit" => self.charges_of_programs.push(serde_json::from_slice(line)?),
            "formula" => self.formulas.push(serde_json::from_slice(line)?),
            "levels" => self.levels.push(serde_json::from_slice(line)?),
            "culprit" => self.charges.push(serde_json::from_slice(line)?),
            "function" => {
                self.hot_count += 1;
                if self.hot.len() < HOT_MAX {
                    self.hot.push(serde_json::from_slice(line)?);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
