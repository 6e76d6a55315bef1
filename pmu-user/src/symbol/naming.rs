//! Looks names up at the end: functions first, of the hottest source first, then lines and inlined calls, until the time is
//! over. A file that crashes or hangs its reader loses its own names.
//!
//! Names that a recording lacks come from files of the analyst's folders. A recording may name any path: nothing outside of the folders is
//! opened, and a file is used only if its build id is the recorded one.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    child::{ADDRESSES_MAX, Codes, Request, Symbolizer, Why},
    open::{below, folder},
    source::{CodeSource, CodeSourceKind, Image, by_build_id, shared_debug_file},
    tracker::Tracker,
};
use crate::{
    drain::{At, Code, Module, Name},
    untrusted::Untrusted,
};

/// How long the names of one source may take.
const SOURCE: Duration = Duration::from_millis(400);

impl Tracker {
    /// Names of everything that was located, as far as they can be had until `deadline`.
    pub(super) fn name_all(&mut self, deadline: Instant) -> Vec<Name> {
        let mut numbers: Vec<u32> = (0..self.sources.len() as u32).collect();
        numbers.retain(|&number| !self.sources[number as usize].wanted.is_empty());
        let hits =
            |number: u32| self.sources[number as usize].wanted.values().copied().fold(0, u64::saturating_add);
        numbers.sort_by_key(|&number| Reverse(hits(number)));
        for &number in &numbers {
            self.look_for_perf_map(number);
        }
        let mut named: Vec<(u32, Codes)> = Vec::new();
        for &number in &numbers {
            let offsets = hottest_first(&self.sources[number as usize]);
            named.push((number, self.functions(number, &offsets, deadline)));
        }
        for (number, codes) in &mut named {
            if let CodeSourceKind::File(image) = &self.sources[*number as usize].kind {
                let offsets = hottest_first(&self.sources[*number as usize]);
                add_lines(&mut self.symbolizer, image, &offsets, codes, deadline);
            }
        }
        let names = named.into_iter().flat_map(|(source, codes)| {
            codes.into_iter().map(move |(offset, code)| Name {
                at: At { source, offset },
                code: code.map_err(|why| why.text().to_owned()),
            })
        });
        let mut names: Vec<Name> = names.collect();
        names.sort_by_key(|name| (name.at.source, name.at.offset));
        names
    }
}

impl Tracker {
    /// Looks up the functions of code that is new since the last call, without source lines. What there was no time for is
    /// looked up the next time.
    pub(super) fn name_new(&mut self, deadline: Instant) {
        for number in 0..self.sources.len() as u32 {
            if self.sources[number as usize].unnamed.is_empty() {
                continue;
            }
            self.look_for_perf_map(number);
            let offsets = std::mem::take(&mut self.sources[number as usize].unnamed);
            for (offset, code) in self.functions(number, &offsets, deadline) {
                match code {
                    Err(Why::NoTime) => self.sources[number as usize].unnamed.push(offset),
                    code => {
                        let code = code.map_err(|why| why.text().to_owned());
                        self.named.push(Name { at: At { source: number, offset }, code });
                    }
                }
            }
        }
    }

    /// Functions at offsets of a source, by its number.
    fn functions(&mut self, source: u32, offsets: &[u64], deadline: Instant) -> Codes {
        let kind = &self.sources[source as usize].kind;
        let asked = match kind {
            CodeSourceKind::Kernel => self.kernel.functions(offsets),
            _ => None,
        };
        asked.unwrap_or_else(|| functions(&mut self.symbolizer, kind, offsets, deadline))
    }
}

pub(super) fn hottest_first(source: &CodeSource) -> Vec<u64> {
    let mut offsets: Vec<(u64, u64)> =
        source.wanted.iter().map(|(&offset, &samples)| (samples, offset)).collect();
    offsets.sort_unstable_by(|a, b| b.cmp(a));
    offsets.into_iter().map(|(_, offset)| offset).collect()
}

