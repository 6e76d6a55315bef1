//! Readings of other machines than this one.

use std::time::Duration;

use super::{Beside, Stat, Support};
use crate::{
    drain::{
        CountsDrain, Ending, Stopped, Usage, Workload,
        counts::{Part, Uncounted},
        reading::Reading,
    },
    machine::{cpu::Cpu, pmu::catalog::Catalog, testing::Tree},
    metric::value::{How, Value},
    plan::{
        Target,
        count::{AskedEvent, CountPlan, Place},
        request::Inherit,
    },
    table::event_syntax::{List, resolve},
};

/// Returns a host with two kinds of cores and three memory controllers.
fn catalog() -> Catalog {
    let tree = Tree::new(&[]);
    for (name, kind, cpus) in [("cpu_core", "4", "0-1"), ("cpu_atom", "10", "2-3")] {
        tree.pmu(name, &[("type", kind), ("cpus", cpus), ("format/event", "config:0-7")]);
    }
    for number in 0..3 {
        let files = [
            ("type", &*format!("{}", 20 + number)),
            ("cpumask", "0"),
            ("events/read", "event=0x1"),
            ("events/read.scale", "0.5"),
            ("events/read.unit", "MiB"),
            ("format/event", "config:0-7"),
        ];
        tree.pmu(&format!("uncore_imc_{number}"), &files);
    }
    Catalog::read(&tree.root).unwrap()
}

fn plan(notation: &str) -> CountPlan {
    let groups = resolve(&List::parse(notation).unwrap(), &catalog()).unwrap();
    let numbered = groups.iter().zip(0_u32..).flat_map(|(group, number)| {
        group.events.iter().map(move |event| (event.name.clone(), number)).collect::<Vec<_>>()
    });
    let asked =
        |(index, (name, group)): (usize, (String, u32))| AskedEvent { name, group, found: Ok(index as u32) };
    CountPlan {
        target: Target::System,
        inherit: Inherit::Yes,
        cpus: (0..4).map(Cpu).collect(),
        asked: numbered.enumerate().map(asked).collect(),
        groups,
        left_out: None,
        runs: 1,
        interval: None,
        duration: None,
        places: Vec::new(),
        delay: None,
        if_possible: false,
    }
}

fn reading(index: u32, pmu: &str, value: u64, running_ns: u64) -> Reading {
    Reading {
        index,
        event: String::new(),
        pmu: pmu.to_owned(),
        cpu: Some(Cpu(0)),
        thread: None,
        value,
        enabled_ns: 1000,
        running_ns,
    }
}

fn tally(readings: &[Reading], uncounted: &[Uncounted]) -> CountsDrain {
    CountsDrain {
        run: 1,
        at: Duration::from_secs(2),
        parts: vec![Part { readings: readings.to_vec(), uncounted: uncounted.to_vec() }],
        ended: None,
    }
}

#[track_caller]
fn estimates(stat: &Stat) -> Vec<(String, f64)> {
    stat.rows.iter().map(|row| (row.label(), row.value.known().unwrap().estimate)).collect()
}

#[test]
fn kinds_of_cores_have_rows_of_their_own() {
    let readings = [
        reading(0, "cpu_core", 100, 1000),
        reading(0, "cpu_core", 20, 1000),
        reading(0, "cpu_atom", 7, 1000),
    ];
    let stat = Stat::new(&plan("cycles"), &tally(&readings, &[]), None);
    assert_eq!(
        estimates(&stat),
        [("cycles (cpu_core)".to_owned(), 120.0), ("cycles (cpu_atom)".to_owned(), 7.0)]
    );
    assert!(stat.rows.iter().all(|row| row.beside == Beside::Others));
}

