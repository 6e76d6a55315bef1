//! OTLP profiles, which are in development (opentelemetry-proto 1.10, profiles/v1development). Each owner has
//! a resource. A resource has a profile for each sampling event, with samples as values, and one for time off
//! the CPU.

mod dictionary;
mod message;

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Write},
};

use prost::Message as _;

use self::{
    dictionary::{Tables, Told},
    message::{Profile, Request, ResourceProfiles, Sample, ScopeProfiles},
};
use super::{Export, OFF_CPU_TIME, Stacks, events, signed, words};
use crate::{
    drain::{Header, Id, Owner},
    metric::{
        Report,
        exposed::{target_info, target_name},
    },
    table::event::Counts,
    view::{
        otlp::{KeyValue, Resource, Scope},
        stage::Stage,
    },
};

/// Export of all sampling events.
pub(super) struct Otlp;

impl Export for Otlp {
    fn stage(&mut self, into: &mut dyn Write, stage: Stage<'_>) -> io::Result<()> {
        let Stage::Whole { header, report, .. } = stage else { return Ok(()) };
        let stacks = Stacks::some(header, report)?;
        into.write_all(&request(header, report, &stacks).encode_to_vec())
    }
}

/// Returns the request that exports the stacks of a report of the run that `header` describes. Returns `None`
/// if it has no stacks.
#[must_use]
pub fn profiles(header: &Header, report: &Report) -> Option<Vec<u8>> {
    let stacks = Stacks::of(header, report);
    (!stacks.rows.is_empty()).then(|| request(header, report, &stacks).encode_to_vec())
}

/// Samples of an owner by event, and the attributes of its resource.
struct Of {
    attributes: Vec<KeyValue>,
    samples: Vec<Vec<Sample>>,
}

fn request(header: &Header, report: &Report, stacks: &Stacks<'_>) -> Request {
    let mut tables = Tables::new();
    let mut owners: BTreeMap<String, Of> = BTreeMap::new();
    for lined in &stacks.lined {
        let (stack, values) = (lined.stack, &lined.values);
        let (at, attributes) = (tables.stack(lined), thread(&mut tables, &stack.owner));
        let of = owners.entry(whose(&stack.owner)).or_insert_with_key(|whose| Of {
            attributes: resource(header, whose, &stack.owner),
            samples: vec![Vec::new(); stacks.events.len()],
        });
        for (samples, &value) in of.samples.iter_mut().zip(values).filter(|(_, value)| **value > 0) {
            samples.push(Sample { stack: at, attributes: attributes.clone(), values: vec![signed(value)] });
        }
    }
    let empty: Vec<Profile> = stacks
        .events
        .iter()
        .enumerate()
        .map(|(at, (event, _))| profile(&mut tables, (at, event), header, report))
        .collect();
    let resource_profiles = owners.into_iter().map(|(whose, of)| {
        let of_events = of.samples.into_iter().zip(&empty).filter(|(samples, _)| !samples.is_empty());
        let profiles = of_events.enumerate().map(|(at, (samples, profile))| Profile {
            samples,
            profile_id: id(header, profile.time_unix_nano, &whose, at),
            ..profile.clone()
        });
        let scope = Scope { name: "pmbpf".to_owned(), version: header.version.clone() };
        ResourceProfiles {
            resource: Some(Resource { attributes: of.attributes }),
            scope_profiles: vec![ScopeProfiles { scope: Some(scope), profiles: profiles.collect() }],
        }
    });
    Request { resource_profiles: resource_profiles.collect(), dictionary: Some(tables.finish()) }
}

/// Returns the profile of one event, without samples. `at` is its index in the plan. The index behind the
/// last one is time off the CPU.
fn profile(tables: &mut Tables, (at, event): (usize, &str), header: &Header, report: &Report) -> Profile {
    let (from_ns, length_ns) = report.tasks.as_ref().map_or((0, 0), |tasks| (tasks.from_ns, tasks.length_ns));
    let (sample_type, period_type, period) = match events(header).get(at) {
        None => (tables.value_type(event, "nanoseconds"), tables.value_type(event, "nanoseconds"), 1),
        Some(sampling) => {
            // Readers recognise profiles of time by this name, regardless of the clock.
            let (kind, unit) = match sampling.counts {
                Counts::WallNs => ("cpu", "nanoseconds"),
                Counts::Cycles | Counts::Occurrences => (event, "count"),
            };
            (tables.value_type("samples", "count"), tables.value_type(kind, unit), signed(sampling.period))
        }
    };
    Profile {
        sample_type: Some(sample_type),
        samples: Vec::new(),
        time_unix_nano: header.started_unix_ns.saturating_add(from_ns),
        duration_nano: length_ns,
        period_type: Some(period_type),
        period,
        profile_id: Vec::new(),
        attributes: quality(tables, event, report),
    }
}

