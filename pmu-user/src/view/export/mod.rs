//! Exports: reports in the formats of other tools. Each is one file; none computes anything. Names of others come out as on a terminal,
//! and never as what a format would take for its own syntax.

mod firefox;
mod folded;
mod once;
mod otlp;
#[cfg(feature = "parquet")]
mod parquet;
mod perfetto;
mod pprof;
mod series;
mod speedscope;
mod words;

use std::io::{self, Write};

pub use self::otlp::profiles;
use super::stage::Stage;
use crate::{
    drain::Header,
    metric::{HotStack, Report},
    model::WeightedSamples,
    plan::Sampling,
};

/// Takes the stages of a run, and writes what they say in one format.
pub(super) trait Export {
    /// Takes one.
    fn stage(&mut self, into: &mut dyn Write, stage: Stage<'_>) -> io::Result<()>;
}

/// An export that has begun.
pub struct Exporter(pub(super) Box<dyn Export>);

/// What an export is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeOf {
    /// Stacks of samples, of the whole run: there must be some.
    Stacks,
    /// Numbers of intervals, each a tick of the recording unless told otherwise; and stacks, where there are any.
    Intervals,
    /// Numbers, in the intervals that a report would have unless told otherwise.
    Numbers,
}

/// Whether an export is of one sampling event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// Of one, or of [`OFF_CPU_TIME`].
    One,
    /// Of all.
    All,
}

/// What a format writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Lines of text.
    Lines,
    /// A JSON document.
    Json,
    /// Bytes, which are nothing for a terminal.
    Binary,
}

/// A format of other tools.
#[derive(Clone, Copy, Debug)]
pub struct ExportFormat {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is made of.
    pub made_of: MadeOf,
    /// Is it of one sampling event?
    pub events: Events,
    /// What it writes.
    pub content: Content,
    begin: fn(event: usize) -> Box<dyn Export>,
}

/// Formats of other tools: a new one is a file and a row here.
static FORMATS: &[ExportFormat] = &[
    ExportFormat {
        name: "folded",
        made_of: MadeOf::Stacks,
        events: Events::One,
        content: Content::Lines,
        begin: |event| Box::new(folded::Folded { event }),
    },
    ExportFormat {
        name: "pprof",
        made_of: MadeOf::Stacks,
        events: Events::All,
        content: Content::Binary,
        begin: |_| Box::new(pprof::Pprof),
    },
    ExportFormat {
        name: "otlp",
        made_of: MadeOf::Stacks,
        events: Events::All,
        content: Content::Binary,
        begin: |_| Box::new(otlp::Otlp),
    },
    ExportFormat {
        name: "speedscope",
        made_of: MadeOf::Stacks,
        events: Events::All,
        content: Content::Json,
        begin: |_| Box::new(speedscope::Speedscope),
    },
    ExportFormat {
        name: "firefox",
        made_of: MadeOf::Intervals,
        events: Events::All,
        content: Content::Json,
        begin: |_| Box::new(firefox::Firefox::default()),
    },
    ExportFormat {
        name: "perfetto",
        made_of: MadeOf::Intervals,
        events: Events::All,
        content: Content::Binary,
        begin: |_| Box::new(perfetto::Perfetto::default()),
    },
    #[cfg(feature = "parquet")]
    ExportFormat {
        name: "parquet",
        made_of: MadeOf::Numbers,
        events: Events::All,
        content: Content::Binary,
        begin: |_| Box::new(parquet::Parquet::default()),
    },
];

impl ExportFormat {
    /// Names of all.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FORMATS.iter().map(|format| format.name)
    }

    /// The format of this name, if there is one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        FORMATS.iter().find(|format| format.name == name).copied()
    }

    /// Begins an export; `event` is the sampling event's place in the plan, where it is of one, and behind the last [`OFF_CPU_TIME`].
    #[must_use]
    pub fn begin(self, event: usize) -> Exporter {
        Exporter((self.begin)(event))
    }
}

/// Events that took samples.
fn events(header: &Header) -> &[Sampling] {
    header.tasks.as_ref().map_or(&[], |tasks| &tasks.plan.sampling)
}

/// A number as formats that know no other take it.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What the time of tasks that block is called as an event: as perf does it (tools/perf/util/off_cpu.h).
pub const OFF_CPU_TIME: &str = "offcpu-time";

/// Stacks with a value for each of some events: samples, and of [`OFF_CPU_TIME`] ns.
pub(super) struct Stacks<'a> {
    /// What each event is called, and the unit of its values.
    pub(super) events: Vec<(String, &'static str)>,
    /// Stacks, each with its values by event.
    pub(super) rows: Vec<(&'a HotStack, Vec<u64>)>,
}

impl<'a> Stacks<'a> {
    /// Those of a report, of all sampling events and, if stacks of tasks that block were taken, of their time.
    pub(super) fn of(header: &Header, report: &'a Report) -> Self {
        let mut events: Vec<(String, &'static str)> =
            events(header).iter().map(|event| (words::text(&event.event), "samples")).collect();
        let samplers = events.len();
        let tasks = report.tasks.as_ref();
        let off_cpu = tasks.map_or(&[][..], |tasks| &tasks.off_cpu_stacks);
        if takes_off_cpu_stacks(header) {
            events.push((OFF_CPU_TIME.to_owned(), "nanoseconds"));
        }
        let values = |stack: &'a HotStack, first: usize, value: fn(&WeightedSamples) -> u64| {
            let mut values = vec![0; events.len()];
            values.iter_mut().skip(first).zip(&stack.tallies).for_each(|(of, tally)| *of = value(tally));
            (stack, values)
        };
        let samples = tasks.map_or(&[][..], |tasks| &tasks.stacks).iter();
        let samples = samples.map(|stack| values(stack, 0, |tally| tally.samples));
        let off_cpu = off_cpu.iter().map(|stack| values(stack, samplers, |tally| tally.weighted as u64));
        let rows = samples.chain(off_cpu).collect();
        Self { events, rows }
    }

    /// The same.
    ///
    /// # Errors
    ///
    /// There is none: what other tools are given is never empty.
    fn some(header: &Header, report: &'a Report) -> io::Result<Self> {
        let stacks = Self::of(header, report);
        if stacks.rows.is_empty() {
            return Err(io::Error::other("no sample with a stack was taken: there is nothing to export"));
        }
        Ok(stacks)
    }
}

/// Were stacks of tasks that block taken?
#[must_use]
pub fn takes_off_cpu_stacks(header: &Header) -> bool {
    header.tasks.as_ref().is_some_and(|tasks| tasks.plan.takes_off_cpu_stacks())
}
