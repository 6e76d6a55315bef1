//! Comparison of two recordings (`pmbpf diff`), in every format.

mod csv;
mod json;
mod text;
pub(super) mod words;

use std::io::{self, Write};

use super::{Format, html::Differences, text::Style};
use crate::{
    metric::{
        Frame,
        diff::{Condition, Diff, Difference, Facts, Recorded, What},
    },
    table::metric::RUNQUEUE_CULPRIT,
};

/// Names of the sides, in order.
pub const SIDES: [&str; 2] = ["a", "b"];

/// Comparison, and the recordings from which it was made.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// Recordings of both sides.
    pub sides: [&'a [Recorded]; 2],
    /// Facts on how the recordings were made.
    pub facts: [&'a [Facts]; 2],
    /// Conditions in which the sides differ.
    pub conditions: &'a [Condition],
    /// Result of the comparison.
    pub diff: &'a Diff,
}

impl Comparison<'_> {
    /// Writes the comparison in `format`.
    ///
    /// # Errors
    ///
    /// The stream cannot be written.
    pub fn write(&self, into: &mut dyn Write, style: &Style, format: Format) -> io::Result<()> {
        match format {
            Format::Text => text::write(into, style, self)?,
            Format::Json => json::write(into, self)?,
            Format::Csv => csv::write(into, self)?,
        }
        into.flush()
    }

    /// Returns the comparison as one self-contained HTML file.
    ///
    /// # Errors
    ///
    /// The rows could not be compressed.
    pub fn page(&self) -> io::Result<Vec<u8>> {
        let mut differences = Differences::new();
        json::write(&mut differences, self)?;
        differences.page()
    }

    /// Returns whether a side has several recordings.
    const fn has_groups(&self) -> bool {
        self.sides[0].len() > 1
    }
}

/// Returns the name of what is compared. For code, this is `function` or `stack`.
fn metric(difference: &Difference) -> &str {
    match &difference.key.what {
        What::Metric(metric) => metric,
        What::Culprit(_) => RUNQUEUE_CULPRIT.name,
        What::Function(..) => "function",
        What::Stack(_) => "stack",
    }
}

/// Returns a frame in a word, which the caller escapes.
fn frame_in_bytes(frame: &Frame) -> Vec<u8> {
    match frame {
        Frame::Function { name, .. } => name.as_bytes().to_vec(),
        Frame::Offset { module, offset, .. } => {
            [module.as_bytes(), format!("+{offset:#x}").as_bytes()].concat()
        }
        Frame::Address(address) => format!("{address:#x}").into_bytes(),
        Frame::Rest => b"(rare code)".to_vec(),
        Frame::Cut(cut) => cut.in_words().into_bytes(),
    }
}
