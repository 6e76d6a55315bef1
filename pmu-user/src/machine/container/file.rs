//! Files and folders of runtimes, read with limits and without following links.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use serde::de::DeserializeOwned;

use crate::untrusted::json;

/// Bytes of a file that are read, at most: a runtime keeps a few kilobytes for a container.
const BYTES_MAX: u64 = 4 << 20;
/// Entries of a folder that are read, at most.
const ENTRIES_MAX: usize = 65_536;

/// Reads a value from the JSON in a file. Returns `None` if there is no such file, or it holds something
/// else.
///
/// # Errors
///
/// The file may not be read.
pub(super) fn json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, String> {
    let Some(bytes) = allowed(path, bytes(path))? else { return Ok(None) };
    Ok(json::from_slice(&bytes, 4 * BYTES_MAX as usize).ok())
}

/// Reads the text of a file. Returns `None` if there is no such file, or it is not UTF-8.
///
/// # Errors
///
/// The file may not be read.
pub(super) fn text(path: &Path) -> Result<Option<String>, String> {
    Ok(allowed(path, bytes(path))?.and_then(|bytes| String::from_utf8(bytes).ok()))
}

/// Returns the names in a folder, in order. Returns none if there is no such folder.
///
/// # Errors
///
/// The folder may not be read.
pub(super) fn names(path: &Path) -> Result<Vec<String>, String> {
    let entries = allowed(path, fs::read_dir(path))?.into_iter().flatten().flatten().take(ENTRIES_MAX);
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// Returns the folders below a folder, in order of their names.
///
/// # Errors
///
/// The folder may not be read.
pub(super) fn folders(path: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    Ok(names(path)?.into_iter().map(|name| (name.clone(), path.join(name))).collect())
}

/// Returns what was read. Returns `None` where there is nothing to read.
fn allowed<T>(path: &Path, read: io::Result<T>) -> Result<Option<T>, String> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(format!("{} may not be read (cap_dac_read_search allows it)", path.display()))
        }
        Err(_) => Ok(None),
    }
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe would block, and a link may lead anywhere.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let mut bytes = Vec::new();
    if file.metadata()?.is_file() {
        file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    }
    if bytes.is_empty() || bytes.len() as u64 > BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path};

    use super::allowed;

    #[test]
    fn what_may_not_be_read_is_named_with_what_helps_and_what_is_not_there_is_nothing() {
        let read = |kind: io::ErrorKind| allowed::<()>(Path::new("/var/lib/docker"), Err(kind.into()));
        let why = read(io::ErrorKind::PermissionDenied).unwrap_err();
        assert!(why.contains("/var/lib/docker") && why.contains("cap_dac_read_search"), "{why}");
        assert_eq!(read(io::ErrorKind::NotFound), Ok(None));
    }
}
