//! Perfetto's trace: a counter track for each owner and metric, and gaps as slices on one track per CPU. The
//! value of a counter is that of the interval that begins there. Packets are written as intervals arrive.
//! Only the ids and last values of tracks are kept.

mod message;

use std::{
    collections::HashMap,
    convert::Infallible,
    io::{self, Write},
};

use prost::Message as _;

use self::message::{
    Clock, ClockSnapshot, CounterDescriptor, DebugAnnotation, Trace, TracePacket, TrackDescriptor, TrackEvent,
};
use super::{Export, series, words};
use crate::{
    metric::{GapReport, Report, value::Value},
    view::stage::Stage,
};

/// Clock numbers (`BuiltinClock`): the clock of traces and the time of day.
const BOOTTIME: u32 = 6;
const REALTIME: u32 = 1;
/// Kinds of `TrackEvent`.
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const COUNTER: i32 = 4;
/// Sequence id of the only writer of packets.
const SEQUENCE: u32 = 1;

/// Export of the numbers of every interval.
#[derive(Default)]
pub(super) struct Perfetto {
    started_ns: u64,
    /// Track ids, by what they belong to and by name.
    tracks: HashMap<(String, String), u64>,
    /// Last value on each track, and the end of its interval.
    last: HashMap<u64, (f64, u64)>,
    /// Ends of the last slices, by CPU. Slices of a track may not overlap.
    ends: HashMap<u32, u64>,
}

impl Export for Perfetto {
    fn stage(&mut self, into: &mut dyn Write, stage: Stage<'_>) -> io::Result<()> {
        let packets = match stage {
            Stage::Begin(header) => {
                self.started_ns = header.started_unix_ns;
                vec![self.clocks()]
            }
            Stage::Interval(report, _) => self.interval(report),
            Stage::Whole { report, intervals: 0, .. } => [self.interval(report), self.end()].concat(),
            Stage::Whole { .. } => self.end(),
        };
        // A trace is a sequence of packets.
        into.write_all(&Trace { packet: packets }.encode_to_vec())
    }
}

impl Perfetto {
    /// Returns the clock snapshot. The clock of the trace is the time of day.
    fn clocks(&self) -> TracePacket {
        let at = |clock_id| Clock { clock_id: Some(clock_id), timestamp: Some(self.started_ns) };
        let clock_snapshot = Some(ClockSnapshot { clocks: vec![at(BOOTTIME), at(REALTIME)] });
        TracePacket { clock_snapshot, timestamp: Some(self.started_ns), ..packet() }
    }

    fn interval(&mut self, report: &Report) -> Vec<TracePacket> {
        let mut packets = Vec::new();
        let _ = report.by_source::<Infallible>(|(from_ns, length_ns), numbers| {
            for number in numbers {
                let (whose, subject) = (series::whose(number.whose), series::subject(&number));
                for part in series::parts(&number) {
                    // A missing number yields no value, never 0.
                    let Value::Known(known) = part.value.as_ref() else { continue };
                    let name = format!("{subject} {}", part.metric);
                    let track = self.track(&whose, name.trim_start(), Some(part.unit), &mut packets);
                    self.last.insert(track, (known.estimate, from_ns.saturating_add(length_ns)));
                    packets.push(self.counter(track, from_ns, known.estimate));
                }
            }
            Ok(())
        });
        let blind = report.tasks.iter().map(|tasks| &tasks.blind);
        let mut gaps: Vec<&GapReport> = blind.flat_map(|of| of.gaps.iter().chain(&of.others_gaps)).collect();
        gaps.sort_by_key(|gap| gap.gap.row.at_ns);
        gaps.into_iter().for_each(|gap| self.gap(gap, &mut packets));
        packets
    }

    /// Returns the packets that end the counters. A counter keeps its value until the next one, and the last
    /// value until its interval ends.
    fn end(&self) -> Vec<TracePacket> {
        let mut last: Vec<_> = self.last.iter().collect();
        last.sort_unstable_by_key(|(track, _)| **track);
        last.into_iter().map(|(track, (value, at_ns))| self.counter(*track, *at_ns, *value)).collect()
    }

    fn at(&self, ns: u64) -> TracePacket {
        TracePacket { timestamp: Some(self.started_ns.saturating_add(ns)), ..packet() }
    }

    fn counter(&self, track: u64, at_ns: u64, value: f64) -> TracePacket {
        let event = TrackEvent {
            kind: Some(COUNTER),
            track_uuid: Some(track),
            double_counter_value: Some(value),
            ..TrackEvent::default()
        };
        TracePacket { track_event: Some(event), ..self.at(at_ns) }
    }

    fn gap(&mut self, gap: &GapReport, packets: &mut Vec<TracePacket>) {
        let row = &gap.gap.row;
        let track = self.track("blind time", &format!("CPU {}", row.cpu.0), None, packets);
        let end = self.ends.entry(row.cpu.0).or_default();
        let from = row.at_ns.saturating_sub(row.late_ns).max(*end);
        *end = row.at_ns.max(from);
        let text = |name: &str, text: String| DebugAnnotation {
            name: Some(name.to_owned()),
            string_value: Some(text),
            uint_value: None,
        };
        let number = |name: &str, number| DebugAnnotation {
            name: Some(name.to_owned()),
            string_value: None,
            uint_value: Some(number),
        };
        let mut debug_annotations = vec![
            text("comm", row.comm.terminal().into_owned()),
            number("late_ns", row.late_ns),
            number("stolen_ns", row.stolen_ns),
        ];
        debug_annotations.extend(gap.owner.as_ref().map(|owner| text("owner", owner.in_words())));
        let begin = TrackEvent {
            kind: Some(SLICE_BEGIN),
            track_uuid: Some(track),
            name: Some(gap.class.name().to_owned()),
            debug_annotations,
            ..TrackEvent::default()
        };
        let over = TrackEvent { kind: Some(SLICE_END), track_uuid: Some(track), ..TrackEvent::default() };
        for (at_ns, event) in [(from, begin), (row.at_ns.max(from), over)] {
            packets.push(TracePacket { track_event: Some(event), ..self.at(at_ns) });
        }
    }

    /// Returns the id of a track below the track that it belongs to. A track with a unit is a counter. Both
    /// tracks are described before they are used.
    fn track(&mut self, of: &str, name: &str, unit: Option<&str>, packets: &mut Vec<TracePacket>) -> u64 {
        let parent = self.described((of, ""), packets, |uuid| TrackDescriptor {
            uuid: Some(uuid),
            name: Some(of.to_owned()),
            ..TrackDescriptor::default()
        });
        self.described((of, name), packets, |uuid| TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name.to_owned()),
            parent_uuid: Some(parent),
            counter: unit.map(|unit| CounterDescriptor { unit_name: Some(words::text(unit)) }),
        })
    }

    fn described(
        &mut self,
        (of, name): (&str, &str),
        packets: &mut Vec<TracePacket>,
        describe: impl FnOnce(u64) -> TrackDescriptor,
    ) -> u64 {
        // 0 is the default track.
        let next = self.tracks.len() as u64 + 1;
        *self.tracks.entry((of.to_owned(), name.to_owned())).or_insert_with(|| {
            packets.push(TracePacket { track_descriptor: Some(describe(next)), ..packet() });
            next
        })
    }
}

fn packet() -> TracePacket {
    TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..TracePacket::default() }
}
