//! Firefox Profiler's processed profile, version 55 (github.com/firefox-devtools/profiler,
//! docs-developer/processed-profile-format.md). It has a thread for each owner and sampling event, time off
//! the CPU included. The samples of a thread are the stacks of the whole run, all at its start, because a
//! stack has no time. Counters of the target and the host have a point for each interval. Gaps are markers.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    io::{self, Write},
};

use serde_json::{Value as Json, json};

use super::{Export, Stacks, events, series, words};
use crate::{
    drain::{Header, Owner},
    metric::{
        Frame, GapReport, HotStack, Report,
        number::{Attribution, Each},
        value::Value,
    },
    plan::Sampling,
    view::stage::Stage,
};

const VERSION: u32 = 55;
/// Categories of frames, by their index in the profile's list.
const CATEGORIES: [(&str, &str); 3] = [("Other", "grey"), ("User", "blue"), ("Kernel", "orange")];
const USER: usize = 1;
const KERNEL: usize = 2;
/// Maximum number of counter values that are kept. The format requires each counter in one piece.
const VALUES_MAX: usize = 1 << 20;

/// Firefox export, which keeps everything until the run ends.
#[derive(Default)]
pub(super) struct Firefox {
    /// Points of counters, by name and unit: the time in ns, and the value.
    counters: BTreeMap<(String, String), Vec<(u64, f64)>>,
    values: usize,
}

impl Export for Firefox {
    fn stage(&mut self, into: &mut dyn Write, stage: Stage<'_>) -> io::Result<()> {
        match stage {
            Stage::Begin(_) => Ok(()),
            Stage::Interval(report, _) => self.interval(report),
            Stage::Whole { header, report, intervals, .. } => {
                if intervals == 0 {
                    self.interval(report)?;
                }
                serde_json::to_writer(&mut *into, &self.profile(header, report))?;
                writeln!(into)
            }
        }
    }
}

impl Firefox {
    fn interval(&mut self, report: &Report) -> io::Result<()> {
        let _ = report.by_source::<Infallible>(|(from_ns, _), numbers| {
            self.numbers(from_ns, numbers);
            Ok(())
        });
        if self.values > VALUES_MAX {
            let why = format!("its counters have more than {VALUES_MAX} values: take a longer --interval");
            return Err(io::Error::other(why));
        }
        Ok(())
    }

    /// Adds the numbers of the target and the host. A profile has no room for a track for each metric of each
    /// owner.
    fn numbers(&mut self, from_ns: u64, numbers: &mut Each<'_>) {
        for number in numbers.filter(|number| !matches!(number.whose, Attribution::Owner(_))) {
            let subject = series::subject(&number);
            for part in series::parts(&number) {
                // A missing number yields no value, never 0.
                let Value::Known(known) = part.value.as_ref() else { continue };
                let name = format!("{subject} {}", part.metric).trim_start().to_owned();
                let points = self.counters.entry((name, words::text(part.unit))).or_default();
                points.push((from_ns, known.estimate));
                self.values += 1;
            }
        }
    }

    fn profile(&self, header: &Header, report: &Report) -> Json {
        let stacks = Stacks::of(header, report);
        let mut by_owner: BTreeMap<&Owner, Vec<&(&HotStack, Vec<u64>)>> = BTreeMap::new();
        stacks.rows.iter().for_each(|row| by_owner.entry(&row.0.owner).or_default().push(row));
        let of_run = Thread::new("total".to_owned(), "0".to_owned(), 0);
        let mut threads = vec![of_run.json(true, &markers(report))];
        for (owner, rows) in by_owner {
            let id = series::pid(Attribution::Owner(owner));
            for (event, (called, unit)) in stacks.events.iter().enumerate() {
                let name = format!("{} · {called}", owner.in_words());
                // An id identifies a thread, but owners have the same id in several lives.
                let tid = threads.len();
                let pid = id.map_or_else(|| format!("0.{tid}"), |id| format!("{id}.{tid}"));
                let mut thread = Thread::new(name, pid, tid);
                thread.weighs_time = *unit != "samples";
                rows.iter().for_each(|(stack, values)| thread.add(stack, values[event]));
                if !thread.weights.is_empty() {
                    threads.push(thread.json(false, &[]));
                }
            }
        }
        json!({
            "meta": meta(header), "libs": [], "pages": [], "profilerOverhead": [], "threads": threads,
            "counters": self.counters.iter().map(counter).collect::<Vec<_>>(),
        })
    }
}

