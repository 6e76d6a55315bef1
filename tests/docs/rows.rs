//! JSON rows: comparison of their schema, the page that documents their fields, and the output of commands.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{page, pmbpf, reports, root, texts};
use crate::schema::{fault, rows};

/// Words of the page that are neither a field nor in a closed list of any row: commands, metrics, the
/// target's name.
const OTHERS: [&str; 12] = [
    "diff",
    "elapsed",
    "eval",
    "insn_per_cycle",
    "list",
    "null",
    "pmbpf",
    "report",
    "runqueue_latency",
    "system_time",
    "total",
    "user_time",
];

fn schema() -> Value {
    serde_json::from_str(&std::fs::read_to_string(root().join("docs/pmbpf-2.schema.json")).unwrap()).unwrap()
}

/// Returns the rows of every command except `doctor`, which loads programs.
fn all_rows() -> Vec<Value> {
    let said = |line: &str| {
        let mut command = pmbpf();
        command.args(line.split(' ')).current_dir(root().join("tests/golden/eval.in"));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let lists =
        ["events", "pmus", "metrics", "profiles", "cgroups"].map(|what| format!("list {what} --json"));
    let others = [
        "eval --cpu testmodel --perfmon-dir ../../perfmon --counts counts.json --json",
        "eval --io --cpu cascadelakex --counts io.json --json",
        "stat --dry-run -e page-faults -C 0 --json",
        "diff ../../recordings/cgroups.pmbpf ../../recordings/masked.pmbpf --json",
        "diff ../../recordings/topdown.pmbpf ../../recordings/topdown.pmbpf --json",
        "diff ../../recordings/io.pmbpf,../../recordings/io.pmbpf ../../recordings/resctrl.pmbpf,../../recordings/boxes.pmbpf --json",
    ];
    let said: Vec<String> = lists.iter().map(String::as_str).chain(others).map(said).collect();
    let texts = [reports("json"), texts("tests/machines", "json"), said].concat();
    texts.iter().flat_map(|text| rows(text)).collect()
}

/// Collects the names of fields, and the words that a field may hold, from a part of the schema and all it
/// refers to.
fn words(schema: &Value, part: &Value, found: &mut (BTreeSet<String>, BTreeSet<String>)) {
    match part {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("properties", Value::Object(properties)) => found.0.extend(properties.keys().cloned()),
                    ("const", Value::String(word)) => drop(found.1.insert(word.clone())),
                    ("enum", Value::Array(several)) => {
                        found.1.extend(several.iter().filter_map(|word| word.as_str().map(str::to_owned)));
                    }
                    ("$ref", Value::String(name)) => {
                        words(schema, schema.pointer(&name[1..]).unwrap(), found);
                    }
                    _ => {}
                }
                words(schema, value, found);
            }
        }
        Value::Array(parts) => parts.iter().for_each(|part| words(schema, part, found)),
        _ => {}
    }
}

/// Returns every kind with its definition.
fn kinds(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let definition = |one: &Value| one["$ref"].as_str().unwrap()[1..].to_owned();
    let kinds = schema["oneOf"].as_array().unwrap().iter().map(definition);
    kinds
        .map(|path| schema.pointer(&path).unwrap())
        .map(|it| (it["properties"]["kind"]["const"].as_str().unwrap(), it))
}

