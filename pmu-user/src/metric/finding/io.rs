//! Findings on I/O.

use std::collections::BTreeMap;

use super::{
    Cause, Finding, exact,
    rules::{DEPTH_LEAST, PACKETS_LEAST, TAIL_COUNT, TRAFFIC_LEAST, TRANSLATIONS_LEAST},
};
use crate::{
    metric::{
        OwnerOrTarget,
        io::{IoReport, Row, Scope, Subject},
        value::Known,
    },
    table::{
        metric::{self, Metric},
        unit::Unit,
    },
};

/// Returns the findings, in no order.
pub(super) fn findings(report: &IoReport) -> Vec<Finding> {
    let of = |row: &Row| match row.metric.as_str() {
        name if name == metric::BLOCK_LATENCY.name => tail(report, row, Cause::BlockLatency),
        name if name == metric::BLOCK_QUEUE.name => tail(report, row, Cause::BlockQueue),
        name if name == metric::BLOCK_UTILIZATION.name => {
            let is_enough = |depth: &Known| depth.low >= DEPTH_LEAST;
            beside(report, row, &metric::BLOCK_QUEUE_DEPTH, is_enough, Cause::DiskSaturated)
        }
        name if name == metric::NET_DROP_SHARE.name => {
            beside(report, row, &metric::NET_DROPS, is_of_many, Cause::PacketDrops)
        }
        name if name == metric::NET_RETRANSMITTED_SHARE.name => {
            beside(report, row, &metric::NET_RETRANSMITTED, is_of_many, Cause::Retransmits)
        }
        name if name == metric::NET_LISTEN_DROPS.name => share(row, Cause::ListenDrops),
        name if name == metric::DRAM_UTILIZATION.name => share(row, Cause::Dram),
        name if name == metric::UPI_UTILIZATION.name => share(row, Cause::Upi),
        name if name == metric::LINK_UTILIZATION_TO_DEVICE.name => {
            link(report, row, &metric::LINK_UTILIZATION_FROM_DEVICE)
        }
        name if name == metric::LINK_UTILIZATION_FROM_DEVICE.name => {
            link(report, row, &metric::LINK_UTILIZATION_TO_DEVICE)
        }
        name if name == metric::DDIO_WRITE_L3_MISS.name => {
            let is_enough = |moved: &Known| moved.low > TRAFFIC_LEAST;
            beside(report, row, &metric::PCIE_INBOUND_WRITE_BW, is_enough, Cause::Ddio)
        }
        name if name == metric::VTD_IOTLB_MISS.name => {
            let is_enough = |rate: &Known| rate.low > TRANSLATIONS_LEAST;
            beside(report, row, &metric::VTD_TRANSLATION_RATE, is_enough, Cause::Iotlb)
        }
        name if name == metric::PCIE_INBOUND_READ_BW_REMOTE.name => {
            remote(report, row, &metric::PCIE_INBOUND_READ_BW)
        }
        name if name == metric::PCIE_INBOUND_WRITE_BW_REMOTE.name => {
            remote(report, row, &metric::PCIE_INBOUND_WRITE_BW)
        }
        _ => None,
    };
    narrowest(report.rows.iter().filter_map(of).collect())
}

/// Removes findings on a socket or the host that hold because they hold for a part of it: the part is more
/// specific.
fn narrowest(mut found: Vec<Finding>) -> Vec<Finding> {
    let width = |finding: &Finding| match finding.subject {
        Some(Subject::Scope(Scope::Platform)) => 2,
        Some(Subject::Scope(Scope::Socket(_))) => 1,
        _ => 0,
    };
    let mut least: BTreeMap<Cause, u8> = BTreeMap::new();
    for finding in &found {
        let least = least.entry(finding.rule.cause).or_insert(u8::MAX);
        *least = (*least).min(width(finding));
    }
    found.retain(|finding| least[&finding.rule.cause] == width(finding));
    found
}

/// Returns the finding on a percentile of a disk's latency, with the owner of most of its requests.
fn tail(report: &IoReport, row: &Row, cause: Cause) -> Option<Finding> {
    let (Subject::Disk(..), Some(found)) = (&row.subject, &row.distribution) else { return None };
    if found.count() < TAIL_COUNT {
        return None;
    }
    let mut finding = Finding::of(cause, found.quantile(0.99))?
        .about(&row.subject)
        .resting_on("block.requests", Unit::Requests, exact(found.count() as f64))
        .resting_on(&format!("{}.p50", row.metric), Unit::Ns, found.quantile(0.5));
    let most = report.rows.iter().filter(|other| other.metric == row.metric).filter_map(|other| {
        let Subject::Owner(_, of) = &other.subject else { return None };
        let count = other.distribution.as_ref().filter(|_| **of == row.subject)?.count();
        Some((count, other))
    });
    if let Some((count, Row { subject: Subject::Owner(owner, _), .. })) = most.max_by_key(|(count, _)| *count)
    {
        finding = finding.resting_on("block.requests.most", Unit::Requests, exact(count as f64));
        if let Some(evidence) = finding.evidence.last_mut() {
            evidence.whose = Some(OwnerOrTarget::Owner(owner.clone()));
        }
    }
    Some(finding)
}

