//! Table of an hour in Parquet, made from periods of growth. It is sorted by metric, target and time, so that
//! a reader of one metric skips the others. Its rows in memory are small: names are numbers, and the buckets
//! of all histograms share one list.

mod columns;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    io::{self, Write},
    sync::Arc,
};

use parquet::{
    basic::Compression,
    data_type::ByteArray,
    errors::ParquetError,
    file::{
        metadata::{KeyValue, SortingColumn},
        properties::WriterProperties,
        writer::SerializedFileWriter,
    },
    schema::{parser::parse_message_type, types::ColumnPath},
};

use self::columns::{SCHEMA, SORTED_BY, write};
use crate::{
    drain::Header,
    metric::exposed::{Kind, Observed, Period, Point, Whose},
};

/// Number of rows of a table after which a new one should be begun: 17 MB.
pub const ROWS_MAX: usize = 1 << 18;
/// Number of buckets of a table after which a new one should be begun: 17 MB.
pub const BUCKETS_MAX: usize = 1 << 20;
/// Number of rows after which a row group ends with the metric. Smaller groups could be skipped better, but
/// the file would consist of their metadata.
const GROUP_ROWS: usize = 1 << 13;
/// Maximum number of rows of a row group.
const GROUP_ROWS_MAX: usize = 1 << 16;

/// A table that is being filled.
#[derive(Debug)]
pub struct HourlyTable {
    host: ByteArray,
    facts: Vec<KeyValue>,
    created_by: String,
    /// Start of each period in µs since 1970, and the seconds for which it was counted.
    periods: Vec<(i64, f64)>,
    metrics: Names<Metric>,
    whose: Names<Whose>,
    rows: Vec<Row>,
    buckets: Vec<(i64, i64)>,
}

/// A metric's name, and the kind of its family.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Metric {
    name: String,
    kind: &'static str,
}

/// Row with indexes into the lists of its table, and its numbers.
#[derive(Clone, Copy, Debug)]
struct Row {
    metric: u32,
    whose: u32,
    period: u32,
    value: f64,
    variance: Option<f64>,
    /// For a histogram: the sum of its values in its unit, and the start and number of its buckets.
    observed: Option<(f64, u32, u32)>,
}

impl HourlyTable {
    /// Returns a table without rows, for the run that `header` describes.
    #[must_use]
    pub fn new(header: &Header) -> Self {
        let fact = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
        Self {
            host: header.machine.host.terminal().as_ref().into(),
            facts: vec![
                fact("pmbpf.started_unix_ns", header.started_unix_ns.to_string()),
                fact("pmbpf.kernel", header.machine.kernel.terminal().into_owned()),
            ],
            created_by: format!("pmbpf {}", header.version),
            periods: Vec::new(),
            metrics: Names::default(),
            whose: Names::default(),
            rows: Vec::new(),
            buckets: Vec::new(),
        }
    }

    /// Adds the growth of a period.
    pub fn add(&mut self, period: &Period) {
        let at = self.periods.len() as u32;
        self.periods.push(((period.from_unix_ns / 1000) as i64, period.counted_ns as f64 / 1e9));
        for row in &period.rows {
            let family = period.family(row);
            // Families of kind info come from the first period only.
            if family.kind == Kind::Info && at > 0 {
                continue;
            }
            let name = family.name.strip_prefix("pmbpf_").unwrap_or(&family.name).to_owned();
            let metric = self.metrics.place(&Metric { name, kind: kind(family.kind) });
            let whose = self.whose.place(&row.whose);
            let (value, observed) = match &row.point {
                Point::Number(value) => (*value, None),
                Point::Histogram(observed) => {
                    (observed.buckets.count() as f64, Some(self.observed(observed)))
                }
            };
            self.rows.push(Row { metric, whose, period: at, value, variance: row.variance, observed });
        }
    }

    /// Appends the buckets of a histogram, and returns its sum and their place. The key of a bucket is the
    /// first value above it, as in metrics servers.
    fn observed(&mut self, observed: &Observed) -> (f64, u32, u32) {
        let first = self.buckets.len();
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let all = observed.buckets.iter();
        self.buckets
            .extend(all.map(|(bucket, count)| (signed(bucket.high.saturating_add(1)), signed(count))));
        (observed.sum_ns / 1e9, first as u32, (self.buckets.len() - first) as u32)
    }

