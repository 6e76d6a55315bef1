//! Interrupt handlers: the time that each had the CPUs, and the owners that it interrupted.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{shed, value::Value};
use crate::{
    drain::{Handler, TasksHeader, Work},
    machine::cpu::Cpu,
    model::{Counts, HandlerRuns, Interval, Ledger},
    plan::request::Interrupts,
    table::metric::{self, Metric},
    untrusted::Untrusted,
};

/// Runs of one handler on one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerReport {
    /// CPU of the runs.
    pub cpu: Cpu,
    /// Handler of the runs.
    pub handler: Handler,
    /// Name of a line, as given by drivers.
    pub name: Option<Untrusted>,
    /// Runs that ended.
    pub runs: HandlerRuns,
}

impl HandlerReport {
    /// Returns the name, escaped for a terminal: a line by its drivers' name, with its number.
    #[must_use]
    pub fn called(&self) -> String {
        called(self.handler, self.name.as_ref())
    }
}

/// Returns the name of a handler: a line by its drivers' name, with its number.
pub(super) fn called(handler: Handler, name: Option<&Untrusted>) -> String {
    let own = handler.name();
    name.map_or_else(|| own.clone(), |name| format!("{} ({own})", name.terminal()))
}

/// Runs of one handler on all CPUs.
#[derive(Clone, Debug)]
pub struct HandlerSum {
    /// Handler of the runs.
    pub handler: Handler,
    /// Name of the handler, escaped for a terminal.
    pub called: String,
    /// Runs that ended.
    pub runs: HandlerRuns,
    /// CPU on which it had most time.
    pub most_on: Cpu,
}

/// Returns handlers on all CPUs, those with most time first, of rows in that order.
#[must_use]
pub fn by_handler(rows: &[HandlerReport]) -> Vec<HandlerSum> {
    let mut all: BTreeMap<Handler, HandlerSum> = BTreeMap::new();
    for row in rows {
        let sum = all.entry(row.handler).or_insert_with(|| HandlerSum {
            handler: row.handler,
            called: row.called(),
            runs: HandlerRuns::default(),
            most_on: row.cpu,
        });
        sum.runs.merge(&row.runs);
    }
    let mut all: Vec<HandlerSum> = all.into_values().collect();
    all.sort_by_key(|sum| Reverse(sum.runs.total_ns));
    all
}

/// Time of handlers on all CPUs by the interrupted task, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterruptedBy {
    /// Time of all handlers.
    pub time_ns: u64,
    /// Part of it in which they interrupted the idle task.
    pub idle_ns: u64,
    /// Part of it in which they interrupted tasks without an owner.
    pub others_ns: u64,
    /// Number of runs that were lost: their begin and end did not match.
    pub missed: u64,
}

/// Returns the handlers of an interval, those with most time first; empty where they were stopped.
pub(super) fn handlers(ledger: &Ledger, interval: &Interval) -> Vec<HandlerReport> {
    // Counts up to the stop do not cover the interval.
    if interval.stopped(Work::Interrupts).is_some() {
        return Vec::new();
    }
    let mut handlers: Vec<HandlerReport> = interval
        .handlers
        .iter()
        .filter(|(_, runs)| runs.runs > 0)
        .map(|(&(cpu, handler), &runs)| HandlerReport {
            cpu,
            handler,
            name: ledger.handler_name(handler).cloned(),
            runs,
        })
        .collect();
    handlers.sort_by_key(|report| (Reverse(report.runs.total_ns), report.handler, report.cpu));
    handlers
}

/// Returns the time of handlers by the interrupted task; `None` where handlers are not counted.
pub(super) fn interrupted_by(header: &TasksHeader, interval: &Interval) -> Option<InterruptedBy> {
    if header.plan.interrupts.is_no() || interval.stopped(Work::Interrupts).is_some() {
        return None;
    }
    let all = interval.handlers.values().map(|runs| runs.total_ns);
    let mut sum = InterruptedBy { time_ns: all.fold(0, u64::saturating_add), ..InterruptedBy::default() };
    for spare in interval.spare_interrupts.values() {
        sum.idle_ns = sum.idle_ns.saturating_add(spare.idle_ns);
        sum.others_ns = sum.others_ns.saturating_add(spare.others_ns);
        sum.missed = sum.missed.saturating_add(spare.missed);
    }
    Some(sum)
}

/// Returns the metrics that a plan has.
pub(super) const fn wanted(wanted: Interrupts) -> &'static [Metric] {
    match wanted {
        Interrupts::Yes => &metric::INTERRUPTS,
        Interrupts::No => &[],
    }
}

