//! Tests of counts in every format.

use std::{path::Path, time::Duration};

use crate::{
    drain::{Absent, CountsHeader, Ending, Header, Owner, Stopped, Workload, io::testing},
    machine::cgroup::{Cgroup, CgroupId},
    metric::{
        Report,
        derived::Derived,
        repeat::Outlier,
        stat::{Beside, Row, Stat, Support},
        value::{How, Known, Value},
    },
    plan::{
        Target,
        count::{AskedEvent, CountPlan},
        request::Inherit,
    },
    schema,
    untrusted::Untrusted,
    view::{Format, View, text::Style},
};

const STYLE: Style = Style::DEFAULT;

const ENDED: Ending = Ending {
    stopped: Stopped::TargetGone,
    workload: Some(Workload::Exited(7)),
    duration: Duration::from_secs(2),
    usage: None,
};

fn plan() -> CountPlan {
    CountPlan {
        target: Target::Processes(vec![42]),
        inherit: Inherit::No,
        cpus: Vec::new(),
        asked: vec![AskedEvent { name: "cycles".to_owned(), group: 0, found: Err("no PMU".to_owned()) }],
        groups: Vec::new(),
        left_out: Some("branches: no PMU".to_owned()),
        runs: 1,
        interval: None,
        duration: None,
        places: Vec::new(),
        delay: None,
        if_possible: false,
    }
}

fn row(event: &str, value: Value) -> Row {
    Row {
        place: None,
        owner: None,
        event: event.to_owned(),
        pmu: "cpu".to_owned(),
        beside: Beside::Alone,
        unit: None,
        value,
        support: Support::Counted,
        enabled_ns: 500,
        running_ns: 300,
        derived: None,
        of_runs: Vec::new(),
        uncounted: Vec::new(),
    }
}

fn scaled(estimate: f64) -> Value {
    let (low, high) = (estimate - 200.0, estimate + 203.0);
    Value::Known(Known { estimate, low, high, coverage: 0.6, how: How::Scaled })
}

/// Returns a scaled count with a ratio, one that never ran, and one that the host lacks.
fn stat() -> Stat {
    let value = Value::counted(2, 0.6);
    let derived = Derived { name: "insn_per_cycle", unit: "insn per cycle".to_owned(), value };
    let lacking = Row { support: Support::NotHere, ..row("cycles", Value::Missing("no PMU".to_owned())) };
    let idle = row("branches", Value::Missing("it never ran".to_owned()));
    let uncounted = vec!["box 3 is gone".to_owned()];
    Stat {
        from: Duration::from_millis(1500),
        rows: vec![
            Row { derived: Some(derived), uncounted, ..row("instructions", scaled(1_234_567.0)) },
            idle,
            lacking,
        ],
        elapsed: Value::counted(2_000_000_000, 1.0),
        user: Some(Value::counted(900_000, 1.0)),
        system: None,
        runs: 1,
        outliers: Vec::new(),
    }
}

fn header(plan: CountPlan) -> Header {
    Header { started_unix_ns: 0, io: None, counts: Some(CountsHeader { plan }), ..testing::header().into() }
}

fn report(stat: &Stat) -> Report {
    let missing = vec![Absent { what: "events".to_owned(), why: "branches: no PMU".to_owned() }];
    Report { counts: Some(stat.clone()), missing, ..Report::default() }
}

