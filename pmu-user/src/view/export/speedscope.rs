//! speedscope's file format (<https://www.speedscope.app/file-format-schema.json>): a sampled profile for
//! each event, time off the CPU included. Stacks begin with their owner.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use serde::Serialize;

use super::{Export, Lined, Stacks, words};
use crate::{drain::Header, view::stage::Stage};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// Export of all sampling events.
pub(super) struct Speedscope;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    exporter: String,
    active_profile_index: u32,
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

impl Export for Speedscope {
    fn stage(&mut self, into: &mut dyn Write, stage: Stage<'_>) -> io::Result<()> {
        let Stage::Whole { header, report, .. } = stage else { return Ok(()) };
        serde_json::to_writer(&mut *into, &file(header, &Stacks::some(header, report)?))?;
        writeln!(into)
    }
}

fn file(header: &Header, stacks: &Stacks<'_>) -> File {
    let mut frames = Frames::default();
    let indexed: Vec<Vec<usize>> = stacks.lined.iter().map(|lined| frames.of(lined)).collect();
    let profile = |(event, (name, unit)): (usize, &(String, &'static str))| {
        let hit = stacks.lined.iter().zip(&indexed).map(|(lined, frames)| (lined.values[event], frames));
        let (weights, samples): (Vec<u64>, Vec<Vec<usize>>) =
            hit.filter(|(weight, _)| *weight > 0).map(|(weight, frames)| (weight, frames.clone())).unzip();
        let end_value = weights.iter().copied().fold(0, u64::saturating_add);
        // For samples, speedscope expects no unit.
        let unit = if *unit == "samples" { "none" } else { unit };
        Profile { kind: "sampled", name: name.clone(), unit, start_value: 0, end_value, samples, weights }
    };
    File {
        schema: SCHEMA,
        name: words::run(header),
        exporter: words::exporter(header),
        active_profile_index: 0,
        profiles: stacks.events.iter().enumerate().map(profile).collect(),
        shared: Shared { frames: frames.list },
    }
}

/// Table that holds each frame once.
#[derive(Default)]
struct Frames {
    list: Vec<Frame>,
    index: HashMap<Frame, usize>,
}

impl Frames {
    /// Returns a stack, with its owner before its outermost frame.
    fn of(&mut self, lined: &Lined<'_>) -> Vec<usize> {
        let owner = self.index(Frame { name: lined.stack.owner.in_words(), file: None, line: None });
        let lines = lined.lines.iter().map(Option::as_ref);
        let frames = lined.stack.frames.iter().enumerate().zip(lines.chain(std::iter::repeat(None)));
        let mut stack = vec![owner];
        for ((at, frame), line) in frames.collect::<Vec<_>>().into_iter().rev() {
            let is_kernel = at < lined.stack.kernel;
            let file = words::source(line).or_else(|| is_kernel.then(|| words::KERNEL.to_owned()));
            let line = line.map(|line| line.line);
            stack.push(self.index(Frame { name: words::code(frame), file, line }));
        }
        stack
    }

    fn index(&mut self, frame: Frame) -> usize {
        let next = self.list.len();
        *self.index.entry(frame).or_insert_with_key(|frame| {
            self.list.push(frame.clone());
            next
        })
    }
}
