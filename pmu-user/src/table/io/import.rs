//! Import of a file of facts about I/O counting (JSON) into tables.
//!
//! The file lists, for every platform, events with the word that the kernel takes for them, and metrics as
//! expressions over lists of events. Each event's terms are placed by the formats that the file documents,
//! and must give that word. Platforms with equal facts share a table. Sentences of the file are left out.
//! Metrics of our own are added to those of the file.

mod formula;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Deserialize;

use self::formula::Wanted;
use super::{Absent, FreeRunning, IoTable, PmuKind};
use crate::{
    machine::pmu::bits::{Bits, Word, Words},
    table::{
        model::{Counters, Model, ModelEvent, Precise},
        unit::Unit,
    },
};

/// Error for a file that gives no tables.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file does not have the expected form.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A fact contradicts another one, or is unknown to us.
    #[error("{platform}: {what}")]
    Fact {
        /// Platform of the fact.
        platform: String,
        /// Description of the fault.
        what: String,
    },
}

#[derive(Deserialize)]
struct File {
    formats: BTreeMap<String, BTreeMap<String, BTreeMap<String, String>>>,
    platforms: BTreeMap<String, Platform>,
}

#[derive(Clone, PartialEq, Deserialize)]
struct Platform {
    cpu_models: Vec<String>,
    format_family: String,
    parts: u32,
    events: BTreeMap<String, Fact>,
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Deserialize)]
struct Fact {
    pmu: String,
    event: u64,
    umask: u64,
    #[serde(default)]
    sysfs_umask: u64,
    #[serde(default)]
    ch_mask: u64,
    #[serde(default)]
    fc_mask: u64,
    #[serde(default)]
    config1: u64,
    config: String,
    counters: String,
}

#[derive(Clone, PartialEq, Deserialize)]
struct Metric {
    id: String,
    unit: String,
    expr: String,
    inputs: BTreeMap<String, Vec<String>>,
    scope: String,
    available: bool,
    #[serde(default)]
    variant: String,
    #[serde(default)]
    note: String,
}

/// Platforms of the file: the name in the file, our name, and the kind of their free-running counters.
const PLATFORMS: [(&str, &str, Free); 8] = [
    ("SKX", "skylakex", Free::InAndOut),
    ("CLX", "cascadelakex", Free::InAndOut),
    ("ICX", "icelakex", Free::InAndMemory),
    ("SPR", "sapphirerapids", Free::In),
    ("EMR", "emeraldrapids", Free::In),
    ("GNR", "graniterapids", Free::In),
    ("SRF", "sierraforest", Free::In),
    ("CWF", "clearwaterforest", Free::In),
];

/// Free-running counters, as the kernel exposes them (arch/x86/events/intel/uncore_snbep.c).
#[derive(Clone, Copy, PartialEq)]
enum Free {
    /// Both directions, 36 bits of 4 bytes.
    InAndOut,
    /// From devices, 48 bits of 32 bytes; from the memory controllers, 64 bytes.
    InAndMemory,
    /// From devices only: outgoing traffic has no fixed size per count there (commit 506f981ab40f).
    In,
}

