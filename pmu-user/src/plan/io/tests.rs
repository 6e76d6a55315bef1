//! Tests of plans of whole servers, made by hand.

use std::path::Path;

use super::{
    IoPlan,
    request::{IoRequest, Reporting},
    uncore::{Apart, Home, Parts, Placement, UncorePlan, UncorePlans},
};
use crate::{
    machine::{
        Machine,
        io::{
            Platform,
            resctrl::{Monitoring, MonitoringError, MonitoringEvent},
        },
        pmu::{bits::Word, catalog::Catalog},
    },
    plan::{
        Plan,
        request::{Descend, Inherit, Request, Target},
    },
    table::io::{
        IoTable, Of, load,
        testing::{Family, server},
    },
};

const BOXES: [(&str, u32); 5] = [("cha", 4), ("iio", 3), ("imc", 2), ("irp", 3), ("upi", 2)];
const MODELS: [(&str, Family); 4] = [
    ("skylakex", Family::Skylake),
    ("icelakex", Family::IceLake),
    ("sapphirerapids", Family::Sapphire),
    ("graniterapids", Family::Sapphire),
];

const BANDWIDTHS: [&str; 5] = [
    "pcie.inbound_read_bw",
    "pcie.inbound_write_bw",
    "pcie.outbound_read_bw",
    "pcie.outbound_read_bw.by_cpu",
    "pcie.outbound_write_bw",
];

/// Returns a server's table and its plan, for these metrics or for all. All leaves out the one that no server
/// with two counters needs.
fn plan(model: &str, family: Family, metrics: &[&str], parts: &[(&str, Parts)]) -> (IoTable, UncorePlans) {
    let table = load(model).unwrap();
    let catalog = Catalog::read(&server(family, &BOXES).root).unwrap();
    let parts = parts.iter().map(|(pmu, parts)| ((*pmu).to_owned(), parts.clone())).collect();
    let all = || {
        let names = table.model.metrics.iter().map(|metric| metric.name.as_str());
        names.filter(|name| *name != "io.cpu_conflicts.invalidated").collect::<Vec<_>>()
    };
    let names = if metrics.is_empty() { all() } else { metrics.to_vec() };
    let metrics: Vec<u32> = names.iter().map(|name| table.model.metric(name).unwrap()).collect();
    let uncore = UncorePlans::new(&table, &metrics, &catalog, &parts);
    (table, uncore)
}

fn of<'a>(uncore: &'a UncorePlans, unit: &str) -> &'a UncorePlan {
    uncore.plans.iter().find(|plan| plan.unit == unit).unwrap()
}

/// Returns the events of each group, without the common prefix of the names of a kind of uncore PMU.
fn groups(uncore: &UncorePlans, unit: &str, head: &str) -> Vec<String> {
    let short = |name: &str| name.replace(head, "");
    let group = |group: &super::uncore::UncoreGroup| {
        group.group.events.iter().map(|event| short(&event.name)).collect::<Vec<_>>().join(" ")
    };
    of(uncore, unit).groups.iter().map(group).collect()
}

/// Returns the reason why the events of a metric do not count at the same times.
fn apart(table: &IoTable, uncore: &UncorePlans, metric: &str) -> Option<Apart> {
    uncore.apart(table.model.metric(metric).unwrap())
}

#[test]
fn ice_lake_keeps_every_ratio_of_a_stack_together_in_four_groups() {
    let (table, uncore) = plan("icelakex", Family::IceLake, &[], &[]);
    assert_eq!(
        groups(&uncore, "iio", "UNC_IIO_"),
        [
            "DATA_REQ_OF_CPU.MEM_WRITE.PARTS DATA_REQ_OF_CPU.CMPD.PARTS DATA_REQ_BY_CPU.MEM_READ.PARTS \
             DATA_REQ_BY_CPU.MEM_WRITE.PARTS",
            "DATA_REQ_OF_CPU.MEM_READ.PARTS CLOCKTICKS COMP_BUF_INSERTS.CMPD.ALL_PARTS \
             COMP_BUF_OCCUPANCY.CMPD.ALL_PARTS",
            "IOMMU0.FIRST_LOOKUPS IOMMU0.CTXT_CACHE_LOOKUPS IOMMU0.MISSES TXN_REQ_OF_CPU.MEM_READ.IOMMU1",
            "CLOCKTICKS IOMMU0.CTXT_CACHE_LOOKUPS PWT_OCCUPANCY IOMMU1.NUM_MEM_ACCESSES",
        ]
    );
    for together in
        ["pcie.inbound_read_latency", "vtd.iotlb_miss", "vtd.miss_penalty", "vtd.mem_access_per_miss"]
    {
        assert_eq!(apart(&table, &uncore, together), None, "{together}");
    }
}

