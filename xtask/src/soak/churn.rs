//! `pmbpf serve` next to as many cgroups as have series, and others that come and go. Memory and descriptors
//! stay what they were, its share of a CPU is small, and what is lost is counted.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{Held, pmbpf};
use crate::{
    command::{is_root, length, say},
    scrape::{get, hierarchy},
};

/// Default length of the run.
const LENGTH: Duration = Duration::from_secs(1800);
/// Variable that sets a shorter one, in seconds.
const LENGTH_VARIABLE: &str = "PMBPF_CHURN";
/// Address on which it serves.
const ADDRESS: &str = "127.0.0.1:19477";
/// Prefix of its cgroup's name, before its process id.
const FOLDER: &str = "pmbpf-churn-";
/// Cgroups that stay, with programs that run once a second.
const STAYING: usize = 200;
/// Cgroups a second that come, run a program, and go.
const COMING: u32 = 50;
const SCRAPE_EVERY: Duration = Duration::from_secs(15);
/// Number of times that what is held is printed.
const TOLD: u32 = 10;
/// Cgroups that have come when everything that keeps them (rows, names, series) has dropped some for the
/// first time. Until then memory grows with them. A run that is too short for this many is checked in its
/// second half.
const WARM: u32 = 16_384;
/// Allowed distance of resident memory from the middle of what it was after that.
const MEMORY_KB: u64 = 2 * 1024;
/// Maximum share of one CPU.
const SHARE_MAX: f64 = 0.005;

/// Cgroups with programs, which are ended and removed with their owner.
struct Beside {
    folder: PathBuf,
    programs: Vec<Child>,
}

/// Runs it. Returns an error if something grows, or costs more than it may.
pub(crate) fn run() -> anyhow::Result<()> {
    if !is_root() {
        say("churn: SKIPPED, it needs root");
        return Ok(());
    }
    let length = length(LENGTH_VARIABLE, LENGTH)?;
    let pmbpf = pmbpf()?;
    let beside = Beside::new()?;
    let mut serve = Command::new(pmbpf);
    serve.args(["serve", "--listen", ADDRESS]).stdin(Stdio::null());
    let mut serve = serve.spawn()?;
    let result = watch(&mut serve, &beside, length);
    serve.kill()?;
    serve.wait()?;
    result
}

fn watch(serve: &mut Child, beside: &Beside, length: Duration) -> anyhow::Result<()> {
    let (begun, mut come, mut scraped, mut told) = (Instant::now(), 0, 0, 0);
    let (mut held, mut cpu_ns) = (Vec::new(), (Duration::ZERO, 0));
    while begun.elapsed() < length {
        if let Some(status) = serve.try_wait()? {
            bail!("churn: serve ended by itself: {status}");
        }
        beside.come_and_go(come)?;
        come += 1;
        let elapsed = begun.elapsed();
        if elapsed >= SCRAPE_EVERY * (scraped + 1) {
            scraped += 1;
            get(ADDRESS, "/metrics")?;
            let now = Held::of(serve.id())?;
            let is_warm = if COMING * (length.as_secs() as u32) < WARM * 5 / 4 {
                elapsed * 2 >= length
            } else {
                come > WARM
            };
            if is_warm {
                held.push(now);
                if cpu_ns.1 == 0 {
                    cpu_ns = (elapsed, used_ns(serve.id())?);
                }
            }
            if elapsed >= length / TOLD * (told + 1) {
                told += 1;
                let used = used_ns(serve.id())? as f64 / elapsed.as_nanos() as f64;
                say(&format!(
                    "churn: after {} s: {come} cgroups, {} KB, {} descriptors, {:.2} % of a CPU",
                    elapsed.as_secs(),
                    now.resident_kb,
                    now.descriptors,
                    100.0 * used
                ));
            }
        }
        thread::sleep((Duration::from_secs(1) / COMING * come).saturating_sub(begun.elapsed()));
    }
    let share = (used_ns(serve.id())? - cpu_ns.1) as f64 / (begun.elapsed() - cpu_ns.0).as_nanos() as f64;
    let metrics = get(ADDRESS, "/metrics")?;
    tell(&metrics, come, share);
    judge(&held, share)
}

