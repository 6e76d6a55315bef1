//! Files of tables: their names, how they appear, and the removal of old ones.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, BufWriter, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

use crate::{untrusted::Untrusted, view::hourly::HourlyTable};

/// Nanoseconds of an hour.
const HOUR_NS: u64 = 3_600_000_000_000;
/// Extension of a file that is not complete, and so is not read as a table.
const PARTIAL: &str = "part";
/// Limit of files with one name, distinguished by a number: after that many starts in one second something
/// else is wrong.
const SAME_MAX: u32 = 1000;
/// Maximum length of a host's name in that of a file.
const HOST_MAX: usize = 128;

/// Folder of the files, and the parts of their names.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    host: String,
    keep: Option<Duration>,
}

/// Returns the hour of a time in ns since 1970.
pub(super) const fn hour(unix_ns: u64) -> u64 {
    unix_ns / HOUR_NS
}

impl Files {
    pub(super) fn new(folder: PathBuf, host: &Untrusted, keep: Option<Duration>) -> Self {
        Self { folder, host: file_name(host), keep }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Creates the folder if it does not exist, and checks that files can be created in it.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let advice = || {
            format!(
                "cannot write to {}: name a folder that may be written with --parquet",
                self.folder.display()
            )
        };
        make_folder(&self.folder).with_context(advice)?;
        let probe = self.folder.join(format!(".{}.{PARTIAL}", self.host));
        new_file(&probe).and_then(|_| fs::remove_file(&probe)).with_context(advice)
    }

    /// Writes a table, which appears complete, and replaces nothing.
    pub(super) fn write(&self, table: &mut HourlyTable) -> anyhow::Result<()> {
        let Some(from_unix_ns) = table.from_unix_ns() else { return Ok(()) };
        let began = civil(from_unix_ns);
        let hour = self.folder.join(began.strftime("date=%Y-%m-%d/hour=%H").to_string());
        let name = format!("{}-{}", self.host, began.strftime("%H%M%S"));
        let partial = hour.join(format!(".{name}.{PARTIAL}"));
        let written = make_folder(&hour)
            .and_then(|()| fill(&partial, table))
            .and_then(|()| appear(&partial, |number| hour.join(whole_name(&name, number))));
        if written.is_err() {
            // An incomplete file is removed, if that is possible.
            let _ = fs::remove_file(&partial);
        }
        written.with_context(|| format!("cannot write a table to {}", hour.display()))
    }

    /// Removes this host's own files of hours that ended at least as long ago as files are kept, and the
    /// folders that are empty then. What cannot be removed stays.
    pub(super) fn remove_old(&self, now: SystemTime) {
        let before = self.keep.and_then(|keep| now.checked_sub(keep));
        let Some(before) = before.and_then(|before| Timestamp::try_from(before).ok()) else { return };
        for day in folders(&self.folder, "date=") {
            let mut old = folders(&day, "hour=");
            old.retain(|hour| ended(&day, hour).is_some_and(|ended| ended <= before));
            old.iter().for_each(|hour| self.remove_own(hour));
            if !old.is_empty() {
                // A folder that holds anything stays.
                let _ = fs::remove_dir(&day);
            }
        }
    }

    fn remove_own(&self, hour: &Path) {
        for file in fs::read_dir(hour).into_iter().flatten().flatten() {
            if file.file_name().to_str().is_some_and(|name| self.is_own(name)) {
                let _ = fs::remove_file(file.path());
            }
        }
        let _ = fs::remove_dir(hour);
    }

    /// Returns whether a name is that of a table of this host, or of an incomplete one.
    fn is_own(&self, name: &str) -> bool {
        let partial = || name.strip_prefix('.')?.strip_suffix(PARTIAL)?.strip_suffix('.');
        let Some(name) = name.strip_suffix(".parquet").or_else(partial) else { return false };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let began = name.strip_prefix(&self.host).and_then(|rest| rest.strip_prefix('-'));
        began.is_some_and(|began| {
            let (time, number) = began.split_once('.').unwrap_or((began, "2"));
            time.len() == 6 && is_number(time) && is_number(number)
        })
    }
}

/// Returns a host's name as that of a file.
fn file_name(host: &Untrusted) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = host.terminal().chars().take(HOST_MAX).map(plain).collect();
    match name.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None if name.is_empty() => "host".to_owned(),
        None => name,
    }
}

fn civil(unix_ns: u64) -> DateTime {
    let time = Timestamp::from_nanosecond(i128::from(unix_ns)).unwrap_or_default();
    TimeZone::UTC.to_datetime(time)
}

/// Returns the name of a table: the second one with a name has a number.
fn whole_name(name: &str, number: u32) -> String {
    if number < 2 { format!("{name}.parquet") } else { format!("{name}.{number}.parquet") }
}

/// Creates a folder and those above it, which others of its group may read.
fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o750).create(folder)
}

/// Creates a file, in place of one that was never complete.
fn new_file(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o640).open(path)
}

fn fill(path: &Path, table: &mut HourlyTable) -> io::Result<()> {
    let mut file = BufWriter::new(new_file(path)?);
    table.write(&mut file)?;
    file.flush()?;
    // Before its name marks it as complete.
    file.get_ref().sync_all()
}

/// Renames a file to the first of its names that is free.
fn appear(partial: &Path, name: impl Fn(u32) -> PathBuf) -> io::Result<()> {
    for number in 1..SAME_MAX {
        let whole = name(number);
        match renameat_with(CWD, partial, CWD, &whole, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            // Some file systems cannot promise that. Only this host has such names.
            Err(Errno::INVAL | Errno::NOSYS) if whole.exists() => {}
            Err(Errno::INVAL | Errno::NOSYS) => return fs::rename(partial, whole),
            renamed => return Ok(renamed?),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns the folders with names that begin with `begin`.
fn folders(above: &Path, begin: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(above).into_iter().flatten().flatten();
    let is_one = |entry: &fs::DirEntry| {
        entry.file_type().is_ok_and(|kind| kind.is_dir())
            && entry.file_name().to_str().is_some_and(|name| name.starts_with(begin))
    };
    entries.filter(is_one).map(|entry| entry.path()).collect()
}

/// Returns when the hour of a folder ended.
fn ended(day: &Path, hour: &Path) -> Option<Timestamp> {
    let value = |folder: &Path| Some(folder.file_name()?.to_str()?.split_once('=')?.1.to_owned());
    let hour: i64 = value(hour)?.parse().ok().filter(|hour| (0..24).contains(hour))?;
    let day = value(day)?.parse::<jiff::civil::Date>().ok()?;
    let midnight = TimeZone::UTC.to_timestamp(day.to_datetime(jiff::civil::Time::midnight())).ok()?;
    midnight.checked_add(jiff::SignedDuration::from_hours(hour + 1)).ok()
}
