//! Sections on what was measured, what was found, how it was done, and what could not be measured.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::{
    cells::{TAIL, head, show, text},
    rows::Rows,
};
use crate::view::{text::duration, words};

/// Returns a field as text, empty if it is missing.
fn field<'a>(row: &'a Json, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_default()
}

/// Appends the title of the page.
pub(super) fn title(rows: &Rows, into: &mut String) {
    let (target, host) = (field(&rows.header, "target"), field(&rows.header, "host"));
    let _ = write!(into, "{} on {} – pmbpf", text(target), text(host));
}

/// Appends the place, the start and the length of the run, and whether anything is wrong with it.
pub(super) fn header(rows: &Rows, into: &mut String) {
    let (header, summary) = (&rows.header, &rows.summary);
    let cpu = &header["cpu"];
    let cpus = cpu["online"].as_u64().unwrap_or_default();
    let guest = if cpu["guest"] == true { ", a virtual machine" } else { "" };
    let length = summary["duration_ns"].as_f64().map_or_else(|| "not known".to_owned(), duration);
    let _ = write!(into, "<h1>{}</h1><dl class=\"facts\">", text(field(header, "target")));
    let mut fact = |name: &str, value: &str| {
        let _ = write!(into, "<div><dt>{name}</dt><dd>{}</dd></div>", text(value));
    };
    fact("host", &format!("{}, Linux {}", field(header, "host"), field(header, "kernel")));
    fact("processor", &format!("{}, {cpus} CPUs{guest}", field(cpu, "model")));
    fact("began", field(header, "started"));
    fact("lasted", &length);
    if let Some(span) = summary["span"]["from_ns"].as_u64().zip(summary["span"]["to_ns"].as_u64()) {
        fact("span", &words::span(span));
    }
    fact("command", &command(rows));
    if let Some(took) = took(&summary["workload"]) {
        fact("took", &took);
    }
    fact("lost", &losses(rows));
    into.push_str("</dl>");
    if summary["complete"] == false {
        into.push_str("<p class=\"alarm\"><strong>Incomplete:</strong> the recording breaks off; what follows is of its beginning.</p>");
    }
}

/// Returns the times of a command, as time(1) reports them.
fn took(workload: &Json) -> Option<String> {
    let times = [("elapsed_ns", "elapsed"), ("user_ns", "user"), ("system_ns", "system")];
    let times = times
        .iter()
        .filter_map(|(name, what)| Some(format!("{} {what}", duration(workload[name].as_f64()?))));
    let times: Vec<String> = times.collect();
    (!times.is_empty()).then(|| times.join(", "))
}

/// Returns how the run was measured and how it ended, in words.
fn command(rows: &Rows) -> String {
    let summary = &rows.summary;
    let workload = &summary["workload"];
    let end = match (workload["exit"].as_i64(), workload["signal"].as_str(), summary["stopped"].as_str()) {
        (Some(0), ..) => "the command ended well".to_owned(),
        (Some(code), ..) => format!("the command ended with {code}"),
        (_, Some(signal), _) => format!("the command was ended by {signal}"),
        (.., Some("duration")) => "ended after its time".to_owned(),
        (.., Some("target_gone")) => "the target was gone".to_owned(),
        (.., Some("truncated")) => "broke off".to_owned(),
        (.., Some(signal)) => format!("ended by {signal}"),
        _ => "no end is known".to_owned(),
    };
    let version = field(&rows.header, "version");
    format!("pmbpf {}, {end}; counted by pmbpf {version}", field(&rows.header, "command"))
}

fn losses(rows: &Rows) -> String {
    let losses = rows.summary["losses"].as_object();
    let lost: Vec<String> = losses
        .into_iter()
        .flatten()
        .filter(|(_, count)| count.as_u64() != Some(0))
        .map(|(reason, count)| format!("{} {count}", reason.replace('_', " ")))
        .collect();
    if lost.is_empty() { "nothing".to_owned() } else { lost.join(", ") }
}

