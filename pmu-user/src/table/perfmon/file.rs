//! Structure of perfmon's JSON files.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, de::DeserializeOwned};

use super::PerfmonError;
use crate::{file::read_regular, untrusted::json};

/// A file of events.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Events {
    pub(super) header: Header,
    pub(super) events: Vec<PerfmonEvent>,
}

/// Header of a file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Header {
    #[serde(default)]
    pub(super) version: String,
    #[serde(default)]
    tma_version: String,
    #[serde(default)]
    date_published: String,
}

impl Header {
    pub(super) fn formulas_version(&self) -> String {
        let mut version = self.version.clone();
        if !self.tma_version.is_empty() {
            version = format!("{version}, TMA {}", self.tma_version);
        }
        if self.date_published.is_empty() { version } else { format!("{version}, {}", self.date_published) }
    }
}

/// An event. Numbers are text in these files.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct PerfmonEvent {
    #[serde(rename = "EventName")]
    pub(super) name: String,
    pub(super) event_code: String,
    #[serde(rename = "UMask")]
    pub(super) umask: String,
    #[serde(rename = "UMaskExt")]
    pub(super) umask_ext: String,
    pub(super) port_mask: String,
    #[serde(rename = "FCMask")]
    pub(super) fc_mask: String,
    pub(super) counter_mask: String,
    pub(super) invert: String,
    pub(super) edge_detect: String,
    pub(super) any_thread: String,
    #[serde(rename = "MSRIndex")]
    pub(super) msr_index: String,
    #[serde(rename = "MSRValue")]
    pub(super) msr_value: String,
    #[serde(rename = "FILTER_VALUE")]
    pub(super) filter_value: String,
    pub(super) counter: String,
    pub(super) unit: String,
    pub(super) sample_after_value: String,
    #[serde(rename = "PEBS")]
    pub(super) pebs: String,
    pub(super) precise: String,
    pub(super) deprecated: String,
}

impl PerfmonEvent {
    pub(super) fn is_deprecated(&self) -> bool {
        number(&self.deprecated) == 1
    }
}

/// A file of metrics.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Metrics {
    pub(super) header: Header,
    pub(super) metrics: Vec<Metric>,
}

/// A metric in a file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Metric {
    #[serde(rename = "MetricName")]
    pub(super) name: String,
    pub(super) legacy_name: String,
    pub(super) parent_category: Option<String>,
    pub(super) level: u32,
    pub(super) unit_of_measure: String,
    pub(super) events: Vec<Alias>,
    pub(super) constants: Vec<Alias>,
    pub(super) formula: String,
    pub(super) base_formula: Option<String>,
    pub(super) category: String,
    pub(super) count_domain: Option<String>,
    pub(super) metric_group: Option<String>,
    pub(super) threshold: Option<Threshold>,
    pub(super) locate_with: Option<String>,
}

/// Name that a letter in a formula stands for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Alias {
    pub(super) name: String,
    pub(super) alias: String,
}

/// Condition under which a metric deserves attention.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Threshold {
    pub(super) threshold_metrics: Vec<ThresholdMetric>,
    pub(super) formula: String,
}

/// A metric in a threshold.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ThresholdMetric {
    pub(super) alias: String,
    pub(super) value: String,
}

/// A file of latencies that counting cannot measure.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Latencies {
    data: BTreeMap<String, Latency>,
}

#[derive(Debug, Deserialize)]
struct Latency {
    #[serde(rename = "MEAN")]
    mean: f64,
}

impl Latencies {
    /// Returns the mean latencies of operands that need one.
    pub(super) fn of(&self, operands: &[String]) -> Vec<(String, f64)> {
        let wanted = operands.iter().filter(|operand| operand.ends_with(":retire_latency"));
        let find = |operand: &String| {
            let event = super::base(operand);
            self.data.get(&event).map(|latency| (operand.clone(), latency.mean))
        };
        wanted.filter_map(find).collect()
    }
}

/// Maximum size of a file. The largest of these has 7 MB.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Maximum memory for the contents of a file.
const MEMORY_BYTES_MAX: usize = 256 << 20;

/// Returns the bytes of a file.
pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, PerfmonError> {
    read_regular(path, FILE_BYTES_MAX).map_err(|error| PerfmonError::Io(path.to_owned(), error))
}

/// Reads and parses a file.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, PerfmonError> {
    json::from_slice(latin1(&bytes(path)?).as_bytes(), MEMORY_BYTES_MAX)
        .map_err(|error| PerfmonError::Malformed(path.to_owned(), error.to_string()))
}

/// Returns the text of a file: UTF-8, or else Latin-1, which some of them are.
pub(super) fn latin1(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|&byte| char::from(byte)).collect(),
    }
}

/// Parses a number as these files write it: decimal or `0x…`, the first of a list, 0 if there is none.
pub(super) fn number(text: &str) -> u64 {
    let first = text.split(',').next().unwrap_or_default().trim();
    let hexadecimal = first.strip_prefix("0x").or_else(|| first.strip_prefix("0X"));
    let parsed = match hexadecimal {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => first.parse(),
    };
    parsed.unwrap_or(0)
}
