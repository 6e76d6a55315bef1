//! Measurements that are missing because they were stopped to keep to the budget.

use crate::{
    drain::{Absent, Shed, TasksHeader, Work},
    model::Interval,
};

/// Returns the reason why numbers of `work` are missing: it was stopped before the interval ended. `None` if
/// it continued.
pub(super) fn why(header: &TasksHeader, interval: &Interval, work: Work) -> Option<String> {
    interval.stopped(work).map(|shed| format!("stopped {}", circumstances(header, shed)))
}

/// Returns the work that was stopped before the interval ended, as missing measurements.
pub fn missing(header: &TasksHeader, interval: &Interval) -> Vec<Absent> {
    let absent = |shed: &Shed| {
        let circumstances = circumstances(header, shed);
        match shed.work {
            Some(work) => Absent { what: work.name().to_owned(), why: format!("stopped {circumstances}") },
            None => Absent {
                what: "a cost within the budget".to_owned(),
                why: format!("nothing was left to be stopped {circumstances}"),
            },
        }
    };
    interval.shed.iter().map(absent).collect()
}

/// Returns the time of the stop, and the cost that led to it.
fn circumstances(header: &TasksHeader, shed: &Shed) -> String {
    let percent =
        |share: f64| format!("{:.3}", share * 100.0).trim_end_matches('0').trim_end_matches('.').to_owned();
    let took = format!("pmbpf took {:.2} % of the CPUs", shed.share * 100.0);
    let of = header
        .plan
        .budget
        .map_or_else(String::new, |budget| format!(", of a budget of {} %", percent(budget)));
    format!("after {:.1} s: {took}{of}", shed.at_ns as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use pmu_common::histogram::RUNQUEUE;

    use super::{Shed, Work, missing};
    use crate::{
        metric::{
            TasksReport,
            testing::{LENGTH_NS, machine, with_late_ticks},
        },
        model::{Interval, histogram::Histogram},
        plan::{Target, request::Interrupts},
        table::metric,
    };

    /// Returns whether an owner has run-queue latency, and numbers of samples and handlers, where `shed` was
    /// stopped.
    fn has(shed: &[Shed]) -> (bool, bool, bool) {
        let (mut header, ledger, mut interval) = with_late_ticks(Target::System, 2, 0);
        header.plan.interrupts = Interrupts::Yes;
        header.plan.budget = Some(0.01);
        for counts in interval.owners.values_mut() {
            counts.waits = Histogram::between(RUNQUEUE, &[], &[(3_u8, 7)]);
        }
        shed.clone_into(&mut interval.shed);
        let report = TasksReport::new(&machine(), &header, &ledger, &interval, &[]);
        for owner in report.owners.iter().chain([&report.total]) {
            assert!(owner.value(&metric::CPU_TIME).is_some(), "CPU time is never stopped");
        }
        let total = &report.total;
        assert_eq!(report.interrupted_by.is_some(), total.value(&metric::INTERRUPTS_TIME).is_some());
        assert_eq!(report.blind.handled.is_some(), report.interrupted_by.is_some());
        (
            total.waits.is_ok(),
            total.value(&metric::SAMPLES).is_some(),
            total.value(&metric::INTERRUPTS_TIME).is_some(),
        )
    }

    #[test]
    fn what_was_stopped_before_the_end_has_no_numbers() {
        let stopped = |work| Shed { work, at_ns: LENGTH_NS / 2, share: 0.016 };
        assert_eq!(has(&[]), (true, true, true));
        assert_eq!(has(&[stopped(Some(Work::Interrupts))]), (true, true, false));
        let two = [stopped(Some(Work::Interrupts)), stopped(Some(Work::Samples))];
        assert_eq!(has(&two), (true, false, false));
        assert_eq!(has(&[stopped(Some(Work::RunqueueLatency))]), (false, true, true));
        assert_eq!(has(&[stopped(None)]), (true, true, true));
    }

    #[test]
    fn samples_are_expected_as_long_as_they_were_taken() {
        let expected = |shed: Vec<Shed>| {
            let (header, ledger, mut interval) = with_late_ticks(Target::System, 2, 0);
            interval.shed = shed;
            let report = TasksReport::new(&machine(), &header, &ledger, &interval, &[]);
            report.quality.samples[0].expected.unwrap()
        };
        let stopped = |at_ns| vec![Shed { work: Some(Work::Samples), at_ns, share: 0.016 }];
        let all = expected(Vec::new());
        assert!(expected(stopped(LENGTH_NS / 2)).abs_diff(all / 2) <= 2);
        // Before the interval began, and in a corrupt recording.
        assert_eq!((expected(stopped(0)), expected(stopped(u64::MAX))), (0, all));
    }

    #[test]
    fn it_is_said_when_and_why() {
        let (mut header, _, _) = with_late_ticks(Target::System, 1, 0);
        header.plan.budget = Some(0.005);
        let shed = [(Some(Work::Samples), 12_040_000_000, 0.0163), (None, 14_000_000_000, 0.0101)];
        let shed = shed.map(|(work, at_ns, share)| Shed { work, at_ns, share }).to_vec();
        let said: Vec<String> = missing(&header, &Interval { shed, ..Interval::default() })
            .into_iter()
            .map(|absent| format!("{}: {}", absent.what, absent.why))
            .collect();
        assert_eq!(
            said,
            [
                "samples: stopped after 12.0 s: pmbpf took 1.63 % of the CPUs, of a budget of 0.5 %",
                "a cost within the budget: nothing was left to be stopped after 14.0 s: pmbpf took 1.01 % of the CPUs, of a budget of 0.5 %",
            ]
        );
    }
}
