//! Recordings of counts with products of claims: the claimed numbers may be long, and neither time nor memory
//! grows with a product of two.

use pmbpf::view::Format;
use serde_json::{Value, json};

use crate::{
    corpus::{Frames, report},
    cpu_seconds,
};

/// Number of items, more than any true recording has.
const MANY: usize = 16_000;
/// Maximum growth of CPU time for four times as many items. Quadratic growth would be 16.
const GROWTH_MAX: f64 = 8.0;

/// Returns the recording of counts after changes of its header's plan and its first reading.
fn changed(change: impl FnOnce(&mut Value, &mut Value)) -> Frames {
    let mut frames = Frames::all().swap_remove(1);
    let (header, drains) = frames.0.split_first_mut().unwrap();
    change(&mut header.1["counts"]["plan"], &mut drains[0].1["counts"]);
    frames
}

/// Returns the JSON rows of its report, and the messages.
fn rows(frames: &Frames) -> (Vec<Value>, String) {
    let (written, said) = report(frames.bytes(|_, _| {}), Format::Json);
    let rows = written.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    (rows.map(|row| serde_json::from_slice(row).unwrap()).collect(), said)
}

/// Asserts that CPU time grows in proportion between a recording with a quarter of [`MANY`] items and one
/// with all. Each has that many counts.
fn grows_in_proportion(having: impl Fn(usize) -> Frames) {
    let took = |many: usize| {
        let bytes = having(many).bytes(|_, _| {});
        let before = cpu_seconds();
        let (written, said) = report(bytes, Format::Json);
        let took = cpu_seconds() - before;
        let lines = str::from_utf8(&written).unwrap().lines();
        let counted = lines.filter(|line| line.contains("\"metric\":\"event.")).count();
        assert!(counted >= many, "{counted}: {said}");
        took
    };
    let (few, many) = (took(MANY / 4), took(MANY));
    assert!(many < few * GROWTH_MAX, "{few} s of CPU time, and {many} s for four times as many");
}

/// Returns the number of rows that are counts of an event.
fn counts(rows: &[Value]) -> usize {
    rows.iter().filter(|row| row["metric"].as_str().is_some_and(|name| name.starts_with("event."))).count()
}

#[test]
fn many_events_take_no_time_of_their_square() {
    grows_in_proportion(|many| {
        changed(|plan, drain| {
            let (event, reading) =
                (plan["groups"][0]["events"][0].clone(), drain["parts"][0]["readings"][0].clone());
            plan["target"] = json!("system");
            plan["groups"] = json!([{ "events": vec![event; many], "weak": false }]);
            plan["asked"] =
                (0..many).map(|at| json!({ "name": "cycles", "group": 0, "found": { "Ok": at } })).collect();
            let readings = (0..many).map(|at| {
                let mut reading = reading.clone();
                reading["index"] = at.into();
                reading
            });
            drain["parts"] = json!([{ "readings": readings.collect::<Vec<_>>(), "uncounted": [] }]);
        })
    });
}

#[test]
fn an_event_that_is_asked_for_again_and_again_has_one_row() {
    let plain = rows(&changed(|_, _| {})).0;
    let frames = changed(|plan, _| {
        let asked = plan["asked"].as_array_mut().unwrap();
        let last = asked[3].clone();
        asked.extend(vec![last; MANY]);
    });
    let (rows, said) = rows(&frames);
    assert_eq!(counts(&rows), counts(&plain), "{said}");
    assert!(counts(&rows) > 0);
}

#[test]
fn many_pmus_of_an_event_take_no_time_of_their_square() {
    grows_in_proportion(|many| {
        changed(|plan, drain| {
            let instance = plan["groups"][0]["events"][0]["instances"][0].clone();
            let named = |at: usize| {
                let mut instance = instance.clone();
                instance["pmu"] = format!("pmu{at}x").into();
                instance
            };
            plan["target"] = json!("system");
            plan["groups"][0]["events"][0]["instances"] = (0..many).map(named).collect();
            let reading = drain["parts"][0]["readings"][0].clone();
            let read = |at: usize| {
                let mut reading = reading.clone();
                reading["pmu"] = format!("pmu{at}x").into();
                reading
            };
            drain["parts"] =
                json!([{ "readings": (0..many).map(read).collect::<Vec<_>>(), "uncounted": [] }]);
        })
    });
}

#[test]
fn a_plan_whose_report_would_not_fit_in_memory_is_refused() {
    let frames = changed(|plan, drain| {
        plan["target"]["cgroups"] = (0..MANY).map(|id| json!({ "path": "/a", "id": id })).collect();
        let asked = json!({ "name": "cycles", "group": 0, "found": { "Err": "it has none" } });
        plan["asked"] = json!(vec![asked; MANY]);
        drain["parts"] = json!(vec![json!({ "readings": [], "uncounted": [] }); MANY]);
    });
    let (rows, said) = rows(&frames);
    assert!(rows.is_empty() && said.contains("takes too much memory"), "{said}");
}

#[test]
fn runs_beyond_those_of_the_plan_are_left_out() {
    let mut frames = changed(|plan, _| plan["runs"] = 3.into());
    let mut last = frames.0.iter().rfind(|(kind, _)| *kind == b's').unwrap().clone();
    last.1["counts"]["ended"] = json!({ "stopped": "target_gone", "workload": { "exited": 0 }, "duration": { "secs": 1, "nanos": 0 } });
    frames.0.truncate(1);
    frames.0.extend(vec![last; 100]);
    let (rows, said) = rows(&frames);
    let summary = rows.iter().find(|row| row["kind"] == "summary").unwrap();
    assert_eq!(summary["runs"], 3, "{said}: {summary}");
}
