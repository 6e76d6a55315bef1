//! Rows of the memory traffic of CPUs: of owners that have their own resctrl groups, and of groups without an
//! owner.
//!
//! The traffic is that of requests by cores. Reads and writes of devices belong to no group and stay in the
//! system's values.

use super::{Label, Row, Scope, Subject, latency::NO_TIME};
use crate::{
    drain::Absent,
    machine::io::resctrl::MonitoringEvent,
    metric::value::{How, Known, Value},
    model::io::groups::{Amount, GroupsInterval, OwnerOrGroup},
    table::metric::{self, Metric},
};

/// Returns the metric of an event.
const fn metric(event: MonitoringEvent) -> Metric {
    match event {
        MonitoringEvent::MbmTotalBytes => metric::DRAM_CPU_TOTAL_BW,
        MonitoringEvent::MbmLocalBytes => metric::DRAM_CPU_LOCAL_BW,
        MonitoringEvent::LlcOccupancy => metric::LLC_OCCUPANCY,
    }
}

/// Returns rows of every event, owners first.
pub(super) fn rows(interval: &GroupsInterval) -> Vec<Row> {
    let mut rows = Vec::new();
    for (whom, share) in &interval.shares {
        let (subject, label) = match whom {
            OwnerOrGroup::Owner(owner) => {
                let platform = Box::new(Subject::Scope(Scope::Platform));
                (Subject::Owner(owner.clone(), platform), Label::Measured)
            }
            OwnerOrGroup::Group(path) => (Subject::Group(path.clone()), Label::System),
        };
        let mut note = share.nobody.as_ref().map(|why| format!("{}: {why}", name(whom)));
        for (&event, amount) in &share.amounts {
            let Metric { name: metric, unit, .. } = metric(event);
            rows.push(Row {
                subject: subject.clone(),
                metric: metric.to_owned(),
                unit,
                value: value(event, amount, interval.duration_ns),
                distribution: None,
                label,
                // The note is shown once.
                note: note.take(),
            });
        }
    }
    rows
}

/// Returns the owners and groups with values for only a part of the interval, and the reason.
pub(super) fn missing(interval: &GroupsInterval) -> Vec<Absent> {
    let partial = interval.shares.iter().filter_map(|(whom, share)| {
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let all = interval.duration_ns;
        let gap = share.amounts.values().find(|amount| amount.watched_ns < all)?;
        let otherwise = match whom {
            OwnerOrGroup::Owner(_) => "the rest of the time it was in no group of its own",
            OwnerOrGroup::Group(_) => "the rest of the time it was an owner's, or not there",
        };
        let why = gap.why.as_deref().unwrap_or(otherwise);
        let watched = format!("known for {:.1} s of {:.1} s", seconds(gap.watched_ns), seconds(all));
        Some(Absent { what: format!("memory traffic of {}", name(whom)), why: format!("{watched}: {why}") })
    });
    partial.collect()
}

fn value(event: MonitoringEvent, amount: &Amount, duration_ns: u64) -> Value {
    if amount.watched_ns == 0 {
        return Value::Missing(amount.why.clone().unwrap_or_else(|| NO_TIME.to_owned()));
    }
    let (low, high) = (amount.bytes.0 as f64, amount.bytes.1 as f64);
    let coverage = (amount.watched_ns as f64 / duration_ns.max(1) as f64).min(1.0);
    let known = Known { estimate: f64::midpoint(low, high), low, high, coverage, how: How::Counted };
    match event {
        MonitoringEvent::LlcOccupancy => Value::Known(Known { coverage: 1.0, ..known.times(1e-6) }),
        MonitoringEvent::MbmTotalBytes | MonitoringEvent::MbmLocalBytes => {
            let how = if coverage < 1.0 { How::Scaled } else { How::Counted };
            Value::Known(Known { how, ..known.times(1e3 / amount.watched_ns as f64) })
        }
    }
}

fn name(whom: &OwnerOrGroup) -> String {
    match whom {
        OwnerOrGroup::Owner(owner) => owner.in_words(),
        OwnerOrGroup::Group(path) => format!("group {}", path.terminal()),
    }
}

#[cfg(test)]
mod tests {
    use super::{missing, rows};
    use crate::{
        drain::Owner,
        machine::io::resctrl::MonitoringEvent,
        metric::{
            io::{Label, Row},
            value::Value,
        },
        model::io::groups::{Amount, GroupsInterval, OwnerOrGroup, Share},
        untrusted::Untrusted,
    };

    /// Returns an interval of 4 s with one event of a cgroup.
    fn interval(event: MonitoringEvent, amount: Amount) -> GroupsInterval {
        let web = OwnerOrGroup::Owner(Owner::cgroup(7, Untrusted::from("/web")));
        let share = Share { amounts: [(event, amount)].into(), nobody: None };
        GroupsInterval { duration_ns: 4_000_000_000, shares: [(web, share)].into() }
    }

    fn one(event: MonitoringEvent, amount: Amount) -> Row {
        rows(&interval(event, amount)).remove(0)
    }

    #[test]
    fn traffic_is_a_rate_over_the_time_that_was_watched() {
        let amount = Amount { bytes: (1_900_000, 2_100_000), watched_ns: 2_000_000_000, why: None };
        let row = one(MonitoringEvent::MbmLocalBytes, amount);
        let known = *row.value.known().unwrap();
        assert_eq!(
            (row.metric.as_str(), row.unit.name(), row.label),
            ("dram.cpu_local_bw", "MB/s", Label::Measured)
        );
        assert_eq!((known.low, known.estimate, known.high, known.coverage), (0.95, 1.0, 1.05, 0.5));
    }

    #[test]
    fn what_was_never_known_is_missing_with_its_reason() {
        let amount = Amount { why: Some("its count went down".to_owned()), ..Amount::default() };
        let interval = interval(MonitoringEvent::MbmTotalBytes, amount);
        assert_eq!(rows(&interval)[0].value, Value::Missing("its count went down".to_owned()));
        let absent = missing(&interval).remove(0);
        assert_eq!(absent.what, "memory traffic of /web");
        assert_eq!(absent.why, "known for 0.0 s of 4.0 s: its count went down");
    }

    #[test]
    fn what_is_known_all_the_time_is_not_missing() {
        let amount = Amount { bytes: (5, 5), watched_ns: 4_000_000_000, why: None };
        assert_eq!(missing(&interval(MonitoringEvent::LlcOccupancy, amount)), []);
    }
}
