//! NDJSON, schema `pmbpf/1`: a header row, per interval metric, histogram and gap rows, then hot rows and a summary.
//!
//! Numbers are numbers; what is missing is `null` with a `reason`. Times are in ns: `t` since counting started, `dt`
//! the length. Names are UTF-8; bytes that are not become `\xff`-like text.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

use super::words;
use crate::{
    drain::{Ending, Header, Owner, Stopped, Workload},
    metric::{
        CostReport, Frame, GapReport, HotFunction, HotStack, OwnerReport, Quality, Report, Waits, Who,
        value::{Known, Value},
    },
    table::metric,
    untrusted::Untrusted,
};

const SCHEMA: &str = "pmbpf/1";

fn line(into: &mut dyn Write, row: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *into, row)?;
    into.write_all(b"\n")
}

/// A finite number; whole ones without a fraction, as far as a double is exact.
fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        serializer.serialize_i64(*value as i64)
    } else {
        serializer.serialize_f64(*value)
    }
}

#[derive(Serialize)]
struct Number(#[serde(serialize_with = "number")] f64);

#[derive(Serialize)]
struct OwnerCell<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a Untrusted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    name: Untrusted,
}

fn owner(who: &Who) -> OwnerCell<'_> {
    let kind = words::kind(who);
    let plain = |name: &str| OwnerCell { kind, path: None, id: None, pid: None, name: Untrusted::from(name) };
    match who {
        Who::Target => plain("total"),
        Who::Owner(Owner::Other) => plain("other"),
        Who::Owner(Owner::Process { pid, name, .. }) => {
            OwnerCell { pid: Some(*pid), name: name.clone(), ..plain("") }
        }
        Who::Owner(Owner::Cgroup { id, path }) => {
            let last = path.as_bytes().rsplit(|&byte| byte == b'/').next().filter(|last| !last.is_empty());
            let name = last.map_or_else(|| Untrusted::from("/"), Untrusted::new);
            OwnerCell { path: Some(path), id: Some(*id), name, ..plain("") }
        }
    }
}

/// Header row.
pub(super) fn begin(into: &mut dyn Write, header: &Header) -> io::Result<()> {
    let plan = &header.plan;
    let pmus: Vec<&Untrusted> = header.machine.pmus.iter().map(|pmu| &pmu.name).collect();
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "header", "version": header.version,
            "host": header.machine.host, "kernel": header.machine.kernel,
            "cpu": {"model": header.machine.cpu.model, "online": header.machine.cpu.online.len(),
                    "guest": header.machine.cpu.guest},
            "pmus": pmus, "cgroups": header.machine.cgroups.kind(),
            "started": words::started(header), "started_monotonic_ns": header.started_ns,
            "target": words::target(plan), "by": words::by(plan), "cpus": words::cpus(plan),
            "sampling": plan.sampling.as_ref().map(|sampling| json!({
                "event": sampling.event, "period": sampling.period, "frequency": sampling.frequency,
                "stacks": plan.stacks})),
            "interval_ns": plan.interval.map(|interval| interval.as_nanos() as u64),
            "late_min_ns": plan.late_min_ns, "gap_min_ns": plan.gap_min_ns,
            "attach": header.attach, "missing": header.missing,
            "metrics": metric::ALL.iter().map(|metric| json!({
                "name": metric.name, "unit": metric.unit.name(), "says": metric.says})).collect::<Vec<_>>(),
        }),
    )
}

#[derive(Serialize)]
struct MetricRow<'a> {
    schema: &'static str,
    kind: &'static str,
    t: u64,
    dt: u64,
    owner: OwnerCell<'a>,
    metric: &'static str,
    unit: &'static str,
    value: Option<Number>,
    low: Option<Number>,
    high: Option<Number>,
    coverage: Option<f64>,
    how: Option<&'static str>,
    status: &'static str,
    reason: Option<&'a str>,
}

/// Metric, histogram and gap rows of an interval.
pub(super) fn interval(into: &mut dyn Write, report: &Report) -> io::Result<()> {
    for row in std::iter::once(&report.total).chain(&report.owners) {
        metrics(into, report, row)?;
    }
    report.blind.gaps.iter().try_for_each(|gap| gap_row(into, gap))
}

