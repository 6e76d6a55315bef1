//! Exports: reports in the formats of other tools. Each format is one file and computes nothing. Names chosen
//! by others are escaped as on a terminal, and never come out as syntax of the format.

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

use std::{
    io::{self, Write},
    sync::Arc,
};

pub use self::otlp::profiles;
use super::stage::Stage;
use crate::{
    drain::{Header, Line},
    metric::{Frame, HotStack, Report},
    model::WeightedSamples,
    plan::Sampling,
};

/// Consumer of the stages of a run, which writes them in one format.
pub(super) trait Export {
    /// Takes one stage of a run.
    fn stage(&mut self, into: &mut dyn Write, stage: Stage<'_>) -> io::Result<()>;
}

/// An export that has begun.
pub struct Exporter(pub(super) Box<dyn Export>);

/// Data that an export is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeOf {
    /// Stacks of samples of the whole run. At least one is required.
    Stacks,
    /// Numbers of intervals, by default one tick of the recording each, and stacks where there are any.
    Intervals,
    /// Numbers, by default in the intervals of a report.
    Numbers,
}

/// Sampling events that an export covers: one or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// One event, or [`OFF_CPU_TIME`].
    One,
    /// All sampling events.
    All,
}

/// Kind of content that a format writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Lines of text.
    Lines,
    /// A JSON document.
    Json,
    /// Bytes, unfit for a terminal.
    Binary,
}

/// A format of other tools.
#[derive(Clone, Copy, Debug)]
pub struct ExportFormat {
    /// Name on the command line.
    pub name: &'static str,
    /// Data that the export is made from.
    pub made_of: MadeOf,
    /// Sampling events that the export covers.
    pub events: Events,
    /// Kind of content that the format writes.
    pub content: Content,
    begin: fn(event: usize) -> Box<dyn Export>,
}

/// Formats of other tools. A new format is a file and a row here.
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
    /// Returns the names of all formats.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FORMATS.iter().map(|format| format.name)
    }

    /// Returns the format of this name, if there is one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        FORMATS.iter().find(|format| format.name == name).copied()
    }

    /// Begins an export. `event` is the index of the sampling event in the plan, if the export is of one
    /// event. The index behind the last one is [`OFF_CPU_TIME`].
    #[must_use]
    pub fn begin(self, event: usize) -> Exporter {
        Exporter((self.begin)(event))
    }
}

/// Returns the events that took samples.
fn events(header: &Header) -> &[Sampling] {
    header.tasks.as_ref().map_or(&[], |tasks| &tasks.plan.sampling)
}

/// Returns a number as `i64`, for fields that hold only signed numbers.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Event name of the time of tasks that block, as in perf (tools/perf/util/off_cpu.h).
pub const OFF_CPU_TIME: &str = "offcpu-time";

/// Stacks with a value for each event: samples, or ns for [`OFF_CPU_TIME`].
pub(super) struct Stacks<'a> {
    /// Name of each event, and the unit of its values.
    pub(super) events: Vec<(String, &'static str)>,
    /// Stacks, each with its values by event.
    pub(super) rows: Vec<(&'a HotStack, Vec<u64>)>,
    /// Same stacks, by the source lines of their frames.
    pub(super) lined: Vec<Lined<'a>>,
}

/// A stack whose frames are at certain source lines.
pub(super) struct Lined<'a> {
    pub(super) stack: &'a HotStack,
    /// The line of each frame, if it is known.
    pub(super) lines: &'a [Option<Arc<Line>>],
    /// Values by event.
    pub(super) values: Vec<u64>,
}

/// A frame of a stack, and its line.
pub(super) type LinedFrame<'a> = (&'a Frame, Option<&'a Arc<Line>>);

/// Key of an instruction: whether it is the kernel's, and its frames with their lines.
type Instruction = (bool, Vec<(Frame, Option<Arc<Line>>)>);

/// Index of the first event that the tallies cover, and the function that takes the value from a tally.
type Valued = (usize, fn(&WeightedSamples) -> u64);

impl<'a> Lined<'a> {
    /// Returns the frames, innermost first, each with its line, and whether they are the kernel's. Frames of
    /// one instruction share a list: all but the last are inlined into the last.
    pub(super) fn instructions(&self) -> impl Iterator<Item = (Vec<LinedFrame<'a>>, bool)> {
        let (lines, kernel) = (self.lines, self.stack.kernel);
        let frames = self.stack.frames.iter().enumerate();
        let frames: Vec<(usize, LinedFrame<'a>)> =
            frames.map(|(at, frame)| (at, (frame, lines.get(at).and_then(Option::as_ref)))).collect();
        let is_inlined = |frame: &Frame| matches!(frame, Frame::Function { inlined: true, .. });
        let one = |part: &[(usize, LinedFrame<'a>)]| {
            (part.iter().map(|(_, frame)| *frame).collect(), part.first().is_some_and(|(at, _)| *at < kernel))
        };
        let of_one = frames.chunk_by(|(_, (inner, _)), _| is_inlined(inner)).map(one);
        of_one.collect::<Vec<_>>().into_iter()
    }
}

impl<'a> Stacks<'a> {
    /// Returns the stacks of a report, of all sampling events. Stacks of tasks that block are included with
    /// their time, if they were taken.
    pub(super) fn of(header: &Header, report: &'a Report) -> Self {
        let mut events: Vec<(String, &'static str)> =
            events(header).iter().map(|event| (words::text(&event.event), "samples")).collect();
        let samplers = events.len();
        let tasks = report.tasks.as_ref();
        let off_cpu = tasks.map_or(&[][..], |tasks| &tasks.off_cpu_stacks);
        if takes_off_cpu_stacks(header) {
            events.push((OFF_CPU_TIME.to_owned(), "nanoseconds"));
        }
        let values = |tallies: &[WeightedSamples], (first, value): Valued| {
            let mut values = vec![0; events.len()];
            values.iter_mut().skip(first).zip(tallies).for_each(|(of, tally)| *of = value(tally));
            values
        };
        let of_samples: Valued = (0, |tally| tally.samples);
        let of_time: Valued = (samplers, |tally| tally.weighted as u64);
        let samples = tasks.map_or(&[][..], |tasks| &tasks.stacks).iter().map(|stack| (stack, of_samples));
        let stacks = samples.chain(off_cpu.iter().map(|stack| (stack, of_time)));
        let (mut rows, mut lined) = (Vec::new(), Vec::new());
        for (stack, of) in stacks {
            rows.push((stack, values(&stack.tallies, of)));
            let of_lines = stack.by_line.iter();
            lined.extend(of_lines.map(|by| Lined {
                stack,
                lines: &by.lines,
                values: values(&by.tallies, of),
            }));
        }
        Self { events, rows, lined }
    }

    /// Returns the stacks of a report, as `Self::of` does.
    ///
    /// # Errors
    ///
    /// The report has none: other tools never receive an empty export.
    fn some(header: &Header, report: &'a Report) -> io::Result<Self> {
        let stacks = Self::of(header, report);
        if stacks.rows.is_empty() {
            return Err(io::Error::other("no sample with a stack was taken: there is nothing to export"));
        }
        Ok(stacks)
    }
}

/// Returns whether stacks of tasks that block were taken.
#[must_use]
pub fn takes_off_cpu_stacks(header: &Header) -> bool {
    header.tasks.as_ref().is_some_and(|tasks| tasks.plan.takes_off_cpu_stacks())
}
