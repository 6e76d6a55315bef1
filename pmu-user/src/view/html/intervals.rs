//! Rows of intervals: the known values of each one, with the extremes of the ticks that it combines.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use serde::Deserialize;

use super::island::{Lines, Packing};

/// Maximum bytes of the packed rows. Base64 makes them four thirds of that.
const BYTES_MAX: u64 = 1_800_000;

/// Packed rows, in base64.
pub(super) struct Island {
    pub(super) base64: String,
    /// Ticks per interval.
    pub(super) ticks: u32,
    /// Number of owners that have intervals.
    pub(super) owners: usize,
}

/// Collector of the rows of intervals, as they are written. A missing number is left out: the row of the
/// whole run has the reason.
pub struct Intervals<'a> {
    lines: Lines,
    packing: Packing,
    extremes: &'a Extremes,
    about: (u32, usize),
}

/// Rows of intervals, once all have been collected.
pub struct Packed(Packing, (u32, usize));

impl Intervals<'_> {
    /// Approximate number of rows that fit.
    pub const ROWS: u64 = 90_000;
}

impl<'a> Intervals<'a> {
    /// Returns a collector without rows, for intervals of `ticks` ticks and for `owners` owners.
    #[must_use]
    pub fn new(ticks: u32, owners: usize, extremes: &'a Extremes) -> Self {
        Self { lines: Lines::default(), packing: Packing::new(), extremes, about: (ticks, owners) }
    }

    /// Returns whether the rows fit into a page.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.packing.bytes() <= BYTES_MAX
    }

    /// Returns the packed rows, once all have been collected.
    #[must_use]
    pub fn packed(self) -> Packed {
        Packed(self.packing, self.about)
    }
}

impl Packed {
    pub(super) fn end(self) -> io::Result<Island> {
        let (ticks, owners) = self.1;
        Ok(Island { base64: self.0.end()?, ticks, owners })
    }
}

impl Write for Intervals<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { lines, packing, extremes, .. } = self;
        lines.feed(bytes, |line| {
            let Some(point) = Point::of(line)? else { return Ok(()) };
            // Rows that do not fit are not needed: another attempt follows.
            if packing.bytes() > BYTES_MAX {
                return Ok(());
            }
            match extremes.of(line, &point) {
                Some((least, most)) => {
                    let begun = line.trim_ascii_end().strip_suffix(b"}").unwrap_or(line);
                    let end = format!(",\"least\":{least},\"most\":{most}}}\n");
                    packing.push(&[begun, end.as_bytes()].concat())
                }
                None => packing.push(line),
            }
        })?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Kind, time and value of a row.
#[derive(Deserialize)]
struct Point<'a> {
    kind: &'a str,
    #[serde(default)]
    t: u64,
    #[serde(default)]
    dt: u64,
    value: Option<f64>,
    #[serde(default)]
    count: Option<u64>,
}

impl<'a> Point<'a> {
    /// Returns the point of a row that an interval keeps, or `None` for other rows.
    fn of(line: &'a [u8]) -> io::Result<Option<Self>> {
        // Rows of other kinds may have a field of the same name that is not a number.
        if !line.starts_with(b"{\"schema\"") {
            return Ok(None);
        }
        let point: Point<'_> = serde_json::from_slice(line)?;
        let is_number = matches!(point.kind, "metric" | "histogram" | "program_metric" | "program_histogram");
        Ok(Some(point).filter(|point| is_number && (point.value.is_some() || point.count.is_some())))
    }
}

/// Values of every tick, for intervals that hold several.
#[derive(Default)]
pub struct Extremes {
    lines: Lines,
    /// Start and length of each tick, and its value.
    series: HashMap<Vec<u8>, Vec<(u64, u64, f64)>>,
}

impl Extremes {
    /// Returns whether no tick has been seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Returns the least and the greatest value of the ticks in an interval. A tick that was cut short is
    /// ignored.
    fn of(&self, line: &[u8], interval: &Point<'_>) -> Option<(f64, f64)> {
        let series = self.series.get(key(line)?)?;
        let end = interval.t.saturating_add(interval.dt);
        let from = series.partition_point(|&(t, ..)| t < interval.t);
        let inside = || series[from..].iter().take_while(|&&(t, ..)| t < end);
        let longest = inside().map(|&(_, dt, _)| dt).max()?;
        let inside = inside().filter(|&&(_, dt, _)| dt >= longest / 2).map(|&(.., value)| value);
        inside.fold(None, |found, value| {
            let (least, most) = found.unwrap_or((value, value));
            Some((value.min(least), value.max(most)))
        })
    }
}

impl Write for Extremes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { lines, series } = self;
        lines.feed(bytes, |line| {
            if let (Some(Point { t, dt, value: Some(value), .. }), Some(key)) = (Point::of(line)?, key(line))
            {
                match series.get_mut(key) {
                    Some(points) => points.push((t, dt, value)),
                    None => drop(series.insert(key.to_vec(), vec![(t, dt, value)])),
                }
            }
            Ok(())
        })?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the key of a row: its text from the owner to the unit, which is the same in every interval. A name
/// cannot contain these marks, because its quotes are escaped.
fn key(line: &[u8]) -> Option<&[u8]> {
    let find = |mark: &[u8]| line.windows(mark.len()).position(|window| window == mark);
    line.get(find(b"\"owner\":")?..find(b",\"value\":")?)
}
