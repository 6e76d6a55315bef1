//! Agreement of traffic with the map. Bytes of the disks and interfaces behind a port should rise and fall,
//! tick by tick, with the counts of the port's part of a stack.
//!
//! Multiplexed parts are counted in both directions, and only where a device is known behind them. Inbound
//! bytes of a port are compared with the free-running counters of every part, if there are any, so that an
//! unmapped port is found.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    IoMetrics, Measured, Names, UncoreCounts,
    apportion::{Moved, moved},
    free_running::{Inlet, Part},
    scope::ScopeClass,
};
use crate::{
    machine::io::{
        Platform,
        bdf::Bdf,
        class::Mapping,
        learn::Learned,
        stack::{Port, Unit},
        verify::{Comparison, PartNumbers, Verdict},
    },
    model::io::traffic::TrafficInterval,
    plan::io::IoPlan,
    table::io::Of,
    untrusted::Untrusted,
};

/// Metrics whose sum is the traffic of the devices behind a part. If one is missing, the part was not
/// counted.
const INBOUND: [&str; 2] = ["pcie.inbound_read_bw", "pcie.inbound_write_bw"];
/// Metrics of CPU accesses through a part. They are small compared with device traffic, so they may be
/// missing.
const OUTBOUND: [&str; 2] = ["pcie.outbound_read_bw", "pcie.outbound_write_bw"];

/// Bytes of ports and of parts, compared tick by tick.
#[derive(Clone, Debug, Default)]
pub(super) struct Agreement {
    /// Bytes in both directions, by multiplexed events.
    by_turns: Comparison<Bdf, Part>,
    /// Bytes from devices, by free-running counters, each identified by its index.
    inbound: Comparison<Bdf, usize>,
    inlets: Vec<Inlet>,
}

/// Mapping of a port to the part that counts it, and whether its traffic agrees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapReport {
    /// Address of the port.
    pub port: Bdf,
    /// Names of the devices behind the port.
    pub names: Untrusted,
    /// Part and uncore PMU with the source of the mapping, or why it is unknown.
    pub map: String,
    /// Verdict of the traffic on the mapping.
    pub traffic: String,
}

impl Agreement {
    /// Returns an empty comparison for a run of `plan`.
    pub(super) fn new(plan: &IoPlan) -> Self {
        Self { inlets: Inlet::all(plan), ..Self::default() }
    }

    /// Adds a tick.
    pub(super) fn add(
        &mut self,
        metrics: &IoMetrics,
        counts: &UncoreCounts<'_>,
        names: Names<'_>,
        traffic: &TrafficInterval,
    ) {
        let moved = |port: &Port| (port.bdf, moved(port, traffic, names).0);
        let ports: Vec<(Bdf, Moved)> = names.platform.ports.iter().map(moved).collect();
        // A part that several ports share is counted once.
        let parts: BTreeSet<Part> = names
            .platform
            .ports
            .iter()
            .filter_map(|port| Some((unit(names.platform, port)?, port.parts.value()?)))
            .flat_map(|(unit, parts)| parts.iter().map(|&part| (unit.clone(), part)))
            .collect();
        let counted = |(unit, part): Part| {
            let bytes = counted(metrics, &IoMetrics::of_unit(counts, &unit), part)?;
            Some(((unit, part), bytes))
        };
        let both: Vec<(Bdf, f64)> = ports.iter().map(|(port, moved)| (*port, moved.bytes())).collect();
        self.by_turns.add(&both, &parts.into_iter().filter_map(counted).collect::<Vec<_>>());
        let inlets = self.inlets.iter().enumerate();
        let inlets: Vec<(usize, f64)> =
            inlets.filter_map(|(at, inlet)| Some((at, inlet.counted(counts.interval)?))).collect();
        if !inlets.is_empty() {
            let inbound: Vec<(Bdf, f64)> =
                ports.iter().map(|(port, moved)| (*port, moved.inbound())).collect();
            self.inbound.add(&inbound, &inlets);
        }
    }

    /// Returns the mapping of each port, and the verdict of its traffic.
    pub(super) fn report(&self, names: Names<'_>) -> Vec<MapReport> {
        let mut learned = names.platform.clone();
        let (by_turns, inbound) = (self.by_turns(), self.inbound());
        let ports = &names.platform.ports;
        let said: Vec<String> = ports
            .iter()
            .map(|port| match spokesman(names.platform, port, &by_turns, &inbound) {
                Some(said) => said.words(&mut learned, port.bdf),
                None => "no traffic was counted".to_owned(),
            })
            .collect();
        let report = |((port, taught), traffic): ((&Port, &Port), String)| MapReport {
            port: port.bdf,
            names: super::names(names.platform, port),
            // An unmapped port is reported as it was learned, any other port as the run used it.
            map: match is_mapped(names.platform, port) {
                true => map(names.platform, port),
                false => map(&learned, taught),
            },
            traffic,
        };
        ports.iter().zip(&learned.ports).zip(said).map(report).collect()
    }

    fn by_turns(&self) -> BTreeMap<Bdf, Said> {
        let said = |(port, verdict)| (port, Said { by: By::Turns, verdict });
        self.by_turns.infer(PartNumbers::Bytes).into_iter().map(said).collect()
    }

    fn inbound(&self) -> BTreeMap<Bdf, Said> {
        let said = |(port, verdict): (Bdf, Verdict<usize>)| {
            let verdict = match verdict {
                Verdict::Inferred { part, r } => {
                    Verdict::Inferred { part: self.inlets[part].part.clone(), r }
                }
                Verdict::Unknown(why) => Verdict::Unknown(why),
            };
            (port, Said { by: By::Inlets, verdict })
        };
        self.inbound.infer(PartNumbers::Units).into_iter().map(said).collect()
    }
}

