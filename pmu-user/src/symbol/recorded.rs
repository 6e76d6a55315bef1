//! Names that a recording lacks, from files of the analyst's folders. A recording may contain any path:
//! nothing outside of the folders is opened, and a file is used only if its build id is the recorded one.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    child::{ADDRESSES_MAX, Identity, Request, Symbolizer, Why},
    naming::{name, with},
    open::{below, folder, within},
    source::{by_build_id, shared_path},
};
use crate::{
    drain::{At, Code, Loaded, Module, Name},
    untrusted::Untrusted,
};

/// Longest time for the names of one file. No run waits for its end here.
const FILE: Duration = Duration::from_secs(20);

/// Folder of debug files within a folder to which their packages were unpacked.
const DEBUG_FOLDER: &str = "usr/lib/debug";

/// Suffix that the kernel adds to the path of a deleted file (fs/d_path.c).
const DELETED: &[u8] = b" (deleted)";

/// Code without a name, and the module that would name it.
type Unnamed = (At, Module);

/// A file that no folder contains, and whose code has no names without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfound {
    /// Path of the file, as recorded.
    pub path: Untrusted,
    /// Build id of the file.
    pub build_id: String,
    /// The file itself was found, but has no symbols.
    pub is_stripped: bool,
}

/// Looks code up in the files of `folders`: by build id, by path, and by name. Returns the names that were
/// found, and the files that were not.
pub fn name_recorded(code: Vec<(At, Module)>, folders: &[PathBuf]) -> (Vec<Name>, Vec<Unfound>) {
    let folders: Vec<OwnedFd> = folders.iter().filter_map(|path| folder(path).ok()).collect();
    let mut by_file: BTreeMap<(String, Vec<u8>), Vec<Unnamed>> = BTreeMap::new();
    for (at, module) in code {
        if let Some(build_id) = module.build_id.clone() {
            by_file.entry((build_id, module.path.as_bytes().to_vec())).or_default().push((at, module));
        }
    }
    let mut symbolizer = Symbolizer::default();
    let (mut named, mut unfound) = (Vec::new(), Vec::new());
    for ((build_id, _), mut modules) in by_file {
        let path = modules[0].1.path.clone();
        let files = Files::find(&mut symbolizer, &folders, &build_id, &path);
        modules.sort_unstable_by_key(|(at, _)| *at);
        let parts = modules.chunks(ADDRESSES_MAX).flat_map(|part| look_up(&mut symbolizer, part, &files));
        let names: Vec<Name> = parts.collect();
        if files.debug.is_none() && names.iter().all(|name| name.code.is_err()) {
            unfound.push(Unfound { path, build_id, is_stripped: files.binary.is_some() });
        }
        named.extend(names);
    }
    (named, unfound)
}

/// Returns the instructions of the function around an offset of the file with a build id, each with its
/// offset. The file is searched for in `folders`, by build id, by path and by name.
///
/// # Errors
///
/// Reason why there are none: the file is not there, or cannot be decoded.
pub fn instructions_recorded(
    build_id: &str,
    path: &Untrusted,
    offset: u64,
    folders: &[PathBuf],
) -> Result<Vec<(u64, Untrusted)>, String> {
    let folders: Vec<OwnedFd> = folders.iter().filter_map(|path| folder(path).ok()).collect();
    let mut symbolizer = Symbolizer::default();
    let files = Files::find(&mut symbolizer, &folders, build_id, path);
    let Some(binary) = &files.binary else {
        return Err("no folder of --symfs has its file with the recorded build id".to_owned());
    };
    let files = with(binary, files.debug.as_ref(), None);
    let until = symbolizer.within(FILE);
    let found = symbolizer.instructions(offset, &files, until);
    let found = found.map_err(|why| why.text().to_owned())?;
    Ok(found.into_iter().map(|(offset, text)| (offset, Untrusted::new(text))).collect())
}

/// Opens a regular file below a folder for reading. Nothing outside of the folder is opened.
#[must_use]
pub fn open_below(root: &Path, path: &Path) -> Option<File> {
    let (file, _) = below(folder(root).ok()?, path).ok()?;
    Some(file)
}

/// File with a build id, its debug file, and the file that the debug file shares with others.
#[derive(Default)]
struct Files {
    binary: Option<File>,
    debug: Option<File>,
    shared: Option<File>,
}

impl Files {
    fn find(symbolizer: &mut Symbolizer, folders: &[OwnedFd], build_id: &str, path: &Untrusted) -> Self {
        let Some(id) = bytes_of(build_id) else { return Self::default() };
        let path = path.as_bytes();
        let path = Untrusted::new(path.strip_suffix(DELETED).unwrap_or(path)).to_path();
        let mut files = Self::default();
        let mut links = Links::default();
        let mut look = |files: &mut Self, links: &mut Links, candidates: Vec<PathBuf>| {
            for (folder, path) in folders.iter().flat_map(|of| candidates.iter().map(move |path| (of, path)))
            {
                let Ok((file, _)) = within(folder, path) else { continue };
                let until = symbolizer.within(FILE);
                let Ok(identity) = symbolizer.identify(&file, until) else { continue };
                if identity.build_id.as_deref() == Some(&*id) {
                    files.take(file, &identity, links);
                }
                if files.binary.is_some() && files.debug.is_some() {
                    break;
                }
            }
        };
        look(&mut files, &mut links, of_binary(&id, build_id, &path));
        if files.debug.is_none() {
            let link = links.debug.take();
            look(&mut files, &mut links, of_debug_file(&id, build_id, &path, link.as_deref()));
        }
        let shared = links.shared.iter().flat_map(|path| [Path::new(DEBUG_FOLDER).join(path), path.clone()]);
        files.shared = shared
            .flat_map(|path| folders.iter().filter_map(move |of| Some(within(of, &path).ok()?.0)))
            .next();
        files
    }

