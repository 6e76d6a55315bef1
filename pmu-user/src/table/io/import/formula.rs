//! Metrics of a model from expressions over lists of events. Those of perfmon's file are joined by metrics
//! that the cookbook requires and leaves to the reader, and by more detailed ones.

use std::collections::{BTreeMap, BTreeSet};

use crate::table::{
    formula::{Binary, Expr, parse},
    io::{IoTable, SECONDS},
    model::{Metric, Model},
    unit::Unit,
};

/// A metric to add to a table.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) scope: String,
    /// Origin of its definition.
    pub(super) group: String,
    /// Formula over names of inputs, `t` for seconds, or events; `EVENT.PART*` is the sum over all parts.
    pub(super) formula: String,
    /// Names of inputs, each with the events of which it is the sum.
    pub(super) inputs: BTreeMap<String, Vec<String>>,
}

impl Wanted {
    /// Returns the events of which a name of the formula is the sum.
    pub(super) fn events(&self, name: &str, model: &Model) -> Vec<String> {
        if let Some(events) = self.inputs.get(name) {
            return events.clone();
        }
        match name.strip_suffix('*') {
            Some(stem) => {
                let is = |event: &&String| {
                    event.strip_prefix(stem).is_some_and(|part| part.parse::<u32>().is_ok())
                };
                model.events.iter().map(|event| &event.name).filter(is).cloned().collect()
            }
            None => vec![name.to_owned()],
        }
    }
}

/// Adds metrics to a model that has none yet.
///
/// # Errors
///
/// A formula cannot be read.
pub(super) fn add(model: &mut Model, wanted: &[Wanted]) -> Result<(), String> {
    let mut operands = BTreeSet::new();
    for metric in wanted {
        // A fault in a formula shows when it is read for good.
        let _ = read(&metric.formula, &mut |name| {
            operands.extend(metric.events(name, model));
            Ok(Expr::Number(0.0))
        });
    }
    model.operands = operands.into_iter().collect();
    model.constants = vec![SECONDS.to_owned()];
    for metric in wanted {
        let formula = read(&metric.formula, &mut |name| {
            let index = |event: &String| {
                model.operands.binary_search(event).ok().map(|index| Expr::Event(index as u32))
            };
            let events = metric.events(name, model);
            let sum = events.iter().filter_map(index).reduce(|a, b| Expr::binary(Binary::Add, a, b));
            sum.ok_or_else(|| format!("`{name}` is not an event"))
        });
        let Wanted { name, unit, scope, group, .. } = metric.clone();
        model.metrics.push(Metric {
            formula: formula.map_err(|what| format!("{name}: {what}"))?,
            name,
            level: 1,
            parent: None,
            unit: Unit::of(&unit),
            category: "io".to_owned(),
            domain: scope,
            groups: vec![group],
            scale: 1.0,
            threshold: None,
            locate: Vec::new(),
        });
    }
    Ok(())
}

/// Reads a formula, in which `t` is the length of the interval.
fn read(formula: &str, events: &mut dyn FnMut(&str) -> Result<Expr, String>) -> Result<Expr, String> {
    // The name of a sum over parts must be read as one name.
    let formula = formula.replace(".PART*", ".PART@");
    let expr = parse(&formula, &mut |name| match name {
        "t" => Ok(Expr::Constant(0)),
        _ => events(&name.replace(".PART@", ".PART*")),
    });
    expr.map_err(|error| error.to_string())
}