/// Converts ns to milliseconds, the unit of all times of a profile.
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn meta(header: &Header) -> Json {
    let categories =
        CATEGORIES.map(|(name, color)| json!({"name": name, "color": color, "subcategories": ["Other"]}));
    let period_ns = events(header).first().and_then(Sampling::period_ns);
    json!({
        "version": 24, "preprocessedProfileVersion": VERSION, "product": words::run(header),
        "oscpu": format!("Linux {}", header.machine.kernel.terminal()),
        "startTime": ms(header.started_unix_ns), "interval": period_ns.map_or(1.0, ms), "processType": 0,
        "categories": categories, "symbolicated": true, "debug": false, "pausedRanges": [],
        "usesOnlyOneStackType": true, "sourceCodeIsNotOnSearchfox": true,
        "extensions": {"length": 0, "baseURL": [], "id": [], "name": []},
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "µs"},
        "importedFrom": words::exporter(header),
        "markerSchema": [{
            "name": "gap", "display": ["marker-chart", "marker-table", "timeline-overview"],
            "chartLabel": "{marker.data.class}", "tooltipLabel": "{marker.data.class}",
            "tableLabel": "CPU {marker.data.cpu}: {marker.data.class}, {marker.data.owner}",
            "fields": [
                {"key": "class", "label": "Class", "format": "string"},
                {"key": "cpu", "label": "CPU", "format": "integer"},
                {"key": "owner", "label": "Owner", "format": "string"},
                {"key": "comm", "label": "Thread", "format": "string"},
                {"key": "stolen", "label": "Stolen", "format": "duration"},
            ],
        }],
    })
}

/// Returns a counter and its points as JSON.
fn counter((name, points): (&(String, String), &Vec<(u64, f64)>)) -> Json {
    let times: Vec<f64> = deltas(points.iter().map(|(at_ns, _)| ms(*at_ns)));
    json!({
        // Of the categories that are drawn, the one for quantities per interval.
        "name": name.0, "category": "Bandwidth", "description": format!("{} in {}", name.0, name.1),
        "pid": "0", "mainThreadIndex": 0,
        "samples": {
            "length": points.len(), "timeDeltas": times,
            "count": points.iter().map(|(_, value)| *value).collect::<Vec<_>>(), "number": vec![0; points.len()],
        },
    })
}

/// Returns each time as the difference from the previous one.
fn deltas(times: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut last = 0.0;
    times.map(|time| time - std::mem::replace(&mut last, time)).collect()
}

/// Returns the gaps of the run, in order of time.
fn markers(report: &Report) -> Vec<&GapReport> {
    let blind = report.tasks.iter().map(|tasks| &tasks.blind);
    let mut gaps: Vec<&GapReport> = blind.flat_map(|of| of.gaps.iter().chain(&of.others_gaps)).collect();
    gaps.sort_by_key(|gap| gap.gap.row.at_ns);
    gaps
}

/// Columns of a thread under construction.
struct Thread {
    name: String,
    pid: String,
    tid: usize,
    texts: Vec<String>,
    text_index: HashMap<String, usize>,
    /// Functions, each with its file and category. A frame is one of them.
    functions: Vec<(usize, Option<usize>, usize)>,
    function_index: HashMap<(usize, Option<usize>, usize), usize>,
    /// Stacks: the index of the stack that each one extends, and its frame.
    stacks: Vec<(Option<usize>, usize)>,
    stack_index: HashMap<(Option<usize>, usize), usize>,
    samples: Vec<Option<usize>>,
    weights: Vec<u64>,
    /// Whether the weights are ns, not samples.
    weighs_time: bool,
}

impl Thread {
    fn new(name: String, pid: String, tid: usize) -> Self {
        Self {
            name,
            pid,
            tid,
            texts: Vec::new(),
            text_index: HashMap::new(),
            functions: Vec::new(),
            function_index: HashMap::new(),
            stacks: Vec::new(),
            stack_index: HashMap::new(),
            samples: Vec::new(),
            weights: Vec::new(),
            weighs_time: false,
        }
    }

    fn text(&mut self, text: String) -> usize {
        let next = self.texts.len();
        *self.text_index.entry(text).or_insert_with_key(|text| {
            self.texts.push(text.clone());
            next
        })
    }

