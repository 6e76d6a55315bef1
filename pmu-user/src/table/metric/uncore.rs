//! Metrics of uncore PMUs. Which of them a platform has, and by what formula, its table says.

use super::{Family, Metric};
use crate::table::unit::Unit;

/// `pcie.inbound_read_bw`.
pub const PCIE_INBOUND_READ_BW: Metric = Metric::new(
    "pcie.inbound_read_bw",
    Unit::MegabytesPerSecond,
    Family::Pcie,
    None,
    "Bytes that devices read from memory (DMA reads).",
);
/// `pcie.inbound_read_bw.remote`.
pub const PCIE_INBOUND_READ_BW_REMOTE: Metric = Metric::new(
    "pcie.inbound_read_bw.remote",
    Unit::MegabytesPerSecond,
    Family::Pcie,
    Some("pcie.inbound_read_bw"),
    "Bytes that devices read from the other socket's memory.",
);
/// `pcie.inbound_write_bw`.
pub const PCIE_INBOUND_WRITE_BW: Metric = Metric::new(
    "pcie.inbound_write_bw",
    Unit::MegabytesPerSecond,
    Family::Pcie,
    None,
    "Bytes that devices wrote to memory (DMA writes).",
);
/// `pcie.inbound_write_bw.remote`.
pub const PCIE_INBOUND_WRITE_BW_REMOTE: Metric = Metric::new(
    "pcie.inbound_write_bw.remote",
    Unit::MegabytesPerSecond,
    Family::Pcie,
    Some("pcie.inbound_write_bw"),
    "Bytes that devices wrote to the other socket's memory.",
);
/// `pcie.outbound_read_bw`.
pub const PCIE_OUTBOUND_READ_BW: Metric = Metric::new(
    "pcie.outbound_read_bw",
    Unit::MegabytesPerSecond,
    Family::Pcie,
    None,
    "Bytes that CPUs read from devices (MMIO reads), by the devices' completions.",
);
/// `pcie.outbound_read_bw.by_cpu`.
pub const PCIE_OUTBOUND_READ_BW_BY_CPU: Metric = Metric::new(
    "pcie.outbound_read_bw.by_cpu",
    Unit::MegabytesPerSecond,
    Family::Pcie,
    None,
    "Bytes that CPUs asked devices for (MMIO reads).",
);
/// `pcie.outbound_write_bw`.
pub const PCIE_OUTBOUND_WRITE_BW: Metric = Metric::new(
    "pcie.outbound_write_bw",
    Unit::MegabytesPerSecond,
    Family::Pcie,
    None,
    "Bytes that CPUs wrote to devices (MMIO writes).",
);
/// `pcie.inbound_read_latency`.
pub const PCIE_INBOUND_READ_LATENCY: Metric = Metric::new(
    "pcie.inbound_read_latency",
    Unit::Ns,
    Family::Pcie,
    None,
    "Mean time that a DMA read is in the I/O stack, from the request to its completion.",
);
/// `pcie.inbound_read_latency.part`.
pub const PCIE_INBOUND_READ_LATENCY_PART: Metric = Metric::new(
    "pcie.inbound_read_latency.part",
    Unit::Ns,
    Family::Pcie,
    Some("pcie.inbound_read_latency"),
    "The same of one root port's reads.",
);
/// `pcie.inbound_write_latency`.
pub const PCIE_INBOUND_WRITE_LATENCY: Metric = Metric::new(
    "pcie.inbound_write_latency",
    Unit::Ns,
    Family::Pcie,
    None,
    "Mean time until a DMA write owns its cache line.",
);
/// `link.max_bw`.
pub const LINK_MAX_BW: Metric = Metric::new(
    "link.max_bw",
    Unit::MegabytesPerSecond,
    Family::Link,
    None,
    "The most that the PCIe link can carry in both directions together, by its speed and width.",
);
/// `link.utilization`.
pub const LINK_UTILIZATION: Metric = Metric::new(
    "link.utilization",
    Unit::Percent,
    Family::Link,
    None,
    "Share of the PCIe link's bandwidth in use, both directions together.",
);
/// `link.utilization.to_device`.
pub const LINK_UTILIZATION_TO_DEVICE: Metric = Metric::new(
    "link.utilization.to_device",
    Unit::Percent,
    Family::Link,
    Some("link.utilization"),
    "Share of the link's raw rate in use towards the device.",
);
/// `link.utilization.from_device`.
pub const LINK_UTILIZATION_FROM_DEVICE: Metric = Metric::new(
    "link.utilization.from_device",
    Unit::Percent,
    Family::Link,
    Some("link.utilization"),
    "Share of the link's raw rate in use from the device.",
);
/// `link.utilization.to_device.coded`.
pub const LINK_UTILIZATION_TO_DEVICE_CODED: Metric = Metric::new(
    "link.utilization.to_device.coded",
    Unit::Percent,
    Family::Link,
    Some("link.utilization.to_device"),
    "The same of what its coding leaves for data.",
);
/// `link.utilization.from_device.coded`.
pub const LINK_UTILIZATION_FROM_DEVICE_CODED: Metric = Metric::new(
    "link.utilization.from_device.coded",
    Unit::Percent,
    Family::Link,
    Some("link.utilization.from_device"),
    "The same of what its coding leaves for data.",
);
/// `ddio.read_l3_hit`.
pub const DDIO_READ_L3_HIT: Metric = Metric::new(
    "ddio.read_l3_hit",
    Unit::Percent,
    Family::Ddio,
    None,
    "Share of the devices' reads that the last-level cache answered.",
);
/// `ddio.read_l3_miss`.
pub const DDIO_READ_L3_MISS: Metric = Metric::new(
    "ddio.read_l3_miss",
    Unit::Percent,
    Family::Ddio,
    None,
    "Share of the devices' reads that went to memory, by the requests that entered the I/O stack.",
);
/// `ddio.read_l3_miss.cha`.
pub const DDIO_READ_L3_MISS_CHA: Metric = Metric::new(
    "ddio.read_l3_miss.cha",
    Unit::Percent,
    Family::Ddio,
    Some("ddio.read_l3_miss"),
    "The same by the cache's own counts alone.",
);
/// `ddio.write_l3_hit`.
pub const DDIO_WRITE_L3_HIT: Metric = Metric::new(
    "ddio.write_l3_hit",
    Unit::Percent,
    Family::Ddio,
    None,
    "Share of the devices' writes that found their line in the last-level cache.",
);
/// `ddio.write_l3_miss`.
pub const DDIO_WRITE_L3_MISS: Metric = Metric::new(
    "ddio.write_l3_miss",
    Unit::Percent,
    Family::Ddio,
    None,
    "Share of the devices' writes that had to make room in the last-level cache.",
);
/// `ddio.full_write_l3_miss.cha`.
pub const DDIO_FULL_WRITE_L3_MISS_CHA: Metric = Metric::new(
    "ddio.full_write_l3_miss.cha",
    Unit::Percent,
    Family::Ddio,
    Some("ddio.write_l3_miss"),
    "Share of the devices' writes of whole lines that missed the last-level cache, by its own counts.",
);
/// `ddio.partial_write_l3_miss.cha`.
pub const DDIO_PARTIAL_WRITE_L3_MISS_CHA: Metric = Metric::new(
    "ddio.partial_write_l3_miss.cha",
    Unit::Percent,
    Family::Ddio,
    Some("ddio.write_l3_miss"),
    "Share of the devices' writes of parts of lines that missed the last-level cache, by its own counts.",
);
/// `io.cpu_conflicts`.
pub const IO_CPU_CONFLICTS: Metric = Metric::new(
    "io.cpu_conflicts",
    Unit::Percent,
    Family::Conflicts,
    None,
    "Share of the devices' writes that lost their cache line to a core before they were done.",
);
/// `io.cpu_conflicts.invalidated`.
pub const IO_CPU_CONFLICTS_INVALIDATED: Metric = Metric::new(
    "io.cpu_conflicts.invalidated",
    Unit::Percent,
    Family::Conflicts,
    Some("io.cpu_conflicts"),
    "The same with lines that were invalidated meanwhile.",
);
/// `vtd.translation_rate`.
pub const VTD_TRANSLATION_RATE: Metric = Metric::new(
    "vtd.translation_rate",
    Unit::MegatransactionsPerSecond,
    Family::Iommu,
    None,
    "Addresses of devices that the IOMMU translated.",
);
/// `vtd.iotlb_hit`.
pub const VTD_IOTLB_HIT: Metric = Metric::new(
    "vtd.iotlb_hit",
    Unit::Percent,
    Family::Iommu,
    None,
    "Share of the translations that the IOMMU's TLB had.",
);
/// `vtd.iotlb_hit.direct`.
pub const VTD_IOTLB_HIT_DIRECT: Metric = Metric::new(
    "vtd.iotlb_hit.direct",
    Unit::Percent,
    Family::Iommu,
    Some("vtd.iotlb_hit"),
    "The same by the TLB's own misses.",
);
/// `vtd.iotlb_miss`.
pub const VTD_IOTLB_MISS: Metric = Metric::new(
    "vtd.iotlb_miss",
    Unit::Percent,
    Family::Iommu,
    None,
    "Share of the translations that the IOMMU's TLB did not have, by the lookups of contexts that followed.",
);
/// `vtd.iotlb_miss.direct`.
pub const VTD_IOTLB_MISS_DIRECT: Metric = Metric::new(
    "vtd.iotlb_miss.direct",
    Unit::Percent,
    Family::Iommu,
    Some("vtd.iotlb_miss"),
    "The same by the TLB's own misses.",
);
/// `vtd.iotlb_miss.l4`.
pub const VTD_IOTLB_MISS_L4: Metric = Metric::new(
    "vtd.iotlb_miss.l4",
    Unit::Percent,
    Family::Iommu,
    Some("vtd.iotlb_miss"),
    "Share of the walks' lookups that missed, of those and the hits at level 4.",
);
/// `vtd.iotlb_miss_rate`.
pub const VTD_IOTLB_MISS_RATE: Metric = Metric::new(
    "vtd.iotlb_miss_rate",
    Unit::MegaPerSecond,
    Family::Iommu,
    None,
    "Translations that the IOMMU's TLB did not have.",
);
/// `vtd.mem_access_per_miss`.
pub const VTD_MEM_ACCESS_PER_MISS: Metric = Metric::new(
    "vtd.mem_access_per_miss",
    Unit::Ratio,
    Family::Iommu,
    None,
    "Reads of memory by the IOMMU for each translation that its TLB did not have.",
);
/// `vtd.mem_access_per_miss.num`.
pub const VTD_MEM_ACCESS_PER_MISS_NUM: Metric = Metric::new(
    "vtd.mem_access_per_miss.num",
    Unit::Ratio,
    Family::Iommu,
    Some("vtd.mem_access_per_miss"),
    "The same by another event, where the first is not there.",
);
/// `vtd.miss_penalty`.
pub const VTD_MISS_PENALTY: Metric = Metric::new(
    "vtd.miss_penalty",
    Unit::Ns,
    Family::Iommu,
    None,
    "Mean time that a page walk of the IOMMU takes.",
);
/// `vtd.walk_memory_reads`.
pub const VTD_WALK_MEMORY_READS: Metric = Metric::new(
    "vtd.walk_memory_reads",
    Unit::MegaPerSecond,
    Family::Iommu,
    None,
    "Reads of memory by the IOMMU's page walks.",
);
/// `dram.bw`.
pub const DRAM_BW: Metric = Metric::new(
    "dram.bw",
    Unit::GigabytesPerSecond,
    Family::Memory,
    None,
    "Bytes that memory controllers moved, for cores and devices.",
);
/// `dram.read_bw`.
pub const DRAM_READ_BW: Metric = Metric::new(
    "dram.read_bw",
    Unit::GigabytesPerSecond,
    Family::Memory,
    Some("dram.bw"),
    "Bytes that memory controllers read.",
);
/// `dram.write_bw`.
pub const DRAM_WRITE_BW: Metric = Metric::new(
    "dram.write_bw",
    Unit::GigabytesPerSecond,
    Family::Memory,
    Some("dram.bw"),
    "Bytes that memory controllers wrote.",
);
/// `dram.utilization`.
pub const DRAM_UTILIZATION: Metric = Metric::new(
    "dram.utilization",
    Unit::Percent,
    Family::Memory,
    None,
    "`dram.bw` as a share of the most that memory can move, which a note names.",
);
/// `dram.bus_utilization`.
pub const DRAM_BUS_UTILIZATION: Metric = Metric::new(
    "dram.bus_utilization",
    Unit::Percent,
    Family::Memory,
    None,
    "Share of the memory clock's slots that moved data.",
);
/// `upi.tx_data_bw`.
pub const UPI_TX_DATA_BW: Metric = Metric::new(
    "upi.tx_data_bw",
    Unit::MegabytesPerSecond,
    Family::Upi,
    None,
    "Bytes of data that a socket sent to another.",
);
/// `upi.utilization`.
pub const UPI_UTILIZATION: Metric = Metric::new(
    "upi.utilization",
    Unit::Percent,
    Family::Upi,
    None,
    "Share of the link's flits in use, data and everything else, while it was awake.",
);
/// `iio.frequency`.
pub const IIO_FREQUENCY: Metric =
    Metric::new("iio.frequency", Unit::Gigahertz, Family::Clock, None, "Frequency of the I/O stack.");

