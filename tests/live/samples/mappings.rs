//! Names of processes that are gone before anybody can look: what they mapped comes from the kernel.

use std::{fmt::Write as _, fs, path::PathBuf, process::Command};

use serde_json::Value;

use crate::{
    support::{Cgroup, Rows, Running, Scratch, in_guest, output, signal, skipped, text, unique, wait_until},
    workloads::workload,
};

/// A folder of our own that vanishes.
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

/// Samples of the hot rows that `is` picks.
fn samples(rows: &Rows, is: impl Fn(&Value) -> bool) -> u64 {
    rows.of_kind("hot").filter(|row| is(row)).filter_map(|row| row["samples"].as_u64()).sum()
}

fn is_named(row: &Value) -> bool {
    row["frame"]["function"].is_string()
}

fn is_user(row: &Value) -> bool {
    row["mode"] == "user"
}

fn burns(row: &Value) -> bool {
    row["frame"]["function"] == "burn_briefly"
}

#[test]
fn processes_that_live_for_milliseconds_have_names() {
    let brief = workload("brief", &[]);
    let rows = Rows::parse(&output(&["-F", "1999", "--", &brief, "300", "3"]).stderr);
    let (user, named) = (samples(&rows, is_user), samples(&rows, |row| is_user(row) && is_named(row)));
    // 300 times 3 ms, of which this kernel does not deliver every sample.
    assert!(user > 300, "{user}");
    assert!(named as f64 >= user as f64 * 0.98, "{named} of {user} samples have names");
    let burning = samples(&rows, burns);
    assert!(burning as f64 >= named as f64 * 0.6, "{burning} of {named} samples are in the one function");
}

/// Runs `command` in a cgroup while the collector is stopped, then `after`, and only then lets it look.
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
    let (user, named) = (samples(&rows, is_user), samples(&rows, |row| is_user(row) && is_named(row)));
    assert!(user > 100, "{user}");
    assert!(named as f64 >= user as f64 * 0.95, "{named} of {user} samples have names");
    let burning = samples(&rows, burns);
    assert!(burning as f64 >= named as f64 * 0.6, "{burning} of {named} samples are in the one function");
}

#[test]
fn a_file_that_lies_where_another_was_mapped_names_nothing() {
    let folder = Folder::new("replaced");
    let program = folder.file("program");
    let by: [(&str, &dyn Fn()); 2] = [
        ("another file", &|| {
            // It may well get the inode of the one that was removed.
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
        assert!(all > 50, "{what}: {all} samples know their file");
        assert_eq!(named, 0, "{what}: {named} of {all} samples have a name, and none can be known");
        fs::remove_file(&program).unwrap();
    }
}

/// 60 C files of 20 functions each, and how to compile them.
fn sources(folder: &Folder) {
    for file in 0..60 {
        let mut source = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n".to_owned();
        for function in 0..20 {
            writeln!(
                source,
                "int work_{file}_{function}(int n, const char *text) {{\n\
                 int sum = {function};\n\
                 for (int k = 0; k < n; k++) {{ sum += k * {function} ^ (sum << 3);\n\
                 if (text[k % 7] == 'a') sum -= printf(\"%d %s\", k, text); }}\n\
                 switch (sum % 9) {{ case 0: return n; case 1: return n * 2; default: return abs(sum); }} }}"
            )
            .unwrap();
        }
        fs::write(folder.0.join(format!("file{file}.c")), source).unwrap();
    }
    let rules = "all: $(patsubst %.c,%.o,$(wildcard *.c))\n%.o: %.c\n\tcc -O1 -c -o $@ $<\n";
    fs::write(folder.0.join("Makefile"), rules).unwrap();
}

/// Shares of samples without a name, and without even a file.
#[derive(Debug)]
struct Unknown {
    samples: f64,
    unnamed: f64,
    nowhere: f64,
}

/// What perf does not know of `command`; `None` where it cannot sample.
fn unknown_to_perf(folder: &Folder, command: &[&str]) -> Option<Unknown> {
    let data = folder.file("perf.data");
    let record = ["record", "-q", "-e", "cpu-clock", "-F", "999", "-o", &data, "--"];
    let recorded = Command::new("perf").args(record).args(command).output().ok()?;
    recorded.status.success().then_some(())?;
    let script = Command::new("perf").args(["script", "-i", &data, "-F", "ip,sym,dso"]).output().unwrap();
    let lines = text(&script.stdout);
    let count = |is: &dyn Fn(&str) -> bool| {
        lines.lines().filter(|line| !line.trim().is_empty() && is(line)).count() as f64
    };
    let samples = count(&|_| true);
    let unnamed = count(&|line| line.contains(" [unknown]")) / samples;
    let nowhere = count(&|line| line.contains("([unknown])")) / samples;
    Some(Unknown { samples, unnamed, nowhere })
}

#[test]
fn a_compile_has_no_more_samples_without_names_than_perf_has() {
    if in_guest() || Command::new("make").arg("--version").output().is_err() {
        return skipped("there is no make here, or only an emulator's clock");
    }
    let folder = Folder::new("compile");
    sources(&folder);
    let objects = folder.file("");
    let make = ["make", "-s", "-B", "-j2", "-C", &objects];
    let Some(perf) = unknown_to_perf(&folder, &make) else {
        return skipped("perf cannot sample here");
    };
    let arguments = ["-F", "999", "--stacks", "--"];
    let whole: Vec<&str> = arguments.into_iter().chain(make).collect();
    let rows = Rows::parse(&output(&whole).stderr);
    let all = samples(&rows, |_| true) as f64;
    let share = |is: &dyn Fn(&Value) -> bool| samples(&rows, is) as f64 / all;
    let unnamed = share(&|row| !is_named(row));
    let nowhere = share(&|row| !is_named(row) && row["frame"]["module"].is_null());
    assert!(all > 500.0 && perf.samples > 500.0, "{all} samples, {perf:?}");
    // Beside what is asked for, three standard deviations of the difference of two counts: the compiler may be stripped, and
    // then a third of either has no name.
    let close = |mine: f64, perfs: f64| {
        let spread = 3.0 * (perfs.max(0.001) * (1.0 / all + 1.0 / perf.samples)).sqrt();
        mine <= perfs + 0.005 + spread
    };
    assert!(close(unnamed, perf.unnamed), "{unnamed:.4} of {all} without a name, {perf:?}");
    assert!(close(nowhere, perf.nowhere), "{nowhere:.4} of {all} without a file, {perf:?}");
}
