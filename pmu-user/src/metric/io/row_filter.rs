//! Filter of the requested rows.

use super::{Row, Scope, Subject};
use crate::{
    machine::io::{Platform, bdf::Bdf, pci::Device},
    plan::io::request::{Grouping, Reporting},
    untrusted::Untrusted,
};

/// Returns those of `rows` that were requested.
pub(super) fn chosen(rows: Vec<Row>, wanted: &Reporting, platform: &Platform) -> Vec<Row> {
    let named = Named::new(wanted, platform);
    let is = |row: &Row| {
        let grouping = grouping(row);
        let grouped = match wanted.by.is_empty() {
            true => grouping != Grouping::Event,
            false => wanted.by.contains(&grouping),
        };
        grouped && (wanted.devices.is_empty() || is_of(&row.subject, wanted, &named))
    };
    rows.into_iter().filter(is).collect()
}

/// Returns whether rows of events are requested. Rows that are not requested need not be computed.
pub(super) fn wants_events(wanted: &Reporting) -> bool {
    wanted.by.contains(&Grouping::Event)
}

/// Returns whether rows of this scope are requested.
pub(super) fn wants_place(place: Scope, wanted: &Reporting) -> bool {
    let grouped = wanted.by.is_empty() || wanted.by.contains(&of_place(place)) || wants_events(wanted);
    // A scope is not a device.
    grouped && wanted.devices.is_empty()
}

const fn of_place(place: Scope) -> Grouping {
    match place {
        Scope::Platform | Scope::Socket(_) => Grouping::Package,
        Scope::Stack(..) | Scope::Part(..) | Scope::Channel(..) | Scope::Link(..) => Grouping::Stack,
    }
}

fn grouping(row: &Row) -> Grouping {
    if row.metric.starts_with("event.") {
        return Grouping::Event;
    }
    of_subject(&row.subject)
}

fn of_subject(subject: &Subject) -> Grouping {
    match subject {
        Subject::Scope(place) => of_place(*place),
        Subject::Group(_) => Grouping::Package,
        Subject::Device(..) | Subject::Function(..) | Subject::Disk(..) | Subject::Interface(..) => {
            Grouping::Device
        }
        Subject::Owner(_, of) => of_subject(of),
    }
}

/// Addresses for which the requested names stand.
struct Named {
    /// Ports behind which they are. A counter of a port does not distinguish devices.
    ports: Vec<String>,
    /// Functions of these names, all functions behind them, and those that carry a disk.
    functions: Vec<String>,
}

impl Named {
    fn new(wanted: &Reporting, platform: &Platform) -> Self {
        let found: Vec<Bdf> = wanted.devices.iter().filter_map(|name| platform.find(name).ok()).collect();
        let ports = found.iter().filter_map(|bdf| platform.port_of(*bdf)).map(|port| port.bdf.to_string());
        let is = |device: &&Device| {
            found.contains(&device.bdf) || device.above.iter().any(|bridge| found.contains(bridge))
        };
        let carriers = wanted.devices.iter().flat_map(|name| platform.carriers_of(name.as_bytes()));
        let functions = platform.devices.iter().filter(is).map(|device| device.bdf).chain(carriers);
        Self { ports: ports.collect(), functions: functions.map(|bdf| bdf.to_string()).collect() }
    }
}

fn is_of(subject: &Subject, wanted: &Reporting, addresses: &Named) -> bool {
    let named = |name: &[u8]| wanted.devices.iter().any(|device| device.as_bytes() == name);
    let any = |names: &Untrusted| {
        names.as_bytes().split(|byte| matches!(byte, b',' | b';')).any(|name| named(name.trim_ascii()))
    };
    match subject {
        Subject::Scope(_) | Subject::Group(_) => false,
        Subject::Device(port, names) => addresses.ports.contains(port) || any(names),
        Subject::Function(function, names) => addresses.functions.contains(function) || any(names),
        Subject::Disk(name, _) | Subject::Interface(name, _) => named(name.as_bytes()),
        Subject::Owner(_, of) => is_of(of, wanted, addresses),
    }
}

#[cfg(test)]
mod tests {
    use super::{chosen, wants_events, wants_place};
    use crate::{
        drain::Owner,
        machine::{io::Platform, pmu::catalog::Catalog, testing::Tree},
        metric::{
            io::{Label, Row, Scope, Subject},
            value::Value,
        },
        plan::io::request::{Grouping, Reporting},
        table::unit::Unit,
        untrusted::Untrusted,
    };

