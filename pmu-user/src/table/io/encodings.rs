//! Every event of every table through the formats of its kernel, and some against words that are known to be right.

use super::{
    IoTable, load,
    testing::{Family, server},
};
use crate::{
    machine::pmu::{bits::Word, catalog::Catalog},
    table::notation::{List, Selected, resolve_with},
};

const BOXES: [(&str, u32); 5] = [("cha", 2), ("iio", 2), ("imc", 1), ("irp", 2), ("upi", 1)];

/// All events of a table on a server of its family.
fn events(name: &str, family: Family) -> Vec<Selected> {
    let table: IoTable = load(name).unwrap();
    let catalog = Catalog::read(&server(family, &BOXES).root).unwrap();
    let names: Vec<&str> = table.model.events.iter().map(|event| event.name.as_str()).collect();
    let list = List::parse(&names.join(",")).unwrap();
    let groups = resolve_with(&list, &catalog, Some(&table.model)).unwrap();
    groups.into_iter().flat_map(|group| group.events).collect()
}

/// `config` and `config1` of an event.
fn words(events: &[Selected], name: &str) -> [u64; 2] {
    let event = events.iter().find(|event| event.name == name).unwrap();
    [Word::Config, Word::Config1].map(|word| event.instances[0].words.get(word))
}

#[test]
fn events_are_counted_by_all_boxes_of_their_kind_and_no_other() {
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
