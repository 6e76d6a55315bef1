//! Metrics beside those of the file: what the cookbook asks for and leaves to the reader, and what says more.

use std::collections::BTreeMap;

use super::formula::Wanted;
use crate::table::io::IoTable;

/// Name, unit, scope, whose definition, formula.
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
    // A line may also be lost while its write waits, because somebody invalidated it.
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
    // What has no count of lookups has one of hits in the last level.
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

/// Those whose events a platform has; of several definitions the first.
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
