//! Does the traffic agree with the map? What disks and interfaces behind a port moved, tick by tick, should rise and fall with
//! what the port's part of a stack counted.

use std::collections::{BTreeMap, BTreeSet};

use super::{IoMetrics, Names, apportion::moved, extent::Extent};
use crate::{
    machine::io::{
        bdf::Bdf,
        learn::Learned,
        stack::{Mapping, Port, Unit},
        verify::{Series, Verdict, infer},
    },
    metric::value::Value,
    model::io::{boxes::IoInterval, traffic::TrafficInterval},
    plan::io::IoPlan,
    table::io::Of,
    untrusted::Untrusted,
};

/// Metrics whose sum is everything that moved through a part.
const BOTH_WAYS: [&str; 4] =
    ["pcie.inbound_read_bw", "pcie.inbound_write_bw", "pcie.outbound_read_bw", "pcie.outbound_write_bw"];

/// A part of a stack: its box, and its number.
type Part = (Unit, u32);

/// Bytes of ports and of parts, tick by tick.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    ports: BTreeMap<Bdf, Vec<f64>>,
    parts: BTreeMap<Part, Vec<f64>>,
}

/// What is known about where a port is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapReport {
    /// The port.
    pub port: Bdf,
    /// What stands behind it.
    pub names: Untrusted,
    /// Part and box, and who says so; or why nobody does.
    pub map: String,
    /// What the traffic says to that.
    pub traffic: String,
}

impl Agreement {
    /// Adds a tick.
    pub fn add(
        &mut self,
        metrics: &IoMetrics,
        plan: &IoPlan,
        names: Names<'_>,
        interval: &IoInterval,
        traffic: &TrafficInterval,
    ) {
        for port in &names.platform.ports {
            let (all, _) = moved(port, traffic, names);
            self.ports.entry(port.bdf).or_default().push(all.bytes());
        }
        // A part that several ports share is counted once.
        let parts: BTreeSet<Part> = names
            .platform
            .ports
            .iter()
            .filter_map(|port| Some((unit(names, port)?, port.parts.value()?)))
            .flat_map(|(unit, parts)| parts.iter().map(|&part| (unit.clone(), part)))
            .collect();
        for (unit, part) in parts {
            let measured = IoMetrics::of_unit(plan, interval, &unit);
            let values = metrics.evaluate(&measured, Extent::Part, Of::Part(part));
            let bytes = BOTH_WAYS.iter().filter_map(|name| {
                let wanted = metrics.table.model.metric(name)?;
                match &values.iter().find(|(index, _)| *index == wanted)?.1 {
                    Value::Known(known) => Some(known.estimate * 1e6 * measured.seconds),
                    Value::Missing(_) => None,
                }
            });
            self.parts.entry((unit, part)).or_default().push(bytes.sum());
        }
    }

    /// What the map says of each port, and what the traffic says to that.
    #[must_use]
    pub fn report(&self, names: Names<'_>) -> Vec<MapReport> {
        let ports: Vec<Series<Bdf>> =
            self.ports.iter().map(|(key, bytes)| Series { key: *key, bytes: bytes.clone() }).collect();
        let parts: Vec<Series<Part>> =
            self.parts.iter().map(|(key, bytes)| Series { key: key.clone(), bytes: bytes.clone() }).collect();
        let mut learning = names.platform.clone();
        let said: BTreeMap<Bdf, String> = infer(&ports, &parts)
            .into_iter()
            .map(|(port, verdict)| {
                let words = match &verdict {
                    Verdict::Unknown(why) => format!("says nothing: {why}"),
                    Verdict::Inferred { part: (unit, part), r } => {
                        let learned = learning.learn(port, unit, *part, *r);
                        words(learned, &format!("{} on cpu {}, part {part}", unit.pmu, unit.cpu.0), *r)
                    }
                };
                (port, words)
            })
            .collect();
        let report = |port: &Port| MapReport {
            port: port.bdf,
            names: super::names(names.platform, port),
            map: map(names, port),
            traffic: said.get(&port.bdf).cloned().unwrap_or_else(|| "no traffic was counted".to_owned()),
        };
        names.platform.ports.iter().map(report).collect()
    }
}

fn unit<'a>(names: Names<'a>, port: &Port) -> Option<&'a Unit> {
    names.platform.stack_of(port.bus)?.unit.value()
}

fn map(names: Names<'_>, port: &Port) -> String {
    let stack = names.platform.stack_of(port.bus).map(|stack| &stack.unit);
    match (stack, &port.parts) {
        (Some(Mapping::Known { value, source }), Mapping::Known { value: parts, source: of_part }) => {
            let parts: Vec<String> = parts.iter().map(u32::to_string).collect();
            let (unit, parts) = (&value.pmu, parts.join(", "));
            format!("{unit} on cpu {} ({source}), part {parts} ({of_part})", value.cpu.0)
        }
        (Some(Mapping::Unknown(why)), _) | (_, Mapping::Unknown(why)) => format!("unknown: {why}"),
        (None, _) => "unknown: its root bus belongs to no stack".to_owned(),
    }
}

fn words(learned: Learned, place: &str, r: f64) -> String {
    match learned {
        Learned::Confirmed => format!("agrees (r={r:.2})"),
        Learned::New => format!("says {place} (r={r:.2})"),
        Learned::Corrected => format!("says {place} (r={r:.2}), so the table is wrong here"),
        Learned::Refused => format!("says {place} (r={r:.2}), but the kernel is believed"),
        Learned::Unheard => "says nothing: the port is not in the map".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Agreement, Learned, Names, words};
    use crate::machine::{io::Platform, pmu::catalog::Catalog, testing::Tree};

    #[test]
    fn traffic_agrees_contradicts_or_is_not_believed() {
        let said = |learned| words(learned, "uncore_iio_1 on cpu 0, part 3", 0.983);
        assert_eq!(said(Learned::Confirmed), "agrees (r=0.98)");
        assert!(said(Learned::Corrected).ends_with("so the table is wrong here"));
        assert!(said(Learned::Refused).ends_with("the kernel is believed"));
        assert_eq!(said(Learned::New), "says uncore_iio_1 on cpu 0, part 3 (r=0.98)");
    }

    #[test]
    fn a_port_without_a_map_says_why_and_without_traffic_says_so() {
        let tree = Tree::new(&[
            ("sys/bus/event_source/devices/cpu/type", "4\n"),
            ("sys/devices/pci0000:00/0000:00:02.0/class", "0x010802"),
            ("sys/devices/pci0000:00/0000:00:02.0/vendor", "0x1af4"),
            ("sys/devices/pci0000:00/0000:00:02.0/device", "0x1001"),
        ]);
        tree.link("sys/bus/pci/devices/0000:00:02.0", "../../../devices/pci0000:00/0000:00:02.0");
        let platform = Platform::read(&tree.root, &Catalog::read(&tree.root).unwrap());
        let (disks, cgroups) = Default::default();
        let names = Names { platform: &platform, disks: &disks, cgroups: &cgroups };
        let report = Agreement::default().report(names);
        assert_eq!(report.len(), 1);
        assert!(report[0].map.starts_with("unknown: "), "{report:?}");
        assert_eq!(report[0].traffic, "no traffic was counted");
    }
}
