//! What `pmbpf io` reports, in every format.

mod checks;
pub mod evaluation;
mod json;
mod levels;
pub mod summary;
mod text;

use std::io::{self, Write};

use super::{Reported, Stage, text::Style};
use crate::{
    drain::{Ending, io::IoHeader},
    metric::io::IoReport,
};

impl Reported for IoReport {
    type Header = IoHeader;
    type Ending = Ending;

    fn text(into: &mut dyn Write, style: &Style, stage: Stage<'_, Self>) -> io::Result<()> {
        match stage {
            Stage::Begin(_) => Ok(()),
            Stage::Interval(report, _) => text::interval(into, style, report),
            Stage::Whole(header, report, ending) => text::whole(into, style, header, report, ending),
        }
    }

    fn json(into: &mut dyn Write, stage: Stage<'_, Self>) -> io::Result<()> {
        match stage {
            Stage::Begin(header) => json::begin(into, header),
            Stage::Interval(..) => Ok(()),
            Stage::Whole(_, report, ending) => json::end(into, report, ending),
        }
    }
}
