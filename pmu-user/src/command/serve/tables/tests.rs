//! Tests of files of tables in a folder, as a writer leaves them.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering, mpsc},
    time::{Duration, SystemTime},
};

use super::{Writer, files::Files};
use crate::{
    drain::Owner,
    metric::exposed::{
        Growth, Period,
        testing::{Did, INTERVAL_NS, World},
    },
    untrusted::Untrusted,
    view::hourly::HourlyTable,
};

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
/// 2026-11-25 12:00 UTC.
const NOON: u64 = 1_795_608_000 * SECOND;

/// Separate folder, removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("pmbpf-tables-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    /// Returns every file below, in order.
    fn files(&self) -> Vec<String> {
        let (mut found, mut folders) = (Vec::new(), vec![self.0.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.push(path.strip_prefix(&self.0).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        found.sort();
        found
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns periods of a minute each that begin so many minutes after noon.
fn periods(minutes: impl IntoIterator<Item = u64>) -> (World, Vec<Period>) {
    let mut world = World::new();
    let mut growth = Growth::new(&world.header(), 10, MINUTE);
    let of_minute = |minute| {
        let owner = Owner::cgroup(1, "/web".into());
        let did = Did { owner, cpu_ns: SECOND, waits: (1, 1000), ends: false };
        let _ = growth.add(&world.interval(&[did]), NOON + minute * MINUTE + INTERVAL_NS);
        growth.end().unwrap()
    };
    let periods = minutes.into_iter().map(of_minute).collect();
    (world, periods)
}

fn files(folder: &Path, keep: Option<Duration>) -> Files {
    Files::new(folder.to_owned(), &Untrusted::from("node 1/\u{e9}"), keep)
}

/// Writes periods that begin so many minutes after noon. Returns the rows that were written, and those that
/// were lost.
fn write(folder: &Path, minutes: impl IntoIterator<Item = u64>) -> (u64, u64) {
    let (world, periods) = periods(minutes);
    let writer = Writer::new(files(folder, None), world.header());
    let rows = Arc::clone(&writer.rows);
    let (sender, received) = mpsc::channel();
    periods.into_iter().for_each(|period| sender.send(period).unwrap());
    drop(sender);
    writer.run(&received);
    (rows.written.load(Ordering::Relaxed), rows.lost.load(Ordering::Relaxed))
}

#[test]
fn an_hour_is_a_file_and_part_of_one_replaces_nothing() {
    let folder = Folder::new("hours");
    let (written, lost) = write(&folder.0, [42, 43, 59, 60, 61, 125]);
    let day = "date=2026-11-25";
    let expected = [
        "hour=12/node_1__-124200.parquet",
        "hour=13/node_1__-130000.parquet",
        "hour=14/node_1__-140500.parquet",
    ];
    assert_eq!(folder.files(), expected.map(|file| format!("{day}/{file}")));
    assert!(written > 30 && lost == 0, "{written} and {lost}");
    write(&folder.0, [42]);
    write(&folder.0, [42]);
    let of_noon: Vec<String> = folder.files().into_iter().filter(|file| file.contains("hour=12")).collect();
    let expected = ["-124200.2.parquet", "-124200.3.parquet", "-124200.parquet"];
    assert_eq!(of_noon, expected.map(|file| format!("{day}/hour=12/node_1__{file}")));
}

#[test]
fn what_cannot_be_written_is_counted_and_leaves_nothing_half_written() {
    let folder = Folder::new("fails");
    // A file is where its folder should be.
    fs::create_dir(folder.0.join("date=2026-11-25")).unwrap();
    fs::write(folder.0.join("date=2026-11-25/hour=13"), "").unwrap();
    let (written, lost) = write(&folder.0, [1, 2, 60, 61, 121]);
    let files = folder.files();
    assert_eq!(files.len(), 3, "{files:?}");
    assert!(files.iter().all(|file| !file.contains("part")));
    assert!(lost > 0 && written > lost, "{lost} of {written}: two of five minutes");
}

#[test]
fn a_folder_that_cannot_be_written_is_named_with_what_to_do() {
    let folder = Folder::new("file");
    fs::write(folder.0.join("x"), "").unwrap();
    let error = format!("{:#}", files(&folder.0.join("x/y"), None).check().unwrap_err());
    assert!(error.contains("/x/y") && error.contains("--parquet"), "{error}");
    files(&folder.0.join("new/one"), None).check().unwrap();
    assert_eq!(folder.files(), ["x"], "nothing of the check stays");
}

#[test]
fn only_own_files_of_old_hours_are_removed() {
    let folder = Folder::new("keep");
    write(&folder.0, [0, 60, 120]);
    let day = folder.0.join("date=2026-11-25");
    for other in ["node_1__-120000.csv", "node_2-120000.parquet", "node_1__-x-120000.parquet", "x.parquet"] {
        fs::write(day.join("hour=12").join(other), "").unwrap();
    }
    fs::write(day.join("hour=13/.node_1__-133333.part"), "").unwrap();
    fs::create_dir_all(folder.0.join("date=1999-01-01/hour=25")).unwrap();
    let two = SystemTime::UNIX_EPOCH + Duration::from_nanos(NOON + 120 * MINUTE);
    let keeping = files(&folder.0, Some(Duration::from_secs(3600)));
    keeping.remove_old(two - Duration::from_secs(1));
    assert_eq!(folder.files().len(), 8, "nothing is an hour old");
    keeping.remove_old(two);
    let left: Vec<String> = folder.files().iter().map(|file| file.replace("date=2026-11-25/", "")).collect();
    let of_noon = ["node_1__-x-120000.parquet", "node_2-120000.parquet", "x.parquet"]
        .map(|file| format!("hour=12/{file}"));
    assert!(
        of_noon.iter().all(|file| left.contains(file))
            && !left.contains(&"hour=12/node_1__-120000.parquet".to_owned()),
        "{left:?}"
    );
    keeping.remove_old(two + Duration::from_secs(7200));
    assert!(!day.join("hour=13").exists() && !day.join("hour=14").exists() && day.join("hour=12").exists());
    assert!(folder.0.join("date=1999-01-01/hour=25").exists(), "no hour of ours");
}

#[test]
fn a_table_of_nothing_is_no_file() {
    let folder = Folder::new("nothing");
    files(&folder.0, None).write(&mut HourlyTable::new(&World::new().header())).unwrap();
    assert!(folder.files().is_empty());
}
