//! Rows of devices: counts of their part of a stack, and the utilization of their link.
//!
//! All devices behind one root port share a part and a link, so they have one row. No counter distinguishes
//! them.

use super::{
    IoMetrics, Label, Measured, Row, Subject, UncoreCounts,
    link::{Rate, Traffic, figures},
    scope::ScopeClass,
};
use crate::{
    machine::io::{
        Platform,
        bdf::Bdf,
        class::Mapping,
        stack::{Port, Unit},
    },
    metric::value::Value,
    plan::io::UncoreInstance,
    table::io::Of,
    untrusted::Untrusted,
};

impl IoMetrics {
    /// Returns the rows of an interval for all devices behind `port`.
    pub(super) fn of_port(&self, counts: &UncoreCounts<'_>, platform: &Platform, port: &Port) -> Vec<Row> {
        let values = match self.parts_of(counts, platform, port) {
            Ok((measured, parts)) => {
                let each =
                    parts.iter().map(|&part| self.evaluate(&measured, ScopeClass::Part, Of::Part(part)));
                let both = |((metric, a), (_, b)): (&(u32, Value), &(u32, Value))| (*metric, added(a, b));
                each.reduce(|sum, next| sum.iter().zip(&next).map(both).collect())
            }
            Err(why) => {
                let metrics = self.metrics_of(ScopeClass::Part);
                Some(metrics.map(|metric| (metric, Value::Missing(why.clone()))).collect())
            }
        };
        let Some(values) = values else { return Vec::new() };
        let subject = Subject::Device(port.bdf.to_string(), names(platform, port));
        let row = |metric: &str, unit, value: Value| Row {
            subject: subject.clone(),
            metric: metric.to_owned(),
            unit,
            value,
            distribution: None,
            label: Label::System,
            note: None,
        };
        let known = values.iter().map(|(index, value)| (&self.table.model.metrics[*index as usize], value));
        let mut rows: Vec<Row> =
            known.map(|(metric, value)| row(&metric.name, metric.unit, value.clone())).collect();
        let rate = platform.shared_link_of(*port.devices.first().unwrap_or(&port.bdf)).map_or_else(
            || Err("it stands on the root bus, where there is no link".to_owned()),
            |link| Rate::of(&link.current),
        );
        let figures = figures(&rate, &self.traffic(&values));
        rows.extend(figures.into_iter().map(|figure| row(figure.name, figure.unit, figure.value)));
        rows
    }

    /// Returns the counts of the uncore PMU of a port's stack with the port's parts, or why they are unknown.
    fn parts_of<'a>(
        &self,
        counts: &UncoreCounts<'_>,
        platform: &Platform,
        port: &'a Port,
    ) -> Result<(Measured, &'a [u32]), String> {
        let parts = match &port.parts {
            Mapping::Known { value, .. } => value.as_slice(),
            Mapping::Unknown(why) => return Err(format!("its part is not known: {why}")),
        };
        let stack = platform.stack_of(port.bus).map(|stack| &stack.unit);
        let unit = match stack {
            Some(Mapping::Known { value, .. }) => value,
            Some(Mapping::Unknown(why)) => return Err(format!("its stack is not known: {why}")),
            None => return Err("its root bus belongs to no stack".to_owned()),
        };
        Ok((Self::of_unit(counts, unit), parts))
    }

    /// Returns the counts of one uncore PMU of one die.
    pub(super) fn of_unit(counts: &UncoreCounts<'_>, unit: &Unit) -> Measured {
        counts.measured(|_, site| is_of(site, unit))
    }

    /// Returns the bandwidths of a port. If completions of CPU reads are not counted, their requests are
    /// used.
    fn traffic(&self, values: &[(u32, Value)]) -> Traffic {
        let known = |name: &str| {
            let index = self.table.model.metric(name)?;
            values.iter().find(|(metric, _)| *metric == index).map(|(_, value)| value.clone())
        };
        let named =
            |name: &str| known(name).unwrap_or_else(|| Value::Missing(format!("{name} is not measured")));
        Traffic {
            inbound_read: named("pcie.inbound_read_bw"),
            inbound_write: named("pcie.inbound_write_bw"),
            outbound_read: known("pcie.outbound_read_bw")
                .unwrap_or_else(|| named("pcie.outbound_read_bw.by_cpu")),
            outbound_write: named("pcie.outbound_write_bw"),
        }
    }
}

/// Returns whether `site` is this uncore PMU of this die.
fn is_of(site: &UncoreInstance, unit: &Unit) -> bool {
    site.pmu == unit.pmu && site.cpu == unit.cpu
}

/// Returns the sum of two values of one unit.
pub(super) fn added(a: &Value, b: &Value) -> Value {
    match (a, b) {
        (Value::Known(a), Value::Known(b)) => Value::Known(a.plus(b)),
        (Value::Missing(why), _) | (_, Value::Missing(why)) => Value::Missing(why.clone()),
    }
}

/// Returns the names of the devices behind a port: the kernel's names of each, or else its kind.
pub(super) fn names(platform: &Platform, port: &Port) -> Untrusted {
    let all: Vec<Untrusted> = port.devices.iter().map(|bdf| name_of(platform, *bdf)).collect();
    let all: Vec<&[u8]> = all.iter().map(Untrusted::as_bytes).collect();
    Untrusted::new(all.join(&b"; "[..]))
}

/// Returns the kernel's names of a function, or else its kind.
pub(super) fn name_of(platform: &Platform, bdf: Bdf) -> Untrusted {
    let names = platform.names_of(bdf);
    Untrusted::new(match names.first() {
        Some(_) => names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>().join(&b", "[..]),
        None => platform.device(bdf).map_or("?", |device| device.word()).as_bytes().to_vec(),
    })
}