/// Returns the finding on a share that needs no further condition.
fn share(row: &Row, cause: Cause) -> Option<Finding> {
    Some(Finding::of(cause, *row.value.known()?)?.about(&row.subject))
}

/// Returns the finding on a share of something, if there is enough of it.
fn beside(
    report: &IoReport,
    row: &Row,
    of: &Metric,
    is_enough: impl Fn(&Known) -> bool,
    cause: Cause,
) -> Option<Finding> {
    // Some hosts have thousands of interfaces: their other numbers are only looked up where a rule may hold.
    let finding = share(row, cause)?;
    let whole = value(report, of, &row.subject).filter(|whole| is_enough(whole))?;
    Some(finding.resting_on(of.name, of.unit, *whole))
}

/// Returns whether there are enough packets for a share of them to be significant.
const fn is_of_many(packets: &Known) -> bool {
    packets.low >= PACKETS_LEAST
}

/// Returns the finding on the fuller direction of a link: one direction is full while both together are half
/// used.
fn link(report: &IoReport, row: &Row, other: &Metric) -> Option<Finding> {
    let mut finding = share(row, Cause::Link)?;
    finding.metric.clone_from(&row.metric);
    let Some(back) = value(report, other, &row.subject) else { return Some(finding) };
    let is_fuller =
        finding.value.estimate.total_cmp(&back.estimate).then_with(|| row.metric.as_str().cmp(other.name));
    is_fuller.is_gt().then(|| finding.resting_on(other.name, other.unit, *back))
}

/// Returns the finding on the share of a device's traffic that goes to another node.
fn remote(report: &IoReport, row: &Row, of: &Metric) -> Option<Finding> {
    let whole = value(report, of, &row.subject).filter(|whole| whole.low > TRAFFIC_LEAST)?;
    let part = row.value.known()?;
    let share = |part: f64, whole: f64| (100.0 * part / whole).min(100.0);
    let known = Known {
        estimate: share(part.estimate, whole.estimate),
        low: share(part.low, whole.high),
        high: share(part.high, whole.low),
        ..*part
    };
    let finding = Finding::of(Cause::RemoteDevice, known)?.about(&row.subject);
    Some(finding.resting_on(&row.metric, row.unit, *part).resting_on(of.name, of.unit, *whole))
}

/// Returns the number of a metric and a subject.
fn value<'r>(report: &'r IoReport, of: &Metric, subject: &Subject) -> Option<&'r Known> {
    let mut rows = report.rows.iter().filter(|row| row.metric == of.name && row.subject == *subject);
    rows.next()?.value.known()
}

#[cfg(test)]
mod tests {
    use crate::{
        drain::{
            Header,
            io::testing::{linked, steady},
        },
        metric::{
            Report,
            finding::{Cause, findings},
            testing::io_report,
        },
    };

    /// Returns the causes and metrics found where a card writes and reads these MB/s of memory, over a link
    /// of 8 GB/s.
    fn found(written_mb_s: u64, read_mb_s: u64) -> Vec<(Cause, String, f64)> {
        let header = linked();
        let rate = |mb_s: u64| mb_s * 1_000_000 / 4;
        let rates =
            [("OF_CPU.MEM_WRITE.PART1", rate(written_mb_s)), ("OF_CPU.MEM_READ.PART1", rate(read_mb_s))];
        let io = Some(io_report(&header, steady(&header, 3, &rates)));
        let found = findings(&Header::from(header.clone()), &Report { io, ..Report::default() });
        found
            .into_iter()
            .map(|found| (found.rule.cause, found.metric, found.value.estimate.round()))
            .collect()
    }

    #[test]
    fn a_link_that_is_full_one_way_is_found_though_the_other_way_is_free() {
        assert_eq!(found(6_000, 6_000), []);
        let full = |way: &str, share| (Cause::Link, format!("link.utilization.{way}"), share);
        assert_eq!(found(7_200, 100), [full("from_device", 90.0)]);
        assert_eq!(found(100, 6_800), [full("to_device", 85.0)]);
        assert_eq!(found(7_600, 6_800), [full("from_device", 95.0)]);
    }
}
