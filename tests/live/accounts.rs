//! Kernel accounting of cgroups as `pmbpf serve` exposes it by target: equal to the kernel's own files.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use pmbpf::machine::cgroup::Layout;

use crate::{
    findings::WithLimits,
    serve::Server,
    support::{Cgroup, Started, assert_close, skipped, wait_until},
    throttling::Limited,
};

fn of(samples: &BTreeMap<String, f64>, family: &str, group: &Cgroup) -> Option<f64> {
    samples.get(&format!("pmbpf_cgroup_{family}{{target=\"path:{}\"}}", group.path)).copied()
}

/// Returns the number after a name in a cgroup file.
fn number(file: &Path, name: &str) -> f64 {
    let text = fs::read_to_string(file).unwrap();
    let line = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    text.lines().find_map(line).unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[test]
fn throttled_time_and_pressure_of_a_target_are_what_the_kernels_files_say() {
    let Some(limited) = Limited::new() else { return skipped("no hierarchy limits CPU time here") };
    let group = &limited.group;
    // Run delay from before serving, which must not be counted.
    limited.spin("0.1").run_delay_ns();
    let server = Server::start(&["--cgroup", &group.path, "--no-io"]);
    let pressure = group.folder().join("cpu.pressure");
    let stalled_us = || -> f64 {
        let text = fs::read_to_string(&pressure).unwrap();
        let some = text.lines().find(|line| line.starts_with("some")).unwrap();
        some.rsplit_once("total=").unwrap().1.parse().unwrap()
    };
    let before = (limited.throttled_ns(), stalled_us());
    let first = server.settled(|_| ());
    let throttled = |samples| of(samples, "cpu_throttled_seconds_total", group);
    assert!(throttled(&first).unwrap().abs() < 1e-9, "{first:?}");
    limited.spin("0.3").run_delay_ns();
    let last = server.settled(|_| ());
    let grown_ns = limited.throttled_ns() - before.0;
    assert!(grown_ns > 5e8, "{grown_ns}");
    assert_close("throttled", throttled(&last).unwrap() * 1e9, grown_ns, 0.0, 1e3);
    let stalled = of(&last, "pressure_cpu_some_seconds_total", group).unwrap();
    assert_close("pressure", stalled * 1e6, stalled_us() - before.1, 0.0, 1e5);
    let periods = of(&last, "cpu_periods_total", group).unwrap();
    let held = of(&last, "cpu_throttled_periods_total", group).unwrap();
    assert!(held > 3.0 && periods >= held, "{periods} {held}");
    assert!(!last.keys().any(|key| key.starts_with("pmbpf_cgroup_") && key.contains("_other")), "{last:?}");
    assert!(last["pmbpf_cgroup_accounts_left_out"].abs() < 1e-9);
}

/// Cgroup with a limit of 16 MiB, in the hierarchy that accounts memory on this host.
struct Small {
    group: Cgroup,
    folder: PathBuf,
    is_v1: bool,
    running: Option<Started>,
    _limits: Option<WithLimits>,
}

const LIMIT: &str = "16777216";

impl Small {
    fn new() -> Option<Self> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let group = Cgroup::new("small");
        if v1.join("memory.usage_in_bytes").exists() {
            let folder = v1.join(&group.path[1..]);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("memory.limit_in_bytes"), LIMIT).unwrap();
            return Some(Self { group, folder, is_v1: true, running: None, _limits: None });
        }
        let controllers = Layout::read(Path::new("/")).unwrap().v2?.join("cgroup.controllers");
        if !fs::read_to_string(controllers).ok()?.contains("memory") {
            return None;
        }
        let limits = WithLimits::new(&group);
        let folder = group.folder().to_owned();
        fs::write(folder.join("memory.max"), LIMIT).unwrap();
        Some(Self { group, folder, is_v1: false, running: None, _limits: Some(limits) })
    }

    fn file(&self, v1: &str, v2: &str) -> PathBuf {
        self.folder.join(if self.is_v1 { v1 } else { v2 })
    }

    fn bytes(&self) -> f64 {
        number(&self.file("memory.usage_in_bytes", "memory.current"), "")
    }

    fn killed(&self) -> f64 {
        number(&self.file("memory.oom_control", "memory.events"), "oom_kill ")
    }

    /// Runs a command in the cgroup and keeps its shell there for a minute.
    fn run(&mut self, command: &str) {
        let enter = format!("echo $$ > {}/cgroup.procs", self.folder.display());
        self.running = Some(self.group.spawn(&format!("sh -c '{enter}; {command}; exec sleep 60'")));
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        drop(self.running.take());
        if self.is_v1 {
            wait_until("nothing is in the cgroup", || {
                fs::remove_dir(&self.folder).is_ok() || !self.folder.exists()
            });
        }
    }
}

#[test]
fn memory_of_a_target_and_who_was_killed_for_it_are_what_the_kernels_files_say() {
    let Some(mut small) = Small::new() else { return skipped("no hierarchy accounts memory here") };
    let server = Server::start(&["--cgroup", &small.group.path, "--no-io"]);
    server.settled(|_| ());
    small.run("dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null");
    wait_until("a process is killed", || small.killed() > 0.5);
    wait_until("its memory rests", || {
        let bytes = small.bytes();
        std::thread::sleep(std::time::Duration::from_millis(300));
        (bytes - small.bytes()).abs() < 1.0
    });
    let last = server.settled(|_| ());
    let value = |family| of(&last, family, &small.group).unwrap_or_else(|| panic!("no {family}: {last:?}"));
    assert_close("memory", value("memory_bytes"), small.bytes(), 0.0, 65536.0);
    assert_close("limit", value("memory_limit_bytes"), LIMIT.parse().unwrap(), 0.0, 0.5);
    // Available since Linux 5.19, and in v1.
    if small.is_v1 || small.folder.join("memory.peak").exists() {
        assert!(value("memory_peak_bytes") >= 0.9 * LIMIT.parse::<f64>().unwrap(), "{last:?}");
    }
    assert_close("killed", value("memory_oom_kill_events_total"), small.killed(), 0.0, 0.1);
    assert!(value("memory_max_events_total") >= 1.0, "{last:?}");
}
