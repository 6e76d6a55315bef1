//! Containers with their own PID, mount and cgroup namespaces, measured from inside and from the host. Both
//! agree with perf and with the kernel's accounts.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

use crate::{
    io::{Loop, bytes, can_run, moved},
    podman::Podman,
    serve::Server,
    support::{
        Cgroup, Rows, Running, Scratch, assert_close, pmbpf, run, signal, skipped, text, unique, wait_until,
    },
    workloads::workload,
};

/// Folder of pmbpf and the workload in the container.
const WORK: &str = "/work";

/// Privileged container that sleeps. It is removed on drop together with podman's storage.
struct Container {
    podman: Podman,
    name: String,
}

impl Container {
    /// Starts a container, or returns `None` with a message where podman, runc or perf is missing or podman
    /// cannot start anything.
    fn start() -> Option<Self> {
        let container = Self { podman: Podman::new(&["podman", "runc", "perf"])?, name: unique("container") };
        container.make_folders();
        let binary = PathBuf::from(pmbpf().get_program()).canonicalize().unwrap();
        let mut command = container.podman.command();
        command.args(["run", "--detach", "--privileged", "--network", "none", "--cgroups", "no-conmon"]);
        command.args(["--name", &container.name, "--cgroup-parent", &container.cgroup().path]);
        for (from, to) in [(binary, "pmbpf"), (PathBuf::from(workload("spin", &["-g"])), "spin")] {
            command.arg("--volume").arg(format!("{}:{WORK}/{to}:ro", from.display()));
        }
        for folder in system_folders().into_iter().filter(|(_, link)| link.is_none()) {
            command.arg("--volume").arg(format!("/{0}:/{0}:ro", folder.0));
        }
        command.arg("--rootfs").arg(container.podman.folder.join("root")).args(["sleep", "600"]);
        let started = command.output().unwrap();
        if !started.status.success() {
            skipped(&format!("podman starts nothing here: {}", text(&started.stderr)));
            return None;
        }
        Some(container)
    }

    fn make_folders(&self) {
        let make = |path: &str| fs::create_dir_all(self.podman.folder.join(path)).unwrap();
        for folder in ["proc", "sys", "dev", "tmp", "etc", "work"] {
            make(&format!("root/{folder}"));
        }
        for (folder, link) in system_folders() {
            match link {
                Some(target) => symlink(target, self.podman.folder.join("root").join(folder)).unwrap(),
                None => make(&format!("root/{folder}")),
            }
        }
    }

    /// Returns the cgroup above everything that runs in the container.
    fn cgroup(&self) -> &Cgroup {
        &self.podman.cgroup
    }

    /// Runs a shell script in the container, with `$PMBPF` and `$SPIN`.
    fn shell(&self, script: &str) -> Output {
        let mut command = self.podman.command();
        command.arg("exec").arg("--env").arg(format!("PMBPF={WORK}/pmbpf"));
        command.arg("--env").arg(format!("SPIN={WORK}/spin"));
        command.args([&self.name, "sh", "-c", script]).output().unwrap()
    }

    /// Runs a script that must succeed, and returns its output.
    fn prints(&self, script: &str) -> String {
        let output = self.shell(script);
        assert!(output.status.success(), "{script}: {}: {}", output.status, text(&output.stderr));
        text(&output.stdout)
    }

    fn rows(&self, script: &str) -> Rows {
        Rows::parse(self.prints(script).as_bytes())
    }

    /// Starts `$SPIN` and returns its id in the container and on the host.
    fn spins(&self) -> (u64, u32) {
        let inside = self.prints("$SPIN 600 > /dev/null 2>&1 & echo $!").trim().parse().unwrap();
        let is_ours = |id: &u32| {
            let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
            let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
            ids.split_whitespace().last().and_then(|id| id.parse().ok()) == Some(inside)
        };
        let host = self.processes().into_iter().find(is_ours).expect("the host has it, too");
        (inside, host)
    }

    /// Returns the host's ids of the container's processes.
    fn processes(&self) -> Vec<u32> {
        let below = fs::read_dir(self.cgroup().folder()).unwrap().flatten().map(|entry| entry.path());
        let lists = below.filter_map(|path| fs::read_to_string(path.join("cgroup.procs")).ok());
        lists.collect::<String>().lines().map(|id| id.parse().unwrap()).collect()
    }
}

/// Returns the folders with the host's programs, and the targets of those that are links.
fn system_folders() -> Vec<(&'static str, Option<PathBuf>)> {
    let there =
        ["usr", "bin", "sbin", "lib", "lib64"].into_iter().filter(|name| Path::new("/").join(name).exists());
    there.map(|name| (name, fs::read_link(Path::new("/").join(name)).ok())).collect()
}