    fn function(&mut self, frame: &Frame, is_kernel: bool) -> usize {
        let file = words::file(frame).map(|path| self.text(path.terminal().into_owned()));
        let name = self.text(words::code(frame));
        let (function, next) = ((name, file, if is_kernel { KERNEL } else { USER }), self.functions.len());
        *self.function_index.entry(function).or_insert_with(|| {
            self.functions.push(function);
            next
        })
    }

    fn add(&mut self, stack: &HotStack, samples: u64) {
        if samples == 0 {
            return;
        }
        let mut prefix = None;
        for (frame, is_kernel) in words::outermost_first(stack) {
            let (key, next) = ((prefix, self.function(frame, is_kernel)), self.stacks.len());
            prefix = Some(*self.stack_index.entry(key).or_insert_with(|| {
                self.stacks.push(key);
                next
            }));
        }
        self.samples.push(prefix);
        self.weights.push(samples);
    }

    fn json(mut self, is_main: bool, gaps: &[&GapReport]) -> Json {
        let markers = self.markers(gaps);
        let (functions, stacks, samples) = (&self.functions, &self.stacks, self.samples.len());
        let (weights, weight_type): (Vec<Json>, _) = if self.weighs_time {
            (self.weights.iter().map(|&ns| json!(ms(ns))).collect(), "tracing-ms")
        } else {
            (self.weights.iter().map(|samples| json!(samples)).collect(), "samples")
        };
        let column =
            |pick: fn(&(usize, Option<usize>, usize)) -> Json| functions.iter().map(pick).collect::<Vec<_>>();
        let (count, nothing, zero) =
            (functions.len(), vec![Json::Null; functions.len()], vec![0; functions.len()]);
        json!({
            "name": self.name, "isMainThread": is_main, "processType": "default", "processName": self.name,
            "processStartupTime": 0, "processShutdownTime": null, "registerTime": 0, "unregisterTime": null,
            "pausedRanges": [], "pid": self.pid, "tid": self.tid, "showMarkersInTimeline": is_main,
            "frameTable": {
                "length": count, "address": vec![-1; count], "inlineDepth": zero, "category": column(|of| json!(of.2)),
                "subcategory": zero, "func": (0..count).collect::<Vec<_>>(), "nativeSymbol": nothing,
                "innerWindowID": zero, "line": nothing, "column": nothing,
            },
            "funcTable": {
                "length": count, "name": column(|of| json!(of.0)), "isJS": vec![false; count],
                "relevantForJS": vec![false; count], "resource": vec![-1; count], "fileName": column(|of| json!(of.1)),
                "lineNumber": nothing, "columnNumber": nothing,
            },
            "stackTable": {
                "length": stacks.len(), "prefix": stacks.iter().map(|of| of.0).collect::<Vec<_>>(),
                "frame": stacks.iter().map(|of| of.1).collect::<Vec<_>>(),
            },
            "samples": {
                "length": samples, "stack": self.samples, "timeDeltas": vec![0; samples],
                "weight": weights, "weightType": weight_type,
            },
            "markers": markers,
            "nativeSymbols": {"length": 0, "address": [], "functionSize": [], "libIndex": [], "name": []},
            "resourceTable": {"length": 0, "lib": [], "name": [], "host": [], "type": []},
            "stringArray": self.texts,
        })
    }

    fn markers(&mut self, gaps: &[&GapReport]) -> Json {
        let name = self.text("gap".to_owned());
        let count = gaps.len();
        let begin = |gap: &GapReport| ms(gap.gap.row.at_ns.saturating_sub(gap.gap.row.late_ns));
        let data = |gap: &GapReport| {
            json!({
                "type": "gap", "class": gap.class.name(), "cpu": gap.gap.row.cpu.0,
                "owner": gap.owner.as_ref().map_or_else(|| "others".to_owned(), Owner::in_words),
                "comm": gap.gap.row.comm.terminal(), "stolen": ms(gap.gap.row.stolen_ns),
            })
        };
        json!({
            "length": count, "category": vec![0; count], "name": vec![name; count], "phase": vec![1; count],
            "startTime": gaps.iter().map(|gap| begin(gap)).collect::<Vec<_>>(),
            "endTime": gaps.iter().map(|gap| ms(gap.gap.row.at_ns)).collect::<Vec<_>>(),
            "data": gaps.iter().map(|gap| data(gap)).collect::<Vec<_>>(),
        })
    }
}
