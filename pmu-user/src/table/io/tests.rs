//! Tests of parts in tables, and of every event of every table through the formats of its kernel. Some events
//! are compared with words that are known to be right.

use super::{
    IoFault, IoTable, Of, ScopeKind, load, part_of, read,
    testing::{Family, server},
};
use crate::{
    machine::pmu::{bits::Word, catalog::Catalog},
    table::{
        event_syntax::{List, Selected, resolve_with},
        model::Tables,
    },
};

const BOXES: [(&str, u32); 5] = [("cha", 2), ("iio", 2), ("imc", 1), ("irp", 2), ("upi", 1)];

/// Returns all events of a table on a server of its family.
fn events(name: &str, family: Family) -> Vec<Selected> {
    let table: IoTable = load(name).unwrap();
    let catalog = Catalog::read(&server(family, &BOXES).root).unwrap();
    let names: Vec<&str> = table.model.events.iter().map(|event| event.name.as_str()).collect();
    let list = List::parse(&names.join(",")).unwrap();
    let groups = resolve_with(&list, &catalog, &Tables::of_any(table.model.clone())).unwrap();
    groups.into_iter().flat_map(|group| group.events).collect()
}

/// Returns `config` and `config1` of an event.
fn words(events: &[Selected], name: &str) -> [u64; 2] {
    let event = events.iter().find(|event| event.name == name).unwrap();
    [Word::Config, Word::Config1].map(|word| event.instances[0].words.get(word))
}

#[test]
fn events_are_counted_by_all_uncore_pmus_of_their_kind_and_no_other() {
    let events = events("icelakex", Family::IceLake);
    let pmus = |name: &str| {
        let event = events.iter().find(|event| event.name == name).unwrap();
        event.instances.iter().map(|at| at.pmu.clone()).collect::<Vec<_>>()
    };
    assert_eq!(pmus("UNC_IIO_CLOCKTICKS"), ["uncore_iio_0", "uncore_iio_1"], "none that runs freely");
    assert_eq!(pmus("UNC_M_CAS_COUNT.RD"), ["uncore_imc_0"]);
}

#[test]
fn skylake_has_narrow_masks_and_a_filter_in_the_upper_half() {
    let events = events("skylakex", Family::Skylake);
    for (name, config) in [
        ("UNC_IIO_CLOCKTICKS", 0x1),
        ("UNC_IIO_DATA_REQ_OF_CPU.MEM_READ.PART0", 0x7010_0000_0483),
        ("UNC_IIO_DATA_REQ_OF_CPU.MEM_WRITE.PART3", 0x7080_0000_0183),
        ("UNC_IIO_DATA_REQ_BY_CPU.MEM_WRITE.PART0", 0x7010_0000_01c0),
        ("UNC_IIO_COMP_BUF_INSERTS.CMPD.ALL_PARTS", 0x40f0_0000_03c2),
        ("UNC_IIO_COMP_BUF_OCCUPANCY.CMPD.ALL_PARTS", 0x4000_0000_0fd5),
        ("UNC_IIO_VTD_ACCESS.TLB_MISS", 0x2041),
        ("UNC_I_MISC1.LOST_FWD", 0x101d),
        ("UNC_M_CAS_COUNT.WR", 0xc04),
        ("UNC_UPI_TxL_FLITS.NON_DATA", 0x9702),
    ] {
        assert_eq!(words(&events, name), [config, 0], "{name}");
    }
    for (name, filter) in [
        ("UNC_CHA_TOR_INSERTS.IO_MISS_ITOM", 0x49033),
        ("UNC_CHA_TOR_INSERTS.IO_MISS_RFO", 0x40033),
        ("UNC_CHA_TOR_INSERTS.IO_MISS_RDCUR", 0x43c33),
    ] {
        assert_eq!(words(&events, name), [0x2435, filter << 32], "{name}");
    }
}

#[test]
fn ice_lake_has_wide_masks_and_opcodes_in_the_umask() {
    let events = events("icelakex", Family::IceLake);
    for (name, config) in [
        ("UNC_IIO_DATA_REQ_OF_CPU.CMPD.PART0", 0x7_0010_0000_8083),
        ("UNC_IIO_DATA_REQ_OF_CPU.MEM_READ.PART7", 0x7_0800_0000_0483),
        ("UNC_IIO_DATA_REQ_BY_CPU.MEM_READ.PART0", 0x7_0010_0000_04c0),
        ("UNC_IIO_COMP_BUF_INSERTS.CMPD.ALL_PARTS", 0x4_0ff0_0000_03c2),
        ("UNC_IIO_COMP_BUF_OCCUPANCY.CMPD.ALL_PARTS", 0x4_0000_0000_ffd5),
        ("UNC_IIO_COMP_BUF_OCCUPANCY.CMPD.PART3", 0x4_0000_0000_08d5),
        ("UNC_IIO_TXN_REQ_OF_CPU.MEM_READ.IOMMU1", 0x7_2000_0000_0484),
        ("UNC_IIO_PWT_OCCUPANCY", 0x42),
        ("UNC_I_MISC1.LOST_FWD", 0x101f),
        ("UNC_CHA_TOR_INSERTS.IO_MISS_PCIRDCUR", 0xc8_f3fe_0000_0435),
        ("UNC_CHA_TOR_INSERTS.IO_RFO", 0xc8_03ff_0000_0435),
        ("UNC_M_CAS_COUNT.RD", 0xf04),
        ("UNC_UPI_L1_POWER_CYCLES", 0x21),
    ] {
        assert_eq!(words(&events, name), [config, 0], "{name}");
    }
}