fn is_process(id: impl Into<u64>) -> impl Fn(&Value) -> bool {
    let id = id.into();
    move |owner| owner["kind"] == "process" && owner["pid"] == id
}

fn names(rows: &Rows) -> Vec<&Value> {
    rows.of_kind("hot").map(|row| &row["frame"]["function"]).collect()
}

/// Returns the CPU time of a process's live threads, in ns.
fn cpu_time_ns(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// Returns the task clock of `perf stat -x,`, which reports milliseconds, in ns.
pub(crate) fn task_clock_ns(report: &str) -> f64 {
    let line = report.lines().find(|line| line.contains("task-clock")).unwrap_or_else(|| panic!("{report}"));
    line.split(',').next().unwrap().parse::<f64>().unwrap() * 1e6
}

#[test]
fn a_command_in_a_container_takes_what_perf_and_the_host_say() {
    let Some(container) = Container::start() else { return };
    let path = container.cgroup().path.clone();
    let outside = Running::start(&["--cgroup", &path, "--by", "process"]);
    let before = container.cgroup().settled_usage_ns();
    let script = "$PMBPF run --json --quiet -o - -- perf stat -x, -o /tmp/perf -e task-clock -- $SPIN 0.5";
    let inside = container.rows(script);
    let perf = task_clock_ns(&container.prints("cat /tmp/perf"));
    let usage = container.cgroup().settled_usage_ns() - before;
    let outside = outside.stop();
    let ours = inside.of_name("cpu_time", "spin");
    // perf's clock runs on while a hypervisor has the CPU.
    assert_close("perf", ours, perf, 0.1, 30e6);
    assert_close("the same from the host", ours, outside.of_name("cpu_time", "spin"), 0.02, 20e6);
    assert_close("all of it, and cpu.stat", outside.total("cpu_time"), usage, 0.02, 30e6);
    for rows in [&inside, &outside] {
        assert!(names(rows).iter().any(|name| *name == "hot_leaf"), "{:?}", names(rows));
        assert!(rows.summary()["losses"]["target_unseen"].is_null(), "{}", rows.summary());
    }
}

#[test]
fn a_process_in_a_container_has_its_id_inside_and_another_outside() {
    let Some(container) = Container::start() else { return };
    let (inside, host) = container.spins();
    assert_ne!(inside, u64::from(host));
    let before = cpu_time_ns(host);
    for option in ["-p", "-t"] {
        let begun = cpu_time_ns(host);
        let rows = container.rows(&format!("$PMBPF run --json --quiet -d 1s {option} {inside}"));
        let (ours, most) = (rows.sum("cpu_time", is_process(inside)), cpu_time_ns(host) - begun);
        assert!(ours > 0.05e9 && ours < most + 20e6, "{option}: {ours} of {most}");
        assert!(names(&rows).iter().any(|name| *name == "hot_leaf"), "{option}: {:?}", names(&rows));
    }
    let rows = run(&["--quiet", "-d", "1s", "-p", &host.to_string()]);
    let (ours, most) = (rows.sum("cpu_time", is_process(host)), cpu_time_ns(host) - before);
    assert!(ours > 0.05e9 && ours < most, "{ours} of {most}");
    // The executable exists only in the container's mounts.
    assert!(names(&rows).iter().any(|name| *name == "hot_leaf"), "{:?}", names(&rows));
    signal(host, "KILL");
}

#[test]
fn a_containers_cgroup_is_the_hosts_name_for_it() {
    let Some(container) = Container::start() else { return };
    let (_, host) = container.spins();
    let entry = fs::read_to_string(format!("/proc/{host}/cgroup")).unwrap();
    let path = entry.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
    assert!(path.starts_with(&container.cgroup().path), "{path}");
    let running = Running::start(&["--all-cgroups"]);
    let before = container.cgroup().usage_ns();
    wait_until("it has run", || container.cgroup().usage_ns() > before + 300e6);
    let rows = running.stop();
    let after = container.cgroup().usage_ns();
    let ours = rows.of_cgroup("cpu_time", path);
    assert!(ours > 300e6 && ours < after, "{ours}");
    assert_close("above it", rows.of_cgroup("cpu_time", &container.cgroup().path), ours, 0.01, 5e6);
    signal(host, "KILL");
}

#[test]
fn io_of_a_command_in_a_container_is_its_own_inside_and_its_cgroups_outside() {
    if !can_run() {
        return;
    }
    let device = Loop::new("container", 64 << 20);
    let Some(container) = Container::start() else { return };
    let ready = Scratch::new("ready");
    let path = container.cgroup().path.clone();
    let script = format!(
        "exec \"$0\" io --json --quiet --duration 60 --cgroup {path} --ready-fd 3 3>{}",
        ready.as_str()
    );
    let mut outside = Command::new("sh");
    outside.args(["-c", &script]).arg(pmbpf().get_program()).stdin(Stdio::null()).stdout(Stdio::piped());
    let outside = outside.spawn().unwrap();
    wait_until("it counts", || fs::read_to_string(&ready.0).is_ok_and(|line| line == "counting\n"));
    let read = format!("dd if={} of=/dev/null bs=64k count=512 iflag=direct", device.path());
    let inside = container.rows(&format!("$PMBPF io --json --quiet -o - -- {read}"));
    signal(outside.id(), "INT");
    let outside = outside.wait_with_output().unwrap();
    assert!(outside.status.success(), "{}", outside.status);
    let outside = Rows::parse(&outside.stdout);
    let all = |rows: &Rows, is: &dyn Fn(&Value) -> bool| -> f64 { moved(rows, &device, is).map(bytes).sum() };
    let truth = 512.0 * 65536.0;
    let is_dd = |owner: &Value| {
        owner["name"] == "dd"
            && owner["host_pid"].is_null()
            && owner["pid"].as_u64().is_some_and(|id| id < 1000)
    };
    assert_close("inside", all(&inside, &is_dd), truth, 0.02, 0.0);
    // The row includes the subtree.
    let is_its = |owner: &Value| owner["path"] == path.as_str();
    assert_close("outside", all(&outside, &is_its), truth, 0.02, 0.0);
}

#[test]
fn doctor_in_a_container_says_what_works_there() {
    let Some(container) = Container::start() else { return };
    // `doctor` exits with 0, so pmbpf can run there.
    let report = container.rows("$PMBPF doctor --json");
    let check = |name: &str| {
        let mut checks = report.of_kind("doctor");
        checks.find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name}: {:?}", report.0))
    };
    let ids = check("process ids")["found"].as_str().unwrap();
    assert!(ids.contains("ids are those of this namespace"), "{ids}");
    assert_eq!(check("io programs (block)")["status"], "ok");
    // Runs agree with `doctor`: without a mounted hierarchy in the container, packet programs cannot be
    // attached.
    let packets = check("io programs (packets)")["status"] == "ok";
    let io = container.rows("$PMBPF io --json --quiet -d 200ms");
    let missing = io.summary()["missing"].as_array().unwrap();
    assert_eq!(missing.iter().any(|missing| missing["what"] == "packets"), !packets, "{missing:?}");
}

