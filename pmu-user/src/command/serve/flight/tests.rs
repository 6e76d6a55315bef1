//! Tests with recordings through the ring: a dump reports what the whole recording reports of that time.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{
    folder::Folder,
    ring::{Bounds, Follows, Ring},
};
use crate::{
    command::pipeline::{Pipeline, Span},
    drain::{
        Drain, Ending, Header, Stopped,
        checkpoint::Checkpoint,
        recording::{Opened, Recording},
    },
    machine::testing::Tree,
    metric::filter::Filter,
    schema,
    view::{Format, text::Style},
};

/// Recordings of every source with rows that are left out while they do not change.
const RECORDINGS: [&str; 9] =
    ["boxes", "cgroups", "culprits", "events", "io", "masked", "off_cpu", "resctrl", "topdown"];

const ENOUGH: Bounds = Bounds { time_ns: u64::MAX, bytes: u64::MAX };

/// Returns a recording as a run of today would write it. Older ones state once where an address lies, hold
/// samples by address, and lack the start of counting by the clock of processes.
fn recording(name: &str) -> Recording {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings");
    let mut recording = Recording::read(&recordings.join(name).with_extension("pmbpf")).unwrap();
    for tasks in recording.header.tasks.iter_mut().filter(|tasks| tasks.started_boot_ns == 0) {
        // The recorded machines had not been suspended.
        tasks.started_boot_ns = tasks.started_ns;
    }
    for tasks in recording.drains.iter_mut().filter_map(|drain| drain.tasks.as_mut()) {
        tasks.places.clear();
        tasks.hot.clear();
        tasks.stacks.clear();
    }
    recording
}

/// Returns a folder for a flight recorder, removed with its tree.
fn folder() -> (Tree, PathBuf) {
    let tree = Tree::new(&[("file", "")]);
    let path = tree.root.join("flight");
    (tree, path)
}

/// Passes a ring the drains up to `last`, a checkpoint after `first`, and another one after every second
/// drain of the rest.
fn fly(ring: &mut Ring, drains: &[Drain], first: usize, last: usize) {
    let mut checkpoint = Checkpoint::default();
    drains[..=first].iter().for_each(|drain| checkpoint.take(drain));
    ring.begin(&checkpoint.drain(), Follows::No).unwrap();
    for (number, drain) in (0..).zip(&drains[first + 1..=last]) {
        ring.drain(drain).unwrap();
        checkpoint.take(drain);
        if number % 2 == 1 {
            ring.begin(&checkpoint.drain(), Follows::Yes).unwrap();
        }
    }
}

/// Returns rows of JSON of the whole run: all that have numbers.
fn reported(header: &Header, drains: &[Drain], names: Option<&Recording>, span: Option<Span>) -> Vec<Value> {
    let mut header = header.clone();
    header.tasks.iter_mut().for_each(|tasks| tasks.plan.interval = None);
    header.io.iter_mut().for_each(|io| io.plan.interval = None);
    let mut bytes = Vec::new();
    let format = (Format::Json.into(), Style::default());
    let mut pipeline = Pipeline::new(&header, None, format, Box::new(&mut bytes)).unwrap();
    pipeline.select(span, Filter::default());
    drains.iter().for_each(|drain| drop(pipeline.drain(drain.clone()).unwrap()));
    if let Some(names) = names.and_then(|recording| recording.names.as_ref()) {
        pipeline.learn(names);
    }
    let duration = std::time::Duration::from_secs(1);
    pipeline.finish(&Ending { stopped: Stopped::Duration, workload: None, duration, usage: None }).unwrap();
    drop(pipeline);
    let mut rows = schema::rows(&String::from_utf8(bytes).unwrap());
    rows.retain(|row| !matches!(row["kind"].as_str(), Some("header" | "span")));
    for row in &mut rows {
        // Cost of pmbpf itself, and when that was.
        let row = row.as_object_mut().unwrap();
        for field in ["t", "self", "duration_ns", "span"] {
            row.remove(field);
        }
    }
    rows
}

#[test]
fn a_dump_reports_what_the_whole_recording_does_of_that_time() {
    let mut compared = BTreeSet::new();
    for name in RECORDINGS {
        let whole = recording(name);
        let ends = whole.drains.len() - 1;
        let spans = [(1, ends), (1, ends - 1), (ends / 2, ends - 1)];
        for (first, last) in spans.into_iter().filter(|(first, last)| (1..*last).contains(first)) {
            let (_tree, path) = folder();
            let mut ring = Ring::new(Folder::take(&path, 3).unwrap(), whole.header.clone(), ENOUGH);
            fly(&mut ring, &whole.drains, first, last);
            let (dump, _) = ring.dump(jiff::Timestamp::now(), "test").unwrap();
            let at = |number: usize| whole.drains[number].at_ns() as f64 / 1e3;
            let span = Span::parse(&format!("{}us..{}us", at(first), at(last))).unwrap();
            let read = Recording::read(&dump).unwrap();
            assert_eq!((read.lost_bytes, read.ending.is_some()), (0, true), "{name}");
            let ours = reported(&read.header, &read.drains, Some(&whole), None);
            let truth = reported(&whole.header, &whole.drains, Some(&whole), Some(span));
            assert!(truth.len() > 1, "{name}: {truth:?}");
            for (ours, truth) in ours.iter().zip(&truth) {
                assert_eq!(ours, truth, "{name} {first}..{last}");
            }
            assert_eq!(ours.len(), truth.len(), "{name}");
            compared.insert(name);
        }
    }
    assert_eq!(compared.len(), RECORDINGS.len(), "{compared:?}");
}

#[test]
fn old_segments_go_when_there_is_too_much_and_what_is_left_is_a_recording() {
    let whole = recording("off_cpu");
    let (_tree, path) = folder();
    let from_ns = whole.drains[0].at_ns();
    let length_ns = whole.drains.last().unwrap().at_ns() - from_ns;
    let bounds = Bounds { time_ns: length_ns / 4, bytes: u64::MAX };
    let mut ring = Ring::new(Folder::take(&path, 3).unwrap(), whole.header.clone(), bounds);
    fly(&mut ring, &whole.drains, 0, whole.drains.len() - 1);
    let kept_ns = ring.span_ns();
    assert!(kept_ns >= bounds.time_ns && kept_ns < length_ns, "{kept_ns} of {length_ns}");
    let files = || std::fs::read_dir(&path).unwrap().flatten().filter(|file| file.file_name() != "lock");
    let segments: Vec<PathBuf> = files().map(|file| file.path()).collect();
    for segment in &segments {
        let opened = Opened::open(segment).unwrap();
        assert!(opened.header.begins_midway, "{}", segment.display());
    }
    let all: u64 = segments.iter().map(|segment| segment.metadata().unwrap().len()).sum();
    assert_eq!(ring.bytes(), all);
    ring.clear().unwrap();
    assert_eq!(files().count(), 0);
}
