//! Files that a user names: regular files only, opened without blocking, read with a limit.

use std::{
    fs::{File, FileType, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _},
    path::Path,
};

use rustix::fs::OFlags;

/// Opens a regular file for reading. For a pipe, a device or a folder returns an error that names the kind.
///
/// # Errors
///
/// The file does not exist, is not a regular file, or may not be read.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Opening a device may have effects, so the type is checked first. By the time of the open, the path may
    // refer to another file.
    expect_regular(path.metadata()?.file_type())?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    expect_regular(file.metadata()?.file_type())?;
    Ok(file)
}

/// Returns the bytes of a regular file that is no larger than `bytes_max`.
///
/// # Errors
///
/// The errors are those of [`open_regular`], or the file cannot be read, or is larger.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let megabytes = bytes_max >> 20;
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {megabytes} MiB"),
        ));
    }
    Ok(bytes)
}

/// Returns the bytes of an open file, from its beginning: what the kernel generates on a read is current.
///
/// # Errors
///
/// The file cannot be read, such as that of a cgroup that is gone.
pub fn reread(file: &File) -> io::Result<Vec<u8>> {
    let (mut bytes, mut filled) = (vec![0; 4096], 0);
    loop {
        match file.read_at(&mut bytes[filled..], filled as u64)? {
            0 => break,
            more => filled += more,
        }
        if filled == bytes.len() {
            bytes.resize(2 * filled, 0);
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Reads a file that the kernel writes in one piece (kernfs attributes, `single_open` of /proc) in the same
/// way: it has ended where a read leaves room.
///
/// # Errors
///
/// The errors are those of [`reread`].
pub fn reread_at_once(file: &File) -> io::Result<Vec<u8>> {
    // Not allocated: most files are a few words, read at every tick.
    let mut bytes = [0; 4096];
    match file.read_at(&mut bytes, 0)? {
        all if all < bytes.len() => Ok(bytes[..all].to_vec()),
        _ => reread(file),
    }
}

/// Returns the kind of a file that is not regular.
#[must_use]
pub fn irregular(kind: FileType) -> Option<&'static str> {
    let kinds = [
        (kind.is_dir(), "a folder"),
        (kind.is_fifo(), "a pipe"),
        (kind.is_socket(), "a socket"),
        (kind.is_char_device() || kind.is_block_device(), "a device"),
        (kind.is_symlink(), "a symbolic link"),
    ];
    kinds.iter().find(|(is, _)| *is).map(|(_, name)| *name)
}

fn expect_regular(kind: FileType) -> io::Result<()> {
    let wrong =
        |what| io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, not a regular file"));
    irregular(kind).map_or(Ok(()), |what| Err(wrong(what)))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::symlink,
        path::{Path, PathBuf},
        process::Command,
    };

    use super::{open_regular, read_regular};

    /// A private folder that is removed on drop.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("pmbpf-file-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("file"), "12345").unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_no_regular_file_is_named_and_not_waited_for() {
        let scratch = Scratch::new("kinds");
        let at = |name: &str| scratch.0.join(name);
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        symlink("pipe", at("link to a pipe")).unwrap();
        symlink("file", at("link to a file")).unwrap();
        let error = |path: &Path| open_regular(path).unwrap_err().to_string();
        assert_eq!(error(&at("pipe")), "it is a pipe, not a regular file");
        assert_eq!(error(&at("link to a pipe")), "it is a pipe, not a regular file");
        assert_eq!(error(&scratch.0), "it is a folder, not a regular file");
        assert_eq!(error(Path::new("/dev/zero")), "it is a device, not a regular file");
        assert!(open_regular(&at("link to a file")).is_ok());
    }

    #[test]
    fn a_file_is_read_up_to_a_limit() {
        let scratch = Scratch::new("limit");
        let path = scratch.0.join("file");
        assert_eq!(read_regular(&path, 5).unwrap().len(), 5);
        assert_eq!(read_regular(&path, 4).unwrap_err().kind(), std::io::ErrorKind::FileTooLarge);
    }
}