#[test]
fn a_container_is_found_and_shown_by_its_name() {
    let Some(container) = Container::start() else { return };
    let (_, host) = container.spins();
    let name = container.name.as_str();
    let running = Running::start(&["--cgroup", name]);
    let before = container.cgroup().usage_ns();
    wait_until("it has run", || container.cgroup().usage_ns() > before + 500e6);
    let (rows, replayed) = running.stop_and_replay(&[]);
    let after = container.cgroup().usage_ns();
    for rows in [&rows, &replayed] {
        let is_its =
            |owner: &Value| owner["container"]["name"] == name && owner["container"]["inside"].is_null();
        let of_it: Vec<&Value> =
            rows.of_kind("metric").map(|row| &row["owner"]).filter(|owner| is_its(owner)).collect();
        let owner = of_it.first().unwrap_or_else(|| panic!("no row of {name}: {:?}", rows.0));
        assert_eq!(
            (&owner["container"]["runtime"], &owner["called"]),
            (&"podman".into(), &name.into()),
            "{owner}"
        );
        assert!(
            owner["path"].as_str().unwrap().contains(owner["container"]["id"].as_str().unwrap()),
            "{owner}"
        );
        let ours = rows.sum("cpu_time", is_its);
        assert!(ours > 500e6 && ours < after - before + 400e6, "{ours} of {}", after - before);
    }
    let typed = run(&["-d", "300ms", "--cgroup", &format!("podman:{name}")]);
    assert!(typed.sum("cpu_time", |owner| owner["container"]["name"] == name) > 50e6);
    let shown = pmbpf().args(["run", "-d", "300ms", "--cgroup", name]).output().unwrap();
    assert!(text(&shown.stdout).contains(&format!("  {name}")), "{}", text(&shown.stdout));
    is_served(&container);
    signal(host, "KILL");
    drop(container.podman.run(&["rm", "--force", "--time", "0", name]));
    let gone = pmbpf().args(["run", "-d", "300ms", "--cgroup", name]).output().unwrap();
    assert_eq!(gone.status.code(), Some(2), "{}", text(&gone.stderr));
    assert!(text(&gone.stderr).contains(&format!("no cgroup `{name}`")), "{}", text(&gone.stderr));
}