/// Counters with which traffic was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Turns,
    Inlets,
}

/// Result of a comparison for a port.
#[derive(Clone, Debug)]
struct Said {
    by: By,
    verdict: Verdict<Part>,
}

impl Said {
    fn is_something(&self) -> bool {
        matches!(self.verdict, Verdict::Inferred { .. })
    }

    /// Adds the result to the learned map, and returns its effect in words.
    fn words(&self, learned: &mut Platform, port: Bdf) -> String {
        match (&self.verdict, self.by) {
            (Verdict::Unknown(why), By::Turns) => format!("says nothing: {why}"),
            (Verdict::Unknown(why), By::Inlets) => {
                format!("says nothing, by what came from its devices: {why}")
            }
            (Verdict::Inferred { part: (unit, part), r }, _) => {
                let place = format!("{} on cpu {}, part {part}", unit.pmu, unit.cpu.0);
                words(learned.learn(port, unit, *part, *r), &place, *r)
            }
        }
    }
}

/// Returns the comparison to report for a port. A mapped port was counted in both directions, which is more
/// conclusive. Only counters of every part can locate an unmapped port.
fn spokesman<'a>(
    platform: &Platform,
    port: &Port,
    by_turns: &'a BTreeMap<Bdf, Said>,
    inbound: &'a BTreeMap<Bdf, Said>,
) -> Option<&'a Said> {
    let (by_turns, inbound) = (by_turns.get(&port.bdf), inbound.get(&port.bdf));
    if !is_mapped(platform, port) {
        return inbound.or(by_turns);
    }
    let something = [by_turns, inbound].into_iter().flatten().find(|said| said.is_something());
    something.or(by_turns)
}

/// Returns whether the uncore PMU and the parts that count a port are known.
fn is_mapped(platform: &Platform, port: &Port) -> bool {
    unit(platform, port).is_some() && port.parts.value().is_some()
}

/// Returns the bytes that a part of an uncore PMU counted in both directions, if it was counted.
fn counted(metrics: &IoMetrics, measured: &Measured, part: u32) -> Option<f64> {
    let values = metrics.evaluate(measured, ScopeClass::Part, Of::Part(part));
    let bytes = |name: &&str| {
        let wanted = metrics.table.model.metric(name)?;
        let known = values.iter().find(|(index, _)| *index == wanted)?.1.known();
        Some(known.map(|known| known.estimate * 1e6 * measured.seconds))
    };
    let inbound = INBOUND.iter().filter_map(bytes).sum::<Option<f64>>()?;
    Some(inbound + OUTBOUND.iter().filter_map(bytes).flatten().sum::<f64>())
}

fn unit<'a>(platform: &'a Platform, port: &Port) -> Option<&'a Unit> {
    platform.stack_of(port.bus)?.unit.value()
}

fn map(platform: &Platform, port: &Port) -> String {
    let stack = platform.stack_of(port.bus).map(|stack| &stack.unit);
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
        Learned::Disputed => format!("says {place} (r={r:.2}), but another port of its bus says otherwise"),
        Learned::Unheard => "says nothing: the port is not in the map".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Agreement, IoMetrics, Learned, Names, UncoreCounts, counted, words};
    use crate::{
        drain::io::testing::{always_running, steady},
        machine::{io::Platform, pmu::catalog::Catalog, testing::Tree},
        model::{FollowedPaths, io::IoInterval},
        table::io::load,
    };

    #[test]
    fn a_part_is_counted_if_what_its_devices_move_is() {
        let header = always_running();
        let (plan, metrics) = (&header.plan, IoMetrics::new(load("icelakex").unwrap(), &header.plan));
        let unit = header.platform.stacks[0].unit.value().unwrap();
        // Returns the bytes of a tick in which the groups with such events did not count.
        let without = |word: &str| {
            let rates = [("OF_CPU.MEM_READ", 50_000_000), ("MEM_WRITE", 25_000_000), ("CMPD", 250_000)];
            let mut drain = steady(&header, 1, &rates).remove(0);
            drain.uncore.retain(|slice| {
                let group = &plan.kinds[slice.kind as usize].turns.groups[slice.group as usize];
                !group.events.iter().any(|event| event.name.contains(word))
            });
            let interval = IoInterval::of(drain.uncore, 0, drain.at_ns);
            counted(&metrics, &IoMetrics::of_unit(&UncoreCounts::new(plan, &interval), unit), 1)
        };
        assert!(without("nothing").unwrap() > 3e8);
        assert_eq!(without("OF_CPU.MEM_READ"), None, "half of it is not all of it");
        assert_eq!(without("OF_CPU.MEM_WRITE"), None);
        assert!(without("OF_CPU.CMPD").unwrap() > 3e8, "what CPUs read is little beside it");
        assert_eq!(without(""), None, "nothing counted is not 0 bytes");
    }

    #[test]
    fn traffic_agrees_contradicts_or_is_not_believed() {
        let said = |learned| words(learned, "uncore_iio_1 on cpu 0, part 3", 0.983);
        assert_eq!(said(Learned::Confirmed), "agrees (r=0.98)");
        assert!(said(Learned::Corrected).ends_with("so the table is wrong here"));
        assert!(said(Learned::Refused).ends_with("the kernel is believed"));
        assert!(said(Learned::Disputed).ends_with("another port of its bus says otherwise"));
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
        let names = Names {
            platform: &platform,
            disks: &disks,
            cgroups: &cgroups,
            followed: &FollowedPaths::default(),
            within: None,
        };
        let report = Agreement::default().report(names);
        assert_eq!(report.len(), 1);
        assert!(report[0].map.starts_with("unknown: "), "{report:?}");
        assert_eq!(report[0].traffic, "no traffic was counted");
    }
}
