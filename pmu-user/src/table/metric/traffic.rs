//! Metrics of block requests and packets, and of what resctrl counts for groups of threads.

use super::{Family, Metric};
use crate::table::unit::Unit;

/// `block.requests_rate`.
pub const BLOCK_REQUESTS_RATE: Metric = Metric::new(
    "block.requests_rate",
    Unit::PerSecond,
    Family::Block,
    None,
    "Block requests that completed, a second.",
);
/// `block.bandwidth`.
pub const BLOCK_BANDWIDTH: Metric = Metric::new(
    "block.bandwidth",
    Unit::MegabytesPerSecond,
    Family::Block,
    None,
    "Bytes of block requests that completed.",
);
/// `block.request_size`.
pub const BLOCK_REQUEST_SIZE: Metric = Metric::new(
    "block.request_size",
    Unit::Bytes,
    Family::Block,
    None,
    "Mean size of the block requests that moved bytes.",
);
/// `block.errors`.
pub const BLOCK_ERRORS: Metric = Metric::new(
    "block.errors",
    Unit::Requests,
    Family::Block,
    None,
    "Block requests that completed with an error.",
);
/// `block.queued`.
pub const BLOCK_QUEUED: Metric = Metric::new(
    "block.queued",
    Unit::Percent,
    Family::Block,
    None,
    "Share of the block requests that waited in a queue of the kernel before they were issued.",
);
/// `block.told_apart`.
pub const BLOCK_TOLD_APART: Metric = Metric::new(
    "block.told_apart",
    Unit::Percent,
    Family::Block,
    None,
    "Share of the bytes whose owner is known.",
);
/// `block.latency`.
pub const BLOCK_LATENCY: Metric = Metric::new(
    "block.latency",
    Unit::Ns,
    Family::BlockLatency,
    None,
    "Time from issuing a block request to the device until it completed: mean, quantiles and maximum.",
);
/// `block.queue`.
pub const BLOCK_QUEUE: Metric = Metric::new(
    "block.queue",
    Unit::Ns,
    Family::BlockQueue,
    None,
    "Time that a block request waited in a queue of the kernel before it was issued: mean, quantiles and maximum.",
);
/// `block.read_bw`.
pub const BLOCK_READ_BW: Metric = Metric::new(
    "block.read_bw",
    Unit::MegabytesPerSecond,
    Family::Block,
    None,
    "Bytes that an owner's block requests read, of all disks together that are made of no others.",
);
/// `block.write_bw`.
pub const BLOCK_WRITE_BW: Metric = Metric::new(
    "block.write_bw",
    Unit::MegabytesPerSecond,
    Family::Block,
    None,
    "Bytes that an owner's block requests wrote, of all disks together that are made of no others.",
);
/// `block.read_latency`.
pub const BLOCK_READ_LATENCY: Metric = Metric::new(
    "block.read_latency",
    Unit::Ns,
    Family::BlockLatency,
    None,
    "Latency of an owner's reads at all those disks: mean, quantiles and maximum.",
);
/// `block.write_latency`.
pub const BLOCK_WRITE_LATENCY: Metric = Metric::new(
    "block.write_latency",
    Unit::Ns,
    Family::BlockLatency,
    None,
    "Latency of an owner's writes at all those disks: mean, quantiles and maximum.",
);
/// `net.receive_bw`.
pub const NET_RECEIVE_BW: Metric = Metric::new(
    "net.receive_bw",
    Unit::MegabytesPerSecond,
    Family::Network,
    None,
    "Bytes of packets that an owner received through all interfaces together that stand on no others.",
);
/// `net.send_bw`.
pub const NET_SEND_BW: Metric = Metric::new(
    "net.send_bw",
    Unit::MegabytesPerSecond,
    Family::Network,
    None,
    "Bytes of packets that an owner sent through all interfaces together that stand on no others.",
);
/// `net.bandwidth`.
pub const NET_BANDWIDTH: Metric = Metric::new(
    "net.bandwidth",
    Unit::MegabytesPerSecond,
    Family::Network,
    None,
    "Bytes of packets that the interface sent or received, headers included.",
);
/// `net.packets_rate`.
pub const NET_PACKETS_RATE: Metric = Metric::new(
    "net.packets_rate",
    Unit::PerSecond,
    Family::Network,
    None,
    "Packets a second, as the kernel's network stack handled them: with offloads one stands for several on the wire.",
);
/// `net.tcp`.
pub const NET_TCP: Metric = Metric::new(
    "net.tcp",
    Unit::MegabytesPerSecond,
    Family::Network,
    Some("net.bandwidth"),
    "Bytes of TCP packets.",
);
/// `net.udp`.
pub const NET_UDP: Metric = Metric::new(
    "net.udp",
    Unit::MegabytesPerSecond,
    Family::Network,
    Some("net.bandwidth"),
    "Bytes of UDP packets.",
);
/// `net.other`.
pub const NET_OTHER: Metric = Metric::new(
    "net.other",
    Unit::MegabytesPerSecond,
    Family::Network,
    Some("net.bandwidth"),
    "Bytes of packets that are neither TCP nor UDP.",
);
/// `net.told_apart`.
pub const NET_TOLD_APART: Metric = Metric::new(
    "net.told_apart",
    Unit::Percent,
    Family::Network,
    None,
    "Share of the bytes whose owner is known.",
);
/// `dram.cpu_total_bw`.
pub const DRAM_CPU_TOTAL_BW: Metric = Metric::new(
    "dram.cpu_total_bw",
    Unit::MegabytesPerSecond,
    Family::Memory,
    None,
    "Bytes between the last-level cache and memory that cores asked for, as resctrl counts them for a group of threads.",
);
/// `dram.cpu_local_bw`.
pub const DRAM_CPU_LOCAL_BW: Metric = Metric::new(
    "dram.cpu_local_bw",
    Unit::MegabytesPerSecond,
    Family::Memory,
    Some("dram.cpu_total_bw"),
    "The same with memory of the socket's own node.",
);
/// `llc.occupancy`.
pub const LLC_OCCUPANCY: Metric = Metric::new(
    "llc.occupancy",
    Unit::Megabytes,
    Family::Llc,
    None,
    "What a group of threads holds in the last-level cache, as resctrl counts it: the latest reading.",
);

/// All of them, in the order of reports.
pub const TRAFFIC: [Metric; 23] = [
    BLOCK_REQUESTS_RATE,
    BLOCK_BANDWIDTH,
    BLOCK_REQUEST_SIZE,
    BLOCK_ERRORS,
    BLOCK_QUEUED,
    BLOCK_TOLD_APART,
    BLOCK_LATENCY,
    BLOCK_QUEUE,
    BLOCK_READ_BW,
    BLOCK_WRITE_BW,
    BLOCK_READ_LATENCY,
    BLOCK_WRITE_LATENCY,
    NET_BANDWIDTH,
    NET_PACKETS_RATE,
    NET_TCP,
    NET_UDP,
    NET_OTHER,
    NET_TOLD_APART,
    NET_RECEIVE_BW,
    NET_SEND_BW,
    DRAM_CPU_TOTAL_BW,
    DRAM_CPU_LOCAL_BW,
    LLC_OCCUPANCY,
];
