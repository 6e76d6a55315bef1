//! Names of code in single files, as a run looks them up at its end, and frames, as it unwinds them. This is
//! the collector's side, for tests with malformed files.

use std::{fs::File, path::Path, time::Duration};

use super::{
    child::{Codes, Identity, Mapped, Start, Symbolizer, Why},
    naming::{add_lines, functions, hottest_first, name},
    perf_map::PerfMap,
    source::{CodeSource, CodeSourceKind, Image},
    tracker::IDENTIFYING,
};
use crate::{
    drain::{At, Name},
    untrusted::Untrusted,
};

/// Time for names at the end of a run.
const NAMES: Duration = Duration::from_millis(1200);
/// Longest time for an answer about call frame information.
const ANSWER: Duration = Duration::from_secs(1);
/// Address at which the file is mapped whose frames are unwound, and that of its stack.
const MAPPED: u64 = 0x7f00_0000_0000;
const STACK: u64 = 0x7fff_0000_0000;
/// Number of the vDSO, and of the file.
const VDSO: u32 = 0;
const FILE: u32 = 1;

/// Requests to symbolizer processes about files, one after the other.
#[derive(Debug)]
pub struct FileNamer {
    namer: Symbolizer,
    unwinder: Symbolizer,
}

impl FileNamer {
    /// Returns a namer that starts `program`, which is pmbpf.
    pub fn new(program: &Path) -> Self {
        Self { namer: Symbolizer::of(program), unwinder: Symbolizer::of(program) }
    }

    /// Returns the names of the code at offsets in an ELF file. `debug` is its debug file, if it names one.
    pub fn file(&mut self, file: File, debug: Option<File>, offsets: &[u64]) -> Vec<Name> {
        // As in the tracker, a file that cannot even be identified is not searched for names.
        let (file, identity) = match self.namer.identify(&file, self.namer.within(IDENTIFYING)) {
            Ok(identity) => (Ok(file), identity),
            Err(why) => (Err(why), Identity::default()),
        };
        let debug = debug.filter(|_| identity.debug_link.is_some());
        let deadline = self.namer.within(NAMES);
        let source = wanting(
            CodeSourceKind::File(Image { path: Untrusted::default(), file, identity, debug, openings: 0 }),
            offsets,
        );
        let mut codes = functions(&mut self.namer, &source.kind, &hottest_first(&source), deadline);
        if let CodeSourceKind::File(image) = &source.kind {
            add_lines(&mut self.namer, image, &hottest_first(&source), &mut codes, deadline);
        }
        names(codes)
    }

    /// Returns the names of the code at addresses in a `perf-PID.map`.
    pub fn perf_map(&mut self, map: File, addresses: &[u64]) -> Vec<Name> {
        let source = wanting(CodeSourceKind::PerfMap(PerfMap::open(map)), addresses);
        let deadline = self.namer.within(NAMES);
        names(functions(&mut self.namer, &source.kind, &hottest_first(&source), deadline))
    }

    /// Returns the number of frames of a stack that begins at an offset of an ELF file, by its call frame
    /// information.
    ///
    /// # Errors
    ///
    /// The file has no readable call frame information, or the process ended or took too long.
    pub fn frames(
        &mut self,
        file: &File,
        debug: Option<&File>,
        offset: u64,
        stack: &[u8],
    ) -> Result<usize, &'static str> {
        let text = |why: Why| why.text();
        if !self.unwinder.is_running() {
            let until = self.unwinder.within(ANSWER);
            self.unwinder.begin(VDSO, until).map_err(text)?;
        }
        let files: Vec<&File> = [Some(file), debug].into_iter().flatten().collect();
        let until = self.unwinder.within(ANSWER);
        self.unwinder.keep_frames(FILE, &files, until).map_err(text)?;
        let mapped = Mapped { start: MAPPED, end: MAPPED + (1 << 20), offset: 0, file: Some(FILE) };
        let start =
            Start { registers: [MAPPED + offset, STACK, STACK + 64, MAPPED], bytes: stack.len() as u32 };
        let until = self.unwinder.within(ANSWER);
        let stacks = self.unwinder.unwind(&[mapped], &[start], &[stack], until).map_err(text)?;
        Ok(stacks.first().map_or(0, |stack| stack.frames.len()))
    }

    /// Returns the ids of the present processes.
    pub fn processes(&self) -> Vec<u32> {
        [&self.namer, &self.unwinder].into_iter().filter_map(Symbolizer::process).collect()
    }
}

/// Returns a source whose code at these offsets is to be named.
fn wanting(kind: CodeSourceKind, offsets: &[u64]) -> CodeSource {
    CodeSource { wanted: offsets.iter().map(|&offset| (offset, 1)).collect(), ..CodeSource::new(kind) }
}

fn names(codes: Codes) -> Vec<Name> {
    codes.into_iter().map(|(offset, code)| name(At { source: 1, offset }, code)).collect()
}
