//! Numbers of recordings before the reports of all commands became one (schema pmbpf/1), against the numbers
//! that the recordings give now. Names and shapes of rows have changed since, values must not. Values of
//! uncore PMUs in `boxes` date from when each PMU's rate became one over its own time. Before, a programmed
//! 1,000 MB/s was reported as 990. Their intervals date from when those included the begin and end of each
//! PMU's time.
//!
//! `recordings/pmbpf-1.values.gz` has a line for each of them, with tabs between. Its fields are recording,
//! begin and length of the interval, owner, subject, metric, part of a distribution, value, low, high,
//! coverage (`null` where unknown).

use std::{collections::HashMap, io::Read as _, path::Path};

use flate2::read::GzDecoder;
use serde_json::Value;

/// Key of a number: interval, owner, subject, metric, part.
type Key = [String; 6];
/// Number with its bounds: value, low, high, coverage.
type Known = [Option<f64>; 4];

/// Returns the former values by recording.
pub(crate) fn before(file: &Path) -> HashMap<String, Vec<(Key, Known)>> {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(file).unwrap()).read_to_string(&mut text).unwrap();
    let mut all: HashMap<String, Vec<(Key, Known)>> = HashMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        let (recording, key, known) = (cells[0], &cells[1..7], &cells[7..]);
        let key = std::array::from_fn(|index| key[index].to_owned());
        let known = std::array::from_fn(|index| serde_json::from_str(known[index]).unwrap());
        all.entry(recording.to_owned()).or_default().push((key, known));
    }
    all
}

/// Returns the values in JSON rows.
pub(crate) fn now(rows: &[Value]) -> HashMap<Key, Known> {
    let mut all = HashMap::new();
    for row in rows {
        let mut put = |part: &str, known: Known| {
            let [t, dt] = ["t", "dt"].map(|name| row[name].to_string());
            let metric = row["metric"].as_str().unwrap().to_owned();
            let key = [t, dt, owner(&row["owner"]), subject(&row["subject"]), metric, part.to_owned()];
            assert!(all.insert(key.clone(), known).is_none(), "{key:?} stands twice");
        };
        let known = |of: &Value| ["value", "low", "high"].map(|name| of[name].as_f64());
        let with =
            |[value, low, high]: [Option<f64>; 3], coverage: &Value| [value, low, high, coverage.as_f64()];
        match row["kind"].as_str() {
            Some("metric") => put("", with(known(row), &row["coverage"])),
            Some("histogram") if row["count"].is_null() => put("", [None; 4]),
            Some("histogram") => {
                let (count, sum) = (row["count"].as_f64().unwrap(), row["sum"].as_f64().unwrap());
                put("count", [Some(count), None, None, None]);
                put("sum", [Some(sum), None, None, None]);
                let mean = Some(sum / count);
                put("mean", with([mean; 3], &row["coverage"]));
                for (name, quantile) in row["quantiles"].as_object().unwrap() {
                    put(name, with(known(quantile), &row["coverage"]));
                }
            }
            _ => {}
        }
    }
    all
}

/// Returns kind, name and number of an owner.
fn owner(of: &Value) -> String {
    let Some(kind) = of["kind"].as_str() else { return "-".to_owned() };
    let name = of["path"].as_str().or(of["name"].as_str()).unwrap_or_default();
    let number = ["id", "pid", "tid"].into_iter().map(|field| &of[field]).find(|number| number.is_number());
    format!("{kind} {name} {}", number.map_or_else(String::new, ToString::to_string))
}

/// Returns the kind of a subject, and its other fields in order of their names.
fn subject(of: &Value) -> String {
    let Some(fields) = of.as_object() else { return "-".to_owned() };
    let mut others: Vec<_> = fields.iter().filter(|(name, _)| *name != "kind").collect();
    others.sort_by_key(|(name, _)| *name);
    let words =
        others.into_iter().map(|(_, value)| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    format!("{} {}", of["kind"].as_str().unwrap(), words.collect::<Vec<_>>().join(" "))
}