#[test]
fn sapphire_and_granite_rapids_differ_in_a_few() {
    let (sapphire, granite) =
        (events("sapphirerapids", Family::Sapphire), events("graniterapids", Family::Sapphire));
    for (name, config) in [
        ("UNC_IIO_COMP_BUF_INSERTS.CMPD.ALL_PARTS", 0x7_0ff0_0000_04c2),
        ("UNC_IIO_COMP_BUF_OCCUPANCY.CMPD.ALL_PARTS", 0x7_0ff0_0000_ffd5),
        ("UNC_IIO_IOMMU1.NUM_MEM_ACCESSES", 0xc041),
        ("UNC_CHA_TOR_INSERTS.IO_MISS_ITOMCACHENEAR", 0xcd_43fe_0000_0435),
    ] {
        assert_eq!(words(&sapphire, name), [config, 0], "{name}");
        assert_eq!(words(&granite, name), [config, 0], "{name}");
    }
    assert_eq!(words(&sapphire, "UNC_IIO_PWT_OCCUPANCY"), [0xff42, 0]);
    assert_eq!(words(&granite, "UNC_IIO_PWT_OCCUPANCY"), [0x42, 0]);
    assert_eq!(words(&sapphire, "UNC_M_CAS_COUNT.RD"), [0xcf05, 0]);
    assert_eq!(words(&granite, "UNC_M_CAS_COUNT_SCH1.RD"), [0xcf06, 0]);
}

#[test]
fn an_event_names_its_part() {
    assert_eq!(part_of("UNC_IIO_DATA_REQ_OF_CPU.MEM_READ.PART7"), Some(7));
    assert_eq!(part_of("UNC_IIO_COMP_BUF_INSERTS.CMPD.ALL_PARTS"), None);
    assert_eq!(part_of("UNC_IIO_CLOCKTICKS"), None);
    assert_eq!(part_of("local_socket_upstream_read_beats_iom2"), Some(2));
    assert_eq!(part_of("local_socket_upstream_read_data_beats_io_7"), Some(7));
    assert_eq!(part_of("local_processor_read_data_beats_cs3"), None, "a channel is no part of a stack");
}

#[test]
fn a_question_about_a_part_needs_only_its_events() {
    let table = load("icelakex").unwrap();
    let names = |metric: &str, of: Of| {
        let metric = table.model.metric(metric).unwrap();
        let events = table.events_of(metric, of);
        events.into_iter().map(|event| table.operand(event).unwrap().to_owned()).collect::<Vec<_>>()
    };
    let read = "UNC_IIO_DATA_REQ_OF_CPU.MEM_READ";
    assert_eq!(names("pcie.inbound_read_bw", Of::Part(3)), [format!("{read}.PART3")]);
    let all: Vec<String> = (0..8).map(|part| format!("{read}.PART{part}")).collect();
    assert_eq!(names("pcie.inbound_read_bw", Of::All), all);
    assert_eq!(
        names("pcie.inbound_read_latency.part", Of::Part(2)),
        [
            "UNC_IIO_CLOCKTICKS",
            "UNC_IIO_COMP_BUF_INSERTS.CMPD.PART2",
            "UNC_IIO_COMP_BUF_OCCUPANCY.CMPD.PART2"
        ]
    );
}

#[test]
fn uncore_pmus_add_up_but_two_clocks_are_not_a_faster_one() {
    let table = load("icelakex").unwrap();
    let index = |name: &str| table.model.operands.iter().position(|known| known == name).unwrap() as u32;
    assert!(table.is_averaged(index("UNC_IIO_CLOCKTICKS")));
    assert!(!table.is_averaged(index("UNC_I_FAF_INSERTS")));
    assert!(!table.is_averaged(index("UNC_UPI_CLOCKTICKS")), "utilisation divides by all of them");
}

#[test]
fn what_cannot_be_in_a_table_is_found() {
    let text = |lines: &str| {
        format!("pmbpf io table 1\nmodels\tx\nparts\t2\nbox\tiio\t4\t-\npmbpf table 1\nmodel\tx\n{lines}")
    };
    let faults = |lines: &str| read(&text(lines)).unwrap().faults();
    let event = |name: &str, unit: &str| format!("event\t{name}\t{unit}\tevent=0x1\t0x1\t0\t-\n");
    let metric =
        |scope: &str, formula: &str| format!("metric\tm\t1\t-\tMB/s\tio\t{scope}\t-\t1\t{formula}\t-\t-\n");
    assert_eq!(faults(&(event("A.PART1", "iio") + &metric("part", "A.PART1"))), []);
    assert_eq!(faults(&event("A.PART2", "iio")), [IoFault::NoPart("A.PART2".to_owned())]);
    assert_eq!(faults(&event("A", "irp")), [IoFault::NoBox("A".to_owned(), "irp".to_owned())]);
    let no_scope = faults(&(event("A", "iio") + &metric("host", "A")));
    assert_eq!(no_scope, [IoFault::NoScope("m".to_owned())]);
    assert_eq!(
        faults(&metric("part", "A"))[0].to_string(),
        "`m` counts `A`, which the table does not encode"
    );
}

#[test]
fn scopes_have_the_words_that_tables_have() {
    assert_eq!(ScopeKind::Part.name(), "part");
    assert_eq!((ScopeKind::Socket.name(), ScopeKind::Device.name()), ("socket", "device"));
    assert_eq!(load("sapphirerapids").unwrap().scope(0), Some(ScopeKind::Part));
}
