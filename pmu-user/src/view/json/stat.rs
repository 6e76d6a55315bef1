//! Counts as JSON: one object an interval (`count_interval`), one for the whole (`count`), one for a plan (`count_plan`).

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use super::{
    super::words,
    Number, SCHEMA,
    end::{known, stopped, workload},
    line,
};
use crate::{
    drain::tally::Ended,
    machine::{clock::duration_ns, cpu::format_list, pmu::catalog::Place},
    metric::{
        derived::Derived,
        repeat::Outlier,
        stat::{Row, Stat},
        value::Value,
    },
    plan::{count::CountPlan, request::Descend},
};

/// One interval.
pub(in crate::view) fn interval(into: &mut dyn Write, stat: &Stat) -> io::Result<()> {
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "count_interval", "t": duration_ns(stat.from), "dt": number(&stat.elapsed),
            "events": stat.rows.iter().map(event).collect::<Vec<_>>(),
        }),
    )
}

/// The whole.
pub(in crate::view) fn whole(
    into: &mut dyn Write,
    plan: &CountPlan,
    stat: &Stat,
    ended: &Ended,
) -> io::Result<()> {
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "count", "version": env!("CARGO_PKG_VERSION"),
            "target": plan.target.in_words(plan.inherit, Descend::Yes),
            "cpus": format_list(&plan.cpus), "runs": stat.runs,
            "events": stat.rows.iter().map(event).collect::<Vec<_>>(),
            "elapsed_ns": number(&stat.elapsed), "elapsed": known(&stat.elapsed),
            "user_ns": stat.user.as_ref().map(number), "system_ns": stat.system.as_ref().map(number),
            "outliers": stat.outliers.iter().map(outlier).collect::<Vec<_>>(),
            "left_out": plan.left_out, "stopped": stopped(ended.stopped),
            "workload": ended.workload.map(workload),
        }),
    )
}

fn number(value: &Value) -> Json {
    json!(value.known().map(|known| Number(known.estimate)))
}

fn event(row: &Row) -> Json {
    let mut event = json!({
        "event": row.event, "pmu": Some(&row.pmu).filter(|pmu| !pmu.is_empty()), "unit": row.unit,
        "status": words::row_status(row), "enabled_ns": row.enabled_ns, "running_ns": row.running_ns,
        "metric": row.derived.as_ref().map(derived),
    });
    let Some(fields) = event.as_object_mut() else { return event };
    if let Json::Object(value) = known(&row.value) {
        fields.extend(value);
    }
    if let Some(cgroup) = &row.cgroup {
        fields.insert("cgroup".to_owned(), json!(cgroup));
    }
    if row.of_runs.len() > 1 {
        fields.insert("of_runs".to_owned(), json!(row.of_runs.iter().map(number).collect::<Vec<_>>()));
    }
    if !row.uncounted.is_empty() {
        fields.insert("uncounted".to_owned(), json!(row.uncounted));
    }
    event
}

fn derived(derived: &Derived) -> Json {
    let mut metric = json!({"name": derived.name, "unit": derived.unit});
    if let (Some(fields), Json::Object(value)) = (metric.as_object_mut(), known(&derived.value)) {
        fields.extend(value);
    }
    metric
}

fn outlier(outlier: &Outlier) -> Json {
    json!({"run": outlier.run, "what": outlier.what, "unit": outlier.unit, "value": Number(outlier.value),
           "median": Number(outlier.median), "score": outlier.score})
}

/// What would be opened.
pub(in crate::view) fn plan(
    into: &mut dyn Write,
    plan: &CountPlan,
    counters: usize,
    needs: &str,
) -> io::Result<()> {
    let events: Vec<_> = plan.events().collect();
    let asked = plan.asked.iter().map(|asked| {
        let found = asked.found.as_ref().ok().and_then(|index| events.get(*index as usize));
        let places = found.map(|event| {
            let place = |at: &Place| match at {
                Place::Anywhere => Json::Null,
                Place::Cores(cpus) | Place::Box(cpus) => json!(format_list(cpus)),
            };
            let one = |at: &crate::table::notation::Instance| {
                json!({"pmu": at.pmu, "type": at.kind, "config": at.words.0, "cpus": place(&at.place)})
            };
            event.instances.iter().map(one).collect::<Vec<_>>()
        });
        json!({"event": asked.name, "group": asked.group, "places": places, "reason": asked.found.as_ref().err()})
    });
    let time = |time: Option<std::time::Duration>| time.map(duration_ns);
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "count_plan",
            "target": plan.target.in_words(plan.inherit, Descend::Yes),
            "cpus": format_list(&plan.cpus), "events": asked.collect::<Vec<_>>(), "runs": plan.runs,
            "interval_ns": time(plan.interval), "duration_ns": time(plan.duration),
            "counters": counters, "needs": needs, "left_out": plan.left_out,
        }),
    )
}
