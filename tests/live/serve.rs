//! `pmbpf serve` on this kernel: scraped values equal the kernel's accounts while targets come and go, and
//! nothing stays behind.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Child, ChildStderr, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    support::{Cgroup, Started, assert_close, pmbpf, signal, text, wait_until},
    workloads::workload,
};

const INTERVAL: Duration = Duration::from_millis(500);

/// Server process, ended on drop.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    /// Standard error of the server while it serves.
    said: BufReader<ChildStderr>,
}

impl Server {
    /// Starts a server at a free port and waits until there is something to scrape.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::begin(pmbpf(), arguments)
    }

    /// Starts a server with this command.
    pub(crate) fn begin(command: Command, arguments: &[&str]) -> Self {
        Self::plain(command, &[&["-I", "500ms"], arguments].concat())
    }

    /// Starts a server with only these options, and defaults for the rest.
    pub(crate) fn plain(mut command: Command, arguments: &[&str]) -> Self {
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended: {:?}", child.wait());
            if let Some((_, rest)) = line.split_once("serving http://") {
                break rest.split('/').next().unwrap().parse().unwrap();
            }
        };
        let server = Self { child, address, said };
        wait_until("the first interval is over", || server.get("/readyz").starts_with("HTTP/1.1 200"));
        server
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the response to these bytes.
    pub(crate) fn answer(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        text(&answer)
    }

    fn get(&self, path: &str) -> String {
        self.answer(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
    }

    /// Returns the series by name and labels, as text has them.
    pub(crate) fn scrape(&self) -> BTreeMap<String, f64> {
        self.scrape_at("/metrics")
    }

    /// Returns the series at a path with a query, which makes another reader.
    pub(crate) fn scrape_at(&self, path: &str) -> BTreeMap<String, f64> {
        let answer = self.get(path);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
        let samples = body.lines().filter(|line| !line.starts_with('#'));
        samples
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(key, value)| (key.to_owned(), value.parse().unwrap()))
            .collect()
    }

    /// Returns the series once every interval that has begun by now is over. `see` receives every scrape on
    /// the way.
    pub(crate) fn settled(&self, mut see: impl FnMut(&BTreeMap<String, f64>)) -> BTreeMap<String, f64> {
        let counted = |samples: &BTreeMap<String, f64>| samples["pmbpf_counted_time_seconds_total"];
        let mut last = self.scrape();
        let until = counted(&last) + 2.0 * INTERVAL.as_secs_f64();
        see(&last);
        wait_until("two more intervals are over", || {
            std::thread::sleep(INTERVAL / 10);
            last = self.scrape();
            see(&last);
            counted(&last) >= until - 0.01
        });
        last
    }

    pub(crate) fn end(self) -> Option<i32> {
        self.end_by("TERM")
    }

    /// Ends the server and returns its messages.
    pub(crate) fn end_and_say(mut self) -> String {
        signal(self.child.id(), "TERM");
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }

    /// Ends the server by a signal and returns its exit code, if it has one.
    pub(crate) fn end_by(mut self, name: &str) -> Option<i32> {
        signal(self.child.id(), name);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn of(family: &str, target: &str) -> String {
    format!("{family}{{target=\"{target}\"}}")
}

const CPU: &str = "pmbpf_cpu_time_seconds_total";

fn all(samples: &BTreeMap<String, f64>, family: &str) -> f64 {
    samples.iter().filter(|(key, _)| key.split('{').next() == Some(family)).map(|(_, value)| value).sum()
}

#[test]
fn a_cgroups_counters_are_what_the_kernel_accounts() {
    let (above, spin) = (Cgroup::new("serve"), workload("spin", &["-g"]));
    let (web, batch) = (above.below("web"), above.below("batch"));
    let _running = [web.spawn(&format!("{spin} 60")), batch.spawn(&format!("{spin} 60"))];
    let server = Server::start(&["--cgroup", &above.path]);
    let target = |group: &Cgroup| of(CPU, &format!("path:{}", group.path));
    let (first, used) = (server.settled(|_| ()), [web.usage_ns(), batch.usage_ns()]);
    wait_until("they have run", || web.usage_ns() > used[0] + 1e9 && batch.usage_ns() > used[1] + 1e9);
    let (last, used_now) = (server.settled(|_| ()), [web.usage_ns(), batch.usage_ns()]);
    for (group, (before, now)) in [&web, &batch].into_iter().zip(used.into_iter().zip(used_now)) {
        let grown = (last[&target(group)] - first[&target(group)]) * 1e9;
        // A scrape is up to an interval old, on either side.
        assert_close(&group.path, grown, now - before, 0.02, 2.0 * INTERVAL.as_nanos() as f64);
    }
    assert!(last[&target(&above)].abs() < 1e-9, "nothing runs in it itself, and it was asked for");
    let waits = "pmbpf_runqueue_latency_seconds_count";
    let switches = "pmbpf_context_switches_total";
    assert!(
        all(&last, waits) > all(&first, waits) && all(&last, switches) > 0.0,
        "two share the CPUs with others"
    );
    assert_eq!(server.end(), Some(0), "SIGTERM is how a service ends");
}

fn increases_over_targets_that_come_and_go_are_what_the_kernel_accounts() {
    let above = Cgroup::new("churn");
    let spin = workload("spin", &["-g"]);
    let server = Server::start(&["--cgroup", &above.path, "--max-targets", "3", "--linger", "2s"]);
    let (mut last, before) = (server.settled(|_| ()), above.settled_usage_ns());
    let mut grown = 0.0;
    // Semantics of a metrics server: a new series has no growth, and a series that decreases has restarted.
    let mut see = |now: &BTreeMap<String, f64>| {
        for (key, value) in now.iter().filter(|(key, _)| key.starts_with(CPU)) {
            let earlier = last.get(key).copied();
            grown += earlier.map_or(0.0, |earlier| if *value < earlier { *value } else { *value - earlier });
        }
        let targets = now.keys().filter(|key| key.starts_with("pmbpf_target_info")).count();
        assert!(targets <= 3, "{now:?}");
        last.clone_from(now);
    };
    for round in 0..4 {
        let groups: Vec<Cgroup> = (0..3).map(|number| above.below(&format!("{round}-{number}"))).collect();
        let mut running: Vec<Started> =
            groups.iter().map(|group| group.spawn(&format!("{spin} 1.2"))).collect();
        server.settled(&mut see);
        running.iter_mut().for_each(|one| drop(one.wait()));
        drop(groups);
        server.settled(&mut see);
    }
    let used = above.settled_usage_ns() - before;
    assert_close("CPU time", grown * 1e9, used, 0.02, 20e6);
    assert!(used > 10e9, "{used}");
}

fn cgroups_that_come_and_go_between_readings_that_are_seconds_apart_are_not_lost() {
    let above = Cgroup::new("crowd");
    let server = Server::plain(pmbpf(), &["-I", "5s", "--no-io"]);
    let (begun, mut came) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(6) {
        let group = above.below(&came.to_string());
        group.spawn("true").wait();
        came += 1;
    }
    assert!(came > 200, "{came}");
    std::thread::sleep(Duration::from_secs(5));
    let losses: BTreeMap<String, f64> =
        server.scrape().into_iter().filter(|(key, _)| key.starts_with("pmbpf_losses_total")).collect();
    assert!(losses.values().all(|lost| *lost < 0.5), "{came} came: {losses:?}");
}

#[test]
fn nothing_but_metrics_is_answered_and_a_slow_client_is_in_nobodys_way() {
    let group = Cgroup::new("quiet");
    let server = Server::start(&["--cgroup", &group.path, "--no-io"]);
    let slow: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").unwrap();
            stream
        })
        .collect();
    assert!(server.get("/healthz").contains("\r\n\r\nok\n"));
    for (request, status) in [
        ("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "405"),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        ("GET /metrics HTTP/9.9\r\n\r\n", "400"),
        ("\x16\x03\x01\x02\r\n\r\n", "400"),
    ] {
        let answer = server.answer(request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")) || answer.is_empty(),
            "{request:?}: {answer}"
        );
    }
    let long = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(100_000));
    let mut stream = TcpStream::connect(server.address).unwrap();
    // The connection may be closed before all is written.
    let _ = stream.write_all(long.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || text(&answer).starts_with("HTTP/1.1 431"), "{}", text(&answer));
    let head = server.answer("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    signal(server.child.id(), "HUP");
    assert!(server.scrape()["pmbpf_counted_time_seconds_total"] > 0.0);
    drop(slow);
}

