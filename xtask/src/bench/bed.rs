//! Test bed of the benches: workloads built from C, separate cgroups, and collectors that are started and
//! stopped.

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use wait4::Wait4 as _;

use super::figure::Spread;
use crate::command::{output, root, run};

/// Time after which a collector has settled. In its first second pmbpf measures its programs' cost, at a
/// cost, and bpftrace compiles its own.
const SETTLE: Duration = Duration::from_millis(1300);

/// Workloads that benches run.
const WORKLOADS: [&str; 3] = ["chunks", "pingpong", "calls"];

/// Paths and settings of the benches.
pub(super) struct Bed {
    pub(super) pmbpf: PathBuf,
    pub(super) planner: PathBuf,
    pub(super) io: PathBuf,
    pub(super) uncore: PathBuf,
    pub(super) rounds: u32,
    pub(super) cpus: usize,
    folder: PathBuf,
}

impl Bed {
    /// Returns a bed on the programs that were built: pmbpf, and the benches of the planner, of I/O and of
    /// uncore PMUs.
    pub(super) fn new([pmbpf, planner, io, uncore]: [PathBuf; 4], rounds: u32) -> anyhow::Result<Self> {
        let folder = root().join("target/bench");
        fs::create_dir_all(&folder)?;
        for name in WORKLOADS {
            let source = root().join(format!("tests/workloads/{name}.c"));
            let mut compiler = Command::new("cc");
            compiler.args(["-O1", "-g", "-fno-omit-frame-pointer", "-o"]).arg(folder.join(name)).arg(source);
            run(&mut compiler).context("the benches need a C compiler, cc")?;
        }
        Ok(Self { pmbpf, planner, io, uncore, rounds, cpus: thread::available_parallelism()?.get(), folder })
    }

    /// Returns the path of a file for a collector to write.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the command of a workload of tests/workloads.
    pub(super) fn workload(&self, name: &str) -> Command {
        debug_assert!(WORKLOADS.contains(&name), "{name} is built with the others");
        Command::new(self.folder.join(name))
    }

    /// Returns the command `pmbpf run --quiet` with these arguments.
    pub(super) fn pmbpf(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.pmbpf);
        command.args(["run", "--quiet"]).args(arguments);
        command
    }

    /// Measures one value per side in every round, and returns the values by side. Every other round runs the
    /// sides in reverse.
    pub(super) fn interleave<S: Copy>(
        &self,
        sides: &[S],
        mut measure: impl FnMut(S) -> anyhow::Result<f64>,
    ) -> anyhow::Result<Vec<Vec<f64>>> {
        let mut values = vec![Vec::new(); sides.len()];
        for round in 0..self.rounds {
            let mut order: Vec<usize> = (0..sides.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for side in order {
                values[side].push(measure(sides[side])?);
            }
        }
        Ok(values)
    }
}

/// Returns the difference of each round's value from the same round's base.
pub(super) fn added(values: &[f64], base: &[f64]) -> Spread {
    Spread::of(values.iter().zip(base).map(|(value, base)| value - base).collect())
}

/// Returns the ratio of each round's value to the same round's base.
pub(super) fn ratio(values: &[f64], base: &[f64]) -> Spread {
    Spread::of(values.iter().zip(base).map(|(value, base)| value / base).collect())
}

/// Returns the numbers that a workload prints on one line.
pub(super) fn numbers(mut command: Command) -> anyhow::Result<Vec<f64>> {
    let text = output(&mut command)?;
    text.split_whitespace().map(|word| Ok(word.parse::<f64>()?)).collect()
}

/// A collector in the background, which is never left running.
pub(super) struct Collector {
    /// `None` once it has been waited for: its pid may be another process's then.
    child: Option<Child>,
    stdout: PathBuf,
}

/// Resources that a collector used, itself and the children it waited for.
pub(super) struct Used {
    /// User and system time in ms.
    pub(super) cpu_ms: f64,
    status: ExitStatus,
    /// File that holds its output.
    printed: PathBuf,
}

impl Collector {
    /// Starts the collector and waits until it has settled.
    pub(super) fn start(bed: &Bed, command: &mut Command) -> anyhow::Result<Self> {
        let mut collector = Self::spawn(bed, command)?;
        thread::sleep(SETTLE);
        if let Some(status) =
            collector.child.as_mut().and_then(|child| child.try_wait().transpose()).transpose()?
        {
            collector.child = None;
            let name = command.get_program().display();
            bail!("{name} ended early, {status}: {}", fs::read_to_string(&collector.stdout)?);
        }
        Ok(collector)
    }