    fn rows() -> Vec<Row> {
        let row = |subject: Subject, metric: &str| Row {
            subject,
            metric: metric.to_owned(),
            unit: Unit::UNKNOWN,
            value: Value::exact(1.0),
            distribution: None,
            label: Label::System,
            note: None,
        };
        let web = Owner::cgroup(7, Untrusted::from("/web"));
        let owner = Subject::Owner(web, Box::new(Subject::Scope(Scope::Platform)));
        vec![
            row(Subject::Scope(Scope::Socket(0)), "dram.bw"),
            row(Subject::Scope(Scope::Stack(0, 1)), "vtd.iotlb_miss"),
            row(Subject::Scope(Scope::Stack(0, 1)), "event.UNC_IIO_CLOCKTICKS"),
            row(Subject::Device("0000:64:02.0".to_owned(), Untrusted::from("nvme0n1; eth0")), "pcie.x"),
            row(Subject::Disk(Untrusted::from("nvme0n1"), "read"), "block.x"),
            row(Subject::Interface(Untrusted::from("lo"), "sent"), "net.x"),
            row(owner, "dram.cpu_total_bw"),
        ]
    }

    fn found(by: &[Grouping], devices: &[&str]) -> Vec<String> {
        let tree = Tree::new(&[("sys/bus/event_source/devices/cpu/type", "4\n")]);
        let platform = Platform::read(&tree.root, &Catalog::read(&tree.root).unwrap());
        let devices = devices.iter().map(|name| (*name).to_owned()).collect();
        let wanted = Reporting { by: by.to_vec(), devices, ..Reporting::default() };
        chosen(rows(), &wanted, &platform).into_iter().map(|row| row.metric).collect()
    }

    #[test]
    fn events_are_shown_only_where_they_are_asked_for() {
        assert_eq!(
            found(&[], &[]),
            ["dram.bw", "vtd.iotlb_miss", "pcie.x", "block.x", "net.x", "dram.cpu_total_bw"]
        );
        assert_eq!(found(&[Grouping::Event], &[]), ["event.UNC_IIO_CLOCKTICKS"]);
        let of_places = ["dram.bw", "vtd.iotlb_miss", "dram.cpu_total_bw"];
        assert_eq!(found(&[Grouping::Package, Grouping::Stack], &[]), of_places);
    }

    #[test]
    fn a_place_of_which_every_row_is_dropped_is_not_wanted() {
        let places = [Scope::Socket(0), Scope::Stack(0, 1)];
        let choices: [(&[Grouping], &[&str]); 6] = [
            (&[], &[]),
            (&[Grouping::Package], &[]),
            (&[Grouping::Stack, Grouping::Device], &[]),
            (&[Grouping::Event], &[]),
            (&[Grouping::Device], &[]),
            (&[], &["lo"]),
        ];
        for (by, devices) in choices {
            let named = devices.iter().map(|name| (*name).to_owned()).collect();
            let wanted = Reporting { by: by.to_vec(), devices: named, ..Reporting::default() };
            let shown = |name: &str| found(by, devices).iter().any(|metric| metric == name);
            let events = shown("event.UNC_IIO_CLOCKTICKS");
            assert_eq!(wants_events(&wanted), events, "{by:?}");
            let expected = [shown("dram.bw") || events, shown("vtd.iotlb_miss") || events];
            assert_eq!(places.map(|place| wants_place(place, &wanted)), expected, "{by:?} {devices:?}");
        }
    }

    #[test]
    fn a_function_is_found_by_what_leads_to_it() {
        let tree = Tree::new(&[
            ("sys/bus/event_source/devices/cpu/type", "4\n"),
            ("sys/devices/virtual/block/dm-0/dev", "253:0\n"),
            ("sys/devices/virtual/block/dm-0/slaves/nvme0n1/x", ""),
        ]);
        let (port, end) = ("devices/pci0000:64/0000:64:02.0", "devices/pci0000:64/0000:64:02.0/0000:65:00.0");
        for (path, class) in [(port, "0x060400"), (end, "0x010802")] {
            for (file, text) in [("class", class), ("vendor", "0x144d"), ("device", "0xa80a")] {
                tree.write(&format!("sys/{path}/{file}"), text);
            }
            let bdf = path.rsplit('/').next().unwrap();
            tree.link(&format!("sys/bus/pci/devices/{bdf}"), &format!("../../../{path}"));
        }
        tree.write(&format!("sys/{end}/nvme/nvme0/nvme0n1/dev"), "259:0\n");
        tree.link("sys/block/nvme0n1", &format!("../{end}/nvme/nvme0/nvme0n1"));
        tree.link("sys/block/dm-0", "../devices/virtual/block/dm-0");
        let platform = Platform::read(&tree.root, &Catalog::read(&tree.root).unwrap());
        let row = Row {
            subject: Subject::Function("0000:65:00.0".to_owned(), Untrusted::from("nvme0n1")),
            ..rows().remove(0)
        };
        for (name, expected) in [("65:00.0", 1), ("64:02.0", 1), ("nvme0n1", 1), ("dm-0", 1), ("nvme1n1", 0)]
        {
            let wanted = Reporting { devices: vec![name.to_owned()], ..Reporting::default() };
            assert_eq!(chosen(vec![row.clone()], &wanted, &platform).len(), expected, "{name}");
        }
    }

    #[test]
    fn a_device_is_found_by_the_name_of_its_disk() {
        assert_eq!(found(&[], &["nvme0n1"]), ["pcie.x", "block.x"]);
        assert_eq!(found(&[], &["lo"]), ["net.x"]);
    }
}
