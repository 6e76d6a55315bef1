//! Flight recorder on this kernel: a dump has the events of the last minutes, as the kernel accounts them,
//! and nothing from before.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    serve::Server,
    support::{Cgroup, Rows, assert_close, pmbpf, signal, text, unique, wait_until},
    workloads::workload,
};

/// Temporary folder, removed on drop with its files.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(unique(name)))
    }

    fn as_str(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Returns the files with this prefix and this suffix.
    fn files(&self, begin: &str, end: &str) -> Vec<PathBuf> {
        let names =
            fs::read_dir(&self.0).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
        let names = names.filter(|name| name.starts_with(begin) && name.ends_with(end));
        names.map(|name| self.0.join(name)).collect()
    }

    /// Waits for the single dump with this reason and returns it.
    fn dump(&self, why: &str) -> PathBuf {
        let find = || self.files("flight-", &format!("-{why}.pmbpf"));
        wait_until("there is a dump", || !find().is_empty());
        assert_eq!(find().len(), 1);
        find().remove(0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn report(recording: &Path) -> Rows {
    let output = pmbpf().args(["report", "--json"]).arg(recording).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    Rows::parse(&output.stdout)
}

/// Returns the CPU time of a cgroup, 0 if the rows lack it.
fn cpu_ns(rows: &Rows, group: &Cgroup) -> f64 {
    rows.sum("cpu_time", |owner| owner["path"] == group.path.as_str())
}

const POST: &str = "POST /flight HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";

fn a_dump_has_what_the_kernel_accounts_of_the_last_minutes_and_nothing_from_before() {
    let (above, spin, folder) = (Cgroup::new("flight"), workload("spin", &["-g"]), Folder::new("flight"));
    let (before, web) = (above.below("before"), above.below("web"));
    let server = Server::start(&[
        "--cgroup",
        &above.path,
        "--flight-recorder",
        folder.as_str(),
        "--flight-time",
        "10s",
    ]);
    let counted = || server.scrape()["pmbpf_counted_time_seconds_total"];
    drop(before.spawn(&format!("{spin} 1")).wait());
    let until = counted() + 13.0;
    wait_until("what was before is kept no more", || {
        std::thread::sleep(Duration::from_millis(200));
        counted() > until
    });
    drop(web.spawn(&format!("{spin} 2.5")).wait());
    server.settled(|_| ());
    signal(server.pid(), "USR1");
    let rows = report(&folder.dump("signal"));
    assert!(before.settled_usage_ns() > 0.8e9 && cpu_ns(&rows, &before) < 1e6, "{}", cpu_ns(&rows, &before));
    let cpu_ns = cpu_ns(&rows, &web);
    assert_close("CPU time", cpu_ns, web.settled_usage_ns(), 0.02, 5e6);
    let length_ns = rows.summary()["duration_ns"].as_f64().unwrap();
    assert!((10e9..15e9).contains(&length_ns), "{length_ns}");
    let soon = server.answer(POST);
    assert!(soon.starts_with("HTTP/1.1 429") && soon.contains("retry-after: "), "{soon}");
    let page = server.answer(&POST.replace("Host: x", "Host: x\r\nOrigin: http://example.org"));
    assert!(page.starts_with("HTTP/1.1 403"), "{page}");
    let get = server.answer("GET /flight HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(get.starts_with("HTTP/1.1 405") && get.contains("allow: POST"), "{get}");
    let mut made = String::new();
    wait_until("a dump is made on request", || {
        std::thread::sleep(Duration::from_millis(500));
        made = server.answer(POST);
        made.starts_with("HTTP/1.1 201")
    });
    let (_, name) = made.split_once("\r\n\r\n").unwrap();
    assert_eq!(folder.dump("request"), folder.0.join(name.trim_end()));
    let series = server.settled(|_| ());
    let count = |name: &str, cause: &str| series[&format!("pmbpf_flight_{name}_total{{cause=\"{cause}\"}}")];
    let counts = [count("dumps", "signal"), count("dumps", "request"), count("dumps", "rule")];
    assert_eq!(counts.map(|count| count as u64), [1, 1, 0]);
    assert!(count("dumps_refused", "request") >= 1.0);
    for (name, most) in [("lost_drains_total", 0.0), ("failures_total", 0.0), ("kept_seconds", 13.0)] {
        assert!(series[&format!("pmbpf_flight_{name}")] <= most, "{name}: {series:?}");
    }
    assert_eq!(server.end(), Some(0));
    assert!(folder.files("segment-", "").is_empty(), "a run that ends takes its ring with it");
}

#[test]
fn a_rule_makes_one_dump_as_long_as_it_holds() {
    let (above, spin, folder) = (Cgroup::new("rule"), workload("spin", &["-g"]), Folder::new("rule"));
    let web = above.below("web");
    // On a busy host it gets little of a CPU.
    let rules = [format!("cpu_time>5% for 1s of {}", web.path), "runqueue_latency.max>1000s".to_owned()];
    let mut arguments = vec!["--cgroup", &above.path, "--flight-recorder", folder.as_str()];
    rules.iter().for_each(|rule| arguments.extend(["--when", rule]));
    let server = Server::start(&arguments);
    server.settled(|_| ());
    assert!(folder.files("flight-", "").is_empty(), "nothing has happened");
    let _running = web.spawn(&format!("{spin} 60"));
    let dump = folder.dump("cpu_time");
    assert!(cpu_ns(&report(&dump), &web) > 0.05e9);
    let series = server.settled(|_| ());
    assert!((series["pmbpf_flight_dumps_total{cause=\"rule\"}"] - 1.0).abs() < 1e-9, "{series:?}");
    assert_eq!(folder.files("flight-", "").len(), 1);
}

#[test]
fn with_the_options_that_nobody_chose_an_incident_of_two_seconds_is_in_a_dump_with_its_stacks() {
    let (above, spin, folder) = (Cgroup::new("incident"), workload("spin", &["-g"]), Folder::new("incident"));
    let web = above.below("web");
    // A busy host leaves it less than a CPU.
    let rule = format!("cpu_time>5% of {}", web.path);
    let server = Server::plain(
        pmbpf(),
        &["--cgroup", &above.path, "--flight-recorder", folder.as_str(), "--when", &rule],
    );
    drop(web.spawn(&format!("{spin} 2")).wait());
    let rows = report(&folder.dump("cpu_time"));
    let cpu_ns = cpu_ns(&rows, &web);
    assert_close("CPU time", cpu_ns, web.settled_usage_ns(), 0.02, 5e6);
    let hot = |row: &&serde_json::Value| row["owner"]["path"] == web.path.as_str();
    let samples: f64 = rows.of_kind("hot").filter(hot).map(|row| row["samples"].as_f64().unwrap()).sum();
    assert!(samples >= (10.0 * cpu_ns / 1e9).max(1.0), "19 a second of {cpu_ns}: {samples}");
    let named = rows.of_kind("hot").filter(hot).filter(|row| row["frame"]["function"].is_string()).count();
    assert!(named > 0, "{:?}", rows.of_kind("hot").collect::<Vec<_>>());
    assert!(rows.of_kind("stack").next().is_some(), "callers are there, too");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn what_follows_is_in_a_dump_and_0_waits_for_nothing() {
    let (above, folder) = (Cgroup::new("after"), Folder::new("after"));
    let arguments = ["--cgroup", &above.path, "--no-io", "--flight-recorder", folder.as_str()];
    for (after, least_ns, most_ns) in [("0", 0.0, 3e9), ("4s", 3.9e9, 9e9)] {
        let server = Server::start(&[&arguments[..], &["--flight-after", after]].concat());
        signal(server.pid(), "USR1");
        let dump = folder.dump("signal");
        let length_ns = report(&dump).summary()["duration_ns"].as_f64().unwrap();
        assert!((least_ns..most_ns).contains(&length_ns), "{after}: {length_ns}");
        fs::remove_file(&dump).unwrap();
        assert_eq!(server.end(), Some(0));
    }
    let refused = pmbpf()
        .args([
            "serve",
            "--flight-recorder",
            folder.as_str(),
            "--flight-time",
            "20s",
            "--flight-after",
            "15s",
        ])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--flight-after is at most half"), "{}", text(&refused.stderr));
}

#[test]
fn a_process_that_is_killed_leaves_its_minutes_to_the_next_and_a_folder_is_of_one_alone() {
    let (above, spin, folder) = (Cgroup::new("killed"), workload("spin", &["-g"]), Folder::new("killed"));
    let web = above.below("web");
    let arguments = ["--cgroup", &above.path, "--no-io", "--flight-recorder", folder.as_str()];
    let server = Server::start(&arguments);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions();
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(mode(&folder.0).mode() & 0o777, 0o700);
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().flatten();
    let statuses = tasks.map(|task| fs::read_to_string(task.path().join("status")).unwrap());
    let writers: Vec<String> = statuses.filter(|status| status.contains("Name:\tflight\n")).collect();
    assert!(matches!(&*writers, [one] if one.contains("CapPrm:\t0000000000000000\n")), "{writers:?}");
    drop(web.spawn(&format!("{spin} 1")).wait());
    server.settled(|_| ());
    for segment in folder.files("segment-", "") {
        assert_eq!(mode(&segment).mode() & 0o777, 0o600);
        let output = pmbpf().arg("report").arg(&segment).output().unwrap();
        // The recording breaks off, because it is still being written.
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    }
    let other = pmbpf().args(["serve", "--listen", "127.0.0.1:0"]).args(arguments).output().unwrap();
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains("another pmbpf records in"), "{}", text(&other.stderr));
    assert_eq!(server.end_by("KILL"), None);
    let next = Server::start(&arguments);
    let rows = report(&folder.dump("left"));
    let cpu_ns = cpu_ns(&rows, &web);
    assert_close("CPU time", cpu_ns, web.settled_usage_ns(), 0.02, 5e6);
    assert_eq!(next.end(), Some(0));
}

// The test counts for minutes.
nightly!(a_dump_has_what_the_kernel_accounts_of_the_last_minutes_and_nothing_from_before);
