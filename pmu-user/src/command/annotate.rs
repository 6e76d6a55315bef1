//! `pmbpf report --annotate FUNCTION`: its samples by source line and instruction.

use std::{
    cell::RefCell,
    collections::HashMap,
    io::{Read as _, Write},
    path::PathBuf,
};

use super::{output::Output, pipeline::Pipeline};
use crate::{
    drain::{Header, Line},
    metric::{annotate::Annotated, filter::Pattern},
    symbol::{instructions_recorded, open_below},
    untrusted::Untrusted,
    view::{
        annotation::{self, Annotation},
        text::Style,
    },
};

/// Options for single functions.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct AnnotateArgs {
    /// Show this function by source line and instruction instead of the report; `*` and `?` match any text
    /// and any character. Instructions are decoded (x86-64) if a --symfs folder has its file with the
    /// recorded build id
    #[arg(long, value_name = "FUNCTION", conflicts_with_all = ["html", "format", "hdr_log", "sections", "interval"],
          help_heading = "Code")]
    annotate: Option<String>,
    /// Read source files from this folder, by the path in the debug information or by file name; `/` is this
    /// host's (repeatable)
    #[arg(long, value_name = "DIR", requires = "annotate", conflicts_with = "redact", help_heading = "Code")]
    source: Vec<PathBuf>,
}

/// Largest source file that is read.
const SOURCE_BYTES_MAX: u64 = 8 << 20;

impl AnnotateArgs {
    /// Returns the requested function, if any.
    pub(super) fn function(&self) -> Option<&str> {
        self.annotate.as_deref()
    }

    /// Writes the functions of a recording that has gone through the pipeline.
    pub(super) fn write(
        &self,
        (header, pipeline): (&Header, &Pipeline<'_>),
        (owners, symfs): (&[Pattern], &[PathBuf]),
        (output, style, into): (&Output, &Style, &mut dyn Write),
    ) -> anyhow::Result<()> {
        let wanted = self.annotate.as_deref().unwrap_or_default();
        let mut functions = pipeline.annotate(wanted, owners)?;
        functions.iter_mut().for_each(|function| add_instructions(function, symfs));
        let events = header.tasks.as_ref().map_or(&[][..], |tasks| &tasks.plan.sampling);
        let sources = Sources { folders: &self.source, known: RefCell::default() };
        let source = |line: &Line| sources.text(line);
        let annotation = Annotation { functions: &functions, events, source: &source };
        Ok(annotation::write(into, output.format(), style, &annotation)?)
    }
}

/// Adds the instructions of a function's file, or the reason why there are none.
fn add_instructions(function: &mut Annotated, symfs: &[PathBuf]) {
    let hit = function.instructions.first().map(|one| one.offset);
    let found = match (&function.build_id, &function.module, hit) {
        _ if function.kernel => Err("the kernel's code is in no file".to_owned()),
        _ if symfs.is_empty() => Err("--symfs names a folder with its file (`/` is this host's)".to_owned()),
        (Some(build_id), Some(path), Some(offset)) => instructions_recorded(build_id, path, offset, symfs),
        _ => Err("the recording has no build id of its file".to_owned()),
    };
    match found {
        Ok(code) => function.add_code(code),
        Err(why) => function.no_code = Some(why),
    }
}

/// Source files, each read once.
struct Sources<'a> {
    folders: &'a [PathBuf],
    known: RefCell<HashMap<Untrusted, Vec<Untrusted>>>,
}

impl Sources<'_> {
    /// Returns the text of a line, if a folder has its file.
    fn text(&self, line: &Line) -> Option<Untrusted> {
        let mut known = self.known.borrow_mut();
        let lines = known.entry(line.file.clone()).or_insert_with(|| self.read(&line.file));
        lines.get((line.line as usize).checked_sub(1)?).cloned()
    }

    fn read(&self, file: &Untrusted) -> Vec<Untrusted> {
        let path = file.to_path();
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        let candidates = self.folders.iter().flat_map(|folder| [(folder, &path), (folder, &name)]);
        let found = candidates.filter_map(|(folder, path)| open_below(folder, path)).find_map(|file| {
            let mut bytes = Vec::new();
            file.take(SOURCE_BYTES_MAX).read_to_end(&mut bytes).ok().map(|_| bytes)
        });
        let bytes = found.unwrap_or_default();
        bytes.split(|&byte| byte == b'\n').map(Untrusted::new).collect()
    }
}