#[test]
fn two_counters_do_not_hold_the_latency_of_writes() {
    let (table, uncore) = plan("icelakex", Family::IceLake, &[], &[]);
    assert_eq!(
        groups(&uncore, "irp", "UNC_I_"),
        [
            "MISC1.LOST_FWD TRANSACTIONS.WR_PREF",
            "FAF_INSERTS CLOCKTICKS",
            "CACHE_TOTAL_OCCUPANCY.MEM FAF_OCCUPANCY"
        ],
        "what is subtracted stays together"
    );
    assert_eq!(apart(&table, &uncore, "pcie.inbound_write_latency"), Some(Apart::Counters));
    assert_eq!(apart(&table, &uncore, "io.cpu_conflicts"), None);
    let latency = table.model.metric("pcie.inbound_write_latency").unwrap();
    let home = of(&uncore, "irp").homes.iter().find(|home| home.metric == latency).unwrap();
    assert_eq!(*home, Home { metric: latency, of: Of::All, groups: vec![0, 1, 2] });
}

#[test]
fn four_counters_do() {
    let (table, uncore) = plan("graniterapids", Family::Sapphire, &[], &[]);
    assert_eq!(
        groups(&uncore, "irp", "UNC_I_"),
        [
            "TRANSACTIONS.WR_PREF CACHE_TOTAL_OCCUPANCY.MEM CLOCKTICKS FAF_OCCUPANCY",
            "FAF_INSERTS MISC1.LOST_FWD TRANSACTIONS.WR_PREF"
        ]
    );
    assert_eq!(apart(&table, &uncore, "pcie.inbound_write_latency"), None);
    assert_eq!((of(&uncore, "iio").groups.len(), of(&uncore, "cha").groups.len()), (4, 2));
}

#[test]
fn other_uncore_pmus_take_one_or_two_groups() {
    let (table, uncore) = plan("icelakex", Family::IceLake, &[], &[]);
    let counts = ["cha", "imc", "upi"].map(|unit| of(&uncore, unit).groups.len());
    assert_eq!(counts, [2, 1, 1]);
    assert_eq!(apart(&table, &uncore, "ddio.read_l3_miss"), Some(Apart::Kinds));
    assert_eq!(apart(&table, &uncore, "ddio.read_l3_miss.cha"), None);
    let (_, cookbook) = plan("icelakex", Family::IceLake, &["ddio.read_l3_miss", "ddio.write_l3_miss"], &[]);
    assert_eq!(of(&cookbook, "cha").groups.len(), 1);
}

#[test]
fn filters_of_skylake_are_never_live_together() {
    let (_, uncore) = plan("skylakex", Family::Skylake, &[], &[]);
    let cha = of(&uncore, "cha");
    assert!(cha.groups.iter().all(|group| group.group.events.len() == 1));
    assert_eq!(
        groups(&uncore, "cha", "UNC_CHA_TOR_INSERTS."),
        ["IO_MISS_RDCUR", "IO_MISS_ITOM", "IO_MISS_RFO"]
    );
    let filters =
        cha.groups.iter().map(|group| group.group.events[0].instances[0].words.get(Word::Config1) >> 32);
    assert_eq!(filters.collect::<Vec<_>>(), [0x43c33, 0x49033, 0x40033]);
    assert_eq!(of(&uncore, "iio").groups.len(), 3);
}

#[test]
fn what_sapphire_rapids_counts_on_one_counter_takes_a_group_each() {
    let (table, uncore) = plan("sapphirerapids", Family::Sapphire, &[], &[]);
    let groups = groups(&uncore, "iio", "UNC_IIO_");
    let lookups = groups.iter().filter(|group| group.contains("IOMMU")).count();
    assert_eq!((groups.len(), lookups), (6, 4));
    for group in &groups {
        let taken = group.contains("IOMMU") && group.contains("DATA_REQ_OF_CPU");
        assert!(!taken, "the kernel would give counter 0 to the other: {group}");
    }
    assert_eq!(apart(&table, &uncore, "vtd.iotlb_miss"), Some(Apart::Counters));
    assert_eq!(apart(&table, &uncore, "vtd.miss_penalty"), None);
}

