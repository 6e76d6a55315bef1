//! Common helpers of live tests: pmbpf's rows, temporary cgroups, workloads built from C.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use pmbpf::{
    drain::{Drain, recording::Recording},
    machine::cgroup::Layout,
};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::schema;

/// Returns the binary as users get it: `cargo xtask test` builds it in release mode.
pub(crate) fn pmbpf() -> Command {
    let release = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/pmbpf");
    let built = std::env::var_os("PMBPF_BIN").map_or(release, PathBuf::from);
    assert!(built.is_file(), "{} is missing: run `cargo xtask test`", built.display());
    let mut command = Command::new(built);
    command.env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8").env_remove("SUDO_UID").stdin(Stdio::null());
    command
}

/// Returns the kernel's version.
pub(crate) fn linux() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Returns a unique name.
pub(crate) fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("pmbpf-test-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Temporary file, removed on drop.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(unique(name)))
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Parsed rows of a run.
pub(crate) struct Rows(pub(crate) Vec<Value>);

impl Rows {
    pub(crate) fn parse(text: &[u8]) -> Self {
        Self(schema::rows(std::str::from_utf8(text).unwrap()))
    }

    pub(crate) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |row| row["kind"] == kind)
    }

    pub(crate) fn summary(&self) -> &Value {
        self.of_kind("summary").next().expect("a summary row ends every run")
    }

    /// Returns a metric of the owners that match `is`, added up over them and over intervals.
    pub(crate) fn sum(&self, metric: &str, is: impl Fn(&Value) -> bool) -> f64 {
        let rows = self.of_kind("metric").filter(|row| row["metric"] == metric && is(&row["owner"]));
        rows.map(|row| row["value"].as_f64().unwrap_or_else(|| panic!("{metric} is missing: {row}"))).sum()
    }

    /// Returns the row of an event's samples or counters for owners that match `is`.
    pub(crate) fn event(&self, event: &str, is: impl Fn(&Value) -> bool) -> Option<&Value> {
        let metric = format!("event.{event}");
        self.of_kind("metric").find(|row| row["metric"] == metric.as_str() && is(&row["owner"]))
    }

    /// Returns a metric of everything counted.
    pub(crate) fn total(&self, metric: &str) -> f64 {
        self.sum(metric, |owner| owner["kind"] == "target")
    }

    /// Returns a metric of a cgroup, its subtree included.
    pub(crate) fn of_cgroup(&self, metric: &str, path: &str) -> f64 {
        let found = self.of_kind("metric").any(|row| row["owner"]["path"] == path);
        assert!(found, "no row for cgroup {path}");
        self.sum(metric, |owner| owner["path"] == path)
    }

    /// Returns a metric of the processes with this name.
    pub(crate) fn of_name(&self, metric: &str, name: &str) -> f64 {
        self.sum(metric, |owner| owner["name"] == name)
    }
}

/// Runs pmbpf to its end, which must succeed. Results come from stdout.
pub(crate) fn run(arguments: &[&str]) -> Rows {
    let output = output(arguments);
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    Rows::parse(&output.stdout)
}

