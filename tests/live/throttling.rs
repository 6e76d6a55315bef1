//! Limits of CPU time: throttled time does not count as waiting for a CPU, and the finding names the limit.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use pmbpf::machine::cgroup::Layout;
use serde_json::Value;

use crate::{
    findings::WithLimits,
    support::{Cgroup, Rows, Running, Scratch, assert_close, skipped, wait_until, ways},
    workloads::workload,
};

/// CPU on which everything runs.
const CPU: &str = "1";

/// Cgroup that is limited to 20 ms of CPU time in each 100 ms, in the hierarchy that limits CPU time on this
/// host.
pub(crate) struct Limited {
    pub(crate) group: Cgroup,
    /// Folder of the limit, in a v1 hierarchy or of the v2 cgroup.
    folder: PathBuf,
    is_v1: bool,
    _limits: Option<WithLimits>,
}

impl Limited {
    pub(crate) fn new() -> Option<Self> {
        let layout = Layout::read(Path::new("/")).unwrap();
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        let group = Cgroup::new("quota");
        if v1.join("cpu.stat").exists() {
            let folder = v1.join(&group.path[1..]);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("cpu.cfs_quota_us"), "20000").unwrap();
            return Some(Self { group, folder, is_v1: true, _limits: None });
        }
        if !layout.limits_cpu_time() {
            return None;
        }
        let limits = WithLimits::new(&group);
        let folder = group.folder().to_owned();
        fs::write(folder.join("cpu.max"), "20000 100000").unwrap();
        Some(Self { group, folder, is_v1: false, _limits: Some(limits) })
    }

    /// Returns the kernel's throttled time so far, in ns.
    pub(crate) fn throttled_ns(&self) -> f64 {
        let stat = fs::read_to_string(self.folder.join("cpu.stat")).unwrap();
        let value = |name| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        value("throttled_time ").or_else(|| Some(value("throttled_usec ")? * 1e3)).unwrap()
    }

    /// Starts a spinner that records its `run_delay` and then enters the counted cgroup, and after that the
    /// limited one. No throttled time is counted by one side alone. The shell reads it with built-ins,
    /// because another program would use the limit's time.
    pub(crate) fn spin(&self, seconds: &str) -> Spinner {
        let before = Scratch::new("run_delay");
        let script = format!(
            "read -r delay < /proc/$$/schedstat; echo \"$delay\" > {}; echo $$ > {}/cgroup.procs; echo $$ > {}/cgroup.procs; \
             exec {} {seconds}",
            before.as_str(),
            self.group.folder().display(),
            self.folder.display(),
            workload("spin", &["-g"]),
        );
        let mut command = Command::new("taskset");
        command.args(["-c", CPU, "sh", "-c", &script]).stdin(Stdio::null()).process_group(0);
        Spinner { child: command.spawn().unwrap(), before }
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        if self.is_v1 {
            wait_until("nothing is in the cgroup", || {
                fs::remove_dir(&self.folder).is_ok() || !self.folder.exists()
            });
        }
    }
}

pub(crate) struct Spinner {
    child: Child,
    before: Scratch,
}

impl Spinner {
    /// Waits for the end and returns the kernel's time in ns that it was runnable but did not run. The wait
    /// before it entered the cgroup is subtracted.
    pub(crate) fn run_delay_ns(&mut self) -> f64 {
        let path = format!("/proc/{}/schedstat", self.child.id());
        let state = format!("/proc/{}/stat", self.child.id());
        wait_until("it has ended", || fs::read_to_string(&state).unwrap().contains(") Z "));
        let delay = |text: String| text.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap();
        let whole = delay(fs::read_to_string(path).unwrap());
        assert!(self.child.wait().unwrap().success());
        whole - delay(fs::read_to_string(&self.before.0).unwrap())
    }
}

fn waited_ns(rows: &Rows, path: &str) -> f64 {
    let mut waits = rows.of_kind("histogram").filter(|row| row["owner"]["path"] == path);
    waits.next().unwrap_or_else(|| panic!("no waits of {path}"))["sum"].as_f64().unwrap()
}

/// Returns whether throttled time is known here. It is not where programs are attached by address and the
/// kernel has no clock of it.
fn is_known(rows: &Rows) -> bool {
    let row = rows.of_kind("metric").find(|row| row["metric"] == "off_cpu.throttled").unwrap();
    !row["value"].is_null()
}

