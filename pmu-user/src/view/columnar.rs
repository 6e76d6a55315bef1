//! Columns of a Parquet file, written one after the other.

use std::io::Write;

use parquet::{data_type::DataType, errors::ParquetError, file::writer::SerializedRowGroupWriter};

/// Repetition levels (where the maps of a column begin) and definition levels (which maps are empty).
pub(super) struct Levels {
    repetition: Vec<i16>,
    definition: Vec<i16>,
}

impl Levels {
    pub(super) fn of(lengths: impl Iterator<Item = usize>) -> Self {
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
pub(super) struct Group<'a, W: Write>(pub(super) SerializedRowGroupWriter<'a, W>);

impl<W: Write + Send> Group<'_, W> {
    /// Writes a column in which every row has a value.
    pub(super) fn required<T: DataType>(
        &mut self,
        cells: impl Iterator<Item = T::T>,
    ) -> Result<(), ParquetError> {
        self.column::<T>(&cells.collect::<Vec<_>>(), None, None)
    }

    /// Writes a column in which a row may lack a value.
    pub(super) fn optional<T: DataType>(
        &mut self,
        cells: impl Iterator<Item = Option<T::T>>,
    ) -> Result<(), ParquetError> {
        let (values, levels) = present(cells);
        self.column::<T>(&values, Some(&levels), None)
    }

    /// Writes keys or values of a column of maps.
    pub(super) fn of_map<T: DataType>(
        &mut self,
        levels: &Levels,
        values: impl Iterator<Item = T::T>,
    ) -> Result<(), ParquetError> {
        self.column::<T>(&values.collect::<Vec<_>>(), Some(&levels.definition), Some(&levels.repetition))
    }

    /// Ends the row group, once all columns are written.
    pub(super) fn close(self) -> Result<(), ParquetError> {
        self.0.close().map(drop)
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

/// Returns the values that are present, and for each row whether it has one (its definition level).
fn present<T>(cells: impl Iterator<Item = Option<T>>) -> (Vec<T>, Vec<i16>) {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for cell in cells {
        levels.push(i16::from(cell.is_some()));
        values.extend(cell);
    }
    (values, levels)
}