/// Runs pmbpf with `--json` to its end.
pub(crate) fn output(arguments: &[&str]) -> Output {
    pmbpf().args(["run", "--json"]).args(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns whether the run that writes this recording counts yet, which is when it has a baseline.
pub(crate) fn counts(recording: &Scratch) -> bool {
    Recording::read(&recording.0).is_ok_and(|recording| !recording.drains.is_empty())
}

/// Background process of pmbpf, which counts by the time this exists.
pub(crate) struct Running {
    child: Child,
    recording: Scratch,
}

impl Running {
    /// Starts pmbpf and waits until it counts: it records the baseline as soon as it does.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let recording = Scratch::new("recording");
        let mut command = pmbpf();
        command.args(["run", "--json", "--quiet", "-o", recording.as_str()]).args(arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut running = Self { child, recording };
        wait_until("pmbpf counts", || {
            if let Some(status) = running.child.try_wait().unwrap() {
                panic!("pmbpf ended early: {status}: {}", running.errors());
            }
            counts(&running.recording)
        });
        running
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a drain of this kind in the recording.
    pub(crate) fn wait_for_drain(&self, what: &str, is_it: impl Fn(&Drain) -> bool) {
        wait_until(what, || {
            // Reading the recording takes a while, and a drain comes every second.
            std::thread::sleep(Duration::from_millis(200));
            Recording::read(&self.recording.0).is_ok_and(|recording| recording.drains.iter().any(&is_it))
        });
    }

    fn errors(&mut self) -> String {
        let mut errors = String::new();
        self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut errors));
        errors
    }

    /// Ends the run with SIGINT and returns its rows.
    pub(crate) fn stop(mut self) -> Rows {
        signal(self.pid(), "INT");
        self.collect()
    }

    /// Ends the run with SIGINT and returns its rows, and those of a report with these arguments on its
    /// recording.
    pub(crate) fn stop_and_replay(mut self, arguments: &[&str]) -> (Rows, Rows) {
        signal(self.pid(), "INT");
        let said = self.collect();
        let mut report = pmbpf();
        let report =
            report.args(["report", "--json", self.recording.as_str()]).args(arguments).output().unwrap();
        assert!(report.status.success(), "{}", text(&report.stderr));
        (said, Rows::parse(&report.stdout))
    }

    /// Waits for the end and returns the rows.
    pub(crate) fn finish(mut self) -> Rows {
        self.collect()
    }

    fn collect(&mut self) -> Rows {
        let mut rows = Vec::new();
        self.child.stdout.take().unwrap().read_to_end(&mut rows).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.errors());
        Rows::parse(&rows)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the attach methods that work on this kernel: as an option, and by pmbpf's name. Each kernel has at
/// least one.
pub(crate) fn ways() -> Vec<(&'static str, &'static str)> {
    let doctor = pmbpf().args(["doctor", "--json"]).output().unwrap();
    let Rows(rows) = Rows::parse(&doctor.stdout);
    let works = |name: &str| {
        let name = format!("programs ({name})");
        let check = rows.iter().find(|check| check["name"] == name.as_str());
        check.expect("doctor tries every way")["status"] == "ok"
    };
    let ways = [("tp-btf", "tp_btf"), ("raw-tp", "raw_tp")];
    let ways: Vec<_> = ways.into_iter().filter(|(_, name)| works(name)).collect();
    assert!(!ways.is_empty(), "{rows:?}");
    ways
}

/// Returns whether this runs in an emulator. Its CPUs stop whenever the host runs something else, which none
/// of their clocks shows.
pub(crate) fn in_guest() -> bool {
    std::env::var_os("PMBPF_GUEST").is_some()
}

/// Reports that a test cannot run here. `cargo xtask test --kernels` counts it as skipped.
pub(crate) fn skipped(why: &str) {
    let _ = writeln!(std::io::stdout(), "SKIPPED: {why}");
}

/// Sends a signal to a child process.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -{name} {pid}");
}

/// Waits for a condition of the kernel or of a child process.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Temporary cgroup. On drop its processes are ended, and it is removed with its subtree.
pub(crate) struct Cgroup {
    folder: PathBuf,
    /// Path from the hierarchy's root.
    pub(crate) path: String,
}

impl Cgroup {
    pub(crate) fn new(name: &str) -> Self {
        let mount = Layout::read(Path::new("/")).unwrap().v2.expect("a v2 hierarchy");
        let path = format!("/{}", unique(name));
        let folder = mount.join(&path[1..]);
        fs::create_dir(&folder).unwrap();
        Self { folder, path }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes a cgroup below this one, removed with it.
    pub(crate) fn below(&self, relative: &str) -> Self {
        let folder = self.folder.join(relative);
        fs::create_dir_all(&folder).unwrap();
        Self { folder, path: format!("{}/{relative}", self.path) }
    }

    /// Returns an existing cgroup below this one, removed with it.
    pub(crate) fn existing(&self, relative: &str) -> Self {
        Self { folder: self.folder.join(relative), path: format!("{}/{relative}", self.path) }
    }

    /// Returns `usage_usec` of `cpu.stat`, in ns.
    pub(crate) fn usage_ns(&self) -> f64 {
        usage_ns(&self.folder)
    }

    /// Returns the usage once it has stopped growing: a process runs on for a moment after its parent has
    /// been notified of its end.
    pub(crate) fn settled_usage_ns(&self) -> f64 {
        let mut last = self.usage_ns();
        loop {
            std::thread::sleep(Duration::from_millis(5));
            let now = self.usage_ns();
            if now.total_cmp(&last).is_eq() {
                return now;
            }
            last = now;
        }
    }

    pub(crate) fn enter(&self, pid: u32) {
        fs::OpenOptions::new()
            .write(true)
            .open(self.folder.join("cgroup.procs"))
            .and_then(|mut file| file.write_all(pid.to_string().as_bytes()))
            .unwrap();
    }

    /// Starts a command in the cgroup. Its shell enters while it waits, so that no time is spent half inside.
    /// The kernel's `cpu.stat` bills a running task's whole open slice to its cgroup at booking time.
    pub(crate) fn spawn(&self, command: &str) -> Started {
        let waiting = Waiting::new(command);
        self.enter(waiting.pid());
        waiting.go()
    }

    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir(&self.folder);
    }

    /// Removes the cgroup and makes another one with its path.
    pub(crate) fn make_again(&self) {
        wait_until("nobody is in it", || fs::remove_dir(&self.folder).is_ok());
        fs::create_dir(&self.folder).unwrap();
    }
}

/// Returns `usage_usec` of a cgroup's `cpu.stat`, in ns.
pub(crate) fn usage_ns(cgroup: &Path) -> f64 {
    let stat = fs::read_to_string(cgroup.join("cpu.stat")).unwrap();
    let line = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")).unwrap();
    line.parse::<f64>().unwrap() * 1e3
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Processes that still run there were started by the test. Before Linux 5.14 they end by themselves.
        let _ = fs::write(self.folder.join("cgroup.kill"), "1");
        let mut folders = vec![self.folder.clone()];
        let mut index = 0;
        while let Some(folder) = folders.get(index).cloned() {
            let inner = fs::read_dir(folder).into_iter().flatten().flatten();
            folders.extend(inner.map(|entry| entry.path()).filter(|path| path.is_dir()));
            index += 1;
        }
        for folder in folders.iter().rev() {
            // An exiting process still holds its cgroup for a moment.
            for _ in 0..100 {
                if fs::remove_dir(folder).is_ok() || !folder.exists() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Shell that sleeps, and starts nothing, until it is released to become a command.
pub(crate) struct Waiting(Child);

/// Prefix of `/proc/PID/syscall` in `read(0, …)`.
const READS: &str = if cfg!(target_arch = "aarch64") { "63 0x0 " } else { "0 0x0 " };

impl Waiting {
    pub(crate) fn new(command: &str) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("read go; exec {command}")]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = shell.process_group(0).spawn().unwrap();
        let file = format!("/proc/{}/syscall", child.id());
        wait_until("the shell waits", || fs::read_to_string(&file).unwrap().starts_with(READS));
        Self(child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn go(mut self) -> Started {
        self.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
        Started { child: self.0, is_reaped: false }
    }
}

/// Child process that is ended on drop with its descendants, which would otherwise be load in the next test.
pub(crate) struct Started {
    child: Child,
    /// Whether it has been reaped. Its number may then be another's.
    is_reaped: bool,
}

impl Started {
    /// Starts a shell command, which should `exec`.
    pub(crate) fn new(command: &str) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped());
        Self { child: shell.process_group(0).spawn().unwrap(), is_reaped: false }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end and returns the output.
    pub(crate) fn wait(&mut self) -> String {
        let mut printed = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        let status = self.child.wait().unwrap();
        self.is_reaped = true;
        assert!(status.success());
        printed
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.is_reaped {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

#[test]
fn what_a_process_of_ours_has_forked_ends_with_it() {
    let mut started = Started::new("sleep 60 & echo $!; wait");
    let mut line = String::new();
    BufReader::new(started.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let state = format!("/proc/{}/stat", line.trim());
    assert!(fs::exists(&state).unwrap());
    drop(started);
    // The first process reaps it.
    wait_until("it has ended", || fs::read_to_string(&state).map_or(true, |stat| stat.contains(") Z ")));
}

/// Asserts that two numbers are within a share of each other, or within an absolute distance.
#[track_caller]
pub(crate) fn assert_close(what: &str, ours: f64, truth: f64, share: f64, distance: f64) {
    let off = (ours - truth).abs();
    assert!(off <= truth.abs() * share || off <= distance, "{what}: {ours} is not {truth} (off by {off})");
}

/// Returns the possible lag of a running task's time in ns: the kernel's tick, which is late where an
/// emulator's CPU stands still.
pub(crate) fn tick_ns() -> f64 {
    if in_guest() { 200e6 } else { 10e6 }
}