/// Appends the findings, most important first.
pub(super) fn findings(rows: &Rows, into: &mut String) {
    if rows.findings.is_empty() {
        into.push_str("<p class=\"quiet\">There are no findings. The sections below have the numbers.</p>");
        return;
    }
    into.push_str("<ol class=\"findings\">");
    let mut rows = rows.findings.iter().peekable();
    while let Some(row) = rows.next() {
        let _ = write!(into, "<li><p class=\"says\">{}</p><p class=\"evidence\">", text(field(row, "says")));
        let unit = field(row, "unit");
        let bound = |name: &str| row[name].as_f64().map(|value| text(&show(value, unit)));
        if let Some(value) = bound("value") {
            let _ = write!(into, "<code>{}</code> {value}", text(field(row, "metric")));
        }
        if let (Some(low), Some(high)) = (bound("low"), bound("high")) {
            let _ = write!(into, " <small>[{low} – {high}]</small>");
        }
        if let Some(threshold) = &row.get("threshold").filter(|threshold| !threshold.is_null()) {
            let limit = threshold.as_f64().map(|limit| show(limit, unit));
            let limit = limit.unwrap_or_else(|| threshold.as_str().unwrap_or_default().to_owned());
            let _ = write!(into, ", threshold {}", text(&limit));
        }
        into.push_str("</p>");
        // Symptoms come directly behind their finding.
        while let Some(symptom) = rows.next_if(|row| row.get("explained_by").is_some()) {
            let _ = write!(into, "<p class=\"follows\">With it: {}</p>", text(field(symptom, "says")));
        }
        for next in each(&row["next"]) {
            let _ = write!(into, "<p class=\"next\">{}</p>", text(next));
        }
        into.push_str("</li>");
    }
    into.push_str("</ol>");
}

/// Returns a sentence, or each sentence of a list.
pub(super) fn each(value: &Json) -> impl Iterator<Item = &str> {
    let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    list.iter().filter_map(Json::as_str)
}

/// Appends the method of measuring: events, tables, and what metrics say.
pub(super) fn method(rows: &Rows, into: &mut String) {
    let header = &rows.header;
    into.push_str("<dl class=\"facts\">");
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = write!(into, "<div><dt>{name}</dt><dd>{}</dd></div>", text(&value));
        }
    };
    fact("owners", field(header, "by").to_owned());
    fact("CPUs", field(header, "cpus").to_owned());
    fact("attached by", field(header, "attach").to_owned());
    fact("sampled", sampled(header));
    fact("cgroups", field(header, "cgroups").to_owned());
    fact("PMUs", each(&header["pmus"]).collect::<Vec<_>>().join(", "));
    fact("uncore table", field(header, "table").to_owned());
    let model = rows.bottlenecks.first();
    fact(
        "Top-Down",
        model
            .map(|row| {
                let (model, formulas, source) =
                    (field(row, "model"), field(row, "formulas"), field(row, "source"));
                format!("{model}, formulas {formulas}, facts from {source}")
            })
            .unwrap_or_default(),
    );
    into.push_str("</dl>");
    groups(header, into);
    formulas(&rows.formulas, into);
    let metrics = header["metrics"].as_array().map(Vec::as_slice).unwrap_or_default();
    if metrics.is_empty() {
        return;
    }
    head("Metrics of owners", &[("metric", false), ("unit", false), ("what it says", false)], into);
    for metric in metrics {
        let cell = |name| text(field(metric, name));
        let _ = write!(
            into,
            "<tr><th scope=\"row\"><code>{}</code></th><td>{}</td><td class=\"prose\">{}</td></tr>",
            cell("name"),
            cell("unit"),
            cell("says")
        );
    }
    into.push_str(TAIL);
}

