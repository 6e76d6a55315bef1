//! Options and events that `pmbpf stat` shares with perf stat, compared with perf itself, and the results of
//! a user without rights.

use std::{
    fs,
    process::{Command, Output},
};

use pmbpf::machine::Machine;
use serde_json::Value;

use crate::{
    stat::{count, counted, event, value},
    support::{Rows, Scratch, Started, pmbpf, text, wait_until},
    workloads::workload,
};

/// Copy of pmbpf for a user without rights, in a folder that all users may enter.
struct Unprivileged(Scratch);

impl Unprivileged {
    fn new() -> Self {
        let copy = Scratch::new("unprivileged");
        fs::copy(pmbpf().get_program(), &copy.0).unwrap();
        Self(copy)
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
        command.arg(self.0.as_str()).args(arguments).current_dir("/").env_remove("SUDO_UID").output().unwrap()
    }
}

fn is_paranoid() -> bool {
    fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap().trim() == "2"
}

#[test]
fn without_rights_everything_names_the_capability_and_a_command_counts_in_user_mode() {
    let nobody = Unprivileged::new();
    let system = nobody.output(&["stat", "-d", "10ms"]);
    let said = text(&system.stderr);
    assert_eq!(system.status.code(), Some(4), "{said}");
    assert!(said.contains("setcap cap_perfmon=ep") && said.contains("perf_event_paranoid is"), "{said}");
    if !is_paranoid() {
        return;
    }
    let task = nobody.output(&["stat", "-e", "page-faults,cs", "--", "sh", "-c", "exit 3"]);
    let said = text(&task.stderr);
    assert_eq!(task.status.code(), Some(3), "{said}");
    assert!(
        said.starts_with("pmbpf: counting user mode only (:u): kernel.perf_event_paranoid is 2"),
        "{said}"
    );
    assert!(said.contains("page-faults:u"), "{said}");
    let rows = nobody.output(&["stat", "--json", "-o", "-", "-e", "page-faults,cs", "--", "true"]);
    let rows = Rows::parse(&rows.stdout);
    assert!(value(&rows, "page-faults:u") > 0.0);
    let switches = event(&rows, "cs:u");
    assert!(switches["value"].is_null() && switches["status"] == "unsupported", "{switches}");
    let missing = rows.summary()["missing"][0]["why"].as_str().unwrap().to_owned();
    assert!(missing.starts_with("kernel mode: "), "{missing}");
    let explicit = nobody.output(&["stat", "-e", "page-faults:k", "--", "true"]);
    assert_eq!(explicit.status.code(), Some(125), "{}", text(&explicit.stderr));
}

#[test]
fn if_possible_runs_the_command_once_and_says_what_is_not_measured() {
    let nobody = Unprivileged::new();
    let marks = Scratch::new("marks");
    fs::write(&marks.0, "").unwrap();
    std::os::unix::fs::chown(&marks.0, Some(65534), Some(65534)).unwrap();
    let script = format!("echo x >> {}; exit 7", marks.as_str());
    let command = ["--", "sh", "-c", &script];
    let ways: [&[&str]; 3] = [&["run"], &["run", "--json"], &["stat", "-a"]];
    for way in ways {
        let refused = nobody.output(&[way, &command].concat());
        assert_eq!(refused.status.code(), Some(125), "{}", text(&refused.stderr));
        assert_eq!(fs::read_to_string(&marks.0).unwrap(), "", "{way:?} has run it");
        let said = text(&refused.stderr);
        assert!(
            way[0] == "stat"
                || said.starts_with("pmbpf: this needs root, or the capabilities CAP_BPF and CAP_PERFMON"),
            "{said}"
        );
        let run = nobody.output(&[way, &["--if-possible"], &command].concat());
        let said = text(&run.stderr);
        assert_eq!(run.status.code(), Some(7), "{said}");
        assert_eq!(fs::read_to_string(&marks.0).unwrap(), "x\n", "{said}");
        let says = if way[0] == "run" {
            "not measured: owners, samples and waits: this needs root"
        } else {
            "<not supported>"
        };
        assert!(said.contains(says), "{said}");
        fs::write(&marks.0, "").unwrap();
    }
    let mut privileged = pmbpf();
    let privileged = privileged.args(["run", "--if-possible", "--", "true"]).output().unwrap();
    let said = text(&privileged.stderr);
    assert!(
        privileged.status.success() && said.contains("OWNERS") && !said.contains("not measured"),
        "{said}"
    );
}

/// Returns the fields of `stat -x ';'` of pmbpf or perf, one row per line.
fn fields(program: &mut Command, arguments: &[&str]) -> Vec<Vec<String>> {
    let output = program.args(["stat", "-x", ";"]).args(arguments).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stderr) + &text(&output.stdout);
    lines
        .lines()
        .filter(|line| line.contains(';'))
        .map(|line| line.split(';').map(str::to_owned).collect())
        .collect()
}