/// Returns attributes on how far the samples of an event can be trusted, over all CPUs.
fn quality(tables: &mut Tables, event: &str, report: &Report) -> Vec<i32> {
    let samples = report.tasks.iter().flat_map(|tasks| &tasks.quality.samples);
    let samples = samples.filter(|samples| event != OFF_CPU_TIME && words::text(&samples.event) == event);
    let mut told: Vec<(String, u64)> = Vec::new();
    for samples in samples {
        told.push(("pmbpf.samples.seen".to_owned(), samples.seen));
        told.extend(samples.expected.map(|expected| ("pmbpf.samples.expected".to_owned(), expected)));
    }
    let losses = report.losses.iter().filter(|(_, count)| **count > 0);
    told.extend(losses.map(|(reason, &count)| (format!("pmbpf.losses.{reason}"), count)));
    told.into_iter().map(|(key, count)| tables.attribute(&key, Told::Number(signed(count)))).collect()
}

/// Returns what the owners of one resource share: for a cgroup the name of its target when scraped, for a
/// thread its process.
fn whose(owner: &Owner) -> String {
    match owner {
        Owner::Thread { pid, .. } => format!("pid {pid}"),
        Owner::Cgroup { .. } => target_name(owner).unwrap_or_default(),
        _ => owner.in_words(),
    }
}

/// Returns the attributes of an owner's resource. Keys follow OpenTelemetry's semantic conventions where
/// these define one.
fn resource(header: &Header, whose: &str, owner: &Owner) -> Vec<KeyValue> {
    let comm = match owner {
        Owner::Process { name, .. }
        | Owner::Comm { name }
        | Owner::Exe { name }
        | Owner::Ended { name, .. }
        | Owner::Program { name, .. } => Some(name.terminal().into_owned()),
        _ => None,
    };
    let mut all = vec![
        KeyValue::text("service.name", comm.as_deref().unwrap_or(whose)),
        KeyValue::text("host.name", &header.machine.host.terminal()),
    ];
    all.extend(comm.map(|comm| KeyValue::text("process.executable.name", &comm)));
    if let Owner::Process { pid, .. } | Owner::Thread { pid, .. } = owner {
        // An id of another namespace is part of the owner's words.
        let pid = Id::of(*pid).here().map(|pid| KeyValue::number("process.pid", pid.into()));
        all.extend(pid);
    }
    let labels = target_info(owner);
    let is_of_pod = labels.iter().any(|(label, _)| *label == "k8s_pod");
    for (label, text) in &labels {
        let key = match *label {
            "runtime" => "container.runtime.name",
            "container_name" if is_of_pod => "k8s.container.name",
            "container_name" => "container.name",
            "container_id" => "container.id",
            "image" => "container.image.name",
            "k8s_namespace" => "k8s.namespace.name",
            "k8s_pod" => "k8s.pod.name",
            "k8s_pod_uid" => "k8s.pod.uid",
            "path" => "pmbpf.path",
            "unit" => "pmbpf.unit",
            "slurm_job" => "pmbpf.job",
            _ => continue,
        };
        all.push(KeyValue::text(key, text));
    }
    all
}

/// Returns the attributes of the thread of a sample, where threads are distinguished.
fn thread(tables: &mut Tables, owner: &Owner) -> Vec<i32> {
    let Owner::Thread { tid, name, .. } = owner else { return Vec::new() };
    let id = Id::of(*tid).here().map(|tid| tables.attribute("thread.id", Told::Number(tid.into())));
    let name = tables.attribute("thread.name", Told::Text(name.terminal().into_owned()));
    id.into_iter().chain([name]).collect()
}

/// Returns the id that distinguishes a profile from all others, by host, run, time, owner and event.
fn id(header: &Header, time_unix_nano: u64, whose: &str, event: usize) -> Vec<u8> {
    let half = |half: u8| {
        let mut hasher = DefaultHasher::new();
        let host = header.machine.host.terminal();
        (half, header.started_unix_ns, host, time_unix_nano, whose, event).hash(&mut hasher);
        hasher.finish().to_be_bytes()
    };
    [half(0), half(1)].concat()
}
