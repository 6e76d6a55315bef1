//! Header row: the fields of all sources, then those of a single source.

use serde_json::{Value as Json, json};

use super::{
    super::{io::json as of_io, words},
    SCHEMA, extend,
};
use crate::{
    drain::{CountsHeader, Header, TasksHeader},
    machine::{Machine, cpu::format_list, duration_ns},
    plan::{
        Sampling,
        multiplexing::{EventGroup, Multiplexing, PlannedEvent},
        request::Descend,
    },
    table::{
        metric::{self, Metric},
        quantity::Quantity,
    },
    untrusted::Untrusted,
};

/// Returns the header row of a run.
pub(super) fn header(header: &Header) -> Json {
    let Header { tasks, io, counts, .. } = header;
    let (command, target, interval) = match (tasks, io, counts) {
        (Some(tasks), ..) => ("run", words::target(&tasks.plan), tasks.plan.interval),
        (_, Some(io), _) => ("io", io.plan.target_in_words(), io.plan.interval),
        (_, _, Some(counts)) => {
            let plan = &counts.plan;
            ("stat", plan.target.in_words(plan.inherit, Descend::Yes), plan.interval)
        }
        (None, None, None) => ("", String::new(), None),
    };
    let mut row = json!({
            "schema": SCHEMA, "kind": "header", "command": command, "version": header.version,
            "started": words::started_at(header.started_unix_ns), "target": target,
            "interval_ns": interval.map(duration_ns),
    });
    extend(&mut row, Some(of_machine(&header.machine)));
    extend(&mut row, io.as_ref().map(of_io::header));
    extend(&mut row, counts.as_ref().map(of_counts));
    extend(&mut row, tasks.as_ref().map(|tasks| of_tasks_only(&header.machine, tasks)));
    let groups: Vec<Json> = multiplexed(header).flat_map(groups).collect();
    if !groups.is_empty() {
        row["groups"] = groups.into();
    }
    row
}

/// Returns everything that counts its events in groups: core PMUs, then uncore PMUs by kind.
fn multiplexed(header: &Header) -> impl Iterator<Item = &Multiplexing> {
    let of_tasks = header.tasks.iter().flat_map(|tasks| &tasks.plan.turns);
    let of_io = header.io.iter().flat_map(|io| io.plan.kinds.iter().map(|kind| &kind.turns));
    of_tasks.chain(of_io)
}

/// Returns a cell per group: the events that are on the counters together.
fn groups(turns: &Multiplexing) -> impl Iterator<Item = Json> {
    let event = |event: &PlannedEvent| json!({"event": event.name, "type": event.kind, "config": event.words, "modes": event.modes});
    let group = move |(group, always): (&EventGroup, bool)| json!({"pmu": turns.pmu, "always": always, "events": group.events.iter().map(event).collect::<Vec<_>>()});
    let always = turns.always.iter().map(|group| (group, true));
    always.chain(turns.groups.iter().map(|group| (group, false))).map(group)
}

fn of_machine(machine: &Machine) -> Json {
    let Machine { host, kernel, cpu, .. } = machine;
    json!({"host": host, "kernel": kernel,
           "cpu": {"model": cpu.model, "online": cpu.online.len(), "guest": cpu.guest}})
}

fn of_counts(header: &CountsHeader) -> Json {
    json!({"cpus": format_list(&header.plan.cpus)})
}

fn of_tasks_only(machine: &Machine, header: &TasksHeader) -> Json {
    let plan = &header.plan;
    let pmus: Vec<&Untrusted> = machine.pmus.iter().map(|pmu| &pmu.name).collect();
    let is_told = |metric: &&Metric| match metric.family {
        metric::Family::OffCpu => !plan.off_cpu.is_no(),
        metric::Family::Interrupts => !plan.interrupts.is_no(),
        _ => true,
    };
    let told = metric::of_tasks().filter(is_told);
    let mut row = json!({
            "pmus": pmus, "cgroups": machine.cgroups.kind(),
            "started_monotonic_ns": header.started_ns, "by": words::by(plan), "cpus": words::cpus(plan),
            "sampling": plan.sampling.first().map(|sampling| json!({
                "event": sampling.event, "period": sampling.period, "frequency": sampling.frequency,
                "stacks": plan.stacks})),
            "late_min_ns": plan.late_min_ns, "gap_min_ns": plan.gap_min_ns,
            "attach": header.attach, "attach_refused": header.attach_refused,
            "metrics": told.map(|metric| json!({
                "name": metric.name, "unit": metric.unit.name(), "family": metric.family.name(),
                "parent": metric.parent, "says": metric.says})).collect::<Vec<_>>(),
    });
    if plan.samples_events() {
        row["sampling_events"] = plan.sampling.iter().map(event).collect();
    }
    if let Some(profile) = &plan.profile {
        row["config"] = json!({"name": profile, "lost": plan.lost});
    }
    row
}

fn event(sampling: &Sampling) -> Json {
    json!({
        "event": sampling.event, "measures": sampling.quantity.map(Quantity::name), "period": sampling.period,
        "type": sampling.kind, "config": sampling.config, "modes": sampling.modes,
        "precise": sampling.precision.as_ref().map(|precision| precision.level),
        "skid": words::skid(sampling),
    })
}
