//! Sections on the whole run: hot functions, completeness of the numbers, and the cost of measuring.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value as Json;

use super::{
    cells::{TAIL, content, head, show, text},
    numbers::{label, more},
    rows::{Rows, Who},
};
use crate::{
    metric::value::{How, Known},
    view::text::{bytes, duration, percent},
};

/// Appends the functions that most samples hit.
pub(super) fn hot(rows: &Rows, into: &mut String) {
    if rows.hot.is_empty() {
        into.push_str(
            "<p class=\"quiet\">No samples with code: nothing was sampled, or none hit the target.</p>",
        );
        return;
    }
    let titles = [
        ("function", false),
        ("module", false),
        ("owner", false),
        ("mode", false),
        ("samples", true),
        ("share", true),
        ("line", false),
    ];
    into.push_str("<div id=\"hot\">");
    head("Hot functions", &titles, into);
    for row in &rows.hot {
        let who: Option<Who> = serde_json::from_value(row["owners"][0]["owner"].clone()).ok();
        let more = row["owners_in_all"].as_u64().unwrap_or(1).saturating_sub(1);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let module = row["frame"]["module"].as_str().unwrap_or_default();
        let file = module.rsplit('/').next().unwrap_or_default();
        let _ = write!(
            into,
            "<tr><th scope=\"row\" class=\"who\">{}</th><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            text(&frame(&row["frame"])),
            text(file),
            text(&(label(who.as_ref(), None) + &more)),
            text(row["mode"].as_str().unwrap_or_default()),
            row["samples"].as_u64().unwrap_or_default(),
            share(row),
            text(&lines(row)),
        );
    }
    into.push_str(TAIL);
    more(rows.hot_count - rows.hot.len(), "functions", into);
    into.push_str("</div>");
}

/// Maximum number of inlined functions shown for a function.
const PARTS_MAX: usize = 3;

/// Returns the hottest line of a function, or the functions inlined in it, each with its line and share.
fn lines(row: &Json) -> String {
    let place = |line: &Json| {
        let file = line["file"].as_str()?.rsplit('/').next()?;
        Some(format!("{file}:{}", line["line"].as_u64()?))
    };
    let parts = row["parts"].as_array().into_iter().flatten().take(PARTS_MAX);
    let parts = parts.map(|part| {
        let name = part["function"].as_str().unwrap_or_default();
        let at = place(&part["at"]).map(|at| format!(", {at}")).unwrap_or_default();
        format!("{name} (inlined{at}) {}", part["share"].as_f64().map_or("–".to_owned(), percent))
    });
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { place(&row["lines"][0]).unwrap_or_default() } else { parts.join(", ") }
}

/// Appends the time for which bandwidths were low, medium and high.
pub(super) fn levels(rows: &Rows, into: &mut String) {
    if rows.levels.is_empty() {
        let why = if rows.header["table"].is_string() {
            "no bandwidth was counted"
        } else {
            "no uncore PMUs were counted"
        };
        let _ = write!(into, "<p class=\"quiet\">There is no time at bandwidth: {why}.</p>");
        return;
    }
    let titles = [
        ("bandwidth", false),
        ("of", false),
        ("the most", true),
        ("whence", false),
        ("medium from", true),
        ("high from", true),
        ("low", true),
        ("medium", true),
        ("high", true),
    ];
    into.push_str("<div id=\"levels\">");
    head("Time at bandwidth", &titles, into);
    for row in &rows.levels {
        let subject: Option<BTreeMap<String, Json>> = serde_json::from_value(row["subject"].clone()).ok();
        let word = |name: &str| text(row[name].as_str().unwrap_or_default());
        let unit = row["unit"].as_str().unwrap_or_default();
        let value =
            |row: &Json| row.as_f64().map_or_else(|| "–".to_owned(), |value| text(&show(value, unit)));
        let time =
            |name: &str| row[name].as_f64().map_or_else(|| "–".to_owned(), |time| duration(time * 1e9));
        let numbers = [
            value(&row["maximum"]),
            value(&row["limits"][0]),
            value(&row["limits"][1]),
            time("low_s"),
            time("medium_s"),
            time("high_s"),
        ];
        let [most, numbers @ ..] = numbers.map(|number| format!("<td class=\"n\">{number}</td>"));
        let _ = write!(
            into,
            "<tr><th scope=\"row\"><code>{}</code></th><td>{}</td>{most}<td>{}</td>{}</tr>",
            word("metric"),
            text(&label(None, subject.as_ref())),
            word("basis"),
            numbers.concat(),
        );
    }
    into.push_str(TAIL);
    into.push_str("</div>");
}

