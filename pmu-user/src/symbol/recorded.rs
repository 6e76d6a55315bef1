//! Names that a recording lacks, from files of the analyst's folders. A recording may name any path: nothing outside of the
//! folders is opened, and a file is used only if its build id is the recorded one.

use std::{
    collections::BTreeMap,
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    child::{ADDRESSES_MAX, Request, Symbolizer},
    open::{below, folder},
    source::by_build_id,
};
use crate::drain::{At, Code, Module, Name};

/// How long the names of one file may take. Nobody waits for the end of a run here.
const FILE: Duration = Duration::from_secs(20);

/// Code without a name, and what it would be named by.
type Unnamed = (At, Module);

/// Looks code up in the files of `folders`: by build id below `.build-id`, by path, and by name. Returns the names that were
/// found.
#[must_use]
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