    /// Returns the number of rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Returns the start of the first period in ns since 1970, or `None` for a table without periods.
    #[must_use]
    pub fn from_unix_ns(&self) -> Option<u64> {
        self.periods.first().map(|(at, _)| at.unsigned_abs() * 1000)
    }

    /// Returns whether the table is as large as it should be.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX || self.buckets.len() >= BUCKETS_MAX
    }

    /// Writes the table as Parquet.
    ///
    /// # Errors
    ///
    /// The table cannot be written.
    pub fn write(&mut self, into: impl Write + Send) -> io::Result<()> {
        self.sort();
        self.encode(into).map_err(|error| match error {
            ParquetError::External(error) => match error.downcast::<io::Error>() {
                Ok(error) => *error,
                Err(error) => io::Error::other(error),
            },
            error => io::Error::other(error),
        })
    }

    fn encode(&self, into: impl Write + Send) -> Result<(), ParquetError> {
        let sorted =
            SORTED_BY.map(|column_idx| SortingColumn { column_idx, descending: false, nulls_first: true });
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(self.created_by.clone())
            .set_sorting_columns(Some(sorted.to_vec()))
            .set_key_value_metadata(Some(self.facts.clone()));
        // Two of their values are hardly ever the same.
        for column in ["variance", "sum"] {
            properties = properties.set_column_dictionary_enabled(ColumnPath::from(column), false);
        }
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let mut writer = SerializedFileWriter::new(into, schema, Arc::new(properties.build()))?;
        for rows in self.groups() {
            write(self, rows, writer.next_row_group()?)?;
        }
        writer.close().map(drop)
    }

    /// Sorts the rows by metric, target and time.
    fn sort(&mut self) {
        let metrics = self.metrics.ranks(Clone::clone);
        // The identity of a target may change: its rows stay in the order of time.
        let whose = self.whose.ranks(|whose| match whose {
            Whose::Host(_) => whose.clone(),
            Whose::Target(name, _) => Whose::Target(Arc::clone(name), Arc::default()),
        });
        let periods = &self.periods;
        self.rows.sort_by_key(|row| {
            (metrics[row.metric as usize], whose[row.whose as usize], periods[row.period as usize].0)
        });
    }

    /// Returns the rows by row group.
    fn groups(&self) -> impl Iterator<Item = &[Row]> {
        let mut left = self.rows.as_slice();
        std::iter::from_fn(move || {
            let most = left.len().min(GROUP_ROWS_MAX);
            let ends = |at: &usize| *at == most || left[*at].metric != left[*at - 1].metric;
            let at = (GROUP_ROWS.min(most).max(1)..=most).find(ends)?;
            let (group, rest) = left.split_at(at);
            left = rest;
            Some(group)
        })
    }
}

/// Returns the name of a kind of family.
const fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
        Kind::Info => "info",
    }
}

const _: () = assert!(size_of::<Row>() * ROWS_MAX <= 17 << 20);

/// Table of values, each named by a number.
#[derive(Debug)]
struct Names<T> {
    all: Vec<T>,
    places: HashMap<T, u32>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { all: Vec::new(), places: HashMap::new() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Names<T> {
    /// Returns the place of a name. A new name is added.
    fn place(&mut self, name: &T) -> u32 {
        if let Some(&known) = self.places.get(name) {
            return known;
        }
        let place = self.all.len() as u32;
        self.all.push(name.clone());
        self.places.insert(name.clone(), place);
        place
    }

    /// Returns the rank of each name, by place, in the order of the keys that `order` returns. Names with the
    /// same key have the same rank.
    fn ranks<O: Ord>(&self, order: impl Fn(&T) -> O) -> Vec<usize> {
        let keys: Vec<O> = self.all.iter().map(order).collect();
        let mut sorted: Vec<&O> = keys.iter().collect();
        sorted.sort();
        sorted.dedup();
        keys.iter().map(|key| sorted.partition_point(|other| *other < key)).collect()
    }
}