#[test]
fn every_event_of_every_plan_is_on_a_counter_that_can_count_it() {
    for (model, family) in MODELS {
        for parts in [Parts::Together, Parts::Each(vec![0, 2, 3])] {
            let (_, uncore) = plan(model, family, &[], &[("uncore_iio_0", parts)]);
            assert_eq!(uncore.missing, [], "{model}");
            for plan in &uncore.plans {
                let sure = plan.groups.iter().all(|group| group.placement == Placement::Sure);
                assert!(sure, "{model}: {:?}", plan.groups);
                let placed = plan.homes.iter().all(|home| !home.groups.is_empty());
                assert!(placed, "{model}: {:?}", plan.homes);
            }
        }
    }
}

#[test]
fn parts_by_themselves_take_half_as_many_groups_again_as_there_are() {
    for (parts, expected) in [(1, 2), (2, 3), (4, 6), (8, 12)] {
        let asked = Parts::Each((0..parts).collect());
        let (_, uncore) = plan("icelakex", Family::IceLake, &BANDWIDTHS, &[("uncore_iio_0", asked)]);
        let plan = uncore.plans.iter().find(|plan| plan.pmus == ["uncore_iio_0"]).unwrap();
        assert_eq!(plan.groups.len(), expected, "{parts} parts");
        assert_eq!(plan.homes.len(), BANDWIDTHS.len() * parts as usize);
    }
}

#[test]
fn stacks_are_planned_by_what_is_asked_about_their_parts() {
    let parts = [
        ("uncore_iio_0", Parts::Each(vec![1])),
        ("uncore_iio_1", Parts::Each(Vec::new())),
        ("uncore_iio_2", Parts::Each(vec![1])),
    ];
    let (_, uncore) = plan("icelakex", Family::IceLake, &["pcie.inbound_read_bw", "vtd.iotlb_miss"], &parts);
    let pmus: Vec<Vec<String>> = uncore.plans.iter().map(|plan| plan.pmus.clone()).collect();
    assert_eq!(pmus, [vec!["uncore_iio_1"], vec!["uncore_iio_0", "uncore_iio_2"]]);
    let [quiet, busy] = uncore.plans.as_slice() else { panic!("{:?}", uncore.plans) };
    let names = |plan: &UncorePlan| {
        let events = plan.groups.iter().flat_map(|group| &group.group.events);
        events.map(|event| event.name.clone()).collect::<Vec<_>>()
    };
    assert!(names(busy).contains(&"UNC_IIO_DATA_REQ_OF_CPU.MEM_READ.PART1".to_owned()));
    assert_eq!(names(quiet), ["UNC_IIO_IOMMU0.CTXT_CACHE_LOOKUPS", "UNC_IIO_IOMMU0.FIRST_LOOKUPS"]);
    let at = |plan: &UncorePlan| {
        plan.groups[0].group.events[0].instances.iter().map(|at| at.pmu.clone()).collect()
    };
    let pmus_of_busy: Vec<String> = at(busy);
    assert_eq!(pmus_of_busy, busy.pmus);
}

#[test]
fn parts_together_are_one_event_with_all_their_bits() {
    let config = |model: &str, family, metric: &str| {
        let (_, uncore) = plan(model, family, &[metric], &[]);
        let mut words = of(&uncore, "iio").groups.iter().flat_map(|group| &group.group.events);
        words.next().unwrap().instances[0].words.get(Word::Config)
    };
    assert_eq!(config("icelakex", Family::IceLake, "pcie.inbound_read_bw"), 0x7_0ff0_0000_0483);
    assert_eq!(config("icelakex", Family::IceLake, "pcie.outbound_write_bw"), 0x7_0ff0_0000_01c0);
    assert_eq!(config("skylakex", Family::Skylake, "pcie.inbound_write_bw"), 0x70f0_0000_0183);
}

#[test]
fn a_count_of_all_parts_is_the_sum_of_their_operands() {
    let names = ["pcie.inbound_read_latency", "pcie.inbound_read_latency.part"];
    let (table, uncore) = plan("graniterapids", Family::Sapphire, &names, &[]);
    let iio = of(&uncore, "iio");
    assert_eq!(iio.groups.len(), 1, "both take the same three events");
    let names =
        |sum: &Vec<u32>| sum.iter().map(|&operand| table.operand(operand).unwrap()).collect::<Vec<_>>();
    let sums: Vec<Vec<&str>> = iio.groups[0].sums.iter().flatten().map(names).collect();
    let of = |part: &str| sums.iter().find(|sum| sum.iter().all(|name| name.contains(part))).map(Vec::len);
    assert_eq!(of("COMP_BUF_INSERTS.CMPD.PART"), Some(table.parts as usize));
    assert_eq!(of("COMP_BUF_INSERTS.CMPD.ALL_PARTS"), Some(1), "the same event counts both");
    assert_eq!(of("UNC_IIO_CLOCKTICKS"), Some(1));
}