/// All of them, in the order of reports.
pub const UNCORE: [Metric; 44] = [
    PCIE_INBOUND_READ_BW,
    PCIE_INBOUND_READ_BW_REMOTE,
    PCIE_INBOUND_WRITE_BW,
    PCIE_INBOUND_WRITE_BW_REMOTE,
    PCIE_OUTBOUND_READ_BW,
    PCIE_OUTBOUND_READ_BW_BY_CPU,
    PCIE_OUTBOUND_WRITE_BW,
    PCIE_INBOUND_READ_LATENCY,
    PCIE_INBOUND_READ_LATENCY_PART,
    PCIE_INBOUND_WRITE_LATENCY,
    LINK_MAX_BW,
    LINK_UTILIZATION,
    LINK_UTILIZATION_TO_DEVICE,
    LINK_UTILIZATION_FROM_DEVICE,
    LINK_UTILIZATION_TO_DEVICE_CODED,
    LINK_UTILIZATION_FROM_DEVICE_CODED,
    DDIO_READ_L3_HIT,
    DDIO_READ_L3_MISS,
    DDIO_READ_L3_MISS_CHA,
    DDIO_WRITE_L3_HIT,
    DDIO_WRITE_L3_MISS,
    DDIO_FULL_WRITE_L3_MISS_CHA,
    DDIO_PARTIAL_WRITE_L3_MISS_CHA,
    IO_CPU_CONFLICTS,
    IO_CPU_CONFLICTS_INVALIDATED,
    VTD_TRANSLATION_RATE,
    VTD_IOTLB_HIT,
    VTD_IOTLB_HIT_DIRECT,
    VTD_IOTLB_MISS,
    VTD_IOTLB_MISS_DIRECT,
    VTD_IOTLB_MISS_L4,
    VTD_IOTLB_MISS_RATE,
    VTD_MEM_ACCESS_PER_MISS,
    VTD_MEM_ACCESS_PER_MISS_NUM,
    VTD_MISS_PENALTY,
    VTD_WALK_MEMORY_READS,
    DRAM_BW,
    DRAM_READ_BW,
    DRAM_WRITE_BW,
    DRAM_UTILIZATION,
    DRAM_BUS_UTILIZATION,
    UPI_TX_DATA_BW,
    UPI_UTILIZATION,
    IIO_FREQUENCY,
];
