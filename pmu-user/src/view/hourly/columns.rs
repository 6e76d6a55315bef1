//! Columns of an hourly table.

use std::io::Write;

use parquet::{
    data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type},
    errors::ParquetError,
    file::writer::SerializedRowGroupWriter,
};

use super::{HourlyTable, Row};
use crate::{
    metric::exposed::Whose,
    view::columnar::{Group, Levels},
};

/// Columns, in the order in which [`write()`] writes them. Text is UTF-8, and an unknown value is null. A map
/// without entries is empty, because ClickHouse has no null maps.
pub(super) const SCHEMA: &str = "message pmbpf {
    required int64 time (TIMESTAMP(MICROS,true));
    required double seconds;
    required binary host (UTF8);
    required binary metric (UTF8);
    required binary kind (UTF8);
    optional binary target (UTF8);
    required double value;
    optional double variance;
    optional double sum;
    required group buckets (MAP) {
        repeated group key_value {
            required int64 key;
            required int64 value;
        }
    }
    required group labels (MAP) {
        repeated group key_value {
            required binary key (UTF8);
            required binary value (UTF8);
        }
    }
    optional binary path (UTF8);
    optional binary runtime (UTF8);
    optional binary container (UTF8);
    optional binary container_id (UTF8);
    optional binary image (UTF8);
    optional binary namespace (UTF8);
    optional binary pod (UTF8);
    optional binary systemd_unit (UTF8);
    optional binary job (UTF8);
}";
/// Indexes of the columns `metric`, `target` and `time`.
pub(super) const SORTED_BY: [i32; 3] = [3, 5, 0];
/// Labels of a target's identity, in the order of the last columns.
const IDENTITY: [&str; 9] = [
    "path",
    "runtime",
    "container_name",
    "container_id",
    "image",
    "k8s_namespace",
    "k8s_pod",
    "unit",
    "slurm_job",
];

/// Writes rows as a row group.
pub(super) fn write<W: Write + Send>(
    table: &HourlyTable,
    rows: &[Row],
    group: SerializedRowGroupWriter<'_, W>,
) -> Result<(), ParquetError> {
    let mut group = Group(group);
    let whose: Vec<Texts> = table.whose.all.iter().map(Texts::of).collect();
    let period = |row: &Row| table.periods[row.period as usize];
    let metric = |row: &Row| &table.metrics.all[row.metric as usize];
    let texts = |row: &Row| &whose[row.whose as usize];
    group.required::<Int64Type>(rows.iter().map(|row| period(row).0))?;
    group.required::<DoubleType>(rows.iter().map(|row| period(row).1))?;
    group.required::<ByteArrayType>(rows.iter().map(|_| table.host.clone()))?;
    group.required::<ByteArrayType>(rows.iter().map(|row| metric(row).name.as_str().into()))?;
    group.required::<ByteArrayType>(rows.iter().map(|row| metric(row).kind.into()))?;
    group.optional::<ByteArrayType>(rows.iter().map(|row| texts(row).target.clone()))?;
    group.required::<DoubleType>(rows.iter().map(|row| row.value))?;
    group.optional::<DoubleType>(rows.iter().map(|row| row.variance))?;
    group.optional::<DoubleType>(rows.iter().map(|row| row.observed.map(|(sum, ..)| sum)))?;
    let buckets = |row: &Row| {
        let (first, count) =
            row.observed.map_or((0, 0), |(_, first, count)| (first as usize, count as usize));
        &table.buckets[first..first + count]
    };
    let levels = Levels::of(rows.iter().map(|row| buckets(row).len()));
    let all = || rows.iter().flat_map(buckets);
    group.of_map::<Int64Type>(&levels, all().map(|&(bound, _)| bound))?;
    group.of_map::<Int64Type>(&levels, all().map(|&(_, count)| count))?;
    let levels = Levels::of(rows.iter().map(|row| texts(row).labels.len()));
    let all = || rows.iter().flat_map(|row| &texts(row).labels);
    group.of_map::<ByteArrayType>(&levels, all().map(|(label, _)| label.clone()))?;
    group.of_map::<ByteArrayType>(&levels, all().map(|(_, text)| text.clone()))?;
    for place in 0..IDENTITY.len() {
        group.optional::<ByteArrayType>(rows.iter().map(|row| texts(row).identity[place].clone()))?;
    }
    group.close()
}

/// Texts of the columns of a target, or of a part of the host.
#[derive(Default)]
struct Texts {
    target: Option<ByteArray>,
    labels: Vec<(ByteArray, ByteArray)>,
    identity: [Option<ByteArray>; IDENTITY.len()],
}

impl Texts {
    fn of(whose: &Whose) -> Self {
        match whose {
            Whose::Host(labels) => {
                let pair = |(label, text): &(&str, String)| ((*label).into(), text.as_str().into());
                Self { labels: labels.iter().map(pair).collect(), ..Self::default() }
            }
            Whose::Target(name, info) => {
                let text = |wanted: &str| info.iter().find(|(label, _)| *label == wanted);
                Self {
                    target: Some((&**name).into()),
                    identity: IDENTITY.map(|label| text(label).map(|(_, text)| text.as_str().into())),
                    ..Self::default()
                }
            }
        }
    }
}
