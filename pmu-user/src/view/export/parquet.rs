//! Parquet: a long table with a row for each value of each number and interval. It has the columns of CSV
//! under their own units. Row groups are written as they fill.

use std::{
    io::{self, Write},
    sync::Arc,
};

use parquet::{
    basic::Compression,
    data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::WriterProperties,
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::parser::parse_message_type,
};

use super::{Export, series, words};
use crate::{
    drain::{Header, Owner},
    machine::container::COLUMNS,
    metric::{
        Report,
        number::{Attribution, Number},
    },
    untrusted::Untrusted,
    view::{columnar::Group, stage::Stage, words::kind},
};

/// Columns, in the order in which [`Rows::write`] writes them. Text is UTF-8, and an unknown value is null.
const SCHEMA: &str = "message pmbpf {
    required int64 time_ns;
    required int64 dt_ns;
    optional binary subject (UTF8);
    required binary owner_kind (UTF8);
    required binary owner (UTF8);
    optional int32 pid;
    required binary metric (UTF8);
    required binary unit (UTF8);
    optional double value;
    optional double low;
    optional double high;
    optional double coverage;
    optional binary how (UTF8);
    required binary status (UTF8);
    optional binary reason (UTF8);
    required binary host (UTF8);
    optional binary path (UTF8);
    optional binary container (UTF8);
    optional binary namespace (UTF8);
    optional binary pod (UTF8);
    optional binary systemd_unit (UTF8);
    optional binary job (UTF8);
}";
/// Number of rows of a row group.
const ROWS_MAX: usize = 1 << 16;

/// Table that is being written.
#[derive(Default)]
pub(super) struct Parquet {
    /// Writer with the bytes that have not been passed on.
    writer: Option<SerializedFileWriter<Vec<u8>>>,
    rows: Rows,
    /// Name of the host.
    host: ByteArray,
}

impl Export for Parquet {
    fn stage(&mut self, into: &mut dyn Write, stage: Stage<'_>) -> io::Result<()> {
        match stage {
            Stage::Begin(header) => {
                self.host = header.machine.host.terminal().as_ref().into();
                self.writer = Some(begin(header).map_err(failure)?);
            }
            Stage::Interval(report, _) => self.report(into, report)?,
            Stage::Whole { report, intervals, .. } => {
                if intervals == 0 {
                    self.report(into, report)?;
                }
                self.group(into)?;
                let written = self.writer.take().map(SerializedFileWriter::into_inner).transpose();
                into.write_all(&written.map_err(failure)?.unwrap_or_default())?;
            }
        }
        Ok(())
    }
}

fn failure(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

fn begin(header: &Header) -> Result<SerializedFileWriter<Vec<u8>>, ParquetError> {
    let facts = [
        ("pmbpf.run", words::run(header)),
        ("pmbpf.started_unix_ns", header.started_unix_ns.to_string()),
        ("pmbpf.kernel", header.machine.kernel.terminal().into_owned()),
    ];
    let facts = facts.map(|(key, value)| KeyValue::new(key.to_owned(), value));
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(words::exporter(header))
        .set_key_value_metadata(Some(facts.to_vec()));
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build()))
}

impl Parquet {
    fn report(&mut self, into: &mut dyn Write, report: &Report) -> io::Result<()> {
        report.by_source(|(from_ns, length_ns), numbers| {
            for number in numbers {
                self.rows.add((from_ns, length_ns), &number, &self.host);
                if self.rows.time_ns.len() >= ROWS_MAX {
                    self.group(into)?;
                }
            }
            Ok(())
        })
    }

    /// Writes the buffered rows as a row group.
    fn group(&mut self, into: &mut dyn Write) -> io::Result<()> {
        let (rows, Some(writer)) = (std::mem::take(&mut self.rows), &mut self.writer) else { return Ok(()) };
        if rows.time_ns.is_empty() {
            return Ok(());
        }
        rows.write(writer.next_row_group().map_err(failure)?).map_err(failure)?;
        into.write_all(&std::mem::take(writer.inner_mut()))
    }
}

