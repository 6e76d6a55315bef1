//! The most that there can be of a bandwidth, from whoever says so.

use super::{Place, Row, Subject, levels::Basis};
use crate::{
    drain::io::IoHeader,
    metric::value::Value,
    table::metric::{self, Metric},
};

/// What is known about the most of a bandwidth of one socket, in its unit. Sockets are taken to have equal shares.
#[must_use]
pub(super) fn maxima(header: &IoHeader, name: &str) -> Vec<(f64, Basis)> {
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

/// Rows of memory's bandwidth → rows of how much of the most that is, for sockets and everything.
#[must_use]
pub(super) fn utilization(rows: &[Row], header: &IoHeader) -> Vec<Row> {
    let known = maxima(header, "dram.bandwidth");
    let best = known.iter().max_by_key(|(_, basis)| *basis);
    let sockets = f64::from(header.machine.topology.sockets.unwrap_or(1).max(1));
    let row = |row: &Row| {
        let times = match row.subject {
            Subject::Place(Place::Socket(_)) => 1.0,
            Subject::Place(Place::Platform) => sockets,
            _ => return None,
        };
        let (value, note) = match (best, &row.value) {
            (Some((most, basis)), Value::Known(bandwidth)) => {
                let most = most * times;
                let note = format!("of {most:.1} GB/s ({})", basis.name());
                (Value::Known(bandwidth.times(100.0 / most)), Some(note))
            }
            (None, Value::Known(_)) => {
                let why =
                    "the most that memory can carry is not known; give --dram-max or --measure-max-bandwidth";
                (Value::Missing(why.to_owned()), None)
            }
            (_, missing) => (missing.clone(), None),
        };
        let Metric { name, unit, .. } = metric::DRAM_UTILIZATION;
        Some(Row { metric: name.to_owned(), unit, value, note, ..row.clone() })
    };
    rows.iter().filter(|row| row.metric == metric::DRAM_BW.name).filter_map(row).collect()
}