    /// Adds a file with the build id as binary or debug file, by its contents.
    fn take(&mut self, file: File, identity: &Identity, links: &mut Links) {
        let has_symbols = identity.holds_no_code || identity.debug_link.is_none();
        links.shared = links.shared.take().or_else(|| shared_path(identity));
        if identity.holds_no_code {
            self.debug.get_or_insert(file);
        } else if self.binary.is_none() {
            links.debug = identity.debug_link.as_deref().map(|link| Untrusted::new(link).to_path());
            self.binary = Some(file);
        } else if has_symbols {
            // An unstripped file in the place of a debug file serves as one.
            self.debug.get_or_insert(file);
        }
    }
}

/// Links that files contain to other files.
#[derive(Default)]
struct Links {
    debug: Option<PathBuf>,
    shared: Option<PathBuf>,
}

fn bytes_of(build_id: &str) -> Option<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(build_id.get(at..at + 2)?, 16).ok();
    (0..build_id.len()).step_by(2).map(byte).collect()
}

/// Returns the possible paths of a program or library below a folder: its path, its name alone, and the paths
/// by build id of perf, Fedora and debuginfod.
fn of_binary(id: &[u8], build_id: &str, path: &Path) -> Vec<PathBuf> {
    let mut all = vec![path.to_owned()];
    all.extend(path.file_name().map(PathBuf::from));
    if let Some(by_id) = by_build_id(id) {
        let by_id = by_id.with_extension("");
        all.extend([by_id.join("elf"), Path::new(DEBUG_FOLDER).join(&by_id), by_id]);
    }
    all.push(Path::new(build_id).join("executable"));
    all
}

/// Returns the possible paths of its debug file. By its build id they are those of packages of debug files
/// and of debuginfod. By its path and name they are those that gdb searches (its manual, Separate Debug
/// Files).
fn of_debug_file(id: &[u8], build_id: &str, path: &Path, link: Option<&Path>) -> Vec<PathBuf> {
    let mut all = Vec::new();
    if let Some(by_id) = by_build_id(id) {
        let of_perf = by_id.with_extension("").join("debug");
        all.extend([Path::new(DEBUG_FOLDER).join(&by_id), by_id, of_perf]);
    }
    all.push(Path::new(build_id).join("debuginfo"));
    let name = path.file_name().map(|name| {
        let mut name = name.to_owned();
        name.push(".debug");
        name
    });
    let names = link.and_then(Path::file_name).map(OsString::from).into_iter().chain(name);
    let parent = path.parent().unwrap_or(Path::new(""));
    let below_root = parent.strip_prefix("/").unwrap_or(parent);
    for name in names {
        let debug = Path::new(DEBUG_FOLDER).join(below_root).join(&name);
        all.extend([debug, parent.join(".debug").join(&name), parent.join(&name), PathBuf::from(name)]);
    }
    let path = path.strip_prefix("/").unwrap_or(path);
    all.push(Path::new(DEBUG_FOLDER).join(path));
    all
}

fn look_up(symbolizer: &mut Symbolizer, modules: &[Unnamed], files: &Files) -> Vec<Name> {
    let Some(first) = files.binary.as_ref().or(files.debug.as_ref()) else { return Vec::new() };
    let debug = files.binary.as_ref().and(files.debug.as_ref());
    // Without the file itself, its recorded segments determine where its code is loaded.
    let recorded: Vec<Loaded> = match (&files.binary, modules.first()) {
        (None, Some((_, module))) => module.loaded.clone(),
        _ => Vec::new(),
    };
    let offsets: Vec<u64> = modules.iter().map(|(_, module)| module.offset).collect();
    let mut ask = |request, files: &[&File]| {
        let until = symbolizer.within(FILE);
        symbolizer.names(&request, offsets.len(), files, until).ok()
    };
    let functions = ask(Request::Symbols(offsets.clone(), recorded.clone()), &with(first, debug, None));
    // The shared file follows the debug file, which may be the first.
    let of_lines = with(first, debug.or(files.shared.as_ref().and(Some(first))), files.shared.as_ref());
    let lines = ask(Request::Lines(offsets.clone(), recorded), &of_lines);
    let code = |index: usize| -> Result<Code, Why> {
        let of = |codes: &Option<Vec<Result<Code, Why>>>| codes.as_ref()?.get(index).cloned();
        match (of(&functions), of(&lines)) {
            (Some(Ok(function)), Some(Ok(line))) => Ok(Code { function: function.function, ..line }),
            (Some(Err(_)) | None, Some(Ok(line))) if !line.function.is_empty() => Ok(line),
            (function, _) => function.unwrap_or(Err(Why::Crashed)),
        }
    };
    let is_known = |code: &Result<Code, Why>| matches!(code, Ok(_) | Err(Why::InFunction(_)));
    let names = modules.iter().enumerate().map(|(index, (at, _))| (*at, code(index)));
    names.filter(|(_, code)| is_known(code)).map(|(at, code)| name(at, code)).collect()
}
