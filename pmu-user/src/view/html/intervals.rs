//! Rows of intervals: what is known in each of them, with the extremes of the ticks that share one.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use serde::Deserialize;

use super::island::{Lines, Packing};

/// Bytes of the packed rows, four thirds of which they are in base64.
const BYTES_MAX: u64 = 1_800_000;

/// Rows, packed.
pub(super) struct Island {
    pub(super) base64: String,
    /// Ticks in an interval.
    pub(super) ticks: u32,
    /// Owners whose intervals there are.
    pub(super) owners: usize,
}

/// Takes the rows of intervals, as they are written. What is missing in one is left out: the whole's row says why.
pub struct Intervals<'a> {
    lines: Lines,
    packing: Packing,
    extremes: &'a Extremes,
    about: (u32, usize),
}

/// The rows, when all have been taken.
pub struct Packed(Packing, (u32, usize));

impl Intervals<'_> {
    /// About how many rows fit.
    pub const ROWS: u64 = 90_000;
}

impl<'a> Intervals<'a> {
    /// None yet: of intervals of so many ticks, and of so many owners.
    #[must_use]
    pub fn new(ticks: u32, owners: usize, extremes: &'a Extremes) -> Self {
        Self { lines: Lines::default(), packing: Packing::new(), extremes, about: (ticks, owners) }
    }

    /// Do they fit into a page?
    #[must_use]
    pub fn fits(&self) -> bool {
        self.packing.bytes() <= BYTES_MAX
    }

    /// All have been taken.
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
            // What does not fit is not wanted: there will be another attempt.
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

/// What of a row says when and how much.
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
    /// Of a row that an interval keeps; none of others.
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
    /// When each tick began, how long it was, and its value.
    series: HashMap<Vec<u8>, Vec<(u64, u64, f64)>>,
}

impl Extremes {
    /// Has no tick been seen?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// The least and the most of the ticks in an interval; one that was cut short says nothing.
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

/// What a row is about: its text from the owner to the unit, which is the same in every interval. No name can hold these marks, because
/// its quotes are escaped.
fn key(line: &[u8]) -> Option<&[u8]> {
    let find = |mark: &[u8]| line.windows(mark.len()).position(|window| window == mark);
    line.get(find(b"\"owner\":")?..find(b",\"value\":")?)
}