    /// Starts the collector. perf prints on stderr, so both streams go to one file.
    fn spawn(bed: &Bed, command: &mut Command) -> anyhow::Result<Self> {
        let stdout = bed.file("collector.out");
        let file = File::create(&stdout)?;
        command.stdin(Stdio::null()).stderr(file.try_clone()?).stdout(file);
        let child =
            command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self { child: Some(child), stdout })
    }

    /// Interrupts the collector, and waits for its end.
    pub(super) fn stop(mut self) -> anyhow::Result<Used> {
        let pid = self.child.as_ref().and_then(|child| Pid::from_raw(child.id().cast_signed()));
        kill_process(pid.context("the collector has been waited for")?, Signal::INT)?;
        self.collect()
    }

    /// Returns the user and system time of its main thread so far.
    pub(super) fn cpu_us(&mut self) -> anyhow::Result<f64> {
        let child = self.child.as_ref().context("the collector has been waited for")?;
        let path = format!("/proc/{}/schedstat", child.id());
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let time_ns = text.split(' ').next().and_then(|number| number.parse::<f64>().ok());
        Ok(time_ns.with_context(|| format!("{path} holds no time"))? / 1e3)
    }

    /// Returns the maximum of its resident memory so far.
    pub(super) fn resident_max_mb(&self) -> anyhow::Result<f64> {
        let child = self.child.as_ref().context("the collector has been waited for")?;
        let path = format!("/proc/{}/status", child.id());
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kilobytes.with_context(|| format!("{path} holds no VmHWM"))? * 1024.0 / 1e6)
    }

    fn collect(&mut self) -> anyhow::Result<Used> {
        let mut child = self.child.take().context("the collector has been waited for")?;
        let ended = child.wait4()?;
        let cpu = ended.rusage.utime + ended.rusage.stime;
        Ok(Used { cpu_ms: cpu.as_secs_f64() * 1e3, status: ended.status, printed: self.stdout.clone() })
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A workload in the background, which is never left running: its own processes end with it, and it ends with
/// the bench.
pub(super) struct Background(Child);

impl Background {
    /// Starts the workload, and leaves it time to get going.
    pub(super) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        thread::sleep(SETTLE);
        Ok(Self(child))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command to its end, which must be a success, and returns what it used.
pub(super) fn used(bed: &Bed, command: &mut Command) -> anyhow::Result<Used> {
    let used = Collector::spawn(bed, command)?.collect()?;
    if !used.status.success() {
        let name = command.get_program().display();
        bail!("{name} failed, {}: {}", used.status, fs::read_to_string(&used.printed)?);
    }
    Ok(used)
}

impl Used {
    /// Returns the last line of `--json`. The output before it may be hundreds of megabytes.
    pub(super) fn summary(&self) -> anyhow::Result<Value> {
        const SUMMARY_BYTES_MAX: u64 = 1 << 16;
        let mut file = File::open(&self.printed)?;
        file.seek(SeekFrom::Start(file.metadata()?.len().saturating_sub(SUMMARY_BYTES_MAX)))?;
        let mut end = Vec::new();
        file.read_to_end(&mut end)?;
        let line = end.trim_ascii_end().rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
        serde_json::from_slice(line).context("pmbpf printed no summary row")
    }
}

/// Returns a number somewhere in a row.
pub(super) fn at(row: &Value, pointer: &str) -> anyhow::Result<f64> {
    row.pointer(pointer)
        .and_then(Value::as_f64)
        .with_context(|| format!("the row has no number at {pointer}"))
}

/// Prefix of the names of our cgroups, which end with the id of the bench.
const NAME: &str = "pmbpf-bench-";

/// Removes the cgroups of a bench that was killed.
fn remove_left_over(mount: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(mount)?.flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(NAME)?.parse().ok());
        let Some(pid) = id.and_then(Pid::from_raw) else { continue };
        if test_kill_process(pid).is_err() {
            let inner = fs::read_dir(entry.path())?.flatten().map(|inner| inner.path());
            inner.filter(|path| path.is_dir()).try_for_each(fs::remove_dir)?;
            fs::remove_dir(entry.path())?;
        }
    }
    Ok(())
}

/// Cgroups of the bench, which are removed in the end.
pub(super) struct Cgroups {
    base: PathBuf,
    /// Folders of the cgroups.
    pub(super) folders: Vec<PathBuf>,
    /// Paths of the cgroups from the hierarchy's root.
    pub(super) paths: Vec<String>,
}

impl Cgroups {
    /// Creates `count` cgroups side by side.
    pub(super) fn new(count: usize) -> anyhow::Result<Self> {
        let mounts = fs::read_to_string("/proc/mounts")?;
        let mount = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (at, kind) = (fields.next()?, fields.next()?);
            (kind == "cgroup2").then(|| Path::new(at).to_owned())
        });
        let mount = mount.context("no cgroup v2 hierarchy is mounted")?;
        remove_left_over(&mount)?;
        let name = format!("{NAME}{}", std::process::id());
        let mut cgroups = Self { base: mount.join(&name), folders: Vec::new(), paths: Vec::new() };
        fs::create_dir(&cgroups.base).with_context(|| format!("cannot create {}", cgroups.base.display()))?;
        for index in 0..count {
            let folder = cgroups.base.join(index.to_string());
            fs::create_dir(&folder)?;
            cgroups.folders.push(folder);
            cgroups.paths.push(format!("{name}/{index}"));
        }
        Ok(cgroups)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for folder in self.folders.iter().chain([&self.base]) {
            // A process that is exiting still holds its cgroup for a moment.
            for _ in 0..100 {
                if fs::remove_dir(folder).is_ok() {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