/// Returns whether the kernel leaves the time of handlers out of that of tasks (CONFIG_IRQ_TIME_ACCOUNTING).
pub(super) fn are_left_out(interval: &Interval) -> bool {
    let mut times = interval.cpus.values().filter_map(|counts| counts.time);
    times.any(|time| time.interrupts_ns.is_some())
}

/// Returns the metrics of [`wanted`] with their values, of an owner with this CPU time.
pub(super) fn metrics(
    (header, interval): (&TasksHeader, &Interval),
    counts: &Counts,
    cpu_time: &Value,
    coverage: f64,
) -> Vec<(Metric, Value)> {
    if header.plan.interrupts.is_no() {
        return Vec::new();
    }
    if let Some(why) = shed::why(header, interval, Work::Interrupts) {
        return metric::INTERRUPTS.map(|metric| (metric, Value::Missing(why.clone()))).to_vec();
    }
    let interrupted = counts.interrupted;
    let taken_ns = if are_left_out(interval) { 0.0 } else { interrupted.all_ns() as f64 };
    let mut without = cpu_time.clone();
    if let Value::Known(known) = &mut without {
        for end in [&mut known.estimate, &mut known.low, &mut known.high] {
            *end = (*end - taken_ns).max(0.0);
        }
    }
    vec![
        (metric::INTERRUPTS_TIME, Value::counted(interrupted.all_ns(), coverage)),
        (metric::INTERRUPTS_HARD, Value::counted(interrupted.hard_ns, coverage)),
        (metric::INTERRUPTS_SOFT, Value::counted(interrupted.soft_ns, coverage)),
        (metric::INTERRUPTS_WITHOUT, without),
    ]
}

#[cfg(test)]
mod tests {
    use super::{HandlerReport, by_handler, metric, metrics};
    use crate::{
        drain::Handler,
        machine::cpu::Cpu,
        metric::{
            testing::with_late_ticks,
            value::{How, Known, Value},
        },
        model::{Counts, CpuCounts, CpuTime, HandlerRuns, Interrupted},
        plan::{Target, request::Interrupts},
    };

    #[test]
    fn the_handler_with_most_time_has_it_on_all_cpus_together() {
        let row = |cpu, handler, total_ns| HandlerReport {
            cpu: Cpu(cpu),
            handler,
            name: None,
            runs: HandlerRuns { runs: 1, total_ns, longest_ns: total_ns },
        };
        let (line, softirq) = (Handler::Line(9), Handler::Softirq(3));
        let sums = by_handler(&[row(0, line, 12), row(1, softirq, 11), row(0, softirq, 10)]);
        let told: Vec<_> = sums.iter().map(|sum| (sum.handler, sum.runs.total_ns, sum.most_on)).collect();
        assert_eq!(told, [(softirq, 21, Cpu(1)), (line, 12, Cpu(0))]);
    }

    #[test]
    fn time_of_handlers_is_taken_from_cpu_time_unless_the_kernel_has_done_so() {
        let (mut header, _, mut interval) = with_late_ticks(Target::System, 1, 0);
        let interrupted = Interrupted { hard_ns: 30, soft_ns: 12 };
        let counts = Counts { interrupted, ..Counts::default() };
        let cpu = Known { estimate: 100.0, low: 20.0, high: 180.0, coverage: 1.0, how: How::Counted };
        let of = |header: &_, interval: &_| metrics((header, interval), &counts, &Value::Known(cpu), 1.0);
        assert_eq!(of(&header, &interval), []);
        header.plan.interrupts = Interrupts::Yes;
        let values = of(&header, &interval);
        assert!(values.iter().map(|(metric, _)| metric).eq(&metric::INTERRUPTS));
        let estimates = |values: &[(_, Value)]| -> Vec<f64> {
            values.iter().map(|(_, value)| value.known().unwrap().estimate).collect()
        };
        assert_eq!(estimates(&values), [42.0, 30.0, 12.0, 58.0]);
        assert!(values[3].1.known().unwrap().low.abs() < 1e-9, "no time is below zero");
        let time = CpuTime { interrupts_ns: Some(42), ..CpuTime::default() };
        interval.cpus.values_mut().for_each(|counts: &mut CpuCounts| counts.time = Some(time));
        assert_eq!(estimates(&of(&header, &interval)), [42.0, 30.0, 12.0, 100.0]);
    }
}
