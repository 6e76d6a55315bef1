//! Folder of a flight recorder: one process has it, with its segments and dumps, of which the oldest are
//! removed.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use jiff::Timestamp;

use super::dump::{Dumped, join, remove};
use crate::command::{failure::Usage, output};

/// Prefixes of the names of dumps, of segments, and of unfinished files, and the suffix of dumps and
/// segments.
const DUMP: &str = "flight-";
const SEGMENT: &str = "segment-";
const MAKING: &str = ".pmbpf-";
const SUFFIX: &str = ".pmbpf";
/// Lock file: the folder is in use while it is locked.
const LOCK: &str = "lock";
/// Mode bits that let other users write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Folder that belongs to this process as long as it lives.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Number of dumps that are kept.
    keep: usize,
    _lock: File,
}

impl Folder {
    /// Takes a folder. A missing one is created, for its owner alone.
    ///
    /// # Errors
    ///
    /// The path is not a folder, not this user's alone, or in use.
    pub(super) fn take(path: &Path, keep: usize) -> anyhow::Result<Self> {
        let name = path.display();
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error)
                    .with_context(|| format!("cannot make {name}: name a folder whose parent exists"));
            }
            _ => {}
        }
        let there = path.metadata().with_context(|| format!("cannot look at {name}"))?;
        let usage = |why: String| anyhow::Error::new(Usage(why));
        if !there.is_dir() {
            return Err(usage(format!("{name} is not a directory: name one with --flight-recorder")));
        }
        let own = rustix::process::geteuid().as_raw();
        if there.uid() != own || there.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(usage(format!(
                "{name} must belong to user {own}, and no other user may write in it: name another one, or chmod and chown it"
            )));
        }
        let lock = path.join(LOCK);
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&lock);
        let file = file.with_context(|| format!("cannot open {}", lock.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), keep, _lock: file }),
            Err(TryLockError::WouldBlock) => Err(usage(format!(
                "another pmbpf records in {name}: name another folder with --flight-recorder"
            ))),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", lock.display()))
            }
        }
    }

    /// Checks that the folder can be read with the privileges that are left.
    ///
    /// # Errors
    ///
    /// The folder cannot be read.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.named(SEGMENT).map(drop)
    }

    /// Makes a dump of the segments of a process that did not end as it should, and removes its unfinished
    /// files. Returns the dump, if there is one.
    ///
    /// # Errors
    ///
    /// The folder cannot be read or written.
    pub(super) fn recover(&self) -> anyhow::Result<Option<PathBuf>> {
        for left in self.named(MAKING)? {
            remove(&left)?;
        }
        let segments = self.named(SEGMENT)?;
        let Some(last) = segments.last() else { return Ok(None) };
        let written = last.metadata().and_then(|metadata| metadata.modified());
        let at = written.ok().and_then(|time| Timestamp::try_from(time).ok()).unwrap_or_else(Timestamp::now);
        let found = match self.dump(&segments, at, "left") {
            Ok((dump, _)) => Some(dump),
            Err(error) => {
                output::talk(&format!("what is left in {} cannot be joined: {error:#}", self.path.display()));
                None
            }
        };
        for segment in &segments {
            // A segment that cannot be read may be of use for finding out why.
            match found.is_some() || segment.metadata().is_ok_and(|metadata| metadata.len() == 0) {
                true => remove(segment)?,
                false => drop(self.keep_as(segment, at, "damaged")?),
            }
        }
        self.keep_newest()?;
        Ok(found)
    }

    /// Returns the path of the segment with this number.
    pub(super) fn segment(&self, number: u64) -> PathBuf {
        self.path.join(format!("{SEGMENT}{number:08}{SUFFIX}"))
    }

    /// Makes a dump of segments, which ends at `at`, because of `why`. Returns its file.
    ///
    /// # Errors
    ///
    /// As for [`join`].
    pub(super) fn dump(
        &self,
        segments: &[PathBuf],
        at: Timestamp,
        why: &str,
    ) -> anyhow::Result<(PathBuf, Dumped)> {
        let making = self.path.join(format!("{MAKING}dump"));
        let joined = join(segments, &making);
        if joined.is_err() {
            // A partial dump is useless.
            let _ = remove(&making);
        }
        let dumped = joined?;
        let dump = self.keep_as(&making, at, why)?;
        self.keep_newest()?;
        Ok((dump, dumped))
    }

    /// Renames a file to a dump. No other process makes dumps here.
    fn keep_as(&self, file: &Path, at: Timestamp, why: &str) -> anyhow::Result<PathBuf> {
        let name = format!("{DUMP}{}-{why}", at.strftime("%Y%m%dT%H%M%SZ"));
        for number in 1..100 {
            let number = if number == 1 { String::new() } else { format!("-{number}") };
            let path = self.path.join(format!("{name}{number}{SUFFIX}"));
            if path.symlink_metadata().is_err() {
                fs::rename(file, &path).with_context(|| format!("cannot make {}", path.display()))?;
                return Ok(path);
            }
        }
        bail!("there are a hundred dumps of {name} already")
    }

    /// Removes the oldest dumps beyond the limit.
    fn keep_newest(&self) -> anyhow::Result<()> {
        let dumps = self.named(DUMP)?;
        dumps[..dumps.len().saturating_sub(self.keep)].iter().try_for_each(|dump| remove(dump))
    }

    /// Returns own files with names that begin with `beginning`, in their order, which is that of time.
    fn named(&self, beginning: &str) -> anyhow::Result<Vec<PathBuf>> {
        let read = || fs::read_dir(&self.path)?.collect::<io::Result<Vec<_>>>();
        let entries = read().with_context(|| format!("cannot read {}", self.path.display()))?;
        let is_ours =
            |name: &str| name.starts_with(beginning) && (beginning == MAKING || name.ends_with(SUFFIX));
        let ours = entries.iter().filter(|entry| entry.file_name().to_str().is_some_and(is_ours));
        let mut files: Vec<PathBuf> = ours.map(fs::DirEntry::path).collect();
        files.sort();
        Ok(files)
    }
}