#[test]
fn uncore_pmus_of_a_kind_are_one_row_in_their_unit() {
    let readings = [0, 1, 2].map(|number| reading(0, &format!("uncore_imc_{number}"), 100, 1000));
    let stat = Stat::new(&plan("uncore_imc/read/"), &tally(&readings, &[]), None);
    assert_eq!(estimates(&stat), [("uncore_imc/read/".to_owned(), 150.0)]);
    let row = &stat.rows[0];
    assert_eq!((row.unit.as_deref(), row.pmu.as_str(), row.enabled_ns), (Some("MiB"), "uncore_imc", 3000));
    let derived = row.derived.as_ref().unwrap();
    assert_eq!((derived.unit.as_str(), derived.value.known().unwrap().estimate), ("MiB/s", 75.0));
}

#[test]
fn a_box_that_does_not_count_is_named_and_the_others_count() {
    let missing = Uncounted { index: 0, pmu: "uncore_imc_2".to_owned(), why: "no such device".to_owned() };
    let readings = [0, 1].map(|number| reading(0, &format!("uncore_imc_{number}"), 100, 1000));
    let stat = Stat::new(&plan("uncore_imc/read/"), &tally(&readings, &[missing]), None);
    assert_eq!(estimates(&stat)[0].1, 100.0);
    assert_eq!(
        (stat.rows[0].uncounted.as_slice(), stat.rows[0].support),
        (&["no such device".to_owned()][..], Support::Counted)
    );
}

#[test]
fn an_event_that_counts_nowhere_is_missing_and_not_nothing() {
    let missing = ["cpu_core", "cpu_atom"].map(|pmu| Uncounted {
        index: 0,
        pmu: pmu.to_owned(),
        why: format!("not on {pmu}"),
    });
    let stat =
        Stat::new(&plan("cycles,instructions"), &tally(&[reading(1, "cpu_atom", 5, 1000)], &missing), None);
    assert_eq!(stat.rows[0].value, Value::Missing("not on cpu_core".to_owned()));
    assert_eq!(stat.rows[1].value, Value::Missing("not on cpu_atom".to_owned()));
    assert_eq!(stat.rows[1].support, Support::NotHere);
    assert_eq!(stat.rows[3].value.known().unwrap().estimate, 5.0);
    // No counter of cpu_core was opened, and no reason was recorded: it never ran.
    assert!(matches!(&stat.rows[2].value, Value::Missing(why) if why.contains("never ran")));
}

#[test]
fn an_event_that_the_host_lacks_keeps_its_place_among_the_others() {
    let mut plan = plan("page-faults");
    let lacking = AskedEvent { name: "cycles".to_owned(), group: 0, found: Err("no PMU".to_owned()) };
    plan.asked.insert(0, lacking);
    let stat = Stat::new(&plan, &tally(&[reading(0, "software", 9, 1000)], &[]), None);
    let labels: Vec<String> = stat.rows.iter().map(super::Row::label).collect();
    assert_eq!(labels, ["cycles", "page-faults"]);
    assert_eq!(stat.rows[0].value, Value::Missing("no PMU".to_owned()));
    assert_eq!(stat.rows[1].derived.as_ref().unwrap().value.known().unwrap().estimate, 4.5);
}

#[test]
fn an_interval_is_what_was_added_and_is_scaled_by_its_own_times() {
    let plan = plan("page-faults");
    let earlier = tally(&[reading(0, "software", 50, 500)], &[]);
    let mut later = tally(&[reading(0, "software", 150, 1000)], &[]);
    later.at = Duration::from_secs(3);
    later.parts[0].readings[0].enabled_ns = 2000;
    let stat = Stat::new(&plan, &later, Some(&earlier));
    let known = stat.rows[0].value.known().unwrap();
    // 100 in 500 of 1,000 ns.
    assert_eq!((known.estimate, known.coverage, known.how), (200.0, 0.5, How::Scaled));
    assert_eq!((stat.from, stat.elapsed.known().unwrap().estimate), (Duration::from_secs(2), 1e9));
}

fn run(number: u32, faults: u64) -> Stat {
    let usage = Usage { user: Duration::from_millis(u64::from(number)), system: Duration::ZERO };
    let ended = Ending {
        stopped: Stopped::TargetGone,
        workload: Some(Workload::Exited(0)),
        duration: Duration::from_secs(2),
        usage: Some(usage),
    };
    let tally = CountsDrain {
        run: number,
        ended: Some(ended),
        ..tally(&[reading(0, "software", faults, 1000)], &[])
    };
    Stat::new(&plan("page-faults"), &tally, None)
}