/// Rows by column.
#[derive(Default)]
struct Rows {
    time_ns: Vec<i64>,
    dt_ns: Vec<i64>,
    subject: Vec<Option<ByteArray>>,
    owner_kind: Vec<ByteArray>,
    owner: Vec<ByteArray>,
    pid: Vec<Option<i32>>,
    metric: Vec<ByteArray>,
    unit: Vec<ByteArray>,
    value: Vec<Option<f64>>,
    low: Vec<Option<f64>>,
    high: Vec<Option<f64>>,
    coverage: Vec<Option<f64>>,
    how: Vec<Option<ByteArray>>,
    status: Vec<ByteArray>,
    reason: Vec<Option<ByteArray>>,
    host: Vec<ByteArray>,
    /// Path and identity of owners that are cgroups, as in [`COLUMNS`].
    path: Vec<Option<ByteArray>>,
    identity: [Vec<Option<ByteArray>>; COLUMNS.len()],
}

impl Rows {
    fn add(&mut self, (from_ns, length_ns): (u64, u64), number: &Number<'_>, host: &ByteArray) {
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        let owner = ByteArray::from(series::whose(number.whose).as_str());
        let (path, identity) = cgroup(number.whose);
        let subject = Some(series::subject(number)).filter(|subject| !subject.is_empty());
        for part in series::parts(number) {
            let known = part.value.known();
            self.time_ns.push(signed(from_ns));
            self.dt_ns.push(signed(length_ns));
            self.subject.push(subject.as_deref().map(ByteArray::from));
            self.owner_kind.push(kind(number.whose).into());
            self.owner.push(owner.clone());
            self.pid.push(series::pid(number.whose).and_then(|pid| pid.try_into().ok()));
            self.metric.push(part.metric.as_str().into());
            self.unit.push(words::text(part.unit).as_str().into());
            self.value.push(known.map(|known| known.estimate));
            self.low.push(known.map(|known| known.low));
            self.high.push(known.map(|known| known.high));
            self.coverage.push(known.map(|known| known.coverage));
            self.how.push(known.map(|known| known.how.name().into()));
            self.status.push(number.status().into());
            self.reason.push(part.value.reason().map(|why| words::text(why).as_str().into()));
            self.host.push(host.clone());
            self.path.push(path.clone());
            for (column, name) in self.identity.iter_mut().zip(&identity) {
                column.push(name.clone());
            }
        }
    }

    fn write(self, group: SerializedRowGroupWriter<'_, Vec<u8>>) -> Result<(), ParquetError> {
        let mut group = Group(group);
        group.required::<Int64Type>(self.time_ns.into_iter())?;
        group.required::<Int64Type>(self.dt_ns.into_iter())?;
        group.optional::<ByteArrayType>(self.subject.into_iter())?;
        group.required::<ByteArrayType>(self.owner_kind.into_iter())?;
        group.required::<ByteArrayType>(self.owner.into_iter())?;
        group.optional::<Int32Type>(self.pid.into_iter())?;
        group.required::<ByteArrayType>(self.metric.into_iter())?;
        group.required::<ByteArrayType>(self.unit.into_iter())?;
        for numbers in [self.value, self.low, self.high, self.coverage] {
            group.optional::<DoubleType>(numbers.into_iter())?;
        }
        group.optional::<ByteArrayType>(self.how.into_iter())?;
        group.required::<ByteArrayType>(self.status.into_iter())?;
        group.optional::<ByteArrayType>(self.reason.into_iter())?;
        group.required::<ByteArrayType>(self.host.into_iter())?;
        group.optional::<ByteArrayType>(self.path.into_iter())?;
        for names in self.identity {
            group.optional::<ByteArrayType>(names.into_iter())?;
        }
        group.close()
    }
}

/// Returns the path and the identity of an owner that is a cgroup.
fn cgroup(whose: Attribution<'_>) -> (Option<ByteArray>, [Option<ByteArray>; COLUMNS.len()]) {
    let Attribution::Owner(Owner::Cgroup { path, identity, .. }) = whose else { return Default::default() };
    let text = |name: &Untrusted| ByteArray::from(name.terminal().as_ref());
    let names = identity.as_ref().map(|identity| identity.columns()).unwrap_or_default();
    (Some(text(path)), names.map(|name| name.map(text)))
}
