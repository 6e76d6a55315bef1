//! PostgreSQL with clients, and a server with more processes than a screen has lines. The report fits one
//! screen, and a program is one row.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::{
    support::{Rows, Scratch, Started, assert_close, pmbpf, skipped, text, unique, wait_until},
    workloads::workload,
};

/// Maximum lines of a report without further options.
const SCREEN: usize = 60;

/// Database server with clients, stopped on drop.
struct Database {
    folder: PathBuf,
    server: Option<Child>,
    clients: Option<Child>,
}

impl Database {
    /// Starts a server, or returns `None` where PostgreSQL is not installed.
    fn new(clients: u32) -> Option<Self> {
        let programs = fs::read_dir("/usr/lib/postgresql").ok()?.flatten().next()?.path().join("bin");
        let program = |name: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
            command.arg(programs.join(name)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let folder = PathBuf::from("/var/tmp").join(unique("database"));
        fs::create_dir(&folder).unwrap();
        let mut database = Self { folder, server: None, clients: None };
        let folder = database.folder.to_str().unwrap().to_owned();
        assert!(Command::new("chown").args(["postgres", &folder]).status().unwrap().success());
        let data = format!("{folder}/data");
        assert!(
            program("initdb").args(["-D", &data, "-A", "trust", "--no-sync"]).status().unwrap().success()
        );
        let server =
            program("postgres").args(["-D", &data, "-k", &folder, "-c", "listen_addresses="]).spawn();
        database.server = Some(server.unwrap());
        wait_until("the server answers", || {
            program("pg_isready").args(["-q", "-h", &folder]).status().unwrap().success()
        });
        let filled = program("pgbench").args(["-i", "-q", "-s", "2", "-h", &folder, "postgres"]).status();
        assert!(filled.unwrap().success());
        let clients = clients.to_string();
        let clients = ["-c", &clients, "-j", "2", "-T", "120", "-h", &folder, "postgres"];
        database.clients = Some(program("pgbench").args(clients).spawn().unwrap());
        Some(database)
    }

    fn pid(&self) -> u32 {
        self.server.as_ref().map_or(0, Child::id)
    }

    fn processes(&self) -> usize {
        children(self.pid())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        for child in [&mut self.clients, &mut self.server].into_iter().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // The server's processes end when they find the first one gone, and write until then.
        wait_until("the folder is gone", || {
            fs::remove_dir_all(&self.folder).is_ok() || !self.folder.exists()
        });
    }
}

fn children(pid: u32) -> usize {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children.unwrap_or_default().split_whitespace().count()
}

/// Returns the text and the rows of a run.
fn reported(options: &[&str]) -> (String, Rows, Scratch) {
    let file = Scratch::new("screen");
    let run = pmbpf().arg("run").args(options).args(["-o", file.as_str()]).output().unwrap();
    assert!(run.status.success(), "{}", text(&run.stderr));
    (text(&run.stdout), Rows::parse(&report(&file, &["--json"])), file)
}

fn report(file: &Scratch, options: &[&str]) -> Vec<u8> {
    let output = pmbpf().args(["report", file.as_str()]).args(options).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    output.stdout
}

/// Returns the rows of a table of the text, without its titles and the notes below it.
fn table<'a>(text: &'a str, title: &str) -> Vec<&'a str> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(title)).skip(2);
    let rows: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    rows.into_iter().filter(|line| !line.trim_start().starts_with(['…', '–'])).collect()
}

/// Asserts that the text fits one screen and that its last line names the option that shows the rest.
#[track_caller]
fn assert_screen(text: &str) {
    assert!(text.lines().count() <= SCREEN, "{} lines:\n{text}", text.lines().count());
    let last = text.lines().next_back().unwrap();
    assert!(last.starts_with("shortened: `--top "), "{last}");
}

/// Asserts that numbers of a program are the sums over its processes.
#[track_caller]
fn assert_sum(rows: &Rows, metric: &str, program: &str, operation: Option<&str>) {
    let is = |row: &Value, kind: &str| {
        let subject = row["subject"]["operation"].as_str();
        row["metric"] == metric
            && row["owner"]["kind"] == kind
            && row["owner"]["name"] == program
            && operation.is_none_or(|operation| subject == Some(operation))
    };
    let programs: Vec<&Value> = rows.of_kind("program_metric").filter(|row| is(row, "program")).collect();
    assert_eq!(programs.len(), 1, "{metric}: {programs:?}");
    let processes: Vec<f64> = rows
        .of_kind("metric")
        .filter(|row| is(row, "process"))
        .map(|row| row["value"].as_f64().unwrap())
        .collect();
    assert!(!processes.is_empty(), "{metric}");
    assert_close(metric, programs[0]["value"].as_f64().unwrap(), processes.iter().sum(), 1e-9, 1e-9);
}

