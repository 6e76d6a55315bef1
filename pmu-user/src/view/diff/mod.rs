//! Two recordings compared (`pmbpf diff`), in every format.

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

/// What one side is called, in order.
pub const SIDES: [&str; 2] = ["a", "b"];

/// A comparison and what it was made of.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// Recordings of both sides.
    pub sides: [&'a [Recorded]; 2],
    /// How they were made.
    pub facts: [&'a [Facts]; 2],
    /// In what they are not alike.
    pub conditions: &'a [Condition],
    /// What came out.
    pub diff: &'a Diff,
}

impl Comparison<'_> {
    /// Writes it.
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

    /// The comparison as one HTML file that needs nothing else.
    ///
    /// # Errors
    ///
    /// Its rows could not be compressed.
    pub fn page(&self) -> io::Result<Vec<u8>> {
        let mut differences = Differences::new();
        json::write(&mut differences, self)?;
        differences.page()
    }

    /// Are there several recordings a side?
    const fn has_groups(&self) -> bool {
        self.sides[0].len() > 1
    }
}

/// Name of what is compared: of code, what it is a share of.
fn metric(difference: &Difference) -> &str {
    match &difference.key.what {
        What::Metric(metric) => metric,
        What::Culprit(_) => RUNQUEUE_CULPRIT.name,
        What::Function(..) => "function",
        What::Stack(_) => "stack",
    }
}

/// A frame in a word; whoever shows it escapes it.
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