#[test]
fn whoever_answers_has_no_right_at_all() {
    let group = Cgroup::new("rights");
    let server = Server::start(&["--cgroup", &group.path]);
    let tasks = fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap().flatten();
    let held = tasks.map(|task| {
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
        };
        (field("Name:"), (field("CapPrm:"), field("Seccomp:")))
    });
    let held: BTreeMap<String, (String, String)> = held.collect();
    assert_eq!(held["http"], ("0000000000000000".to_owned(), "2".to_owned()), "{held:?}");
    // Mask of cap_bpf and cap_perfmon.
    assert_eq!(held["pmbpf"], ("000000c000000000".to_owned(), "2".to_owned()), "{held:?}");
}

#[test]
fn an_address_that_is_taken_is_named() {
    let group = Cgroup::new("taken");
    let server = Server::start(&["--cgroup", &group.path, "--no-io"]);
    let address = server.address.to_string();
    let other = pmbpf().args(["serve", "--listen", &address, "--cgroup", &group.path]).output().unwrap();
    assert_eq!(other.status.code(), Some(1));
    assert!(text(&other.stderr).contains(&format!("cannot listen at {address}")), "{}", text(&other.stderr));
}

// These tests wait for many readings, seconds apart.
nightly!(
    cgroups_that_come_and_go_between_readings_that_are_seconds_apart_are_not_lost,
    increases_over_targets_that_come_and_go_are_what_the_kernel_accounts
);
