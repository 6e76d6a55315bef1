//! Reports of `pmbpf io`, in every format.

mod checks;
mod csv;
pub mod evaluation;
mod json;
mod levels;
pub mod summary;
mod text;

use std::io::{self, Write};

use super::{Format, text::Style};
use crate::{
    drain::{Ending, io::IoHeader},
    metric::io::{IoReport, Place, Subject},
};

/// Writes reports of one run to one place.
pub struct IoView<'a> {
    header: &'a IoHeader,
    format: Format,
    style: Style,
    into: Box<dyn Write + 'a>,
    begun: bool,
    intervals: u64,
}

impl<'a> IoView<'a> {
    /// A view of the run that `header` describes.
    pub fn new(header: &'a IoHeader, format: Format, style: Style, into: Box<dyn Write + 'a>) -> Self {
        Self { header, format, style, into, begun: false, intervals: 0 }
    }

    /// Writes one interval's report.
    ///
    /// # Errors
    ///
    /// The stream cannot be written.
    pub fn interval(&mut self, report: &IoReport) -> io::Result<()> {
        self.begin()?;
        self.intervals += 1;
        match self.format {
            Format::Text => text::interval(&mut self.into, &self.style, report)?,
            Format::Json => json::interval(&mut self.into, report)?,
            Format::Csv => csv::interval(&mut self.into, report)?,
        }
        self.into.flush()
    }

    /// Writes the whole run's report and what ends it.
    ///
    /// # Errors
    ///
    /// The stream cannot be written.
    pub fn whole(&mut self, report: &IoReport, ending: &Ending) -> io::Result<()> {
        self.begin()?;
        let alone = self.intervals == 0;
        match self.format {
            Format::Text => text::whole(&mut self.into, &self.style, self.header, report, ending)?,
            Format::Json => {
                if alone {
                    json::interval(&mut self.into, report)?;
                }
                json::end(&mut self.into, report, ending)?;
            }
            Format::Csv if alone => csv::interval(&mut self.into, report)?,
            Format::Csv => {}
        }
        self.into.flush()
    }

    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        match self.format {
            Format::Text => Ok(()),
            Format::Json => json::begin(&mut self.into, self.header),
            Format::Csv => csv::begin(&mut self.into),
        }
    }
}

/// Kind of a subject: a word that every format uses.
const fn kind(subject: &Subject) -> &'static str {
    match subject {
        Subject::Place(Place::Platform) => "platform",
        Subject::Place(Place::Socket(_)) => "socket",
        Subject::Place(Place::Stack(..)) => "stack",
        Subject::Place(Place::Part(..)) => "part",
        Subject::Place(Place::Channel(..)) => "channel",
        Subject::Place(Place::Link(..)) => "link",
        Subject::Device(..) => "device",
        Subject::Function(..) => "function",
        Subject::Disk(..) => "disk",
        Subject::Interface(..) => "interface",
        Subject::Group(_) => "group",
        Subject::Owner(..) => "owner",
    }
}

/// A place in numbers: `0/3/1` is part 1 of stack 3 on die 0. Empty for the platform.
fn place(place: Place) -> String {
    match place {
        Place::Platform => String::new(),
        Place::Socket(die) => die.to_string(),
        Place::Stack(die, unit) | Place::Channel(die, unit) | Place::Link(die, unit) => {
            format!("{die}/{unit}")
        }
        Place::Part(die, unit, part) => format!("{die}/{unit}/{part}"),
    }
}