/// Returns the tables of all platforms of the file `json`, by name. `source` is the origin of the file.
///
/// # Errors
///
/// The file is malformed, names something unknown, or contradicts itself.
pub fn import(json: &str, source: &str) -> Result<Vec<IoTable>, ImportError> {
    let file: File = serde_json::from_str(json)?;
    let mut tables: Vec<(&Platform, Free, IoTable)> = Vec::new();
    for (theirs, ours, free) in PLATFORMS {
        let Some(platform) = file.platforms.get(theirs) else { continue };
        let fail = |what| ImportError::Fact { platform: theirs.to_owned(), what };
        let cpus = platform
            .cpu_models
            .iter()
            .map(|cpu| pattern(cpu))
            .collect::<Result<Vec<_>, _>>()
            .map_err(fail)?;
        let same = |(known, kind, _): &&mut (&Platform, Free, IoTable)| {
            *kind == free
                && known.parts == platform.parts
                && known.events == platform.events
                && known.metrics == platform.metrics
        };
        if let Some((.., table)) = tables.iter_mut().find(same) {
            table.models.push(ours.to_owned());
            table.model.cpus.extend(cpus);
            continue;
        }
        let formats = file.formats.get(&platform.format_family);
        let formats = formats.ok_or_else(|| fail(format!("no formats `{}`", platform.format_family)))?;
        let mut table = of_platform(platform, free, formats).map_err(fail)?;
        table.models = vec![ours.to_owned()];
        table.model = Model { name: ours.to_owned(), cpus, source: source.to_owned(), ..table.model };
        if let Some(fault) = table.faults().first() {
            return Err(fail(fault.to_string()));
        }
        tables.push((platform, free, table));
    }
    let mut tables: Vec<IoTable> = tables.into_iter().map(|(.., table)| table).collect();
    tables.sort_by(|a, b| a.name().cmp(b.name()));
    Ok(tables)
}

type Formats = BTreeMap<String, BTreeMap<String, String>>;

fn of_platform(platform: &Platform, free: Free, formats: &Formats) -> Result<IoTable, String> {
    let events: Vec<ModelEvent> =
        platform.events.iter().map(|(name, fact)| event(name, fact, formats)).collect::<Result<_, _>>()?;
    let mut table = IoTable {
        parts: platform.parts,
        kinds: kinds(&events),
        free_running: free_running(free),
        model: Model { events, ..Model::default() },
        ..IoTable::default()
    };
    let mut wanted = Vec::new();
    for metric in &platform.metrics {
        let Metric { id, unit, expr, inputs, scope, available, variant, note } = metric.clone();
        if !available {
            let why = if note.is_empty() { "these platforms have no events for it" } else { &note };
            table.absent.push(Absent { name: id, unit: Unit::of(&unit), why: why.to_owned() });
            continue;
        }
        wanted.push(Wanted {
            name: id,
            unit,
            scope,
            group: group(&variant).to_owned(),
            formula: expr,
            inputs,
        });
    }
    wanted.extend(formula::beside(&table));
    formula::add(&mut table.model, &wanted)?;
    Ok(table)
}

/// Returns the origin of a metric's definition.
fn group(variant: &str) -> &'static str {
    const WORDS: [(&str, &str); 6] = [
        ("perfmon", "perfmon"),
        ("PCM", "pcm"),
        ("perf iostat", "iostat"),
        ("SPR+", "substitute"),
        ("analog", "analog"),
        ("SKX", "analog"),
    ];
    let found = WORDS.iter().find(|(start, _)| variant.starts_with(start));
    found.map_or("cookbook", |(_, word)| word)
}

/// Returns the pattern of a CPU model: `6-85 stepping 5-15` becomes `GenuineIntel-6-55-5..F`.
fn pattern(cpu: &str) -> Result<String, String> {
    let wrong = || format!("`{cpu}` is not a CPU model");
    let (model, steppings) = match cpu.split_once(" stepping ") {
        Some((model, steppings)) => (model, Some(steppings)),
        None => (cpu, None),
    };
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    let (family, model) = model.split_once('-').ok_or_else(wrong)?;
    let base = format!("GenuineIntel-{}-{:X}", number(family)?, number(model)?);
    Ok(match steppings {
        None => base,
        Some(range) => {
            let (first, last) = range.split_once('-').ok_or_else(wrong)?;
            format!("{base}-{:X}..{:X}", number(first)?, number(last)?)
        }
    })
}