#[test]
fn run_queue_time_is_what_the_scheduler_says_less_what_a_limit_took() {
    for (way, name) in ways() {
        for asks in [&["--off-cpu"][..], &[]] {
            let Some(limited) = Limited::new() else { return skipped("no hierarchy limits CPU time here") };
            let path = limited.group.path.clone();
            let running =
                Running::start(&[&["--attach", way, "--no-sampling", "--cgroup", &path], asks].concat());
            let before_ns = limited.throttled_ns();
            let run_delay_ns = limited.spin("0.3").run_delay_ns();
            let throttled_ns = limited.throttled_ns() - before_ns;
            let (rows, replayed) = running.stop_and_replay(&[]);
            assert!(throttled_ns > 5e8, "{throttled_ns}");
            if !asks.is_empty() && !is_known(&rows) {
                assert_eq!(name, "raw_tp", "by type it is known on every kernel");
                break;
            }
            for rows in [&rows, &replayed] {
                let waited_ns = waited_ns(rows, &path);
                // 1 % of the time that was split, and the lag of the scheduler's clock at the few switches of
                // the start.
                let distance = 0.01 * run_delay_ns + 2e6;
                assert_close("run queue", waited_ns, run_delay_ns - throttled_ns, 0.01, distance);
                let culprits = rows.of_kind("culprit").filter(|row| row["owner"]["path"] == path.as_str());
                let charged: f64 = culprits.map(|row| row["wait_ns"].as_f64().unwrap()).sum();
                assert_close("charged", charged, waited_ns, 1e-6, 1.0);
            }
        }
    }
}

#[test]
fn of_several_tasks_each_waits_for_the_others_and_not_for_the_limit() {
    let Some(limited) = Limited::new() else { return skipped("no hierarchy limits CPU time here") };
    let path = limited.group.path.clone();
    let running = Running::start(&["--no-sampling", "--off-cpu", "--cgroup", &path]);
    let mut spinners = [(); 3].map(|()| limited.spin("0.1"));
    let run_delay_ns: f64 = spinners.iter_mut().map(Spinner::run_delay_ns).sum();
    let rows = running.stop();
    let time = |kind: &str| rows.of_cgroup(&format!("off_cpu.{kind}"), &path);
    if !is_known(&rows) {
        return skipped("attached by address, this kernel does not say what a limit takes");
    }
    let (run_queue_ns, throttled_ns) = (time("run_queue"), time("throttled"));
    assert_close("both", run_queue_ns + throttled_ns, run_delay_ns, 0.01, 5e6);
    // Each stands still for most of every period. All three together exceed the kernel's time of the one run
    // queue.
    assert!(throttled_ns > 1.5 * limited.throttled_ns(), "{throttled_ns} {}", limited.throttled_ns());
    assert_close("waits", waited_ns(&rows, &path), run_queue_ns, 0.001, 1e5);
}

#[test]
fn a_limit_of_cpu_time_is_found_by_its_file_and_no_neighbour_is_blamed() {
    let Some(limited) = Limited::new() else { return skipped("no hierarchy limits CPU time here") };
    let path = limited.group.path.clone();
    let running = Running::start(&["--off-cpu", "--cgroup", &path]);
    let before_ns = limited.throttled_ns();
    let run_delay_ns = limited.spin("0.4").run_delay_ns();
    let waited_ns = run_delay_ns - (limited.throttled_ns() - before_ns);
    let (rows, replayed) = running.stop_and_replay(&[]);
    let file = if limited.is_v1 { "cpu.cfs_quota_us" } else { "cpu.max" };
    for rows in [&rows, &replayed] {
        if !is_known(rows) {
            return skipped("this kernel does not say what a limit takes");
        }
        let found: Vec<&Value> = rows.of_kind("finding").collect();
        assert_eq!(found[0]["finding"], "throttled", "{found:?}");
        assert_eq!(found[0]["owner"]["path"], path.as_str(), "{found:?}");
        let says = found[0]["says"].as_str().unwrap();
        assert!(says.contains(&format!("{file} of 20.0 ms every 100 ms")), "{says}");
        // On a busy host it waits for a CPU, too, but not for longer than its wait apart from the limit.
        let waits = found.iter().filter(|finding| finding["finding"] == "cpu_wait");
        for evidence in waits.flat_map(|finding| finding["evidence"].as_array().unwrap()) {
            if evidence["metric"] == "runqueue_latency.sum" {
                let sum = evidence["value"].as_f64().unwrap();
                assert!(sum < waited_ns + 0.01 * run_delay_ns + 2e6, "{sum} of {waited_ns}: {found:?}");
            }
        }
    }
}