/// Prints the results, and what was lost.
fn tell(metrics: &str, come: u32, share: f64) {
    let of =
        |family: &str| -> Vec<&str> { metrics.lines().filter(|line| line.starts_with(family)).collect() };
    say(&format!("churn: {come} cgroups came; {:.2} % of a CPU when warm", 100.0 * share));
    for line in [of("pmbpf_targets{"), of("pmbpf_losses_total"), of("process_resident")].concat() {
        say(&format!("churn: {line}"));
    }
    let series = metrics.lines().filter(|line| !line.starts_with('#')).count();
    say(&format!("churn: {series} series"));
}

fn judge(held: &[Held], share: f64) -> anyhow::Result<()> {
    let memory = held.iter().map(|held| held.resident_kb);
    let (low, high) = (memory.clone().min().unwrap_or(0), memory.max().unwrap_or(0));
    let descriptors = held.iter().map(|held| held.descriptors);
    let (fewest, most) = (descriptors.clone().min().unwrap_or(0), descriptors.max().unwrap_or(0));
    say(&format!("churn: {low} to {high} KB, {fewest} to {most} descriptors when warm"));
    let mut wrong = Vec::new();
    if high - low > 2 * MEMORY_KB {
        wrong.push(format!("memory is not within {MEMORY_KB} KB of its middle"));
    }
    if most > fewest + super::GROWTH_DESCRIPTORS {
        wrong.push("descriptors grew".to_owned());
    }
    if share > SHARE_MAX {
        wrong.push(format!("it takes {:.2} % of a CPU, of {:.2} %", 100.0 * share, 100.0 * SHARE_MAX));
    }
    if wrong.is_empty() { Ok(()) } else { bail!("churn: {}", wrong.join("; ")) }
}

/// Returns the CPU time of all threads of a process, in ns.
fn used_ns(pid: u32) -> anyhow::Result<u64> {
    let mut used = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may have ended by now.
        let text = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        used += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(used)
}

impl Beside {
    fn new() -> anyhow::Result<Self> {
        let hierarchy = hierarchy()?;
        remove_leftovers(&hierarchy);
        let folder = hierarchy.join(format!("{FOLDER}{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let mut beside = Self { folder, programs: Vec::new() };
        for number in 0..STAYING {
            let group = beside.folder.join(format!("stays{number}"));
            let program = "while :; do sleep 1; done";
            beside.programs.push(begin(&group, program)?);
        }
        Ok(beside)
    }

    fn come_and_go(&self, number: u32) -> anyhow::Result<()> {
        let group = self.folder.join(format!("comes{number}"));
        begin(&group, "exit 0")?.wait()?;
        Ok(fs::remove_dir(&group)?)
    }
}

/// Removes what killed runs left. Their programs ended with them.
fn remove_leftovers(hierarchy: &Path) {
    for folder in fs::read_dir(hierarchy).into_iter().flatten().flatten() {
        let name = folder.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(FOLDER));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove(&folder.path());
        }
    }
}

/// Removes a cgroup and those in it, as far as they are empty.
fn remove(folder: &Path) {
    for group in fs::read_dir(folder).into_iter().flatten().flatten() {
        let _ = fs::remove_dir(group.path());
    }
    let _ = fs::remove_dir(folder);
}

/// Starts a shell in a new cgroup. It ends with the process that started it.
fn begin(group: &Path, program: &str) -> anyhow::Result<Child> {
    fs::create_dir(group)?;
    let program = format!("echo $$ > '{}' && {program}", group.join("cgroup.procs").display());
    let shell = ["--pdeathsig", "KILL", "sh", "-c", &program];
    Ok(Command::new("setpriv").args(shell).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?)
}

impl Drop for Beside {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
        // The last command of each ends within a second.
        thread::sleep(Duration::from_millis(1500));
        remove(&self.folder);
    }
}
