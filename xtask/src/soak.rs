//! Soak test: pmbpf next to processes that come and go, for as long as a user would leave it on. Its memory
//! and its open files must not grow with time.

mod churn;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

pub(crate) use self::churn::run as churn;
use crate::{
    build,
    command::{is_root, length, say},
    vm::kernel::Architecture,
};

/// Default length of a soak.
const LENGTH: Duration = Duration::from_secs(3600);
/// Variable that sets a shorter one, in seconds.
const LENGTH_VARIABLE: &str = "PMBPF_SOAK";
/// Number of times that a soak prints what is held.
const TOLD: u32 = 12;
/// Programs executed a second.
const EXECS: u32 = 100;
/// Time until everything that is bounded has reached its bounds (8192 owners take 82 s); less in a short
/// soak.
const WARM_UP: Duration = Duration::from_secs(600);
/// Allowed growth after that: of resident memory, and of descriptors that are not files.
const GROWTH_KB: u64 = 10 * 1024;
const GROWTH_DESCRIPTORS: usize = 2;
/// Maximum number of open files: those of programs, whichever this host happens to run (`symbol::tracker`),
/// and a few of its own.
const FILES_MAX: usize = 1024 + 16;

/// Arguments of the runs that are left on.
const RUNS: [&[&str]; 3] = [
    &["run", "--stacks", "-I", "1s", "--json", "--quiet"],
    &["io", "-I", "1s", "--json", "--quiet"],
    &["serve", "-I", "1s", "--listen", "127.0.0.1:0"],
];

/// A process that is watched.
struct Watched {
    child: Child,
    name: String,
    now: Held,
    warm: Option<Held>,
    most: Held,
}

/// Memory and descriptors that a process holds.
#[derive(Clone, Copy, Default)]
struct Held {
    resident_kb: u64,
    /// Events, maps, pipes, sockets.
    descriptors: usize,
    /// Descriptors that have a path.
    files: usize,
}

/// Runs the soak. Returns an error if anything grows.
pub(crate) fn run() -> anyhow::Result<()> {
    if !is_root() {
        say("soak: SKIPPED, it needs root");
        return Ok(());
    }
    let length = length(LENGTH_VARIABLE, LENGTH)?;
    of(&pmbpf()?, length)
}

/// Returns the binary that is watched, as the tests have it.
fn pmbpf() -> anyhow::Result<PathBuf> {
    match std::env::var_os("PMBPF_BIN") {
        Some(built) => Ok(built.into()),
        None => build::release(Architecture::HOST),
    }
}

/// Makes this a machine in use while `work` is done, by the same runs and programs, and returns what `work`
/// returns. Returns an error if a run ended by itself.
pub(crate) fn beside<T>(work: impl FnOnce() -> T) -> anyhow::Result<T> {
    let pmbpf = pmbpf()?;
    // The load next to the tests stays what it always was.
    let mut watched = Watched::all(&pmbpf, &RUNS[..2])?;
    let is_over = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        scope.spawn(|| execute(|_| Ok(!is_over.load(Ordering::Relaxed))));
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        done
    });
    watched.iter_mut().try_for_each(|one| one.look(false))?;
    Ok(done)
}

fn of(pmbpf: &Path, length: Duration) -> anyhow::Result<()> {
    let warm_up = WARM_UP.min(length / 2);
    say(&format!("soak: {} s, of which {} s to warm up", length.as_secs(), warm_up.as_secs()));
    let mut watched = Watched::all(pmbpf, &RUNS)?;
    let begun = Instant::now();
    let mut told = 0;
    let executed = execute(|executed| {
        let elapsed = begun.elapsed();
        if executed.is_multiple_of(EXECS) {
            watched.iter_mut().try_for_each(|one| one.look(elapsed >= warm_up))?;
            if elapsed >= length / TOLD * (told + 1) {
                told += 1;
                tell(elapsed, &watched);
            }
        }
        Ok(elapsed < length)
    })?;
    let rate = f64::from(executed) / begun.elapsed().as_secs_f64();
    say(&format!("soak: {executed} programs, {rate:.0} a second"));
    let grown: Vec<String> =
        watched.iter_mut().filter_map(|one| one.end().transpose()).collect::<Result<_, _>>()?;
    if grown.is_empty() { Ok(()) } else { bail!("{}", grown.join("; ")) }
}

