//! Tests of the tables from a small file, and of files that are refused.

use super::{ImportError, import};
use crate::table::{
    io::{IoTable, write},
    model::Counters,
};

/// Returns two platforms with equal facts and one that differs, in the form of the file.
fn json(spr_config: &str) -> String {
    let event = |config: &str| {
        format!(
            r#"{{"pmu": "iio", "event": 131, "umask": 4, "ch_mask": 1, "fc_mask": 7, "config": "{config}", "counters": "0,1", "src": "x"}}"#
        )
    };
    let platform = |cpu: &str, config: &str, available: bool| {
        format!(
            r#"{{"cpu_models": ["{cpu}"], "format_family": "f", "parts": 1, "kernel": {{}},
             "events": {{"A.PART0": {event}, "CHA": {cha}}},
             "metrics": [{{"id": "m", "unit": "MB/s", "expr": "n*4/1e6/t", "inputs": {{"n": ["A.PART0"]}}, "scope": "part",
              "available": {available}}}]}}"#,
            event = event(config),
            cha = r#"{"pmu": "cha", "event": 53, "umask": 4, "umask_ext": 13169662, "sysfs_umask": 3371433476,
                "config1": 299059, "config": "0xc8f3fe00000435", "counters": "0,1,2,3"}"#,
        )
    };
    format!(
        r#"{{"formats": {{"f": {{"iio": {{"event": "config:0-7", "umask": "config:8-15", "ch_mask": "config:36-47",
         "fc_mask": "config:48-50"}}, "cha": {{"event": "config:0-7", "umask": "config:8-15,32-57"}}}}}},
         "platforms": {{"SKX": {}, "CLX": {}, "SPR": {}}}}}"#,
        platform("6-85 stepping 0-4", "0x7001000000483", true),
        platform("6-85 stepping 5-15", "0x7001000000483", true),
        platform("6-143", spr_config, false),
    )
}

fn tables() -> Vec<IoTable> {
    import(&json("0x7001000000483"), "test").unwrap()
}

#[test]
fn two_imports_are_identical() {
    let text = || tables().iter().map(write).collect::<Vec<_>>();
    assert_eq!(text(), text());
}

#[test]
fn platforms_with_equal_facts_share_a_table() {
    let tables = tables();
    let models: Vec<String> = tables.iter().map(|table| table.models.join(" ")).collect();
    assert_eq!(models, ["sapphirerapids", "skylakex cascadelakex"]);
    assert_eq!(tables[1].model.cpus, ["GenuineIntel-6-55-0..4", "GenuineIntel-6-55-5..F"]);
}

#[test]
fn an_event_keeps_what_is_needed_to_count_it() {
    let table = &tables()[1];
    let event = table.model.event("A.PART0").unwrap();
    assert_eq!(event.terms, "event=0x83,umask=0x4,ch_mask=0x1,fc_mask=0x7");
    assert_eq!(event.counters, Counters::General(0b11));
    assert_eq!(
        table.model.event("CHA").unwrap().terms,
        "event=0x35,umask=0xc8f3fe04,config1=0x4903300000000",
        "the kernel has the second filter register in the upper half"
    );
    assert_eq!((table.kind("iio").unwrap().counters, table.kind("cha").unwrap().counters), (2, 4));
    assert_eq!(table.kind("cha").unwrap().shared.as_deref(), Some("config1"));
    assert_eq!(table.kind("iio").unwrap().shared, None);
}

#[test]
fn a_metric_that_is_not_available_is_absent_with_a_reason() {
    let table = &tables()[0];
    assert_eq!(table.model.metrics, []);
    assert_eq!((table.absent[0].name.as_str(), table.absent[0].unit.name()), ("m", "MB/s"));
    assert!(!table.absent[0].why.is_empty());
}

#[test]
fn an_encoding_that_contradicts_its_formats_is_refused() {
    let error = |json: &str| match import(json, "test").unwrap_err() {
        ImportError::Fact { platform, what } => format!("{platform}: {what}"),
        ImportError::Json(error) => panic!("{error}"),
    };
    assert_eq!(
        error(&json("0x701000000483")),
        "SPR: A.PART0: its terms give 0x7001000000483, not 0x701000000483"
    );
    let narrow = json("0x7001000000483").replace("config:48-50", "config:48-49");
    assert_eq!(error(&narrow), "SKX: A.PART0: `fc_mask` cannot be 0x7");
}