/// Functions at offsets of a source.
pub(super) fn functions(
    symbolizer: &mut Symbolizer,
    source: &CodeSourceKind,
    offsets: &[u64],
    deadline: Instant,
) -> Codes {
    let mut ask = |request: fn(Vec<u64>) -> Request, files: &[&File]| {
        ask_all(symbolizer, request, offsets, files, deadline)
    };
    match source {
        CodeSourceKind::Kernel => match File::open("/proc/kallsyms") {
            Ok(list) => ask(Request::Kernel, &[&list]),
            Err(_) => all(offsets, Why::Hidden),
        },
        CodeSourceKind::Vdso => ask(Request::Vdso, &[]),
        CodeSourceKind::Nowhere(_) => Codes::new(),
        CodeSourceKind::PerfMap(map) => match &map.file {
            Some((file, _)) => ask(Request::PerfMap, &[file]),
            None => all(offsets, Why::NoPerfMap),
        },
        CodeSourceKind::File(image) => {
            let debug = image.debug_file();
            match &image.file {
                Ok(file) => ask(Request::Symbols, &with(file, debug.as_ref(), None)),
                Err(why) => all(offsets, *why),
            }
        }
    }
}

/// Adds what DWARF says: lines, inlined calls, and functions that have no symbol.
pub(super) fn add_lines(
    symbolizer: &mut Symbolizer,
    image: &Image,
    offsets: &[u64],
    codes: &mut Codes,
    deadline: Instant,
) {
    let Ok(file) = &image.file else { return };
    let debug = image.debug_file();
    let shared = debug.as_ref().and_then(|debug| {
        let identity = symbolizer.identify(debug, deadline.min(Instant::now() + SOURCE)).ok()?;
        shared_debug_file(&identity)
    });
    let files = with(file, debug.as_ref(), shared.as_ref());
    for (offset, found) in ask_all(symbolizer, Request::Lines, offsets, &files, deadline) {
        let (Ok(mut found), Some(known)) = (found, codes.get_mut(&offset)) else { continue };
        if let Ok(known) = known {
            // The symbol is what perf shows, and what tells versions of a function apart.
            found.function.clone_from(&known.function);
        }
        if !found.function.is_empty() {
            *known = Ok(found);
        }
    }
}

/// A request's files. A file that is shared needs the debug file before it.
fn with<'a>(file: &'a File, debug: Option<&'a File>, shared: Option<&'a File>) -> Vec<&'a File> {
    [Some(file), debug, debug.and(shared)].into_iter().flatten().collect()
}

/// Asks for all offsets, the first ones first, in requests of a size that can be answered.
fn ask_all(
    symbolizer: &mut Symbolizer,
    request: fn(Vec<u64>) -> Request,
    offsets: &[u64],
    files: &[&File],
    deadline: Instant,
) -> Codes {
    let until = deadline.min(Instant::now() + SOURCE);
    let mut codes = Codes::new();
    let mut failed = None;
    for part in offsets.chunks(ADDRESSES_MAX) {
        let over = (Instant::now() >= deadline).then_some(Why::NoTime);
        let found = match failed.or(over) {
            Some(why) => Err(why),
            None => symbolizer.names(&request(part.to_vec()), part.len(), files, until),
        };
        match found {
            Ok(found) => codes.extend(part.iter().copied().zip(found)),
            Err(why) => {
                failed = Some(if Instant::now() >= deadline { Why::NoTime } else { why });
                codes.extend(all(part, failed.unwrap_or(why)));
            }
        }
    }
    codes
}

fn all(offsets: &[u64], why: Why) -> Codes {
    offsets.iter().map(|&offset| (offset, Err(why))).collect()
}

/// How long the names of one file may take. Nobody waits for the end of a run here.
const FILE: Duration = Duration::from_secs(20);

/// Code without a name, and what it would be named by.
type Unnamed = (At, Module);

/// Looks code up in the files of `folders`: by build id below `.build-id`, by path, and by name. Returns the names that were
/// found.
pub fn name_recorded(code: Vec<(At, Module)>, folders: &[PathBuf]) -> Vec<Name> {
    let folders: Vec<OwnedFd> = folders.iter().filter_map(|path| folder(path).ok()).collect();
    let mut by_file: BTreeMap<(String, Vec<u8>), Vec<Unnamed>> = BTreeMap::new();
    for (at, module) in code {
        if let Some(build_id) = module.build_id.clone() {
            by_file.entry((build_id, module.path.as_bytes().to_vec())).or_default().push((at, module));
        }
    }
    let mut symbolizer = Symbolizer::default();
    let mut named = Vec::new();
    for ((build_id, _), mut modules) in by_file {
        let files = find(&mut symbolizer, &folders, &build_id, &modules[0].1.path.to_path());
        modules.sort_unstable_by_key(|(at, _)| *at);
        for part in modules.chunks(ADDRESSES_MAX) {
            named.extend(look_up(&mut symbolizer, part, &files));
        }
    }
    named
}

