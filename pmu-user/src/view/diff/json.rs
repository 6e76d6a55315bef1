//! A comparison as NDJSON: `diff_header`, a `difference` for each number, `only`, `diff_summary`.

use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

use super::{Comparison, SIDES, metric};
use crate::{
    metric::diff::{
        Bounded, Condition, Difference, Estimate, Facts, LEVEL, METHOD, Only, Outcome, Recorded, What, Whose,
        interval, unit_of,
    },
    untrusted::Untrusted,
    view::json::{Number, SCHEMA, SubjectCell, frame, line},
};

pub(super) fn write(into: &mut dyn Write, all: &Comparison<'_>) -> io::Result<()> {
    line(into, &header(all))?;
    for difference in &all.diff.differences {
        line(into, &row(difference))?;
    }
    for one in &all.diff.only {
        line(into, &only(one))?;
    }
    let diff = all.diff;
    let compared = diff.compared();
    line(
        into,
        &json!({"schema": SCHEMA, "kind": "diff_summary", "compared": compared,
                "untested": diff.differences.len() - compared, "rare": diff.rare, "significant": diff.significant(),
                "uncorrected": diff.uncorrected(), "level": LEVEL, "correction": METHOD}),
    )
}

fn header(all: &Comparison<'_>) -> Json {
    let side = |at: usize| {
        let each = all.sides[at].iter().zip(all.facts[at]);
        json!({"side": SIDES[at], "recordings": each.map(recording).collect::<Vec<_>>()})
    };
    let condition = |one: &Condition| {
        let [a, b] = &one.sides;
        json!({"what": one.what, "a": a, "b": b, "limits": one.limits})
    };
    let variation = if all.has_groups() { "between_runs" } else { "within_run" };
    json!({"schema": SCHEMA, "kind": "diff_header", "version": env!("CARGO_PKG_VERSION"), "sides": [side(0), side(1)],
           "conditions": all.conditions.iter().map(condition).collect::<Vec<_>>(), "variation": variation,
           "level": LEVEL, "correction": METHOD})
}

fn recording((one, facts): (&Recorded, &Facts)) -> Json {
    let fact = |name: &str| facts.get(name);
    json!({"name": Untrusted::from(one.name.as_str()), "duration_ns": (one.seconds * 1e9) as u64,
           "ticks": one.parts, "ended": one.ended, "host": fact("host"), "kernel": fact("kernel"),
           "cpu": fact("cpu"), "target": fact("target")})
}

fn owner(whose: &Whose) -> Json {
    let name = &whose.name;
    match whose.kind {
        "host" => Json::Null,
        "cgroup" => {
            let last = name.as_bytes().rsplit(|&byte| byte == b'/').next().filter(|last| !last.is_empty());
            let last = last.map_or_else(|| Untrusted::from("/"), Untrusted::new);
            json!({"kind": whose.kind, "name": last, "path": name})
        }
        kind => json!({"kind": kind, "name": name}),
    }
}

fn bounded(bounded: &Bounded) -> Json {
    json!({"value": Number(bounded.value), "low": Number(bounded.low), "high": Number(bounded.high)})
}

/// Returns the number of a side, with its interval where its variation is known.
fn side(side: Option<&Estimate>) -> Json {
    match side {
        None => Json::Null,
        Some(estimate) => interval(estimate)
            .map_or_else(|| json!({"value": Number(estimate.value)}), |interval| bounded(&interval)),
    }
}

fn row(difference: &Difference) -> Json {
    let key = &difference.key;
    let mut row = Map::new();
    let mut put = |name: &str, value: Json| drop(row.insert(name.to_owned(), value));
    put("schema", json!(SCHEMA));
    put("kind", json!("difference"));
    put("owner", owner(&key.whose));
    if let Some(subject) = &key.subject {
        put("subject", json!(SubjectCell(subject)));
    }
    put("metric", json!(Untrusted::from(metric(difference))));
    if let Some(event) = &key.event {
        put("parent", json!(Untrusted::from(format!("event.{event}").as_str())));
    }
    match &key.what {
        What::Metric(_) => {}
        What::Culprit(who) => put("culprit", owner(who)),
        What::Function(at, kernel) => {
            put("frame", frame(at));
            put("mode", json!(if *kernel { "kernel" } else { "user" }));
        }
        What::Stack(frames) => put("frames", json!(frames.iter().map(frame).collect::<Vec<_>>())),
    }
    put("unit", json!(unit_of(difference)));
    put("basis", json!(difference.basis.name()));
    put("a", side(difference.sides[0].as_ref()));
    put("b", side(difference.sides[1].as_ref()));
    put("significant", json!(difference.is_significant()));
    match &difference.outcome {
        Outcome::Untested(why) => {
            put("status", json!("untested"));
            put("reason", json!(why));
        }
        Outcome::Tested(tested) => {
            put("status", json!("tested"));
            put("difference", bounded(&tested.difference));
            put("relative", tested.relative.as_ref().map_or(Json::Null, bounded));
            put("p", json!(tested.p));
            put("p_adjusted", json!(tested.p_adjusted));
            put("freedom", json!(tested.freedom));
        }
    }
    Json::Object(row)
}

fn only(only: &Only) -> Json {
    let metrics: Vec<Untrusted> = only.metrics.iter().map(|metric| metric.as_str().into()).collect();
    json!({"schema": SCHEMA, "kind": "only", "side": SIDES[only.side], "owner": owner(&only.whose),
           "metrics": metrics, "cpu_time_ns": only.cpu_time_ns.map(|time| time as u64)})
}
