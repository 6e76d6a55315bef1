//! JSON rows against their schema, `docs/pmbpf-2.schema.json`. Every test that reads rows uses this module.

use std::{collections::BTreeMap, sync::LazyLock};

use jsonschema::Validator;
use serde_json::{Value, json};

/// Validators by kind of row. The whole schema would try every kind and name the fault of none.
static KINDS: LazyLock<BTreeMap<String, Validator>> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(include_str!("../docs/pmbpf-2.schema.json")).unwrap();
    let of_kind = |one: &Value| {
        let validator =
            jsonschema::draft202012::new(&json!({"$ref": one["$ref"], "$defs": schema["$defs"]})).unwrap();
        let kind = one["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
        (kind.to_owned(), validator)
    };
    schema["oneOf"].as_array().unwrap().iter().map(of_kind).collect()
});

/// Parses rows, one per line, and asserts that they match the schema.
#[track_caller]
pub(crate) fn rows(text: &str) -> Vec<Value> {
    let row = |line| {
        let row = serde_json::from_str::<Value>(line);
        let fault = row.as_ref().map_or_else(|error| Some(error.to_string()), fault);
        assert!(fault.is_none(), "not in the schema: {}: {line}", fault.unwrap_or_default());
        row.unwrap()
    };
    text.lines().map(row).collect()
}

/// Returns the fault of a row by the schema, if any.
pub(crate) fn fault(row: &Value) -> Option<String> {
    let Some(kind) = row["kind"].as_str() else { return Some("no kind".to_owned()) };
    let Some(validator) = KINDS.get(kind) else { return Some(format!("no kind `{kind}`")) };
    if validator.is_valid(row) {
        return None;
    }
    let faults = validator.iter_errors(row).map(|error| format!("{}: {error}", error.instance_path()));
    Some(faults.collect::<Vec<_>>().join("; "))
}