#[test]
fn the_schema_and_the_page_have_the_same_kinds_and_fields() {
    let (schema, output) = (schema(), page("docs/output.md"));
    let (output_words, of_several) =
        (output.code_words(), output.section("Fields of several kinds").unwrap().code_words());
    // Some words are explained with the numbers to which they apply.
    let explained = ["docs/numbers.md", "docs/io.md", "docs/findings.md", "docs/output.md"]
        .map(|name| page(name).code_words());
    let anywhere: BTreeSet<String> = explained.into_iter().flatten().collect();
    let all_kinds: BTreeSet<&str> = kinds(&schema).map(|(kind, _)| kind).collect();
    let mut faults = Vec::new();
    for (kind, definition) in kinds(&schema) {
        let Some(section) = output.section(&format!("`{kind}`")) else {
            faults.push(format!("{kind}: no heading"));
            continue;
        };
        let of_kind = section.code_words();
        for name in definition["properties"].as_object().unwrap().keys() {
            if !of_kind.contains(name) && !of_several.contains(name) {
                faults.push(format!("{kind}: the page lacks {name}"));
            }
        }
        let mut known = (BTreeSet::new(), BTreeSet::new());
        words(&schema, definition, &mut known);
        let fields = known.0.difference(&output_words);
        for word in fields.chain(known.1.difference(&anywhere)) {
            faults.push(format!("{kind}, below: the page lacks {word}"));
        }
    }
    let mut known = (BTreeSet::new(), BTreeSet::new());
    words(&schema, &schema, &mut known);
    let is_name = |word: &&String| {
        !word.is_empty() && word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
    };
    let fields = output.section("JSON").unwrap();
    for word in fields.code_words().iter().filter(is_name) {
        let is_known = known.0.contains(word) || known.1.contains(word) || all_kinds.contains(word.as_str());
        if !is_known && !OTHERS.contains(&word.as_str()) {
            faults.push(format!("the schema lacks {word}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_row_of_every_command_is_as_the_schema_says() {
    let seen: BTreeSet<String> =
        all_rows().iter().map(|row| row["kind"].as_str().unwrap().to_owned()).collect();
    for kind in [
        "header",
        "metric",
        "histogram",
        "summary",
        "listed_event",
        "device",
        "planned",
        "evaluation",
        "diff_header",
        "difference",
        "only",
        "diff_summary",
    ] {
        assert!(seen.contains(kind), "no `{kind}` among {seen:?}");
    }
}

#[test]
fn the_whole_schema_says_what_its_kinds_say() {
    let whole = jsonschema::draft202012::new(&schema()).unwrap();
    let mut seen = BTreeSet::new();
    for row in all_rows().iter().filter(|row| seen.insert(row["kind"].to_string())) {
        assert!(whole.is_valid(row), "{row}");
        let mut more = row.clone();
        more["more"] = 1.into();
        assert!(!whole.is_valid(&more) && fault(&more).is_some(), "{more}");
    }
}

#[test]
fn the_schema_leaves_no_object_open() {
    fn walk(part: &Value) {
        if part["type"] == "object" {
            assert!(
                part["additionalProperties"] == false || part["additionalProperties"].is_object(),
                "{part}"
            );
        }
        part.as_object().into_iter().flat_map(serde_json::Map::values).for_each(walk);
        part.as_array().into_iter().flatten().for_each(walk);
    }
    walk(&schema());
}

#[test]
fn a_row_that_the_schema_does_not_know_is_told() {
    let sound = json!({"schema": "pmbpf/2", "kind": "metric", "t": 0, "dt": 5, "owner": {"kind": "process", "pid": 7, "name": "a"},
                       "metric": "cpu_time", "unit": "ns", "value": 3, "low": 3, "high": 3.5, "coverage": 1.0, "how": "counted",
                       "status": "ok"});
    assert_eq!(fault(&sound), None);
    let with = |name: &str, value: Value| {
        let mut row = sound.clone();
        row[name] = value;
        row
    };
    let without = |name: &str| {
        let mut row = sound.clone();
        row.as_object_mut().unwrap().remove(name);
        row
    };
    for (row, says) in [
        (with("kind", "metrics".into()), "no kind `metrics`"),
        (without("kind"), "no kind"),
        (with("schema", "pmbpf/1".into()), "pmbpf/2"),
        (with("colour", "red".into()), "colour"),
        (with("owner", json!({"kind": "process", "pid": 7, "name": "a", "path": "/"})), "/owner"),
        (with("owner", json!({"kind": "person", "name": "a"})), "/owner"),
        (without("unit"), "unit"),
        (with("value", "3".into()), "/value"),
        (with("t", json!(0.5)), "/t"),
        (with("how", "guessed".into()), "guessed"),
        (without("coverage"), "coverage"),
        (with("value", Value::Null), "reason"),
        (with("reason", "it has a value".into()), "reason"),
    ] {
        let fault = fault(&row).unwrap_or_else(|| panic!("{row} passes"));
        assert!(fault.contains(says), "{fault}");
    }
}
