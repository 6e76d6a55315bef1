//! `pmbpf serve --parquet` on this kernel: the file agrees with the kernel's accounts, to the last interval,
//! and the writer has no rights.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use parquet::{
    file::reader::{FileReader as _, SerializedFileReader},
    record::Field,
};

use crate::{
    serve::Server,
    support::{Cgroup, assert_close, pmbpf, text, wait_until},
    workloads::workload,
};

/// Temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("pmbpf-live-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }

    /// Returns every file below.
    fn files(&self) -> Vec<PathBuf> {
        let (mut found, mut folders) = (Vec::new(), vec![self.0.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() { folders.push(path) } else { found.push(path) }
            }
        }
        found
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

type Cells = BTreeMap<String, Field>;

fn rows(file: &Path) -> Vec<Cells> {
    let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| row.unwrap().into_columns().into_iter().collect()).collect()
}

fn is(row: &Cells, column: &str, wanted: &str) -> bool {
    matches!(&row[column], Field::Str(text) if text == wanted)
}

fn value(row: &Cells) -> f64 {
    match row["value"] {
        Field::Double(value) => value,
        _ => unreachable!("{row:?}"),
    }
}

#[test]
fn a_cgroups_rows_are_what_the_kernel_accounts() {
    let (folder, above, spin) = (Folder::new("tables"), Cgroup::new("tables"), workload("spin", &["-g"]));
    let (web, brief) = (above.below("web"), above.below("brief"));
    let name = folder.0.to_str().unwrap().to_owned();
    let server = Server::start(&["--cgroup", &above.path, "--parquet", &name, "--parquet-every", "1s"]);
    let mut running = web.spawn(&format!("{spin} 3"));
    drop(brief.spawn(&format!("{spin} 0.3")).wait());
    drop(running.wait());
    let used = [web.settled_usage_ns(), brief.settled_usage_ns()];
    let written = server.scrape()["pmbpf_parquet_rows_total{outcome=\"lost\"}"];
    assert!(written.abs() < f64::EPSILON);
    assert_eq!(folder.files().len(), 0, "no hour is over");
    assert_eq!(server.end(), Some(0));
    let files = folder.files();
    // There is one more if an hour has just begun.
    assert!((1..=2).contains(&files.len()), "{files:?}");
    let all: Vec<Cells> = files.iter().flat_map(|file| rows(file)).collect();
    for (group, used_ns) in [&web, &brief].into_iter().zip(used) {
        let target = format!("path:{}", group.path);
        let own = |row: &&Cells| is(row, "target", &target) && is(row, "metric", "cpu_time_seconds");
        let found: Vec<f64> = all.iter().filter(own).map(value).collect();
        assert_close(&group.path, found.iter().sum::<f64>() * 1e9, used_ns, 0.02, 20e6);
        assert!(all.iter().filter(own).all(|row| is(row, "path", &group.path)));
    }
    let counted: Vec<f64> =
        all.iter().filter(|row| is(row, "metric", "counted_time_seconds")).map(value).collect();
    assert!(counted.len() >= 3 && counted.iter().all(|seconds| (0.0..2.1).contains(seconds)), "{counted:?}");
    let file = files[0].file_name().unwrap().to_str().unwrap();
    assert!(files[0].parent().unwrap().to_str().unwrap().contains("/date=20"), "{files:?}");
    assert!(file.ends_with(".parquet") && !file.starts_with('.'), "{file}");
}

#[test]
fn whoever_writes_tables_has_no_right_at_all() {
    let (folder, group) = (Folder::new("rights"), Cgroup::new("tables"));
    let name = folder.0.to_str().unwrap().to_owned();
    let server = Server::start(&["--cgroup", &group.path, "--no-io", "--parquet", &name]);
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().flatten();
    let statuses = tasks.map(|task| fs::read_to_string(task.path().join("status")).unwrap_or_default());
    let status =
        statuses.into_iter().find(|status| status.starts_with("Name:\ttables\n")).expect("it has a thread");
    for field in ["CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "Seccomp:\t2\n"] {
        assert!(status.contains(field), "{status}");
    }
}

#[test]
fn a_table_that_cannot_be_written_is_said_once_and_counting_goes_on() {
    let (folder, group) = (Folder::new("gone"), Cgroup::new("tables"));
    let name = folder.0.to_str().unwrap().to_owned();
    let refused =
        pmbpf().args(["serve", "--listen", "127.0.0.1:0", "--parquet", "/proc/none"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("cannot write to /proc/none"), "{}", text(&refused.stderr));
    let short =
        pmbpf().args(["serve", "-I", "5s", "--parquet", &name, "--parquet-every", "1s"]).output().unwrap();
    assert!(text(&short.stderr).contains("shorter than an interval"), "{}", text(&short.stderr));
    let server =
        Server::start(&["--cgroup", &group.path, "--no-io", "--parquet", &name, "--parquet-every", "1s"]);
    let counted = || server.scrape()["pmbpf_counted_time_seconds_total"];
    fs::remove_dir_all(&folder.0).unwrap();
    // A file replaces the folder.
    fs::write(&folder.0, "").unwrap();
    let before = counted();
    wait_until("it counts on", || {
        std::thread::sleep(Duration::from_millis(100));
        counted() > before + 1.0
    });
    assert_eq!(server.end(), Some(0));
    assert_eq!(fs::read(&folder.0).unwrap(), b"", "it is as it was");
    fs::remove_file(&folder.0).unwrap();
}
