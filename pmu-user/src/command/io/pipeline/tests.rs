//! Reports of drains as they were read, and of the same drains out of a recording.

use std::time::Duration;

use super::IoPipeline;
use crate::{
    drain::{
        Absent, Ending, Stopped,
        io::{
            BoxSlice, IoDrain, IoHeader,
            testing::{drains, header},
        },
        recording::{IoRecording, Overwrite, Writer},
    },
    machine::testing::Tree,
    view::{Format, text::Style},
};

fn report(header: &IoHeader, drains: &[IoDrain], format: Format) -> String {
    let mut bytes = Vec::new();
    let style = Style { rows_max: 20, blocks: false };
    let mut pipeline = IoPipeline::new(header, format, style, Box::new(&mut bytes)).unwrap();
    drains.iter().for_each(|drain| pipeline.drain(drain.clone()).unwrap());
    pipeline.finish(&ending()).unwrap();
    drop(pipeline);
    String::from_utf8(bytes).unwrap()
}

fn ending() -> Ending {
    Ending { stopped: Stopped::Duration, workload: None, duration: Duration::from_secs(5) }
}

#[test]
fn a_recording_gives_the_report_of_the_run_in_every_format() {
    let (header, tree) = (header(), Tree::new(&[("folder", "")]));
    let mut drains = drains(&header);
    let what = "0000:3b:00.0".to_owned();
    drains.last_mut().unwrap().gone = vec![Absent { what, why: "the device vanished".to_owned() }];
    let path = tree.root.join("io.pmbpf");
    let mut writer = Writer::create(&path, Overwrite::No, &header).unwrap();
    drains.iter().for_each(|drain| writer.drain(drain).unwrap());
    writer.end(&ending()).unwrap();
    let read = IoRecording::read(&path).unwrap();
    for format in [Format::Text, Format::Json, Format::Csv] {
        let live = report(&header, &drains, format);
        assert_eq!(report(&read.header, &read.drains, format), live);
        assert!(live.contains("0000:3b:00.0") || format == Format::Csv, "{live}");
        assert!(live.contains("web\\xff") || live.contains("web\\\\xff"), "{live}");
    }
}

#[test]
fn a_recording_may_hold_anything() {
    let header = header();
    let mut drains = drains(&header);
    let odd = |kind, at, group, counts: &[u64]| BoxSlice {
        kind,
        at,
        group,
        slice: 3,
        counts: counts.to_vec(),
        enabled_ns: 10,
        running_ns: 20,
        ..BoxSlice::default()
    };
    drains[1].boxes.extend([
        odd(u32::MAX, 0, 0, &[1]),
        odd(0, u32::MAX, 0, &[1]),
        odd(0, 0, u32::MAX, &[1]),
        odd(0, 0, 0, &[]),
        odd(1, 0, 0, &[u64::MAX; 40]),
    ]);
    let traffic = drains[2].traffic.as_mut().unwrap();
    traffic.block[0].latency = vec![(u16::MAX, 7), (3, 1)];
    // Time that goes backwards, a last drain that says nothing, and intervals shorter than half a tick.
    drains.swap(3, 4);
    drains.push(IoDrain::default());
    let mut hasty = header.clone();
    hasty.plan.interval = Some(Duration::from_nanos(1));
    for header in [&header, &hasty] {
        for format in [Format::Text, Format::Json, Format::Csv] {
            assert!(!report(header, &drains, format).is_empty());
        }
    }
}
