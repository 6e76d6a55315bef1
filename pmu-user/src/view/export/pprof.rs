//! pprof's profile.proto, compressed as its readers expect. It has a sample type for each sampling event,
//! with samples as values, and one for time off the CPU. Owners are labels.

mod message;

use std::{
    io::{self, Write},
    sync::Arc,
};

use flate2::{Compression, write::GzEncoder};
use prost::Message as _;

use self::message::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use super::{Export, Instruction, Lined, LinedFrame, Stacks, events, once::Once, signed, words};
use crate::{
    drain::{self, Header, Id, Owner},
    metric::{Frame, Report, number::Attribution},
    plan::Sampling,
    table::event::Counts,
    view::{stage::Stage, words::kind},
};

/// Export of all sampling events.
pub(super) struct Pprof;

impl Export for Pprof {
    fn stage(&mut self, into: &mut dyn Write, stage: Stage<'_>) -> io::Result<()> {
        let Stage::Whole { header, report, .. } = stage else { return Ok(()) };
        let profile = profile(header, report, &Stacks::some(header, report)?);
        let mut zipped = GzEncoder::new(into, Compression::default());
        zipped.write_all(&profile.encode_to_vec())?;
        zipped.finish().map(drop)
    }
}

fn profile(header: &Header, report: &Report, stacks: &Stacks<'_>) -> Profile {
    let (mut builder, events) = (Builder::new(), events(header));
    let (from_ns, length_ns) = report.tasks.as_ref().map_or((0, 0), |tasks| (tasks.from_ns, tasks.length_ns));
    let sample_type: Vec<ValueType> =
        stacks.events.iter().map(|(event, unit)| builder.value_type(event, unit)).collect();
    let sample = stacks.lined.iter().map(|lined| builder.sample(lined)).collect();
    let first = events.first();
    Profile {
        default_sample_type: sample_type.first().map_or(0, |first| first.kind),
        sample_type,
        sample,
        time_nanos: signed(header.started_unix_ns.saturating_add(from_ns)),
        duration_nanos: signed(length_ns),
        period_type: first.map(|event| builder.value_type(&event.event, unit(event))),
        period: first.map_or(0, |event| signed(event.period)),
        comment: comments(header, report).iter().map(|text| builder.text(text)).collect(),
        mapping: builder.mappings.list,
        location: builder.locations.list,
        function: builder.functions.list,
        string_table: builder.texts.list,
    }
}

/// Returns the unit in which an event counts from one sample to the next.
const fn unit(event: &Sampling) -> &'static str {
    match event.counts {
        Counts::WallNs => "nanoseconds",
        Counts::Cycles | Counts::Occurrences => "count",
    }
}

/// Returns the comments: what made the profile, where, and what is missing in it.
fn comments(header: &Header, report: &Report) -> Vec<String> {
    let machine = &header.machine;
    let host = [format!("host {}", machine.host.terminal()), format!("kernel {}", machine.kernel.terminal())];
    let events = events(header).iter().map(|event| {
        let unit = if unit(event) == "nanoseconds" { "ns" } else { "counts" };
        format!("event {}: a sample every {} {unit}", words::text(&event.event), event.period)
    });
    let coverage = report.tasks.iter().flat_map(|tasks| &tasks.quality.samples).filter_map(|samples| {
        let (seen, expected) = (samples.seen, samples.expected?);
        Some(format!(
            "event {}: {seen} of {expected} expected samples were seen",
            words::text(&samples.event)
        ))
    });
    let losses = report.losses.iter().filter(|(_, count)| **count > 0);
    let losses = losses.map(|(reason, count)| format!("lost {count}: {}", words::text(reason)));
    std::iter::once(words::exporter(header)).chain(host).chain(events).chain(coverage).chain(losses).collect()
}

/// Returns the identity of a cgroup as labels.
fn identity(owner: &Owner) -> Vec<(&'static str, String)> {
    let Owner::Cgroup { identity: Some(identity), .. } = owner else { return Vec::new() };
    let (container, pod) = (identity.container.as_ref(), identity.pod.as_ref());
    let labels = [
        ("container", container.and_then(|container| container.name.as_ref())),
        ("container_id", container.map(|container| &container.id)),
        ("image", container.and_then(|container| container.image.as_ref())),
        ("pod", pod.and_then(|pod| pod.name.as_ref())),
        ("namespace", pod.and_then(|pod| pod.namespace.as_ref())),
        ("unit", identity.unit.as_ref()),
    ];
    labels.into_iter().filter_map(|(key, text)| Some((key, text?.terminal().into_owned()))).collect()
}

/// Tables of a profile under construction. Ids begin with 1, and 0 means none.
struct Builder {
    texts: Once<String, String>,
    mappings: Once<(String, String), Mapping>,
    functions: Once<(i64, i64), Function>,
    locations: Once<Instruction, Location>,
}

impl Builder {
    fn new() -> Self {
        let mut texts = Once::new();
        // The format requires the empty text first.
        texts.add(String::new(), String::new());
        Self { texts, mappings: Once::new(), functions: Once::new(), locations: Once::new() }
    }

