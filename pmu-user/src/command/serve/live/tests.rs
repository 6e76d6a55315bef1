//! Tests with recordings as if they were of a serving run: what is exposed of their one interval equals its
//! report.

use std::{collections::BTreeMap, path::Path, time::Duration};

use super::apart;
use crate::{
    command::pipeline::Pipeline,
    drain::{Owner, recording::Recording},
    metric::{
        OwnerOrTarget, Report,
        culprit::Culprit,
        exposed::{Bounds, Exposed, Point, Seen},
    },
    view::View,
};

const BOUNDS: Bounds = Bounds { targets: 200, series: 10_000, linger_ns: 300_000_000_000 };

/// Returns the report of a recording in one interval, and what is exposed after it, by family and target.
fn exposed(name: &str) -> (Report, BTreeMap<(String, String), f64>) {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings");
    let mut recording = Recording::read(&recordings.join(name).with_extension("pmbpf")).unwrap();
    recording.header.tasks.as_mut().unwrap().plan.interval = Some(Duration::from_hours(1));
    let header = apart(recording.header);
    let mut exposed = Exposed::new(&header, BOUNDS);
    let mut kept = None;
    let watch = |report: &Report| {
        exposed.add(report, Seen::default());
        kept = Some(report.clone());
    };
    let mut pipeline = Pipeline::into_view(&header, None, View::watched(&header, Box::new(watch))).unwrap();
    pipeline.only_intervals();
    for drain in recording.drains {
        drop(pipeline.drain(drain).unwrap());
    }
    pipeline.end_interval().unwrap();
    drop(pipeline);
    let snapshot = exposed.snapshot();
    let mut values = BTreeMap::new();
    for (family, series) in snapshot.families() {
        for one in series {
            if let (Some(target), Point::Number(value)) = (one.target, &*one.point) {
                assert!(values.insert((family.name.clone(), target.to_owned()), *value).is_none());
            }
        }
    }
    (kept.unwrap(), values)
}

#[test]
fn shares_of_slots_are_slots_that_add_up() {
    let (report, values) = exposed("topdown");
    let topdown = &report.tasks.as_ref().unwrap().topdown.as_ref().unwrap()[0];
    let value = |family: &str, target: &str| values[&(format!("pmbpf_{family}"), target.to_owned())];
    let mut checked = 0;
    for (who, tree) in &topdown.owners {
        let OwnerOrTarget::Owner(owner) = who else { continue };
        let Owner::Cgroup { path, .. } = owner else { continue };
        let target = format!("path:{}", path.terminal());
        let slots = value("topdown_slots", &target);
        let mut sum = value("topdown_unknown_slots", &target);
        for shape in topdown.shapes.iter().filter(|shape| shape.level == 1 && shape.domain == "Slots") {
            let found = value(&format!("topdown_{}_slots", shape.name.to_lowercase()), &target);
            let said = tree.nodes[shape.index as usize].value.known().unwrap().estimate;
            assert!(
                (found / slots * 100.0 - said).abs() < 1e-9,
                "{target}: {}: {found} of {slots}",
                shape.name
            );
            sum += found;
            checked += 1;
        }
        assert!((sum / slots - 1.0).abs() < 0.01, "{target}: {sum} of {slots}");
        assert!(value("cycles", &target) > 1e6 && value("instructions", &target) > 1e6);
    }
    assert!(checked >= 8, "{checked}");
}

#[test]
fn who_waited_for_others_waited_as_long_as_others_caused() {
    let (report, values) = exposed("culprits");
    let of = |family: &str| -> f64 {
        let of = values.iter().filter(|((name, _), _)| *name == format!("pmbpf_runqueue_{family}_seconds"));
        of.map(|(_, seconds)| seconds).sum()
    };
    let charges = report.tasks.as_ref().unwrap().waited.iter().filter_map(|waited| match &waited.who {
        OwnerOrTarget::Owner(victim) => Some((victim, &waited.charges)),
        OwnerOrTarget::Target => None,
    });
    let (mut others, mut caused) = (0, 0);
    for (victim, charge) in charges.flat_map(|(victim, all)| all.iter().map(move |one| (victim, one))) {
        match &charge.culprit {
            Culprit::Owner(culprit) => {
                assert_ne!(culprit, victim, "each has one task");
                others += charge.wait_ns;
                caused += charge.wait_ns;
            }
            Culprit::Outside => others += charge.wait_ns,
            _ => {}
        }
    }
    assert!(caused > 0 && others > caused);
    for (family, expected) in [("behind_itself", 0), ("behind_others", others), ("caused", caused)] {
        let expected = expected as f64 * 1e-9;
        assert!((of(family) - expected).abs() < 1e-9, "{family}: {} and {expected}", of(family));
    }
}