/// The instructions of the function around an offset of the file with a build id, each with its offset. The file is looked for in
/// `folders`, by path and by name.
///
/// # Errors
///
/// Why there are none: it is not there, or cannot be decoded.
pub fn instructions_recorded(
    build_id: &str,
    path: &Path,
    offset: u64,
    folders: &[PathBuf],
) -> Result<Vec<(u64, Untrusted)>, String> {
    let folders: Vec<OwnedFd> = folders.iter().filter_map(|path| folder(path).ok()).collect();
    let mut symbolizer = Symbolizer::default();
    let files = find(&mut symbolizer, &folders, build_id, path);
    let Some(binary) = &files.binary else {
        return Err("no folder of --symfs has its file with the recorded build id".to_owned());
    };
    let files = with(binary, files.debug.as_ref(), None);
    let found = symbolizer.instructions(offset, &files, Instant::now() + FILE);
    let found = found.map_err(|why| why.text().to_owned())?;
    Ok(found.into_iter().map(|(offset, text)| (offset, Untrusted::new(text))).collect())
}

/// A regular file below a folder, opened to be read; nothing outside of the folder is.
#[must_use]
pub fn open_below(root: &Path, path: &Path) -> Option<File> {
    let (file, _) = below(folder(root).ok()?, path).ok()?;
    Some(file)
}

/// The file with this build id, and its debug file.
#[derive(Default)]
struct Files {
    binary: Option<File>,
    debug: Option<File>,
}

fn find(symbolizer: &mut Symbolizer, folders: &[OwnedFd], build_id: &str, path: &Path) -> Files {
    let bytes: Option<Vec<u8>> = (0..build_id.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(build_id.get(at..at + 2)?, 16).ok())
        .collect();
    let Some(bytes) = bytes else { return Files::default() };
    let mut first = |candidates: &[&Path]| {
        folders.iter().flat_map(|folder| candidates.iter().map(move |path| (folder, path))).find_map(
            |(folder, path)| {
                let (file, _) = below(folder, path).ok()?;
                let identity = symbolizer.identify(&file, Instant::now() + FILE).ok()?;
                (identity.build_id.as_deref() == Some(&*bytes)).then_some(file)
            },
        )
    };
    let name = path.file_name().map_or(Path::new(""), Path::new);
    let binary = first(&[path, name]);
    let debug = by_build_id(&bytes).and_then(|path| first(&[&path]));
    Files { binary, debug }
}

fn look_up(symbolizer: &mut Symbolizer, modules: &[Unnamed], files: &Files) -> Vec<Name> {
    let Some(first) = files.binary.as_ref().or(files.debug.as_ref()) else { return Vec::new() };
    let debug = files.binary.as_ref().and(files.debug.as_ref());
    let files: Vec<&File> = [Some(first), debug].into_iter().flatten().collect();
    let offsets: Vec<u64> = modules.iter().map(|(_, module)| module.offset).collect();
    let mut ask = |request| symbolizer.names(&request, offsets.len(), &files, Instant::now() + FILE).ok();
    let functions = ask(Request::Symbols(offsets.clone()));
    let lines = ask(Request::Lines(offsets.clone()));
    let code = |index: usize| {
        let of = |codes: &Option<Vec<Result<Code, _>>>| codes.as_ref()?.get(index)?.as_ref().ok().cloned();
        match (of(&functions), of(&lines)) {
            (Some(function), Some(line)) => Some(Code { function: function.function, ..line }),
            (function, line) => function.or(line.filter(|line| !line.function.is_empty())),
        }
    };
    let name = |(index, (at, _)): (usize, &Unnamed)| Some(Name { at: *at, code: Ok(code(index)?) });
    modules.iter().enumerate().filter_map(name).collect()
}