    fn text(&mut self, text: &str) -> i64 {
        let text = words::text(text);
        let place = self.texts.find(&text);
        place.unwrap_or_else(|| self.texts.add(text.clone(), text)) as i64
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType { kind: self.text(kind), unit: self.text(unit) }
    }

    fn sample(&mut self, lined: &Lined<'_>) -> Sample {
        let instructions = lined.instructions();
        Sample {
            location_id: instructions.map(|(frames, is_kernel)| self.location(&frames, is_kernel)).collect(),
            value: lined.values.iter().map(|&value| signed(value)).collect(),
            label: self.labels(&lined.stack.owner),
        }
    }

    fn labels(&mut self, owner: &Owner) -> Vec<Label> {
        let (id, comm, cgroup) = match owner {
            Owner::Process { pid, name, .. } => (vec![("pid", *pid)], Some(name), None),
            Owner::Thread { tid, pid, name, .. } => (vec![("pid", *pid), ("tid", *tid)], Some(name), None),
            Owner::Ended { name, .. } | Owner::Program { name, .. } | Owner::Comm { name } => {
                (Vec::new(), Some(name), None)
            }
            Owner::Cgroup { path, .. } => (Vec::new(), None, Some(path)),
            Owner::Exe { .. } | Owner::Other => (Vec::new(), None, None),
        };
        let kind = kind(Attribution::Owner(owner));
        let mut texts = vec![("owner", owner.in_words()), ("owner_kind", kind.to_owned())];
        texts.extend(comm.map(|name| ("comm", name.terminal().into_owned())));
        texts.extend(cgroup.map(|path| ("cgroup", path.terminal().into_owned())));
        texts.extend(identity(owner));
        let mut labels: Vec<Label> = texts
            .iter()
            .map(|(key, text)| Label { key: self.text(key), text: self.text(text), number: 0 })
            .collect();
        for (key, id) in id {
            // An id of another namespace is part of the owner's words.
            let Some(id) = Id::of(id).here() else { continue };
            labels.push(Label { key: self.text(key), text: 0, number: id.into() });
        }
        labels
    }

    /// Returns an instruction: a function, preceded by the functions inlined there, innermost first.
    fn location(&mut self, frames: &[LinedFrame<'_>], is_kernel: bool) -> u64 {
        let key = frames.iter().map(|&(frame, line)| (frame.clone(), line.cloned())).collect();
        let key = (is_kernel, key);
        if let Some(place) = self.locations.find(&key) {
            return place as u64 + 1;
        }
        let Some(&(frame, _)) = frames.last() else { return 0 };
        let mapping_id = self.mapping(frame, is_kernel);
        let (address, is_named) = match frame {
            Frame::Function { .. } | Frame::Rest | Frame::Cut(_) => (0, true),
            Frame::Offset { offset: address, .. } | Frame::Address(address) => (*address, false),
        };
        let line = frames.iter().filter(|_| is_named);
        let line = line.map(|&(frame, line)| Line {
            function_id: self.function(frame, line),
            line: line.map_or(0, |line| line.line.into()),
        });
        let line = line.collect();
        let id = self.locations.list.len() as u64 + 1;
        let location = Location { id, mapping_id, address, line };
        self.locations.add(key, location) as u64 + 1
    }

    /// Returns the file that holds a frame's code, or 0 if it is not known. Addresses in it are offsets.
    fn mapping(&mut self, frame: &Frame, is_kernel: bool) -> u64 {
        let file = match words::file(frame) {
            Some(path) => path.terminal().into_owned(),
            None if is_kernel => words::KERNEL.to_owned(),
            None => return 0,
        };
        let (Frame::Function { build_id, .. } | Frame::Offset { build_id, .. }) = frame else {
            return self.mapping_of(file, String::new());
        };
        self.mapping_of(file, build_id.clone().unwrap_or_default())
    }

    fn mapping_of(&mut self, file: String, build_id: String) -> u64 {
        let key = (file, build_id);
        if let Some(place) = self.mappings.find(&key) {
            return place as u64 + 1;
        }
        let mapping = Mapping {
            id: self.mappings.list.len() as u64 + 1,
            memory_start: 0,
            memory_limit: 0,
            filename: self.text(&key.0),
            build_id: self.text(&key.1),
            // Everything that can be named is named already.
            has_functions: true,
        };
        self.mappings.add(key, mapping) as u64 + 1
    }

    /// Returns a function in a source file, if that is known. The program that it is part of is in the
    /// mapping.
    fn function(&mut self, frame: &Frame, line: Option<&Arc<drain::Line>>) -> u64 {
        let name = self.text(&words::code(frame));
        let filename = self.text(&words::source(line).unwrap_or_default());
        if let Some(place) = self.functions.find(&(name, filename)) {
            return place as u64 + 1;
        }
        let id = self.functions.list.len() as u64 + 1;
        let function = Function { id, name, system_name: name, filename };
        self.functions.add((name, filename), function) as u64 + 1
    }
}