#[test]
fn fields_are_those_of_perf_stat_in_its_order() {
    // Numbers differ from run to run. Units, names, positions and uncounted events do not.
    let fixed = |row: &Vec<String>| -> Vec<String> {
        row.iter()
            .map(|field| {
                if field.trim().trim_end_matches('%').parse::<f64>().is_ok() {
                    "N".to_owned()
                } else {
                    field.clone()
                }
            })
            .collect()
    };
    let shapes = |rows: &[Vec<String>]| rows.iter().map(fixed).collect::<Vec<_>>();
    let sleeps: &[&str] = &["--", "sleep", "0.05"];
    let clocks = ["-e", "cpu-clock,context-switches:k"];
    let ways: [Vec<&str>; 10] = [
        vec!["-e", "task-clock,page-faults,cycles"],
        [&["-a"], &clocks[..]].concat(),
        [&["-A", "-a"], &clocks[..]].concat(),
        [&["--per-core", "-a"], &clocks[..]].concat(),
        [&["--per-socket", "-a"], &clocks[..]].concat(),
        [&["--per-die", "-a"], &clocks[..]].concat(),
        [&["--per-node", "-a"], &clocks[..]].concat(),
        vec!["-e", "{minor-faults,page-faults},dummy,duration_time"],
        vec!["-e", "mem:0x1000:w,mem:0x1000:rw"],
        vec!["-e", "syscalls:sys_enter_exit_*"],
    ];
    for way in ways {
        let [ours, perfs] = [&mut pmbpf(), &mut Command::new("perf")]
            .map(|program| fields(program, &[&way[..], sleeps].concat()));
        assert!(!ours.is_empty(), "{way:?}");
        // The unit K of a rate of some thousands depends on its value.
        let plain = |rows: &[Vec<String>]| -> Vec<Vec<String>> {
            shapes(rows)
                .into_iter()
                .map(|row| {
                    row.into_iter()
                        .map(|field| if field == "K/sec" { "/sec".to_owned() } else { field })
                        .collect()
                })
                .collect()
        };
        assert_eq!(plain(&ours), plain(&perfs), "{way:?}");
    }
    let [ours, perfs] = [(&mut pmbpf(), "100ms"), (&mut Command::new("perf"), "100")]
        .map(|(program, every)| fields(program, &["-I", every, "-a", "-e", "cs", "--", "sleep", "0.15"]));
    assert_eq!((ours[0].len(), ours.len()), (perfs[0].len(), perfs.len()), "{ours:?}\n{perfs:?}");
    let [ours, perfs] = [&mut pmbpf(), &mut Command::new("perf")]
        .map(|program| fields(program, &["-r", "3", "-e", "page-faults", "--", "true"]));
    assert_eq!(shapes(&ours), shapes(&perfs));
    assert!(ours[0][3].ends_with('%'), "{ours:?}");
}

#[test]
fn the_rows_of_places_add_up_to_the_row_of_all() {
    let rows = count(&["-A", "-a", "-e", "cpu-clock", "-d", "200ms"]);
    let of_cpus: Vec<&Value> =
        rows.of_kind("metric").filter(|row| row["metric"] == "event.cpu-clock").collect();
    let online = Machine::read(std::path::Path::new("/")).unwrap().cpu.online;
    assert_eq!(of_cpus.len(), online.len());
    for (row, cpu) in of_cpus.iter().zip(&online) {
        assert_eq!(
            row["place"],
            serde_json::json!({"kind": "cpu", "name": format!("CPU{}", cpu.0)}),
            "{row}"
        );
        let share = row["value"].as_f64().unwrap() / rows.total("elapsed");
        assert!((0.5..1.5).contains(&share), "{share} of a CPU");
    }
    let refused = counted(&["-A", "--", "true"]);
    assert!(refused.0 == Some(2) && refused.2.contains("a task has no rows of CPUs"), "{}", refused.2);
}