fn event(name: &str, fact: &Fact, formats: &Formats) -> Result<ModelEvent, String> {
    let terms = [
        ("event", fact.event),
        ("umask", if fact.sysfs_umask == 0 { fact.umask } else { fact.sysfs_umask }),
        ("ch_mask", fact.ch_mask),
        ("fc_mask", fact.fc_mask),
    ];
    let mut words = Words::default();
    let mut text = Vec::new();
    for (term, value) in terms.into_iter().filter(|(term, value)| *value != 0 || *term == "event") {
        let format = formats.get(&fact.pmu).and_then(|terms| terms.get(term));
        let bits = format
            .and_then(|format| Bits::parse(format))
            .ok_or_else(|| format!("{}: no `{term}`", fact.pmu))?;
        words = bits.place(value, words).ok_or_else(|| format!("{name}: `{term}` cannot be {value:#x}"))?;
        text.push(format!("{term}={value:#x}"));
    }
    let config = words.get(Word::Config);
    if format!("{config:#x}") != fact.config {
        return Err(format!("{name}: its terms give {config:#x}, not {}", fact.config));
    }
    if fact.config1 != 0 {
        // The file has the second filter register of a CHA, which the kernel takes from the upper half of config1
        // (arch/x86/events/intel/uncore_snbep.c, `SKX_CHA_MSR_PMON_BOX_FILTER_OPC0`); in the lower half it would filter nothing.
        text.push(format!("config1={:#x}", fact.config1 << 32));
    }
    let bits = fact.counters.split(',').map(|one| one.trim().parse::<u32>().ok().filter(|bit| *bit < 32));
    let mask = bits.map(|bit| bit.map(|bit| 1 << bit)).sum::<Option<u32>>().filter(|mask| *mask != 0);
    Ok(ModelEvent {
        name: name.to_owned(),
        unit: fact.pmu.clone(),
        terms: text.join(","),
        counters: Counters::General(
            mask.ok_or_else(|| format!("{name}: `{}` are not counters", fact.counters))?,
        ),
        period: 0,
        precise: Precise::No,
    })
}

/// Returns the kinds of uncore PMUs. An uncore PMU has as many counters as the event that may be on most of
/// them. The filter of a CHA is one register.
fn kinds(events: &[ModelEvent]) -> Vec<PmuKind> {
    let mut kinds: BTreeMap<&str, (u32, bool)> = BTreeMap::new();
    for event in events {
        let Counters::General(mask) = event.counters else { continue };
        let (counters, filtered) = kinds.entry(event.unit.as_str()).or_default();
        *counters = (*counters).max(u32::BITS - mask.leading_zeros());
        *filtered |= event.terms.contains("config1=");
    }
    let kind = |(unit, (counters, filtered)): (&str, (u32, bool))| PmuKind {
        unit: unit.to_owned(),
        counters,
        shared: filtered.then(|| "config1".to_owned()),
    };
    kinds.into_iter().map(kind).collect()
}

fn free_running(kind: Free) -> Vec<FreeRunning> {
    let (ports, unit_bytes, width_bits) = match kind {
        Free::InAndOut => (4, 4, 36),
        Free::InAndMemory | Free::In => (8, 32, 48),
    };
    let counter = |unit: &str, name: String, umask: u32, unit_bytes, width_bits| FreeRunning {
        unit: unit.to_owned(),
        name,
        terms: format!("event=0xff,umask={umask:#x}"),
        unit_bytes,
        width_bits,
    };
    let iio =
        |name: String, umask, unit_bytes| counter("iio_free_running", name, umask, unit_bytes, width_bits);
    let mut all = vec![iio("ioclk".to_owned(), 0x10, 0)];
    all.extend((0..ports).map(|port| iio(format!("bw_in_port{port}"), 0x20 + port, unit_bytes)));
    if kind == Free::InAndOut {
        all.extend((0..ports).map(|port| iio(format!("bw_out_port{port}"), 0x24 + port, unit_bytes)));
    }
    if kind == Free::InAndMemory {
        let imc = |name: &str, umask, bytes| counter("imc_free_running", name.to_owned(), umask, bytes, 48);
        all.extend([imc("dclk", 0x10, 0), imc("read", 0x20, 64), imc("write", 0x21, 64)]);
    }
    all
}
