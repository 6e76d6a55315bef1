//! Names by blazesym: kernel, files, and live processes for code that has no file.

use std::{
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::Path,
};

use blazesym::{
    MaybeDefault, Pid,
    symbolize::{
        Input, Reason, Sym, Symbolized, Symbolizer,
        source::{Elf, Kernel, Process, Source},
    },
};

use crate::{
    drain::{Code, Line, Word},
    untrusted::Untrusted,
};

/// A `perf-PID.map` larger than this is not read: the process it describes writes it.
const PERF_MAP_BYTES_MAX: u64 = 256 << 20;

/// What to look addresses up in.
pub(super) enum Query<'a> {
    /// The running kernel; addresses as they are.
    Kernel,
    /// A file; addresses are offsets.
    File(&'a Path),
    /// A live process: its vDSO and its `perf-PID.map`; addresses as they are.
    Live {
        /// Process.
        tgid: u32,
    },
}

/// Looks names up and keeps what it has read.
#[derive(Debug)]
pub struct Names {
    symbolizer: Symbolizer,
}

impl Default for Names {
    fn default() -> Self {
        // A file cannot change behind its descriptor, and a JIT's map is read only while its process lives.
        Self { symbolizer: Symbolizer::builder().enable_auto_reload(false).build() }
    }
}

impl Names {
    /// The name of each address, or why there is none.
    pub(super) fn look_up(&mut self, query: &Query<'_>, addresses: &[u64]) -> Vec<Result<Code, String>> {
        let source = match query {
            Query::Kernel => Source::Kernel(Kernel { vmlinux: MaybeDefault::None, ..Kernel::default() }),
            Query::File(path) => Source::Elf(Elf::new(*path)),
            Query::Live { tgid } => {
                let mut process = Process::new(Pid::from(*tgid));
                process.perf_map = perf_map_is_sound(*tgid);
                Source::Process(process)
            }
        };
        let input = match query {
            Query::File(_) => Input::FileOffset(addresses),
            Query::Kernel | Query::Live { .. } => Input::AbsAddr(addresses),
        };
        match self.symbolizer.symbolize(&source, input) {
            Ok(found) => found.into_iter().map(code).collect(),
            Err(error) => vec![Err(reason(query, &error)); addresses.len()],
        }
    }
}

fn reason(query: &Query<'_>, error: &blazesym::Error) -> String {
    match query {
        Query::Kernel => format!("kernel symbols cannot be read ({error}); see kernel.kptr_restrict"),
        Query::File(_) | Query::Live { .. } => format!("its symbols cannot be read ({error})"),
    }
}

fn code(found: Symbolized<'_>) -> Result<Code, String> {
    match found {
        Symbolized::Sym(symbol) => Ok(named(&symbol)),
        Symbolized::Unknown(Reason::MissingSyms) => Err("its file has no symbols".to_owned()),
        Symbolized::Unknown(reason) => Err(reason.to_string()),
    }
}

fn named(symbol: &Sym<'_>) -> Code {
    let line = symbol.code_info.as_ref().and_then(|info| {
        Some(Line { file: Untrusted::new(info.to_path().as_os_str().as_bytes()), line: info.line? })
    });
    let inlined = symbol.inlined.iter().map(|call| Word(Untrusted::from(call.name.as_ref()))).collect();
    Code { function: Untrusted::from(symbol.name.as_ref()), line, inlined }
}

/// The process, or anyone in its container, can write the file: it must be a regular file of the same user, of a sane
/// size.
fn perf_map_is_sound(tgid: u32) -> bool {
    let process = format!("/proc/{tgid}");
    let status = std::fs::read_to_string(format!("{process}/status")).unwrap_or_default();
    let inner = status
        .lines()
        .find_map(|line| line.strip_prefix("NStgid:"))
        .and_then(|ids| ids.split_whitespace().last());
    let Some(inner) = inner else { return false };
    let map = std::fs::symlink_metadata(format!("{process}/root/tmp/perf-{inner}.map"));
    let owner = std::fs::metadata(&process).map(|metadata| metadata.uid());
    match (map, owner) {
        (Ok(map), Ok(owner)) => {
            map.is_file() && map.len() <= PERF_MAP_BYTES_MAX && (map.uid() == owner || map.uid() == 0)
        }
        _ => false,
    }
}

/// Build id of a file in hexadecimal.
pub(super) fn build_id(path: &Path) -> Option<String> {
    let id = blazesym::helper::read_elf_build_id(&path).ok()??;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}
