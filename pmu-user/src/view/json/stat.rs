//! What counts without owners have as JSON beside numbers: what the summary adds, and a plan.

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use super::{Number, SCHEMA, line};
use crate::{
    machine::{cpu::format_list, duration_ns, pmu::catalog::PmuCpus},
    metric::{repeat::Outlier, stat::Stat},
    plan::{count::CountPlan, request::Descend},
};

/// What the summary has of counts alone.
pub(in crate::view) fn summary(stat: &Stat) -> Json {
    json!({"runs": stat.runs, "outliers": stat.outliers.iter().map(outlier).collect::<Vec<_>>()})
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
            let place = |at: &PmuCpus| match at {
                PmuCpus::Anywhere => Json::Null,
                PmuCpus::Cores(cpus) | PmuCpus::Uncore(cpus) => json!(format_list(cpus)),
            };
            let one = |at: &crate::table::event_syntax::Instance| {
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
