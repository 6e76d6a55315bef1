//! Columns of an hourly table.

use std::io::Write;

use parquet::{
    data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type},
    errors::ParquetError,
    file::writer::SerializedRowGroupWriter,
};

use super::{HourlyTable, Row};
use crate::metric::exposed::Whose;

/// Columns, in the order in which [`write()`] writes them. Text is UTF-8; what is not known is null, and a map of nothing is empty, as
/// ClickHouse knows none that is null.
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
/// Places of `metric`, `target` and `time`.
pub(super) const SORTED_BY: [i32; 3] = [3, 5, 0];
/// What is known of a target, as its labels call it, in the order of the last columns.
const IDENTITY: [&str; 9] =
    ["path", "runtime", "container", "container_id", "image", "namespace", "pod", "unit", "job"];

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
    group.0.close().map(drop)
}

/// What columns have of a target, or of a part of the host.
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

/// Where the maps of a column begin (repetition levels), and which of them are empty (definition levels).
struct Levels {
    repetition: Vec<i16>,
    definition: Vec<i16>,
}

impl Levels {
    fn of(lengths: impl Iterator<Item = usize>) -> Self {
        let mut levels = Self { repetition: Vec::new(), definition: Vec::new() };
        for length in lengths {
            levels.repetition.push(0);
            levels.definition.push(i16::from(length > 0));
            levels.repetition.extend((1..length).map(|_| 1));
            levels.definition.extend((1..length).map(|_| 1));
        }
        levels
    }
}

/// A row group whose columns are written one after the other.
struct Group<'a, W: Write>(SerializedRowGroupWriter<'a, W>);

impl<W: Write + Send> Group<'_, W> {
    fn required<T: DataType>(&mut self, cells: impl Iterator<Item = T::T>) -> Result<(), ParquetError> {
        self.column::<T>(&cells.collect::<Vec<_>>(), None, None)
    }

    fn optional<T: DataType>(
        &mut self,
        cells: impl Iterator<Item = Option<T::T>>,
    ) -> Result<(), ParquetError> {
        let (values, levels) = present(cells);
        self.column::<T>(&values, Some(&levels), None)
    }

    fn of_map<T: DataType>(
        &mut self,
        levels: &Levels,
        values: impl Iterator<Item = T::T>,
    ) -> Result<(), ParquetError> {
        self.column::<T>(&values.collect::<Vec<_>>(), Some(&levels.definition), Some(&levels.repetition))
    }

    fn column<T: DataType>(
        &mut self,
        values: &[T::T],
        definition: Option<&[i16]>,
        repetition: Option<&[i16]>,
    ) -> Result<(), ParquetError> {
        let column = self.0.next_column()?;
        let mut column = column.ok_or_else(|| ParquetError::General("a column too many".to_owned()))?;
        column.typed::<T>().write_batch(values, definition, repetition)?;
        column.close()
    }
}

/// The values that are there, and for each row whether one is (its definition level).
fn present<T>(cells: impl Iterator<Item = Option<T>>) -> (Vec<T>, Vec<i16>) {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for cell in cells {
        levels.push(i16::from(cell.is_some()));
        values.extend(cell);
    }
    (values, levels)
}
