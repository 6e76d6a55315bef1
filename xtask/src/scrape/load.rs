//! Cgroups that come and go, each with a program that computes a little now and then.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

/// Shortest lifetime of a cgroup, and how much longer the longest one is.
const LIFE: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(36)];
const PAUSE: Duration = Duration::from_millis(20);
/// Program that waits for a line of input, then computes for some milliseconds a second.
const PROGRAM: &str = "read go; while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; sleep 1; done";

/// Cgroup that contains those that come and go.
pub(super) struct Load {
    folder: PathBuf,
    /// Path from the hierarchy's root.
    pub(super) path: String,
}

/// A cgroup that is alive.
struct Living {
    folder: PathBuf,
    shell: Child,
    until: Instant,
}

/// Returns the mount point of the v2 hierarchy of cgroups.
pub(crate) fn hierarchy() -> anyhow::Result<PathBuf> {
    let mut mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].into_iter().map(PathBuf::from);
    let is_v2 = |mount: &PathBuf| mount.join("cgroup.controllers").is_file();
    mounts.find(is_v2).context("there is no v2 hierarchy of cgroups")
}

impl Load {
    pub(super) fn new() -> anyhow::Result<Self> {
        let mount = hierarchy()?;
        let path = format!("/pmbpf-scrape-{}", std::process::id());
        let folder = mount.join(&path[1..]);
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self { folder, path })
    }

    /// Returns the CPU time of all, as the kernel accounts it.
    pub(super) fn usage_ns(&self) -> anyhow::Result<u64> {
        let stat = fs::read_to_string(self.folder.join("cpu.stat"))?;
        let usage = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
        Ok(usage.context("cpu.stat has no usage")?.parse::<u64>()? * 1000)
    }

    /// Keeps this many cgroups alive for this long, and returns how many there were.
    pub(super) fn churn(&self, length: Duration, alive: usize) -> anyhow::Result<u64> {
        let (begun, mut living, mut made) = (Instant::now(), Vec::<Living>::new(), 0);
        while begun.elapsed() < length {
            let now = Instant::now();
            let (over, on): (Vec<_>, Vec<_>) = living.into_iter().partition(|one| one.until <= now);
            living = on;
            over.into_iter().try_for_each(Living::end)?;
            // Not all of them start at once.
            for _ in living.len()..alive.min(living.len() + 3) {
                made += 1;
                living.push(self.begin(made)?);
            }
            thread::sleep(PAUSE);
        }
        living.into_iter().try_for_each(Living::end)?;
        Ok(made)
    }

    fn begin(&self, number: u64) -> anyhow::Result<Living> {
        // A container that starts again has its name again.
        let folder =
            self.folder.join(format!("c{}", if number.is_multiple_of(5) { number } else { number + 10_000 }));
        fs::create_dir(&folder)?;
        let mut shell = Command::new("sh");
        shell.args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut shell = shell.spawn()?;
        fs::write(folder.join("cgroup.procs"), shell.id().to_string())?;
        // The shell is in its cgroup before it does anything: the kernel accounts a slice to the cgroup where
        // it ends.
        shell.stdin.take().context("no standard input")?.write_all(b"\n")?;
        let spread = LIFE[1].as_millis() as u64;
        let longer = Duration::from_millis(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % spread);
        Ok(Living { folder, shell, until: Instant::now() + LIFE[0] + longer })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let all = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for entry in all.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let _ = fs::write(entry.path().join("cgroup.kill"), "1");
            let _ = remove(&entry.path());
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

impl Living {
    fn end(mut self) -> anyhow::Result<()> {
        if fs::write(self.folder.join("cgroup.kill"), "1").is_err() {
            // Before Linux 5.14.
            self.shell.kill()?;
        }
        self.shell.wait()?;
        remove(&self.folder)
    }
}

/// Removes a cgroup once its last process has gone.
fn remove(folder: &Path) -> anyhow::Result<()> {
    for _ in 0..500 {
        if fs::remove_dir(folder).is_ok() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    bail!("{} does not become empty", folder.display())
}