#[test]
fn a_database_with_clients_is_one_row_and_its_report_one_screen() {
    let Some(database) = Database::new(8) else { return skipped("PostgreSQL is not installed") };
    wait_until("the clients are served", || database.processes() >= 8 + 5);
    let pid = database.pid().to_string();
    let (screen, rows, file) = reported(&["-p", &pid, "-d", "3"]);
    assert_screen(&screen);
    let owners = table(&screen, "OWNERS");
    assert_eq!(owners.len(), 2, "{owners:?}");
    assert!(owners[0].trim_start().starts_with("postgres × "), "{owners:?}");
    let functions = table(&screen, "HOT FUNCTIONS");
    assert!(functions.iter().all(|row| row.contains("postgres × ")), "{functions:?}");
    assert_sum(&rows, "cpu_time", "postgres", None);
    assert_sum(&rows, "samples", "postgres", None);
    // Per process there are as many rows as processes ran.
    let each = text(&report(&file, &["--per-process", "--top", "100"]));
    let each = table(&each, "OWNERS");
    let ran =
        rows.of_kind("metric").filter(|row| row["metric"] == "cpu_time" && row["owner"]["kind"] == "process");
    assert_eq!(each.len(), ran.count() + 1, "{each:?}");
}

#[test]
fn what_a_database_moves_is_one_row_for_each_disk_and_operation() {
    let Some(database) = Database::new(8) else { return skipped("PostgreSQL is not installed") };
    wait_until("the clients are served", || database.processes() >= 8 + 5);
    let pid = database.pid().to_string();
    let (_, rows, file) = reported(&["-p", &pid, "-d", "3", "--io", "-g", "--off-cpu"]);
    let of_postgres =
        |row: &&Value| row["metric"] == "block.requests_rate" && row["owner"]["name"] == "postgres";
    let writers =
        rows.of_kind("metric").filter(of_postgres).filter(|row| row["subject"]["operation"] == "write");
    if writers.count() < 2 {
        return skipped("its files lie on no block device of this host");
    }
    for metric in ["block.requests_rate", "block.bandwidth"] {
        assert_sum(&rows, metric, "postgres", Some("write"));
    }
    let sections = ["--sections", "io,traffic"];
    let together = text(&report(&file, &sections));
    for title in ["BLOCK DEVICES  by owner", "LATENCY AT BLOCK DEVICES  by owner"] {
        let rows = table(&together, title);
        assert!(rows.iter().all(|row| row.trim_start().starts_with("postgres × ")), "{rows:?}");
        let mut subjects: Vec<&str> =
            rows.iter().filter_map(|row| row.split("  ").find(|cell| !cell.is_empty())).collect();
        let all = subjects.len();
        subjects.dedup();
        assert!(all > 0 && subjects.len() == all, "{title}: {rows:?}");
    }
    let each = text(&report(&file, &[&sections[..], &["--per-process", "--top", "100"]].concat()));
    let each = table(&each, "BLOCK DEVICES  by owner");
    let processes = rows.of_kind("metric").filter(of_postgres).count();
    assert_eq!(each.len(), processes, "{each:?}");
}

#[test]
fn a_server_of_a_hundred_processes_is_one_row_and_each_function_one() {
    let program = workload("prefork", &["-g", "-O1"]);
    let started: Vec<Started> = (0..8).map(|_| Started::new(&format!("exec {program} 12 60"))).collect();
    wait_until("they have forked", || started.iter().all(|server| children(server.pid()) == 12));
    let pids: Vec<String> = started.iter().map(|server| server.pid().to_string()).collect();
    let (screen, rows, file) = reported(&["-p", &pids.join(","), "-d", "3", "-F", "499"]);
    assert_screen(&screen);
    let owners = table(&screen, "OWNERS");
    assert_eq!(owners.len(), 2, "{owners:?}");
    for name in ["serve_request", "parse_header"] {
        let functions = table(&screen, "HOT FUNCTIONS");
        let of_name = functions.iter().filter(|row| row.contains(name)).count();
        assert_eq!(of_name, 1, "{name}: {functions:?}");
    }
    for metric in ["cpu_time", "samples", "context_switches", "minor_faults"] {
        assert_sum(&rows, metric, "prefork", None);
    }
    let each = text(&report(&file, &["--per-process", "--top", "200"]));
    assert!(table(&each, "OWNERS").len() > 90, "{each}");
}
