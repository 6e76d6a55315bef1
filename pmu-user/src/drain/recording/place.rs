//! Output of a recording or of its export: a new file that takes its name once it can be read, or an existing
//! device or pipe.

#[cfg(test)]
mod tests;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Seek as _, Write as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FallocateFlags, OFlags, RenameFlags, fallocate, renameat_with},
    io::Errno,
};

use crate::file::irregular;

/// Permission to replace an existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// An existing file is replaced by a new one.
    Yes,
    /// An existing file is an error.
    No,
}

/// Number of names tried for a new file.
const NAMES_TRIED_MAX: u32 = 64;

/// An open file and its name.
#[derive(Debug)]
pub(crate) struct Place {
    file: File,
    path: PathBuf,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A regular file that was created here.
    New,
    /// A device or a pipe that existed before.
    Special,
}

/// Outcome of a recording that could not be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// The recording is in this file.
    At(PathBuf),
    /// The recording went to a device or a pipe, or its file is gone.
    Gone,
}

impl Place {
    /// Creates a file at `path` that begins with `first`, or opens the device or pipe there. Opening may wait
    /// for a reader.
    pub(crate) fn create(path: &Path, overwrite: Overwrite, first: &[u8]) -> io::Result<Self> {
        let there = path.symlink_metadata().ok().map(|metadata| metadata.file_type());
        let special = there.is_some_and(|kind| kind.is_char_device() || kind.is_fifo());
        let mut place = match there.and_then(irregular) {
            _ if special => Self { file: special_file(path)?, path: path.to_owned(), what: What::Special },
            Some(what) => {
                let error = io::Error::new(ErrorKind::AlreadyExists, format!("it is {what}"));
                return Err(named("create", path, &error));
            }
            None => return Self::new_file(path, overwrite, first),
        };
        place.write(first)?;
        Ok(place)
    }

    /// Creates a file next to `path` that no other user can open, and renames it when its beginning is
    /// written. The owner, mode or links of another file are not taken over. The previous file stays whole
    /// until then.
    fn new_file(path: &Path, overwrite: Overwrite, first: &[u8]) -> io::Result<Self> {
        let (mut file, beside) = beside(path).map_err(|error| named("create", path, &error))?;
        let written = file.write_all(first).map_err(|error| named("write", path, &error));
        let moved = written.and_then(|()| {
            let moved = match overwrite {
                Overwrite::Yes => fs::rename(&beside, path),
                Overwrite::No => rename_to_new(&beside, path),
            };
            moved.map_err(|error| named("create", path, &error))
        });
        if let Err(error) = moved {
            let _ = fs::remove_file(&beside);
            return Err(error);
        }
        Ok(Self { file, path: path.to_owned(), what: What::New })
    }

    /// Appends bytes to the file.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes).map_err(|error| named("write", &self.path, &error))
    }

    /// Checks that the file is still there under its name. A file that was removed or replaced is an error.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.what == What::Special || self.is_there() {
            return Ok(());
        }
        let error = io::Error::new(ErrorKind::NotFound, "it was removed or replaced while it was written");
        Err(named("keep", &self.path, &error))
    }

    /// Returns the file that was created here, to be read from its beginning. Its position is that of the
    /// next write.
    pub(super) fn reader(&self) -> io::Result<File> {
        let reader = self.file.try_clone().and_then(|mut file| file.rewind().map(|()| file));
        reader.map_err(|error| named("read", &self.path, &error))
    }

    /// Replaces the contents of the file with `bytes`. The file stays as it was if there is no room for them.
    pub(super) fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, bytes.len() as u64) {
            // Some file systems cannot reserve room.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(named("write", &self.path, &error.into())),
        }
        self.file.rewind().map_err(|error| named("write", &self.path, &error))?;
        self.write(bytes)?;
        self.file.set_len(bytes.len() as u64).map_err(|error| named("write", &self.path, &error))
    }

    /// Renames the file to `NAME.partial`, unless that would replace one.
    pub(super) fn abandon(self) -> Abandoned {
        if self.what == What::Special || !self.is_there() {
            return Abandoned::Gone;
        }
        let mut partial = self.path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        match rename_to_new(&self.path, &partial) {
            Ok(()) => Abandoned::At(partial),
            Err(_) => Abandoned::At(self.path),
        }
    }

    /// Returns whether the file is still there. A file that cannot be examined counts as there: privileges
    /// may have been dropped since.
    fn is_there(&self) -> bool {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        match (self.path.symlink_metadata(), self.file.metadata()) {
            (Ok(named), Ok(open)) => identity(named) == identity(open),
            (Err(error), _) => error.kind() != ErrorKind::NotFound,
            _ => true,
        }
    }
}

/// Creates a new, empty file in the same folder, readable by its owner only, under an unused name.
fn beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let mut last = ErrorKind::AlreadyExists.into();
    for number in 0..NAMES_TRIED_MAX {
        let beside = path.with_file_name(format!(".pmbpf-{}-{number}", std::process::id()));
        match options.open(&beside) {
            Ok(file) => return Ok((file, beside)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Renames a file to an unused name. Some file systems cannot do both at once, but support links.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        result => Ok(result?),
    }
}

/// Opens a device, or a pipe as soon as it has a reader.
fn special_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NOCTTY;
    let file = OpenOptions::new().write(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = file.map_err(|error| named("open", path, &error))?;
    // The path may refer to another file by now, which must not be written.
    if file.metadata()?.file_type().is_file() {
        return Err(named("open", path, &ErrorKind::AlreadyExists.into()));
    }
    Ok(file)
}

fn named(verb: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {verb} {}: {error}", path.display()))
}
