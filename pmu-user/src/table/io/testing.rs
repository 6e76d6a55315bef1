//! Servers for tests: the uncore PMUs that count I/O, with the formats of their kernels.

use crate::machine::{io::bdf::Bdf, testing::Tree};

/// Servers with kernels that place terms differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Skylake and Cascade Lake.
    Skylake,
    /// Ice Lake.
    IceLake,
    /// Sapphire Rapids and later.
    Sapphire,
}

const PLAIN: [(&str, &str); 2] = [("event", "config:0-7"), ("umask", "config:8-15")];
const NARROW: [(&str, &str); 4] =
    [PLAIN[0], PLAIN[1], ("ch_mask", "config:36-43"), ("fc_mask", "config:44-46")];
const WIDE: [(&str, &str); 4] =
    [PLAIN[0], PLAIN[1], ("ch_mask", "config:36-47"), ("fc_mask", "config:48-50")];
const EXTENDED: [(&str, &str); 2] = [PLAIN[0], ("umask", "config:8-15,32-55")];

/// Returns the terms of a kind of uncore PMU, as its kernel's `format` folder has them.
fn format(family: Family, unit: &str) -> &'static [(&'static str, &'static str)] {
    match (unit, family) {
        ("iio", Family::Skylake) => &NARROW,
        ("iio", _) => &WIDE,
        ("cha", Family::Skylake) => &[PLAIN[0], PLAIN[1], ("filter_opc0", "config1:41-50")],
        ("cha", Family::IceLake) => &[PLAIN[0], ("umask", "config:8-15,32-57")],
        ("upi", Family::Skylake) => &[PLAIN[0], ("umask", "config:8-15,32-43,45-55")],
        ("upi", _) | ("cha" | "imc" | "irp", Family::Sapphire) => &EXTENDED,
        _ => &PLAIN,
    }
}

/// Returns a server of one socket, with this many uncore PMUs of each kind and free-running counters of its
/// stacks.
pub(crate) fn server(family: Family, instances: &[(&str, u32)]) -> Tree {
    let tree = Tree::new(&[("sys/devices/system/cpu/online", "0-3\n")]);
    let mut kind = 10;
    let mut add = |name: &str, format: &[(&str, &str)]| {
        kind += 1;
        let paths: Vec<String> = format.iter().map(|(term, _)| format!("format/{term}")).collect();
        let number = format!("{kind}\n");
        let mut files = vec![("type", number.as_str()), ("cpumask", "0\n")];
        files.extend(paths.iter().map(String::as_str).zip(format.iter().map(|(_, bits)| *bits)));
        tree.pmu(name, &files);
    };
    for (unit, count) in instances {
        for number in 0..*count {
            add(&format!("uncore_{unit}_{number}"), format(family, unit));
            if *unit == "iio" {
                add(&format!("uncore_iio_free_running_{number}"), &PLAIN);
            }
        }
    }
    tree
}

/// Whether counters of an IOMMU can count for one requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Counters can be filtered by requester.
    Requester,
    /// Counters have other filters only.
    Other,
}

/// Adds an IOMMU of Intel with these events, as the kernel shows it.
pub(crate) fn dmar(tree: &Tree, number: u32, filter: Filter, events: &[&str]) {
    let (name, kind) = (format!("dmar{number}"), format!("{}\n", 100 + number));
    let format = [("event", "config:0-27"), ("event_group", "config:28-31"), ("filter_ats_en", "config1:3")];
    let requester = [("filter_requester_id", "config1:16-31"), ("filter_requester_id_en", "config1:0")];
    let requester = requester.into_iter().filter(|_| filter == Filter::Requester);
    tree.pmu(&name, &[("type", &kind), ("cpumask", "0\n")]);
    for (term, bits) in format.into_iter().chain(requester) {
        tree.pmu(&name, &[(&format!("format/{term}"), bits)]);
    }
    // The contents of these files are not used: the table has them.
    events.iter().for_each(|event| tree.pmu(&name, &[(&format!("events/{event}"), "event=0x1\n")]));
}

/// Events of an IOMMU that a device's metrics need.
pub(crate) const DMAR: [&str; 5] =
    ["iommu_clocks", "iommu_mrds", "iotlb_hit", "iotlb_lookup", "pw_occupancy"];

/// Adds a network card on a separate root bus, or a function of it, behind an IOMMU.
pub(crate) fn card(tree: &Tree, bdf: &str, iommu: &str, domain: &str) {
    let bus = bdf.rsplit_once(':').map_or(bdf, |(bus, _)| bus);
    // The card has a separate group.
    let group = bdf.parse::<Bdf>().unwrap().requester_id().unwrap_or(7);
    let at = format!("devices/pci{bus}/{bdf}");
    for (file, text) in [("class", "0x020000"), ("vendor", "0x8086"), ("device", "0x1593")] {
        tree.write(&format!("sys/{at}/{file}"), text);
    }
    tree.write(&format!("sys/kernel/iommu_groups/{group}/type"), domain);
    tree.link(&format!("sys/{at}/driver"), "../../../bus/pci/drivers/ice");
    tree.link(&format!("sys/{at}/iommu"), &format!("../../virtual/iommu/{iommu}"));
    tree.link(&format!("sys/{at}/iommu_group"), &format!("../../../kernel/iommu_groups/{group}"));
    tree.link(&format!("sys/bus/pci/devices/{bdf}"), &format!("../../../{at}"));
}