#[test]
fn results_go_to_the_file_whose_name_says_so() {
    for (extension, arguments, begins) in [
        ("json", &[][..], "{"),
        ("json", &["--json"], "{"),
        ("csv", &[], "t_ns,"),
        ("txt", &["--quiet"], "\ncommand true"),
        ("out", &["-x", ","], ""),
    ] {
        let file = Scratch::new("results");
        let name = format!("{}.{extension}", file.as_str());
        let mut pmbpf = pmbpf();
        let output =
            pmbpf.arg("stat").args(arguments).args(["-o", &name, "--", "echo", "mine"]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let written = fs::read_to_string(&name).unwrap();
        fs::remove_file(&name).unwrap();
        let begins = begins.replace("true", "echo mine");
        assert!(written.starts_with(&begins), "{extension} {arguments:?}: {written}");
        let first = written.split_once(",msec,task-clock,").map(|(first, _)| first.parse::<f64>());
        assert!(extension != "out" || first.is_some_and(|msec| msec.is_ok()), "{written}");
        assert_eq!(text(&output.stdout), "mine\n");
    }
    let refused = pmbpf().args(["run", "-o", "/tmp/x.json", "--", "true"]).output().unwrap();
    assert!(
        refused.status.code() == Some(2) && text(&refused.stderr).contains("--json -o - > FILE"),
        "{}",
        text(&refused.stderr)
    );
}

#[test]
fn a_timeout_ends_the_command_and_a_delay_starts_counters_later() {
    let (code, rows, said) = counted(&["--timeout", "100", "-e", "task-clock", "--", "sleep", "20"]);
    assert_eq!(code, Some(128 + 15), "{said}");
    assert_eq!(rows.summary()["workload"]["signal"], "SIGTERM");
    let spin = workload("spin", &["-g"]);
    let clock = |arguments: &[&str]| {
        value(&count(&[arguments, &["-e", "task-clock", "--", &spin, "0.4"]].concat()), "task-clock")
    };
    let (all, late) = (clock(&[]), clock(&["-D", "300"]));
    // Next to other work it has part of a CPU in the first 300 ms, and the rest counts in full.
    assert!(late > 0.0 && late < 0.9 * all, "{late} of {all}");
}

#[test]
fn beside_another_target_a_command_says_how_long_to_count() {
    let spin = workload("spin", &["-g"]);
    let other = Started::new(&format!("exec {spin} 60"));
    let pid = other.pid().to_string();
    let waits = ["--", "sh", "-c", "sleep 0.3; exit 3"];
    for option in ["-p", "-t"] {
        let (code, rows, said) = counted(&[&[option, &pid, "-e", "task-clock"], &waits[..]].concat());
        assert_eq!(code, Some(3), "{said}");
        // The command sleeps, so the time is the other process's.
        assert!(value(&rows, "task-clock") > 0.03e9, "{said}");
        assert!((0.3e9..20e9).contains(&rows.total("elapsed")), "{}", rows.total("elapsed"));
    }
    let owners = pmbpf().args(["run", "--json", "-o", "-", "-p", &pid, "-i"]).args(waits).output().unwrap();
    let said = text(&owners.stderr);
    assert_eq!(owners.status.code(), Some(3), "{said}");
    assert!(Rows::parse(&owners.stdout).total("cpu_time") > 0.03e9, "{said}");
    // A target that ends does not end the run.
    let kill = format!("kill {pid}; sleep 0.5");
    let rows = count(&["-p", &pid, "-e", "cs", "--", "sh", "-c", &kill]);
    assert!(rows.total("elapsed") >= 0.5e9, "{}", rows.total("elapsed"));
}

#[test]
fn threads_have_rows_of_their_own_as_with_perf() {
    let threads = workload("threads", &["-pthread"]);
    let process = Started::new(&format!("exec {threads} 60 60"));
    let tasks = format!("/proc/{}/task", process.pid());
    wait_until("its threads run", || fs::read_dir(&tasks).unwrap().count() > 2);
    let pid = process.pid().to_string();
    let arguments = ["--per-thread", "-p", &pid, "-e", "task-clock", "--", "sleep", "0.3"];
    let rows = count(&arguments);
    let mut ours: Vec<String> = rows
        .of_kind("metric")
        .filter(|row| row["metric"] == "event.task-clock")
        .map(|row| {
            assert_eq!(row["place"]["kind"], "thread", "{row}");
            row["place"]["name"].as_str().unwrap().to_owned()
        })
        .collect();
    assert!(ours.len() > 2 && ours.iter().any(|name| *name == format!("threads-{pid}")), "{ours:?}");
    let perfs = fields(&mut Command::new("perf"), &arguments);
    let mut perfs: Vec<String> = perfs.into_iter().map(|mut row| row.swap_remove(0)).collect();
    ours.sort();
    perfs.sort();
    assert_eq!(ours, perfs);
    let fields = fields(&mut pmbpf(), &arguments);
    assert!(fields.iter().all(|row| row.len() == 8 && row[3] == "task-clock"), "{fields:?}");
    let refused = counted(&["--per-thread", "--", "true"]);
    assert!(refused.0 == Some(2) && refused.2.contains("name them with -p or -t"), "{}", refused.2);
}

#[test]
fn times_of_the_run_are_counted_as_events() {
    let spin = workload("spin", &["-g"]);
    let rows = count(&["-e", "duration_time,user_time,system_time", "--", &spin, "0.2"]);
    assert_eq!(value(&rows, "duration_time"), rows.total("elapsed"));
    assert_eq!(value(&rows, "user_time"), rows.total("user_time"));
    assert!(value(&rows, "user_time") > 0.05e9, "{}", value(&rows, "user_time"));
    let running = count(&["-a", "-e", "user_time,duration_time", "-d", "10ms"]);
    assert!(event(&running, "user_time")["value"].is_null() && value(&running, "duration_time") > 0.0);
}