fn written(format: Format, write: impl FnOnce(&mut View<'_>)) -> String {
    let mut bytes = Vec::new();
    let header = header(plan());
    let mut view = View::new(&header, format, STYLE, Box::new(&mut bytes));
    write(&mut view);
    drop(view);
    let text = anstream::adapter::strip_str(&String::from_utf8(bytes).unwrap()).to_string();
    if format == Format::Json {
        schema::rows(&text);
    }
    text
}

fn whole(format: Format, stat: &Stat) -> String {
    written(format, |view| view.whole(&report(stat), &ENDED).unwrap())
}

/// Returns the words of the line that holds `part`.
#[track_caller]
fn line(text: &str, part: &str) -> String {
    let line = text.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part} in {text}"));
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_scaled_count_shows_what_it_means_its_interval_and_how_long_it_counted() {
    let text = whole(Format::Text, &stat());
    assert_eq!(line(&text, "instructions "), "1,234,567 instructions 2.000 insn per cycle 0.016 % 60.0 %");
    assert_eq!(line(&text, "elapsed"), "2.000000 s elapsed");
    assert_eq!(line(&text, "user"), "0.000900 s user");
    assert_eq!(line(&text, "the command"), "the command exited with 7");
}

#[test]
fn what_is_missing_says_why_and_is_never_nothing() {
    let text = whole(Format::Text, &stat());
    assert_eq!(line(&text, "<not counted>"), "<not counted> branches it never ran");
    assert_eq!(line(&text, "<not supported>"), "<not supported> cycles no PMU");
    assert!(text.contains("not counted: branches: no PMU"), "{text}");
    assert!(text.contains("instructions is incomplete: box 3 is gone"), "{text}");
    assert!(!text.contains(" 0 "), "{text}");
}

#[test]
fn a_column_that_holds_nothing_is_left_out() {
    let stat = Stat { rows: vec![row("page-faults", Value::counted(7, 1.0))], ..stat() };
    let text = whole(Format::Text, &stat);
    assert!(!text.contains("from") && !text.contains("±"), "{text}");
    assert_eq!(line(&text, "page-faults"), "7 page-faults");
}

#[test]
fn several_runs_show_their_spread_and_who_stands_out() {
    let outlier = Outlier {
        run: 4,
        what: "instructions".to_owned(),
        unit: String::new(),
        value: 2_000_000.0,
        median: 1_200_000.0,
        score: 9.87,
    };
    let mut stat = Stat { runs: 5, outliers: vec![outlier], ..stat() };
    stat.rows[0].of_runs = vec![Value::counted(1, 1.0); 5];
    let text = whole(Format::Text, &stat);
    assert!(text.contains("mean of 5 runs") && line(&text, "instructions ").contains("0.016 %"), "{text}");
    assert_eq!(
        line(&text, "stands out"),
        "run 4 stands out: instructions 2,000,000, the median is 1,200,000 (modified z-score 9.9)"
    );
}

#[test]
fn json_has_a_row_a_number_with_null_and_a_reason_for_what_is_missing() {
    let rows = schema::rows(&whole(Format::Json, &stat()));
    assert_eq!((&rows[0]["kind"], &rows[0]["command"]), (&"header".into(), &"stat".into()));
    let summary = rows.last().unwrap();
    assert_eq!((&summary["kind"], &summary["workload"]["exit"]), (&"summary".into(), &7.into()));
    let (elapsed, user) = (&summary["workload"]["elapsed_ns"], &summary["workload"]["user_ns"]);
    assert_eq!((elapsed.as_u64(), user.is_null()), (Some(2_000_000_000), true), "not told is not zero");
    let of = |metric: &str| rows.iter().find(|row| row["metric"] == metric).unwrap();
    let (first, last) = (of("event.instructions"), of("event.cycles"));
    assert_eq!(
        (&first["value"], &first["low"], &first["high"]),
        (&1_234_567.into(), &1_234_367.into(), &1_234_770.into())
    );
    assert_eq!(
        (&first["enabled_ns"], &first["running_ns"], &first["coverage"]),
        (&500.into(), &300.into(), &0.6.into())
    );
    assert_eq!(
        (&first["how"], &first["status"], &first["uncounted"][0]),
        (&"scaled".into(), &"partial".into(), &"box 3 is gone".into())
    );
    let derived = of("insn_per_cycle");
    assert_eq!((&derived["parent"], &derived["value"]), (&first["metric"], &2.into()));
    assert!(last["value"].is_null());
    assert_eq!((&last["status"], &last["reason"]), (&"unsupported".into(), &"no PMU".into()));
    assert_eq!(of("user_time")["value"], 900_000);
    assert!(!rows.iter().any(|row| row["metric"] == "system_time"), "it is not known");
}

#[test]
fn numbers_of_intervals_are_not_told_again_for_the_whole() {
    let text = written(Format::Json, |view| {
        view.interval(&report(&stat())).unwrap();
        view.interval(&report(&stat())).unwrap();
        view.whole(&report(&stat()), &ENDED).unwrap();
    });
    let rows = schema::rows(&text);
    let kinds: Vec<_> = rows.iter().map(|row| row["kind"].as_str().unwrap()).collect();
    // Three events, the ratio of one of them, and two times.
    assert_eq!(kinds, [&["header"][..], &["metric"; 12], &["summary"]].concat());
    assert_eq!((&rows[1]["t"], &rows[1]["dt"]), (&1_500_000_000.into(), &2_000_000_000_u64.into()));
}

#[test]
fn csv_has_one_header_and_rows_as_wide_as_it() {
    let text = written(Format::Csv, |view| {
        view.interval(&report(&stat())).unwrap();
        view.interval(&report(&stat())).unwrap();
        view.whole(&report(&stat()), &ENDED).unwrap();
    });
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let headers = reader.headers().unwrap().clone();
    let column = |name: &str| headers.iter().position(|header| header == name).unwrap();
    // Rows of a different width are an error of the reader.
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
    assert_eq!(rows.len(), 2 * 6, "three events, what one of them says, and two times");
    assert_eq!((&rows[0][column("value")], &rows[1][column("parent")]), ("1234567", "event.instructions"));
    assert_eq!((&rows[3][column("value")], &rows[3][column("reason")]), ("", "no PMU"));
    assert_eq!((&rows[4][column("metric")], &rows[4][column("unit")]), ("elapsed", "ns"));
}

#[test]
fn cgroups_have_tables_of_their_own_and_their_names_steer_nothing() {
    let hostile = Untrusted::from("/\u{1b}[31mweb");
    let of = |path: &Untrusted| Row {
        owner: Some(Owner::cgroup(1, path.clone())),
        ..row("page-faults", Value::counted(7, 1.0))
    };
    let paths = [hostile, Untrusted::from("/db")];
    let rows: Vec<Row> = paths.iter().map(of).collect();
    let mut plan = plan();
    let cgroup = |path: Untrusted| Cgroup { path, id: CgroupId(1) };
    plan.target = Target::Cgroups(paths.into_iter().map(cgroup).collect());
    for format in [Format::Text, Format::Json, Format::Csv] {
        let mut bytes = Vec::new();
        let header = header(plan.clone());
        let mut view = View::new(&header, format, STYLE, Box::new(&mut bytes));
        view.whole(&report(&Stat { rows: rows.clone(), ..stat() }), &ENDED).unwrap();
        drop(view);
        let text = String::from_utf8(bytes).unwrap();
        // No escape with a meaning passes: only the report itself styles text.
        assert!(text.contains("[31mweb") && !text.contains("\u{1b}[31m") && text.contains("/db"), "{text}");
    }
}

/// Compares all views of counts byte by byte. `SNAPSHOTS=overwrite` writes the snapshot again, for review.
#[test]
fn every_view_of_counts_is_as_it_was() {
    let outlier = Outlier {
        run: 4,
        what: "instructions".to_owned(),
        unit: String::new(),
        value: 2e6,
        median: 1.2e6,
        score: 9.87,
    };
    let mut runs = Stat { runs: 5, outliers: vec![outlier], ..stat() };
    runs.rows[0].of_runs = vec![Value::counted(1, 1.0); 5];
    let of = |id, path: &str| Row {
        owner: Some(Owner::cgroup(id, path.into())),
        ..row("page-faults", Value::counted(7, 1.0))
    };
    let cgroups = Stat { rows: vec![of(3, "/web"), of(4, "/db")], ..stat() };
    let mut seen = String::new();
    for (name, format) in [("text", Format::Text), ("json", Format::Json), ("csv", Format::Csv)] {
        let intervals = written(format, |view| {
            view.interval(&report(&stat())).unwrap();
            view.interval(&report(&cgroups)).unwrap();
            view.whole(&report(&stat()), &ENDED).unwrap();
        });
        for (what, text) in [
            ("one run", whole(format, &stat())),
            ("five runs", whole(format, &runs)),
            ("two cgroups", whole(format, &cgroups)),
            ("intervals", intervals),
        ] {
            seen += &format!("--- {what}, {name}\n{text}");
        }
    }
    let expected = snapbox::Data::read_from(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src/view/tests/counts.txt"),
        None,
    );
    snapbox::Assert::new().action_env("SNAPSHOTS").eq(seen, expected.raw());
}