/// Asserts the series that `pmbpf serve` exposes for the container: its name, and the kernel's accounts.
fn is_served(container: &Container) {
    let server = Server::start(&["--cgroup", &container.cgroup().path]);
    let target = format!("podman:{}", container.name);
    let key = format!("pmbpf_cpu_time_seconds_total{{target=\"{target}\"}}");
    let (first, before) = (server.scrape()[&key], container.cgroup().usage_ns());
    wait_until("it has run", || container.cgroup().usage_ns() > before + 2e9);
    let (last, after) = (server.scrape(), container.cgroup().usage_ns());
    // A scrape is up to half a second old, on either side.
    assert_close("CPU time", (last[&key] - first) * 1e9, after - before, 0.01, 1e9);
    let info =
        last.keys().find(|key| key.starts_with("pmbpf_target_info{") && key.contains(&target)).unwrap();
    let name = &container.name;
    assert!(
        info.contains("runtime=\"podman\"") && info.contains(&format!("container_name=\"{name}\"")),
        "{info}"
    );
}

/// Scripts of finite and of endless work.
pub(crate) const WORK_ONCE: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
const WORK_ALWAYS: &str = "while :; do :; done";

/// Returns the cgroup of a container, by its id.
pub(crate) fn cgroup_of(podman: &Podman, id: &str) -> Cgroup {
    podman.cgroup.existing(&format!("libpod-{id}"))
}

#[test]
fn containers_of_an_image_are_found_by_name_and_a_restart_is_followed() {
    let Some(podman) = Podman::new(&["podman", "runc"]) else { return };
    if podman.make_image().is_none() {
        return;
    }
    let name = |name: &str| unique(name);
    let (web, batch, front, pod) = (name("web"), name("batch"), name("front"), name("shop"));
    podman.prints(&["pod", "create", "--name", &pod, "--infra=false", "--share", "none"]);
    let ids = [
        podman.start(&web, &[], "exec /bin/busybox sleep 600"),
        podman.start(&batch, &[], WORK_ALWAYS),
        podman.start(&front, &["--pod", &pod], WORK_ALWAYS),
    ];
    let cgroup = cgroup_of(&podman, &ids[0]);
    // Work in each life, finished when it is read.
    let running = Running::start(&["--cgroup", &web]);
    let before = cgroup.settled_usage_ns();
    let work = || podman.prints(&["exec", &web, "/bin/busybox", "sh", "-c", WORK_ONCE]);
    work();
    let stats = || podman.prints(&["stats", "--no-stream", "--format", "{{.CPUNano}}", &web]);
    let (first, of_podman) = (cgroup.settled_usage_ns(), stats().parse::<f64>().unwrap());
    assert_close("podman's number", of_podman, first, 0.02, 20e6);
    podman.prints(&["restart", "--time", "0", &web]);
    work();
    let second = cgroup.settled_usage_ns();
    let rows = running.stop();
    let called = |name: &str| {
        let name = name.to_owned();
        move |owner: &Value| owner["called"] == name.as_str()
    };
    assert!(first > 50e6 && second > 50e6, "{first} {second}");
    assert_close("both lives", rows.sum("cpu_time", called(&web)), first - before + second, 0.01, 10e6);
    let all = run(&["-d", "1s", "--all-cgroups"]);
    for name in [&batch, &front] {
        assert!(all.sum("cpu_time", called(name)) > 50e6, "{name}");
    }
    // Two of one name: the other is of another runtime's kind, the unit that systemd would have.
    let unit = podman.cgroup.below(&format!("{batch}.service"));
    let two = pmbpf().args(["run", "-d", "300ms", "--cgroup", &batch]).output().unwrap();
    let said = text(&two.stderr);
    assert_eq!(two.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("unit:{batch}.service")) && said.contains("podman:"), "{said}");
    drop(unit);
    podman.prints(&["rm", "--force", "--time", "0", &batch]);
    let gone = pmbpf().args(["run", "-d", "300ms", "--cgroup", &format!("podman:{batch}")]).output().unwrap();
    assert_eq!(gone.status.code(), Some(2), "{}", text(&gone.stderr));
}