#[test]
fn runs_become_a_mean_with_an_interval_and_keep_what_each_said() {
    let stat = Stat::of_runs(&[run(1, 10), run(2, 12), run(3, 14)]).unwrap();
    let known = stat.rows[0].value.known().unwrap();
    assert_eq!((known.estimate, stat.runs), (12.0, 3));
    assert!((known.high - 16.968).abs() < 0.001, "{known:?}");
    let single: Vec<f64> = stat.rows[0].of_runs.iter().map(|value| value.known().unwrap().estimate).collect();
    assert_eq!(single, [10.0, 12.0, 14.0]);
    assert_eq!(stat.user.unwrap().known().unwrap().estimate, 2e6);
    assert_eq!(stat.rows[0].derived.as_ref().unwrap().value.known().unwrap().estimate, 6.0);
    assert!(Stat::of_runs(&[]).is_none());
}

#[test]
fn a_run_that_stands_out_is_named() {
    let runs: Vec<Stat> =
        [100, 101, 99, 100, 250, 100].iter().zip(1..).map(|(&faults, number)| run(number, faults)).collect();
    let stat = Stat::of_runs(&runs).unwrap();
    let [outlier] = stat.outliers.as_slice() else { panic!("{:?}", stat.outliers) };
    assert_eq!(
        (outlier.run, outlier.what.as_str(), outlier.value, outlier.median),
        (5, "page-faults", 250.0, 100.0)
    );
}

#[test]
fn places_have_rows_of_their_own_cpus_by_event_and_cores_one_after_the_other() {
    let on = |index, cpu, value| Reading { cpu: Some(Cpu(cpu)), ..reading(index, "software", value, 1000) };
    let readings = [on(0, 0, 10), on(0, 1, 20), on(1, 0, 1), on(1, 1, 2)];
    let rows = |places: Vec<Place>| {
        let plan = CountPlan { places, ..plan("page-faults,cs") };
        let begun = |index, cpu, value| Reading { enabled_ns: 0, running_ns: 0, ..on(index, cpu, value) };
        let earlier = tally(&[begun(0, 0, 1), begun(0, 1, 2), begun(1, 0, 0), begun(1, 1, 0)], &[]);
        let later = CountsDrain { at: Duration::from_secs(3), ..tally(&readings, &[]) };
        let stat = Stat::new(&plan, &later, Some(&earlier));
        let row = |row: &super::Row| {
            let place = row.place.as_ref().map(ToString::to_string).unwrap_or_default();
            (place, row.event.clone(), row.value.known().unwrap().estimate)
        };
        stat.rows.iter().map(row).collect::<Vec<_>>()
    };
    let row = |place: &str, event: &str, count: f64| (place.to_owned(), event.to_owned(), count);
    let cpus = [0, 1].map(|cpu| Place::Cpu { cpu: Cpu(cpu) }).to_vec();
    let (faults, cs) = ("page-faults", "cs");
    assert_eq!(
        rows(cpus),
        [row("CPU0", faults, 9.0), row("CPU1", faults, 18.0), row("CPU0", cs, 1.0), row("CPU1", cs, 2.0)]
    );
    let cores = [0, 1].map(|core| Place::Core { socket: 0, die: 0, core, cpus: vec![Cpu(core)] }).to_vec();
    assert_eq!(
        rows(cores),
        [
            row("S0-D0-C0", faults, 9.0),
            row("S0-D0-C0", cs, 1.0),
            row("S0-D0-C1", faults, 18.0),
            row("S0-D0-C1", cs, 2.0)
        ]
    );
    let socket = vec![Place::Socket { socket: 0, cpus: vec![Cpu(0), Cpu(1)] }];
    assert_eq!(rows(socket), [row("S0", faults, 27.0), row("S0", cs, 3.0)]);
}
