//! Names of processes that end before they can be read: the kernel reports their mappings.

use std::{fs, path::PathBuf, process::Command};

use serde_json::Value;

use crate::{
    support::{Cgroup, Rows, Running, Scratch, in_guest, output, signal, skipped, unique, wait_until},
    workloads::workload,
};

/// Temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(unique(name));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the number of samples in hot rows that match `is`.
fn samples(rows: &Rows, is: impl Fn(&Value) -> bool) -> u64 {
    rows.of_kind("hot").filter(|row| is(row)).filter_map(|row| row["samples"].as_u64()).sum()
}

fn is_named(row: &Value) -> bool {
    row["frame"]["function"].is_string()
}

/// Returns whether the file of a row is known. Not every system's libraries have names for all of their code.
fn is_placed(row: &Value) -> bool {
    row["frame"]["module"].is_string()
}

fn is_of_brief(row: &Value) -> bool {
    row["frame"]["module"].as_str().is_some_and(|module| module.ends_with("/brief"))
}

fn is_user(row: &Value) -> bool {
    row["mode"] == "user"
}

fn burns(row: &Value) -> bool {
    row["frame"]["function"] == "burn_briefly"
}

/// Asserts that nearly all samples of the program are in its busy function.
fn burns_in_one_function(rows: &Rows) {
    if in_guest() {
        // In guests the time for names may end before they are looked up.
        return;
    }
    let (program, burning) = (samples(rows, is_of_brief), samples(rows, burns));
    assert!(program > 50 && burning as f64 >= program as f64 * 0.9, "{burning} of {program} samples");
}

#[test]
fn processes_that_live_for_milliseconds_have_names() {
    let brief = workload("brief", &[]);
    let rows = Rows::parse(&output(&["-F", "1999", "--", &brief, "300", "3"]).stderr);
    let (user, placed) = (samples(&rows, is_user), samples(&rows, |row| is_user(row) && is_placed(row)));
    // 300 times 3 ms, of which this kernel does not deliver every sample.
    assert!(user > 300, "{user}");
    assert!(placed as f64 >= user as f64 * 0.98, "of {placed} of {user} samples the file is known");
    burns_in_one_function(&rows);
}

/// Returns the number of mappings that were reported and found no room. A stopped collector has room for some
/// mappings of 200 programs per CPU, whichever processes execute them.
fn lost(rows: &Rows) -> u64 {
    rows.summary()["losses"]["mapping_lost"].as_u64().unwrap_or(0)
}

/// Runs `command` in a cgroup while the collector is stopped, then `after`, and only then continues the
/// collector.
fn unseen(command: &str, after: impl FnOnce()) -> Rows {
    let (group, done) = (Cgroup::new("unseen"), Scratch::new("unseen"));
    let pmbpf = Running::start(&["--cgroup", &group.path, "-F", "1999"]);
    signal(pmbpf.pid(), "STOP");
    let started = group.spawn(&format!("{command} >{}", done.as_str()));
    wait_until("they are gone", || fs::metadata(&done.0).is_ok_and(|file| file.len() > 0));
    drop(started);
    after();
    signal(pmbpf.pid(), "CONT");
    pmbpf.stop()
}

#[test]
fn processes_that_were_gone_with_all_their_kin_before_anyone_looked_have_names() {
    let rows = unseen(&format!("{} 30 10", workload("brief", &[])), || {});
    let (user, placed) = (samples(&rows, is_user), samples(&rows, |row| is_user(row) && is_placed(row)));
    assert!(user > 100, "{user}");
    if lost(&rows) > 0 {
        return skipped("others executed more programs meanwhile than the kernel has room to tell of");
    }
    assert!(placed as f64 >= user as f64 * 0.95, "of {placed} of {user} samples the file is known");
    burns_in_one_function(&rows);
}

#[test]
fn a_file_that_lies_where_another_was_mapped_names_nothing() {
    let folder = Folder::new("replaced");
    let program = folder.file("program");
    let by: [(&str, &dyn Fn()); 2] = [
        ("another file", &|| {
            // The new file may get the inode of the removed one.
            fs::copy(workload("names", &[]), &program).unwrap();
        }),
        ("a pipe", &|| assert!(Command::new("mkfifo").arg(&program).status().unwrap().success())),
    ];
    for (what, replace) in by {
        fs::copy(workload("brief", &[]), &program).unwrap();
        let rows = unseen(&format!("{program} 20 10"), || {
            fs::remove_file(&program).unwrap();
            replace();
        });
        let of_program =
            |row: &Value| row["frame"]["module"].as_str().is_some_and(|module| module.contains(&program));
        let (all, named) =
            (samples(&rows, of_program), samples(&rows, |row| of_program(row) && is_named(row)));
        assert!(all > 50 || lost(&rows) > 0, "{what}: {all} samples know their file");
        assert_eq!(named, 0, "{what}: {named} of {all} samples have a name, and none can be known");
        fs::remove_file(&program).unwrap();
    }
}

#[test]
fn what_found_no_room_is_a_loss_and_who_lives_is_looked_at_again() {
    let (brief, group, done) = (workload("brief", &[]), Cgroup::new("lost"), Scratch::new("lost"));
    let pmbpf = Running::start(&["--cgroup", &group.path, "--by", "process", "-F", "1999"]);
    signal(pmbpf.pid(), "STOP");
    // More programs on one CPU than any buffer holds. Only then does the process to be sampled execute its
    // program.
    let storm = format!("taskset -c 0 {brief} 600 0 >{}", done.as_str());
    let mut started = group.spawn(&format!("sh -c '{storm}; exec taskset -c 0 {brief} 2000'"));
    wait_until("the storm is over", || fs::metadata(&done.0).is_ok_and(|file| file.len() > 0));
    let is_executed =
        || fs::read_to_string(format!("/proc/{}/comm", started.pid())).is_ok_and(|name| name == "brief\n");
    wait_until("the last one runs", is_executed);
    signal(pmbpf.pid(), "CONT");
    started.wait();
    let rows = pmbpf.stop();
    assert!(lost(&rows) > 600, "{}", rows.summary());
    let of_last = |row: &Value| is_user(row) && row["owner"]["pid"] == started.pid();
    let (user, placed) = (samples(&rows, of_last), samples(&rows, |row| of_last(row) && is_placed(row)));
    assert!(user > 100 && placed as f64 >= user as f64 * 0.95, "{placed} of {user} samples");
    burns_in_one_function(&rows);
}
