//! Sources of names: the kernel's list, the vDSO, mapped files, and the maps that JITs write. Files are kept
//! open, because they may be gone when names are wanted.

use std::{
    collections::HashMap,
    fs::File,
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use super::{
    child::{Identity, Why},
    open,
    perf_map::PerfMap,
    whose::{Payer, Whose},
};
use crate::{
    drain::{SourceRow, Word, in_time},
    untrusted::Untrusted,
};

/// Folder of separate debug files on this host, whose contents are trusted.
const DEBUG_FOLDER: &str = "/usr/lib/debug";

/// A source of names for addresses.
#[derive(Debug)]
pub(super) struct CodeSource {
    pub(super) kind: CodeSourceKind,
    /// Samples by offset, for the offsets that are to be named.
    pub(super) wanted: HashMap<u64, u64>,
    /// Offsets that were not looked up yet, in a run that names as it goes.
    pub(super) unnamed: Vec<u64>,
    /// A sample has hit it, so that its row is reported.
    pub(super) told: bool,
    /// Owners of the processes that it was seen in. Empty for a file of root, which is the host's.
    pub(super) owners: Vec<Whose>,
}

impl CodeSource {
    pub(super) fn new(kind: CodeSourceKind) -> Self {
        Self { kind, wanted: HashMap::new(), unnamed: Vec::new(), told: false, owners: Vec::new() }
    }

    /// Returns a source that was seen in a process of this owner.
    pub(super) fn of(kind: CodeSourceKind, payer: &Payer) -> Self {
        Self { owners: payer.iter().cloned().collect(), ..Self::new(kind) }
    }

    /// Returns the owner that is charged for it: the first in which it was seen.
    pub(super) fn payer(&self) -> Payer {
        self.owners.first().cloned()
    }

    /// Returns the row that reports it before its code has names.
    pub(super) fn row(&self, source: u32) -> SourceRow {
        let path = |path: &str| Some(Word(Untrusted::from(path)));
        let (path, build_id) = match &self.kind {
            CodeSourceKind::Kernel | CodeSourceKind::Nowhere(_) => (None, None),
            CodeSourceKind::Vdso => (path("[vdso]"), None),
            CodeSourceKind::PerfMap(_) => (path("[anonymous]"), None),
            CodeSourceKind::JitDump(_, path) => (Some(Word(path.clone())), None),
            CodeSourceKind::File(image) => (Some(Word(image.path.clone())), image.build_id()),
        };
        let loaded = match &self.kind {
            CodeSourceKind::File(image) => image.identity.loaded.clone(),
            _ => Vec::new(),
        };
        SourceRow {
            source,
            path,
            build_id,
            unnamed: self.with_owner(self.why_not().unwrap_or(in_time::NOT_YET)),
            loaded,
        }
    }

    /// Returns why it has no names. Adds the owner of the file where another file of the same owner is the
    /// reason.
    pub(super) fn with_owner(&self, why: &str) -> String {
        match self.payer() {
            Some(whose) if why == Why::Greedy.text() => format!("{why} ({})", whose.in_words()),
            _ => why.to_owned(),
        }
    }

    /// Returns whether names of its code may be found.
    pub(super) fn may_name(&self) -> bool {
        self.why_not().is_none()
    }

    fn why_not(&self) -> Option<&'static str> {
        match &self.kind {
            CodeSourceKind::Nowhere(why) => Some(why),
            CodeSourceKind::File(Image { file: Err(why), .. }) => Some(why.text()),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum CodeSourceKind {
    Kernel,
    Vdso,
    File(Image),
    PerfMap(PerfMap),
    /// The dump of a JIT, with its path. Offsets are those of code in the dump.
    JitDump(File, Untrusted),
    /// No source is known, for this reason.
    Nowhere(&'static str),
}

/// A mapped file.
#[derive(Debug)]
pub(super) struct Image {
    /// Path in the view of the process that it was first seen in.
    pub(super) path: Untrusted,
    /// Open file, or the reason why it is not open.
    pub(super) file: Result<File, Why>,
    pub(super) identity: Identity,
    /// Debug file, if it lies next to the binary.
    pub(super) debug: Option<File>,
    /// Number of attempts to open the file.
    pub(super) openings: u8,
}

impl Image {
    /// Returns the build id in hexadecimal.
    pub(super) fn build_id(&self) -> Option<String> {
        self.identity.build_id.as_deref().map(hexadecimal)
    }

    /// Returns the debug file: that of this host by build id, else the one next to the binary.
    pub(super) fn debug_file(&self) -> Option<File> {
        let own = self.identity.build_id.as_deref().and_then(debug_by_build_id);
        own.or_else(|| self.debug.as_ref()?.try_clone().ok())
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the path of the debug file with a build id, below a folder of debug files.
pub(super) fn by_build_id(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    Some(PathBuf::from(format!(".build-id/{first:02x}/{}.debug", hexadecimal(rest))))
}

fn debug_by_build_id(build_id: &[u8]) -> Option<File> {
    of_this_host(&by_build_id(build_id)?)
}

/// Returns the file that debug files share (`.gnu_debugaltlink`), which only this host's own debug files may
/// name.
pub(super) fn shared_debug_file(identity: &Identity) -> Option<File> {
    of_this_host(&shared_path(identity)?)
}

/// Returns the path of that file below a folder of debug files.
pub(super) fn shared_path(identity: &Identity) -> Option<PathBuf> {
    let link = Untrusted::new(identity.shared_link.as_deref()?).to_path();
    // As dwz(1) links them: a path below the folder, or one that leads up to `.dwz`.
    let mut parts = link.components().skip_while(|part| part.as_os_str() != ".dwz");
    let inner: PathBuf = parts.by_ref().filter(|part| matches!(part, Component::Normal(_))).collect();
    (!inner.as_os_str().is_empty()).then_some(inner)
}

fn of_this_host(path: &Path) -> Option<File> {
    // Distributions link by build id: links below the folder are followed.
    let found = Path::new(DEBUG_FOLDER).join(path).canonicalize().ok()?;
    let inner = found.strip_prefix(DEBUG_FOLDER).ok()?;
    open::below(open::folder(Path::new(DEBUG_FOLDER)).ok()?, inner).ok().map(|(file, _)| file)
}

/// Returns the debug file that a binary at `path` names, in the view of its process: in the folder of the
/// binary or in `.debug` there.
pub(super) fn debug_beside(root: &OwnedFd, path: &Path, link: &[u8]) -> Option<File> {
    let link = Untrusted::new(link).to_path();
    // A file name, not a path: it leads nowhere else.
    let mut parts = link.components();
    let (Some(Component::Normal(name)), None) = (parts.next(), parts.next()) else { return None };
    let folder = path.parent()?;
    let candidates = [folder.join(name), folder.join(".debug").join(name)];
    // A binary may name itself.
    candidates
        .iter()
        .filter(|file| *file != path)
        .find_map(|file| open::below(root, file).ok())
        .map(|(file, _)| file)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{by_build_id, debug_beside};
    use crate::{machine::testing::Tree, symbol::open::folder};

    #[test]
    fn a_debug_file_is_found_by_build_id() {
        let path = by_build_id(&[0xab, 0xcd, 0x01]).unwrap();
        assert_eq!(path, Path::new(".build-id/ab/cd01.debug"));
        assert_eq!(by_build_id(&[0xab]), None);
    }

    #[test]
    fn a_debug_link_is_a_name_and_no_path() {
        let tree = Tree::new(&[("secret", "x"), ("bin/.debug/app.debug", "x")]);
        let root = folder(&tree.root).unwrap();
        let find = |link: &[u8]| debug_beside(&root, Path::new("/bin/app"), link).is_some();
        assert!(find(b"app.debug"));
        for link in [&b"../secret"[..], b"/secret", b"..", b"", b"none"] {
            assert!(!find(link), "{link:?}");
        }
    }
}