#[test]
fn an_event_that_must_be_high_gets_others_below_it() {
    let (_, uncore) = plan("icelakex", Family::IceLake, &["pcie.inbound_read_latency"], &[]);
    let iio = of(&uncore, "iio");
    assert_eq!(iio.groups[0].placement, Placement::Sure);
    assert!(
        iio.groups[0].group.events[2].name.contains("OCCUPANCY"),
        "counters are given out from the lowest"
    );
}

#[test]
fn what_a_host_does_not_show_is_missing_by_kind() {
    let table = load("icelakex").unwrap();
    let catalog = Catalog::read(&server(Family::IceLake, &[("irp", 2)]).root).unwrap();
    let metrics = ["ddio.read_l3_miss", "io.cpu_conflicts"].map(|name| table.model.metric(name).unwrap());
    let uncore = UncorePlans::new(&table, &metrics, &catalog, &std::collections::BTreeMap::new());
    assert_eq!(uncore.missing, [(metrics[0], "this host shows no cha PMU".to_owned())]);
    assert_eq!(groups(&uncore, "irp", "UNC_I_"), ["MISC1.LOST_FWD TRANSACTIONS.WR_PREF"]);
    // The formats of another kernel: a mask that does not fit is not a reason to count something else.
    let narrow = Catalog::read(&server(Family::Skylake, &BOXES).root).unwrap();
    let metric = [table.model.metric("vtd.mem_access_per_miss").unwrap()];
    let uncore = UncorePlans::new(&table, &metric, &narrow, &std::collections::BTreeMap::new());
    let why = "UNC_IIO_TXN_REQ_OF_CPU.MEM_READ.IOMMU1: `ch_mask` cannot be 0x200: the largest value that fits its bits is 0xff";
    assert_eq!(uncore.missing, [(metric[0], why.to_owned())]);
}

/// Returns the plan of an EPYC server, or of a Grace server.
fn other_vendor(model: &str, parts: &[(&str, Parts)]) -> (IoTable, UncorePlans) {
    other_vendor_of(load(model).unwrap(), parts)
}

fn other_vendor_of(table: IoTable, parts: &[(&str, Parts)]) -> (IoTable, UncorePlans) {
    let model = table.name().to_owned();
    let tree = crate::machine::testing::Tree::new(&[("sys/devices/system/cpu/online", "0-3\n")]);
    let fabric = [("event", "config:0-7,32-37"), ("umask", "config:8-15,24-27")];
    let memory = [("event", "config:0-7"), ("rdwrmask", "config:8-9")];
    let ports = [("event", "config:0-63"), ("root_port", "config1:0-9")];
    let mut kind = 20;
    let mut add = |name: &str, format: &[(&str, &str)]| {
        kind += 1;
        tree.pmu(name, &[("type", &kind.to_string()), ("cpumask", "0\n")]);
        for (term, bits) in format {
            tree.pmu(name, &[(&format!("format/{term}"), bits)]);
        }
    };
    match model.as_str() {
        "neoverse-v2" => {
            add("nvidia_pcie_pmu_0", &ports);
            add("smmuv3_pmcg_11002", &[("event", "config:0-15")]);
        }
        _ => {
            add("amd_df", &fabric);
            add("amd_iommu_0", &[("csource", "config:0-7")]);
            add("amd_umc_0", &memory);
            add("amd_umc_1", &memory);
        }
    }
    let metrics: Vec<u32> = (0..table.model.metrics.len() as u32).collect();
    let parts = parts.iter().map(|(pmu, parts)| ((*pmu).to_owned(), parts.clone())).collect();
    let uncore = UncorePlans::new(&table, &metrics, &Catalog::read(&tree.root).unwrap(), &parts);
    assert_eq!(uncore.missing, [], "{model}");
    (table, uncore)
}

#[test]
fn parts_with_codes_of_their_own_are_never_merged() {
    let (table, uncore) = other_vendor("zen4", &[]);
    let codes = of(&uncore, "amd_df").groups.iter().flat_map(|group| &group.group.events);
    let mut codes: Vec<u64> = codes.map(|event| event.instances[0].words.get(Word::Config)).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), 16, "4 modules, reads and writes, to the own and the other socket");
    assert_eq!(codes[0], 0x8_0700_fe1f, "event 0x81f, umask 0x7fe");
    assert_eq!(apart(&table, &uncore, "pcie.inbound_read_bw"), Some(Apart::Counters));
    for together in ["dram.bus_utilization", "vtd.iotlb_miss", "vtd.mem_access_per_miss"] {
        assert_eq!(apart(&table, &uncore, together), None, "{together}");
    }
    let (table, uncore) = other_vendor("zen5", &[("amd_df", Parts::Each(vec![7]))]);
    assert_eq!(apart(&table, &uncore, "pcie.inbound_write_bw"), None);
}