fn metrics(into: &mut dyn Write, report: &Report, row: &OwnerReport) -> io::Result<()> {
    for (metric, value) in &row.metrics {
        let known = value.known();
        let cell = |pick: fn(&Known) -> f64| known.map(|known| Number(pick(known)));
        line(
            into,
            &MetricRow {
                schema: SCHEMA,
                kind: "metric",
                t: report.from_ns,
                dt: report.length_ns,
                owner: owner(&row.who),
                metric: metric.name,
                unit: metric.unit.name(),
                value: cell(|known| known.estimate),
                low: cell(|known| known.low),
                high: cell(|known| known.high),
                coverage: known.map(|known| known.coverage),
                how: known.map(|known| known.how.name()),
                status: words::status(value),
                reason: reason(value),
            },
        )?;
    }
    histogram(into, report, row)
}

fn reason(value: &Value) -> Option<&str> {
    match value {
        Value::Known(_) => None,
        Value::Missing(why) => Some(why),
    }
}

fn histogram(into: &mut dyn Write, report: &Report, row: &OwnerReport) -> io::Result<()> {
    let metric = metric::RUNQUEUE_LATENCY;
    let waits = row.waits.as_ref().ok();
    let quantiles: BTreeMap<&str, Json> = waits.map(quantiles).unwrap_or_default();
    let upper = |high: u64| (high != u64::MAX).then_some(high);
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "histogram", "t": report.from_ns, "dt": report.length_ns,
            "owner": owner(&row.who), "metric": metric.name, "unit": metric.unit.name(),
            "count": waits.map(|waits| waits.count), "sum": waits.map(|waits| waits.sum_ns),
            "quantiles": quantiles,
            "buckets": waits.map(|waits| waits.buckets.iter()
                .map(|&(low, high, count)| json!([low, upper(high), count])).collect::<Vec<_>>()),
            "coverage": waits.map(|waits| waits.max_ns.coverage),
            "how": waits.map(|waits| waits.max_ns.how.name()),
            "status": if waits.is_some() { "ok" } else { "missing" },
            "reason": row.waits.as_ref().err(),
        }),
    )
}

fn quantiles(waits: &Waits) -> BTreeMap<&'static str, Json> {
    let cell = |known: &Known| json!({"value": Number(known.estimate), "low": Number(known.low), "high": Number(known.high)});
    let mut cells: BTreeMap<&'static str, Json> =
        waits.quantiles.iter().map(|(name, known)| (*name, cell(known))).collect();
    cells.insert("max", cell(&waits.max_ns));
    cells
}

fn gap_row(into: &mut dyn Write, gap: &GapReport) -> io::Result<()> {
    let row = &gap.gap.row;
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "gap", "t": row.at_ns, "cpu": row.cpu.0, "late_ns": row.late_ns,
            "stolen_ns": row.stolen_ns, "class": gap.class.name(), "timers": gap.gap.timers,
            "tid": row.tid, "pid": row.tgid, "comm": row.comm,
            "owner": gap.owner.as_ref().map(|who| json!(owner(&Who::Owner(who.clone())))),
            "stack": gap.stack,
        }),
    )
}

/// Hot rows and the summary.
pub(super) fn end(into: &mut dyn Write, header: &Header, report: &Report, ending: &Ending) -> io::Result<()> {
    report.hot.iter().try_for_each(|function| hot_row(into, function))?;
    report.stacks.iter().try_for_each(|stack| stack_row(into, stack))?;
    summary(into, header, report, ending)
}

fn hot_row(into: &mut dyn Write, hot: &HotFunction) -> io::Result<()> {
    let who = Who::Owner(hot.owner.clone());
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "hot", "owner": owner(&who), "pid": (hot.tgid != 0).then_some(hot.tgid),
            "mode": if hot.kernel { "kernel" } else { "user" },
            "frame": frame(&hot.frame), "build_id": hot.build_id, "inlined": hot.inlined,
            "lines": hot.lines.iter().map(|(line, samples)| json!({
                "file": line.file, "line": line.line, "samples": samples})).collect::<Vec<_>>(),
            "samples": hot.samples, "share": hot.share.estimate, "low": hot.share.low, "high": hot.share.high,
            "reason": hot.unnamed,
        }),
    )
}

