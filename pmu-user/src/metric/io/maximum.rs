//! The most that there can be of a bandwidth, from whoever says so.

use super::levels::Basis;
use crate::drain::io::IoHeader;

/// What is known about the most of a bandwidth of one socket, in its unit. Sockets are taken to have equal shares.
#[must_use]
pub fn maxima(header: &IoHeader, name: &str) -> Vec<(f64, Basis)> {
    let report = &header.plan.report;
    match name {
        // A share of what the link could carry.
        "upi.utilization" => vec![(100.0, Basis::Specification)],
        "dram.bandwidth" => {
            let sockets = f64::from(header.machine.topology.sockets.unwrap_or(1).max(1));
            let specified = header.platform.memory.bytes_per_second_max.known().map(|bytes| bytes / 1e9);
            let all = [
                (report.dram_max_gb_s, Basis::Given),
                (report.dram_measured_gb_s, Basis::Measured),
                (specified, Basis::Specification),
            ];
            all.into_iter().filter_map(|(most, basis)| Some((most? / sockets, basis))).collect()
        }
        _ => Vec::new(),
    }
}