/// Name, unit, scope, origin of the definition, and formula of a metric.
type Own = (&'static str, &'static str, &'static str, &'static str, &'static str);

const OWN: [Own; 12] = [
    (
        "ddio.read_l3_hit",
        "%",
        "socket",
        "cookbook",
        "100 - 100 * UNC_CHA_TOR_INSERTS.IO_MISS_PCIRDCUR / UNC_I_FAF_INSERTS",
    ),
    (
        "ddio.read_l3_hit",
        "%",
        "socket",
        "analog",
        "100 - 100 * UNC_CHA_TOR_INSERTS.IO_MISS_RDCUR / UNC_I_FAF_INSERTS",
    ),
    (
        "ddio.write_l3_hit",
        "%",
        "socket",
        "cookbook",
        "100 - 100 * (UNC_CHA_TOR_INSERTS.IO_MISS_ITOM + UNC_CHA_TOR_INSERTS.IO_MISS_ITOMCACHENEAR) \
         / (UNC_I_TRANSACTIONS.WR_PREF + UNC_I_MISC1.LOST_FWD)",
    ),
    // Before Ice Lake, writes of parts of a line are requests for ownership.
    (
        "ddio.write_l3_hit",
        "%",
        "socket",
        "analog",
        "100 - 100 * (UNC_CHA_TOR_INSERTS.IO_MISS_ITOM + UNC_CHA_TOR_INSERTS.IO_MISS_RFO) \
         / (UNC_I_TRANSACTIONS.WR_PREF + UNC_I_MISC1.LOST_FWD)",
    ),
    (
        "pcie.inbound_read_latency.part",
        "ns",
        "part",
        "cookbook",
        "UNC_IIO_COMP_BUF_OCCUPANCY.CMPD.PART* / UNC_IIO_COMP_BUF_INSERTS.CMPD.PART* / (UNC_IIO_CLOCKTICKS / t * 1e-9)",
    ),
    // A line may also be lost while its write waits, because it was invalidated.
    (
        "io.cpu_conflicts.invalidated",
        "%",
        "stack",
        "perfmon",
        "100 * (UNC_I_MISC1.LOST_FWD + UNC_I_MISC1.SEC_RCVD_INVLD) / UNC_I_TRANSACTIONS.WR_PREF",
    ),
    (
        "vtd.iotlb_hit",
        "%",
        "stack",
        "cookbook",
        "100 - 100 * UNC_IIO_IOMMU0.CTXT_CACHE_LOOKUPS / UNC_IIO_IOMMU0.FIRST_LOOKUPS",
    ),
    (
        "vtd.iotlb_hit.direct",
        "%",
        "stack",
        "pcm",
        "100 - 100 * UNC_IIO_IOMMU0.MISSES / UNC_IIO_IOMMU0.FIRST_LOOKUPS",
    ),
    // Platforms without a count of lookups have one of hits in the last level.
    (
        "vtd.iotlb_miss.l4",
        "%",
        "stack",
        "analog",
        "100 * UNC_IIO_VTD_ACCESS.TLB_MISS / (UNC_IIO_VTD_ACCESS.TLB_MISS + UNC_IIO_VTD_ACCESS.L4_PAGE_HIT)",
    ),
    ("iio.frequency", "GHz", "stack", "cookbook", "UNC_IIO_CLOCKTICKS / 1e9 / t"),
    ("dram.bw", "GB/s", "channel", "cookbook", "(UNC_M_CAS_COUNT.RD + UNC_M_CAS_COUNT.WR) * 64 / 1e9 / t"),
    (
        "dram.bw",
        "GB/s",
        "channel",
        "cookbook",
        "(UNC_M_CAS_COUNT_SCH0.RD + UNC_M_CAS_COUNT_SCH1.RD + UNC_M_CAS_COUNT_SCH0.WR + UNC_M_CAS_COUNT_SCH1.WR) * 64 / 1e9 / t",
    ),
];

/// Returns the metrics with events that a platform has; of several definitions the first.
pub(super) fn beside(table: &IoTable) -> Vec<Wanted> {
    let mut found: Vec<Wanted> = Vec::new();
    for (name, unit, scope, group, formula) in OWN {
        let wanted = Wanted {
            name: name.to_owned(),
            unit: unit.to_owned(),
            scope: scope.to_owned(),
            group: group.to_owned(),
            formula: formula.to_owned(),
            inputs: BTreeMap::new(),
        };
        let mut words = formula.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '*')));
        let known = words.all(|word| {
            let events = wanted.events(word, &table.model);
            !word.starts_with("UNC_")
                || !events.is_empty() && events.iter().all(|event| table.model.event(event).is_some())
        });
        if known && found.iter().all(|other| other.name != name) {
            found.push(wanted);
        }
    }
    found
}