fn stack_row(into: &mut dyn Write, stack: &HotStack) -> io::Result<()> {
    let who = Who::Owner(stack.owner.clone());
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "stack", "owner": owner(&who), "pid": stack.tgid, "samples": stack.samples,
            "frames": stack.frames.iter().map(frame).collect::<Vec<_>>(),
        }),
    )
}

fn frame(frame: &Frame) -> Json {
    match frame {
        Frame::Function { name, module } => json!({"function": name, "module": module}),
        Frame::Offset { module, build_id, offset } => {
            json!({"function": null, "module": module, "build_id": build_id, "offset": offset})
        }
        Frame::Address(address) => json!({"function": null, "module": null, "address": address}),
    }
}

fn summary(into: &mut dyn Write, header: &Header, report: &Report, ending: &Ending) -> io::Result<()> {
    let complete = ending.stopped != Stopped::Truncated;
    let quality = &report.quality;
    line(
        into,
        &json!({
            "schema": SCHEMA, "kind": "summary", "complete": complete, "stopped": stopped(ending.stopped),
            "duration_ns": report.length_ns,
            "losses": quality.losses, "quality": quality_cell(quality),
            "blind": {"masked": known(&report.blind.masked), "stolen": known(&report.blind.stolen),
                      "late_ticks": {"masked": report.blind.late_ticks[0], "stolen": report.blind.late_ticks[1],
                                     "idle": report.blind.late_ticks[2]}},
            "self": self_cell(&report.cost), "workload": ending.workload.map(workload),
            "missing": header.missing,
        }),
    )
}

fn known(value: &Value) -> Json {
    match value {
        Value::Known(known) => json!({
            "value": Number(known.estimate), "low": Number(known.low), "high": Number(known.high),
            "coverage": known.coverage, "how": known.how.name()}),
        Value::Missing(why) => json!({"value": null, "reason": why}),
    }
}

fn quality_cell(quality: &Quality) -> Json {
    json!({
        "switches": quality.switches, "switches_missing": quality.switches_missing,
        "switch_coverage": quality.switch_coverage,
        "samples": quality.samples.as_ref().map(|samples| json!({
            "expected": samples.expected, "seen": samples.seen, "idle": samples.idle,
            "idle_missing": samples.idle_missing,
            "withheld": samples.withheld, "silences": samples.silences, "silent_ns": samples.silent_ns,
            "coverage": samples.coverage})),
        "ticks": {"seen": quality.ticks.seen, "period_ns": quality.ticks.period_ns,
                  "coverage": quality.ticks.coverage},
        "books": quality.books.as_ref().map(|books| json!({
            "capacity_ns": books.capacity_ns, "owners_ns": books.owners_ns, "idle_ns": books.kernel.idle_ns,
            "interrupts_ns": books.kernel.interrupts_ns, "stolen_ns": books.kernel.stolen_ns,
            "rest_ns": books.rest_ns})),
    })
}

fn self_cell(cost: &CostReport) -> Json {
    let programs = cost.programs.iter().map(|program| {
        json!({"name": program.name, "ns_per_run": known(&program.ns_per_run), "runs": known(&program.runs),
               "total_ns": known(&program.total_ns)})
    });
    json!({
        "programs": programs.collect::<Vec<_>>(), "programs_ns": known(&cost.programs_ns),
        "cpu_ns": cost.process.cpu_ns, "capacity_ns": cost.capacity_ns,
        "rss_bytes": cost.process.resident_bytes, "rss_max_bytes": cost.process.resident_max_bytes,
        "map_bytes": cost.process.map_bytes, "startup_ns": cost.process.startup_ns,
        "drains": cost.process.drains, "drains_ns": cost.process.drains_ns,
        "drain_max_ns": cost.process.drain_max_ns,
    })
}

fn stopped(stopped: Stopped) -> Json {
    match stopped {
        Stopped::Duration => json!("duration"),
        Stopped::TargetGone => json!("target_gone"),
        Stopped::Signal(number) => json!(words::signal_name(number)),
        Stopped::Truncated => json!("truncated"),
    }
}

fn workload(workload: Workload) -> Json {
    match workload {
        Workload::Exited(code) => json!({"exit": code, "signal": null}),
        Workload::Killed(number) => json!({"exit": null, "signal": words::signal_name(number)}),
        Workload::Running => json!({"exit": null, "signal": null}),
    }
}