/// Appends the events that were on the counters together, and the encoding of each.
fn groups(header: &Json, into: &mut String) {
    let groups = header["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
    if groups.is_empty() {
        return;
    }
    let _ = write!(into, "<details><summary>Events by group ({})</summary>", groups.len());
    head("Events by group", &[("PMU", false), ("counts", false), ("events and encodings", false)], into);
    for group in groups {
        let when = if group["always"] == true { "always" } else { "in its turn" };
        let events: Vec<String> = group["events"].as_array().into_iter().flatten().map(encoded).collect();
        let (pmu, events) = (text(field(group, "pmu")), events.join("<br>"));
        let _ = write!(
            into,
            "<tr><th scope=\"row\">{pmu}</th><td>{when}</td><td class=\"code\">{events}</td></tr>"
        );
    }
    into.push_str(TAIL);
    into.push_str("</details>");
}

/// Appends the formulas of metrics from tables.
fn formulas(formulas: &[Json], into: &mut String) {
    if formulas.is_empty() {
        return;
    }
    let _ = write!(into, "<details><summary>Formulas ({})</summary>", formulas.len());
    head("Formulas", &[("metric", false), ("unit", false), ("formula", false)], into);
    for row in formulas {
        let cell = |name| text(field(row, name));
        let _ = write!(
            into,
            "<tr><th scope=\"row\"><code>{}</code></th><td>{}</td><td class=\"code\"><code>{}</code></td></tr>",
            cell("metric"),
            cell("unit"),
            cell("formula")
        );
    }
    into.push_str(TAIL);
    into.push_str("</details>");
}

/// Returns an event with the words of its `perf_event_attr`.
fn encoded(event: &Json) -> String {
    let words = event["config"].as_array().map(Vec::as_slice).unwrap_or_default();
    let words = words.iter().enumerate().filter_map(|(place, word)| {
        let word = word.as_u64().filter(|&word| word > 0 || place == 0)?;
        let number = if place == 0 { String::new() } else { place.to_string() };
        Some(format!(" config{number}={word:#x}"))
    });
    let (kind, words) = (event["type"].as_u64().unwrap_or_default(), words.collect::<String>());
    let modes = match field(event, "modes") {
        "" => String::new(),
        modes => format!(" :{modes}"),
    };
    format!(
        "<code>{}</code> <small>type={kind}{}</small>",
        text(field(event, "event")),
        text(&(words + &modes))
    )
}

fn sampled(header: &Json) -> String {
    let one = |event: &Json| {
        let period = event["period"].as_u64().map(|period| format!(" every {period}"));
        format!("{}{}", field(event, "event"), period.unwrap_or_default())
    };
    match header["sampling_events"].as_array() {
        Some(events) => events.iter().map(one).collect::<Vec<_>>().join(", "),
        None if header["sampling"].is_object() => one(&header["sampling"]),
        None => String::new(),
    }
}

/// Appends what could not be measured and why: first in general, then for single numbers.
pub(super) fn missing(rows: &Rows, into: &mut String) {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut add = |why: &str, what: &str| match found.iter_mut().find(|(known, _)| known == why) {
        Some((_, list)) if list.iter().any(|known| known == what) => {}
        Some((_, list)) => list.push(what.to_owned()),
        None => found.push((why.to_owned(), vec![what.to_owned()])),
    };
    for row in rows.summary["missing"].as_array().into_iter().flatten() {
        field(row, "what").split(", ").for_each(|what| add(field(row, "why"), what));
    }
    for number in rows.numbers.iter().filter(|number| number.value.is_none()) {
        if let Some(why) = &number.reason {
            add(why, &number.metric);
        }
    }
    if found.is_empty() {
        into.push_str("<p class=\"quiet\">Nothing that was asked for is missing.</p>");
        return;
    }
    head("Not measured, by reason", &[("why", false), ("what", false)], into);
    for (why, what) in found {
        let _ = write!(
            into,
            "<tr><th scope=\"row\" class=\"prose\">{}</th><td class=\"prose\">{}</td></tr>",
            text(&why),
            text(&what.join(", "))
        );
    }
    into.push_str(TAIL);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::took;

    #[test]
    fn a_command_took_what_is_known_of_it() {
        let workload = json!({"exit": 0, "signal": null, "elapsed_ns": 6_100_000, "user_ns": 5_000_000, "system_ns": 1_000_000});
        assert_eq!(took(&workload).unwrap(), "6.10 ms elapsed, 5.00 ms user, 1.00 ms system");
        let old =
            json!({"exit": 0, "signal": null, "elapsed_ns": 6_100_000, "user_ns": null, "system_ns": null});
        assert_eq!(took(&old).unwrap(), "6.10 ms elapsed");
        assert_eq!(took(&json!(null)), None, "no command");
    }
}