#[test]
fn channels_with_two_counters_take_turns_where_four_count_all_at_once() {
    let groups = |counters: u32| -> Vec<usize> {
        let mut table = load("zen4").unwrap();
        table.set_counters("amd_umc", counters);
        let (_, uncore) = other_vendor_of(table, &[]);
        of(&uncore, "amd_umc").groups.iter().map(|group| group.group.events.len()).collect()
    };
    assert_eq!(groups(4), [4]);
    assert_eq!(groups(2), [2, 2]);
}

#[test]
fn root_ports_of_grace_are_bits_of_one_event() {
    let masks = |uncore: &UncorePlans| {
        let events = of(uncore, "nvidia_pcie_pmu").groups.iter().flat_map(|group| &group.group.events);
        let ports = events.filter(|event| event.name != "cycles");
        ports.map(|event| event.instances[0].words.get(Word::Config1)).collect::<Vec<_>>()
    };
    let (table, uncore) = other_vendor("neoverse-v2", &[]);
    assert!(of(&uncore, "nvidia_pcie_pmu").groups.iter().all(|group| group.placement == Placement::Sure));
    assert!(masks(&uncore).iter().all(|mask| *mask == 0x3ff) && masks(&uncore).len() == 8);
    assert_eq!(apart(&table, &uncore, "pcie.inbound_read_latency"), None);
    let (_, uncore) = other_vendor("neoverse-v2", &[("nvidia_pcie_pmu_0", Parts::Each(vec![9]))]);
    assert_eq!(masks(&uncore), [0x200; 8]);
}

#[test]
fn a_host_that_could_count_memory_traffic_by_group_is_told_what_it_lacks() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines/simulated-two-dies");
    let (machine, catalog) = (Machine::read(&root).unwrap(), Catalog::read(&root).unwrap());
    let platform = Platform::read(&root, &catalog);
    let request = IoRequest {
        target: Target::System,
        inherit: Inherit::Yes,
        descend: Descend::Yes,
        model: Some("sapphirerapids".to_owned()),
        report: Reporting::default(),
        interval: None,
        duration: None,
        ..IoRequest::default()
    };
    let mut plan = IoPlan::new(&request, &machine, &catalog, &platform, &root).unwrap();
    let before = plan.missing.len();
    let why = |plan: &IoPlan| plan.missing[before..].iter().map(|lost| lost.why.clone()).collect::<Vec<_>>();
    assert!(plan.missing.iter().all(|lost| !lost.why.contains("resctrl")), "this one could not");
    let error = MonitoringError::NotMounted;
    plan.monitor(Some(Err(error.clone())));
    assert_eq!((why(&plan), &plan.monitoring), (vec![error.with_fix()], &None));
    let point = crate::untrusted::Untrusted::from("/sys/fs/resctrl");
    let traffic = Monitoring { point, events: vec![MonitoringEvent::MbmTotalBytes], groups_max: None };
    plan.monitor(Some(Ok(traffic.clone())));
    assert_eq!((why(&plan).len(), &plan.monitoring), (1, &Some(traffic.clone())));
    plan.monitor(Some(Ok(Monitoring { events: vec![MonitoringEvent::LlcOccupancy], ..traffic })));
    assert!(why(&plan)[1].contains("counts no memory traffic"), "{:?}", why(&plan));
    assert!(plan.monitoring.is_some(), "what is in the cache is known");
}

#[test]
fn uncore_pmus_are_drained_as_often_as_tasks_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines/simulated-two-dies");
    let (machine, catalog) = (Machine::read(&root).unwrap(), Catalog::read(&root).unwrap());
    let platform = Platform::read(&root, &catalog);
    let millis = std::time::Duration::from_millis;
    for (interval, tick) in [(None, 1000), (Some(300), 300), (Some(10_000), 1000), (Some(2500), 833)] {
        let interval = interval.map(millis);
        let of_tasks = Request { interval, ..Request::default() };
        let of_io = IoRequest { interval, ..IoRequest::default() };
        let io = IoPlan::new(&of_io, &machine, &catalog, &platform, &root).unwrap();
        let tasks = Plan::new(&of_tasks, &machine, &root).unwrap();
        assert_eq!((io.tick, io.tick.as_millis()), (tasks.tick, tick), "{interval:?}");
    }
}