/// Prints what each process holds, so that a growth that fails has a shape.
fn tell(elapsed: Duration, watched: &[Watched]) {
    let held: Vec<String> =
        watched.iter().map(|one| format!("{} {} KB", one.name, one.now.resident_kb)).collect();
    say(&format!("soak: after {} s: {}", elapsed.as_secs(), held.join(", ")));
}

/// Executes [`EXECS`] programs a second as long as `goes_on` allows, and returns how many that were.
fn execute(mut goes_on: impl FnMut(u32) -> anyhow::Result<bool>) -> anyhow::Result<u32> {
    let (begun, mut executed) = (Instant::now(), 0);
    while goes_on(executed)? {
        Command::new("true").status().context("cannot execute true")?;
        executed += 1;
        thread::sleep((Duration::from_secs(1) / EXECS * executed).saturating_sub(begun.elapsed()));
    }
    Ok(executed)
}

impl Watched {
    fn all(pmbpf: &Path, runs: &[&[&str]]) -> anyhow::Result<Vec<Self>> {
        runs.iter().map(|arguments| Self::start(pmbpf, arguments)).collect()
    }

    fn start(pmbpf: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        let child = Command::new(pmbpf).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        Ok(Self { child, name: arguments.join(" "), now: Held::default(), warm: None, most: Held::default() })
    }

    fn look(&mut self, is_warm: bool) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("pmbpf {} ended by itself: {status}", self.name);
        }
        let now = Held::of(self.child.id())?;
        self.now = now;
        if is_warm {
            self.warm.get_or_insert(now);
            self.most.resident_kb = self.most.resident_kb.max(now.resident_kb);
            self.most.descriptors = self.most.descriptors.max(now.descriptors);
            self.most.files = self.most.files.max(now.files);
        }
        Ok(())
    }

    /// Ends the process, and returns what has grown.
    fn end(&mut self) -> anyhow::Result<Option<String>> {
        let warm = self.warm.context("the soak was too short to look at anything")?;
        interrupt(self.child.id())?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("pmbpf {} ended with {status}", self.name);
        }
        let Held { resident_kb, descriptors, files } = self.most;
        let said = format!(
            "pmbpf {}: {} KB, {} files and {} other descriptors when warm, at most {resident_kb} KB, {files} and {descriptors} later",
            self.name, warm.resident_kb, warm.files, warm.descriptors
        );
        say(&format!("soak: {said}"));
        let is_grown = resident_kb > warm.resident_kb + GROWTH_KB
            || descriptors > warm.descriptors + GROWTH_DESCRIPTORS
            || files > FILES_MAX;
        Ok(is_grown.then_some(said))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Held {
    fn of(pid: u32) -> anyhow::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let resident_kb =
            number.and_then(|number| number.trim().parse().ok()).context("no VmRSS in /proc")?;
        let (mut descriptors, mut files) = (0, 0);
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            // A descriptor may be closed by now.
            let target = entry.and_then(|entry| fs::read_link(entry.path())).unwrap_or_default();
            *(if target.is_absolute() { &mut files } else { &mut descriptors }) += 1;
        }
        Ok(Self { resident_kb, descriptors, files })
    }
}

/// Interrupts a child of this process, as Ctrl-C does.
fn interrupt(pid: u32) -> anyhow::Result<()> {
    use rustix::process::{Pid, Signal, kill_process};
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a child has no number")?;
    Ok(kill_process(pid, Signal::INT)?)
}
