//! Rows of the kernel's own counters of disks, interfaces and TCP.

use super::{
    Label, Row, Scope, Subject,
    traffic::{DIRECTIONS, row},
};
use crate::{
    drain::Owner,
    machine::network::{Packets, TcpCount},
    metric::value::{How, Known, Value},
    model::io::kernel::{DiskUse, KernelInterval},
    table::{
        metric::{self, Metric},
        unit::Unit,
    },
};

/// Resolution in ms of a disk's busy time: the kernel adds whole ticks, of 10 ms at most (HZ=100).
const TICK_MS: f64 = 10.0;
/// Note on the values of a target's own network namespace.
const OF_NAMESPACE: &str = "drops and retransmissions of an owner are those of its network namespace";

/// Returns rows of disks that had requests, then of interfaces that had packets and of TCP.
pub(super) fn rows(kernel: &KernelInterval) -> Vec<Row> {
    let mut rows: Vec<Row> = kernel.disks.values().flat_map(|disk| of_disk(disk, kernel)).collect();
    for (owner, network) in &kernel.networks {
        for (name, packets) in &network.interfaces {
            for (way, direction) in DIRECTIONS {
                let subject = of_whom(owner.as_ref(), Subject::Interface(name.clone(), direction));
                rows.extend(of_packets(&subject, packets[way]));
            }
        }
        rows.extend(of_tcp(&of_whom(owner.as_ref(), Subject::Scope(Scope::Platform)), network.tcp));
    }
    rows
}

fn of_whom(owner: Option<&Owner>, subject: Subject) -> Subject {
    match owner {
        Some(owner) => Subject::Owner(owner.clone(), Box::new(subject)),
        None => subject,
    }
}

/// Returns a row of a kernel counter, which counts for all owners. The row of a namespace has a note.
fn number(subject: &Subject, of: &Metric, value: Value) -> Row {
    let note = matches!(subject, Subject::Owner(..)).then(|| OF_NAMESPACE.to_owned());
    Row { note, ..row(subject, of, value, Label::System) }
}

fn of_disk(disk: &DiskUse, kernel: &KernelInterval) -> Vec<Row> {
    let length_ms = kernel.of_ns as f64 / 1e6;
    if length_ms == 0.0 || (disk.busy_ms, disk.queue_ms) == (0, 0) {
        return Vec::new();
    }
    let share = |busy_ms: f64| (100.0 * busy_ms / length_ms).clamp(0.0, Unit::Percent.most());
    let busy_ms = disk.busy_ms as f64;
    let busy = Known {
        estimate: share(busy_ms),
        low: share(busy_ms - TICK_MS),
        high: share(busy_ms + TICK_MS),
        coverage: 1.0,
        how: How::Counted,
    };
    let subject = Subject::Disk(disk.name.clone(), "all");
    let depth = Value::exact(disk.queue_ms as f64 / length_ms);
    vec![
        number(&subject, &metric::BLOCK_UTILIZATION, Value::Known(busy)),
        number(&subject, &metric::BLOCK_QUEUE_DEPTH, depth),
    ]
}

fn of_packets(subject: &Subject, packets: Packets) -> Vec<Row> {
    let Packets { packets, errors, dropped } = packets;
    if packets + errors + dropped == 0 {
        return Vec::new();
    }
    let share = 100.0 * dropped as f64 / (packets + dropped).max(1) as f64;
    vec![
        number(subject, &metric::NET_ERRORS, Value::exact(errors as f64)),
        number(subject, &metric::NET_DROPS, Value::exact(dropped as f64)),
        number(subject, &metric::NET_DROP_SHARE, Value::exact(share)),
    ]
}

fn of_tcp(subject: &Subject, tcp: TcpCount) -> Vec<Row> {
    let TcpCount { sent, retransmitted, listen_drops } = tcp;
    let all = sent.saturating_add(retransmitted);
    if (all, listen_drops) == (0, 0) {
        return Vec::new();
    }
    let share = 100.0 * retransmitted as f64 / all.max(1) as f64;
    vec![
        number(subject, &metric::NET_RETRANSMITTED, Value::exact(retransmitted as f64)),
        number(subject, &metric::NET_RETRANSMITTED_SHARE, Value::exact(share)),
        number(subject, &metric::NET_LISTEN_DROPS, Value::exact(listen_drops as f64)),
    ]
}