/// Returns the name of a frame.
pub(super) fn frame(frame: &Json) -> String {
    let at = |name: &str| frame[name].as_u64();
    match (frame["function"].as_str(), at("offset"), frame["address"].as_str()) {
        (Some(name), ..) => name.to_owned(),
        (_, Some(offset), _) => format!("+{offset:#x}"),
        (.., Some(address)) => address.to_owned(),
        _ => at("address").map_or_else(|| "rare code together".to_owned(), |address| format!("{address:#x}")),
    }
}

/// Returns a share with its interval.
fn share(row: &Json) -> String {
    let number = |name: &str| row[name].as_f64();
    let (Some(estimate), Some(low), Some(high)) = (number("share"), number("low"), number("high")) else {
        return "–".to_owned();
    };
    let known = Known { estimate, low, high, coverage: 1.0, how: How::Sampled }.times(100.0);
    content(&known, "%")
}

/// Appends the completeness of the numbers, and the use of the CPUs' time.
pub(super) fn quality(rows: &Rows, into: &mut String) {
    let (quality, blind) = (&rows.summary["quality"], &rows.summary["blind"]);
    into.push_str("<dl class=\"facts\">");
    let mut fact = |name: &str, value: String| {
        let _ = write!(into, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    };
    let losses = rows.summary["losses"].as_object().into_iter().flatten();
    let lost: Vec<String> = losses.map(|(reason, count)| format!("{}: {count}", text(reason))).collect();
    fact("lost", if lost.is_empty() { "nothing".to_owned() } else { lost.join(", ") });
    let whole = |row: &Json, name: &str| row[name].as_u64().unwrap_or_default();
    let covered = |row: &Json| {
        row["coverage"].as_f64().map_or_else(String::new, |share| format!(", {} covered", percent(share)))
    };
    if quality.is_object() {
        let (seen, missing) = (whole(quality, "switches"), whole(quality, "switches_missing"));
        let known = quality["switch_coverage"]
            .as_f64()
            .map_or_else(String::new, |share| format!("; task known in {}", percent(share)));
        fact("switches", format!("{seen} seen, {missing} missed{known}"));
        let samples = &quality["samples"];
        if samples.is_object() {
            let (seen, expected) = (whole(samples, "seen"), whole(samples, "expected"));
            let missing = match (expected.saturating_sub(seen), whole(samples, "idle_missing")) {
                (0, _) => String::new(),
                (missing, 0) => format!("; {missing} missing"),
                (missing, idle) => {
                    format!("; {missing} missing, of them {idle} in idle or stolen time; outside it")
                }
            };
            fact("samples", format!("{seen} of {expected} expected{missing}{}", covered(samples)));
        }
        let ticks = &quality["ticks"];
        fact("ticks", format!("{} seen{}", whole(ticks, "seen"), covered(ticks)));
    }
    for (name, row) in [("masked, all CPUs", blind), ("masked, target", &blind["target"])] {
        let masked = &row["masked"];
        if let (Some(value), Some(low), Some(high)) =
            (masked["value"].as_f64(), masked["low"].as_f64(), masked["high"].as_f64())
        {
            let share = row["share"]
                .as_f64()
                .map_or_else(String::new, |share| format!(", {} of the CPU time", percent(share)));
            fact(
                name,
                format!("{} <small>[{} – {}]</small>{share}", duration(value), duration(low), duration(high)),
            );
        }
    }
    into.push_str("</dl>");
    books(&quality["books"], into);
}

/// Appends the use of the CPUs' time.
fn books(books: &Json, into: &mut String) {
    let (Some(capacity), Some(_)) = (books["capacity_ns"].as_f64(), books.as_object()) else { return };
    head("Where the CPUs' time went", &[("who", false), ("time", true), ("share", true)], into);
    let parts = [
        ("owners", "owners_ns"),
        ("idle", "idle_ns"),
        ("scheduler, between two tasks", "scheduler_ns"),
        ("running, not accounted yet", "pending_ns"),
        ("interrupts", "interrupts_ns"),
        ("stolen by the hypervisor", "stolen_ns"),
        ("CPUs offline", "uncovered_ns"),
        ("not attributed", "rest_ns"),
    ];
    for (who, name) in parts {
        if let Some(time) = books[name].as_f64().filter(|time| *time != 0.0) {
            let share = percent(time / capacity.max(1.0));
            let _ = write!(
                into,
                "<tr><th scope=\"row\">{who}</th><td class=\"n\">{}</td><td class=\"n\">{share}</td></tr>",
                duration(time)
            );
        }
    }
    into.push_str(TAIL);
}

/// Appends the cost of measuring.
pub(super) fn cost(rows: &Rows, into: &mut String) {
    let cost = &rows.summary["self"];
    let number = |name: &str| cost[name].as_f64().unwrap_or_default();
    if !cost.is_object() {
        into.push_str(
            "<p class=\"quiet\">Only counters were open: nothing of pmbpf ran while it counted.</p>",
        );
        return;
    }
    let capacity = number("capacity_ns").max(1.0);
    into.push_str("<dl class=\"facts\">");
    let mut fact = |name: &str, value: String| {
        let _ = write!(into, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    };
    let programs = cost["programs_ns"]["value"].as_f64();
    fact(
        "programs in the kernel",
        programs.map_or_else(
            || "not known".to_owned(),
            |time| format!("{}, {} of the CPUs", duration(time), percent(time / capacity)),
        ),
    );
    fact(
        "process",
        format!(
            "{} CPU while it counted, {} of the CPUs; {} before",
            duration(number("counting_cpu_ns")),
            percent(number("counting_cpu_ns") / capacity),
            duration(number("startup_cpu_ns"))
        ),
    );
    fact(
        "memory",
        format!(
            "{} resident, {} of maps",
            bytes(number("rss_max_bytes") as u64),
            bytes(number("map_bytes") as u64)
        ),
    );
    fact(
        "drains",
        format!(
            "{} in {}, the longest {}",
            number("drains"),
            duration(number("drains_ns")),
            duration(number("drain_max_ns"))
        ),
    );
    into.push_str("</dl>");
    each_program(cost, into);
}

/// Appends the cost of each program in the kernel.
fn each_program(cost: &Json, into: &mut String) {
    let Some(programs) = cost["programs"].as_array().filter(|programs| !programs.is_empty()) else { return };
    head("Programs", &[("program", false), ("a run", true), ("runs", true), ("together", true)], into);
    for program in programs {
        let value = |name: &str| program[name]["value"].as_f64();
        let time = |name: &str| value(name).map_or_else(|| "–".to_owned(), duration);
        let runs = value("runs").map_or_else(|| "–".to_owned(), |runs| format!("{runs:.0}"));
        let name = text(program["name"].as_str().unwrap_or_default());
        let _ = write!(
            into,
            "<tr><th scope=\"row\"><code>{name}</code></th><td class=\"n\">{}</td><td class=\"n\">{runs}</td><td class=\"n\">{}</td></tr>",
            time("ns_per_run"),
            time("total_ns")
        );
    }
    into.push_str(TAIL);
}
