//! Interrupt handlers: runs and time of each, over all CPUs of the host.

use std::sync::Arc;

use super::{
    families::Families,
    family::{Family, Kind},
    host::Host,
};
use crate::metric::{
    TasksReport,
    interrupt::{HandlerSum, by_handler},
};

/// Adds runs and time of the handlers in an interval.
pub(super) fn add(host: &mut Host, families: &mut Families, report: &TasksReport) {
    let all = by_handler(&report.handlers);
    if all.is_empty() {
        return;
    }
    let help = "Times that an interrupt handler ran.";
    let runs_of = families.id(Family::own("pmbpf_interrupt_handler_runs", Kind::Counter, None, help));
    let help = "Time that an interrupt handler had the CPUs, without handlers that interrupted it.";
    let time = Family::own("pmbpf_interrupt_handler_time_seconds", Kind::Counter, Some("seconds"), help);
    let time_of = families.id(time);
    for HandlerSum { handler, called, runs, .. } in all {
        let labels = Arc::new(vec![("handler", called), ("type", handler.kind().to_owned())]);
        host.sum(families, (runs_of, Arc::clone(&labels)), runs.runs as f64);
        host.sum(families, (time_of, labels), runs.total_ns as f64 / 1e9);
    }
}
