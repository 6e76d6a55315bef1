//! Command lines of `conmon`, which watches each container of podman and CRI-O: everybody may read them, and they name it wherever podman
//! keeps its files.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

use super::{Found, Known, Runtime};
use crate::untrusted::Untrusted;

/// `conmon … -c ID … -n NAME …` (conmon(8)).
pub(super) fn read(root: &Path) -> Found {
    let mut found = Vec::new();
    for process in fs::read_dir(root.join("proc")).into_iter().flatten().flatten() {
        let is_process = process.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit);
        let is_conmon = || {
            let comm = fs::read(process.path().join("comm")).unwrap_or_default();
            comm.trim_ascii_end() == b"conmon"
        };
        if is_process && is_conmon() {
            found.extend(container(&command(&process.path().join("cmdline")).unwrap_or_default()));
        }
    }
    Ok(found)
}

/// Bytes of a command line that are read: one argument may have 128 KiB (MAX_ARG_STRLEN), all of them megabytes.
const COMMAND_BYTES_MAX: u64 = 160 << 10;

fn command(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(COMMAND_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn container(command: &[u8]) -> Option<(String, Known)> {
    let words: Vec<&[u8]> = command.split(|&byte| byte == 0).collect();
    let option = |short: &[u8], long: &[u8]| {
        let at = words.iter().position(|word| *word == short || *word == long)?;
        words.get(at + 1).copied()
    };
    let id = str::from_utf8(option(b"-c", b"--cid")?).ok()?;
    let name = option(b"-n", b"--name")?;
    // CRI-O names each `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`, which its own files tell in parts.
    let is_of_podman = !name.starts_with(b"k8s_");
    let known = if is_of_podman {
        let is_infrastructure = name.ends_with(b"-infra");
        Known {
            runtime: Some(Runtime::Podman),
            name: Some(Untrusted::new(name)),
            is_infrastructure,
            ..Known::default()
        }
    } else {
        Known { runtime: Some(Runtime::CriO), ..Known::default() }
    };
    Some((id.to_owned(), known))
}
