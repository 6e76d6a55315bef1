//! Cost of the live screen while it shows a thousand cgroups.

use std::{
    fs::{self, File, OpenOptions},
    io::Read as _,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt as _},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::{
    fs::OFlags,
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use super::{
    bed::{Background, Bed, Cgroups},
    figure::{Section, Spread},
};

const COUNT: usize = 1000;
/// Time that a screen has to open what it counts, and for its first intervals.
const SETTLE: Duration = Duration::from_secs(5);
/// Time of one measurement, in intervals of a second.
const MEASURED: Duration = Duration::from_secs(20);

/// Measures the CPU time of the process, all of its threads together, as a share of a CPU. Every cgroup runs
/// in every interval.
pub(super) fn measure(bed: &Bed) -> anyhow::Result<Vec<Section>> {
    let cgroups = Cgroups::new(COUNT)?;
    let mut ring = bed.workload("pingpong");
    // The ring ends when it is killed.
    ring.args(["2000000000".to_owned(), (bed.cpus - 1).to_string()]).args(&cgroups.folders);
    let _ring = Background::start(&mut ring)?;
    let (mut all, mut drawing, mut written) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bed.rounds {
        let mut screen = Screen::start(bed)?;
        thread::sleep(SETTLE);
        let (begun, before) = (Instant::now(), screen.used()?);
        thread::sleep(MEASURED);
        let (elapsed_ns, after) = (begun.elapsed().as_nanos() as f64, screen.used()?);
        let percent = |ns: u64| 100.0 * ns as f64 / elapsed_ns;
        all.push(percent(after.all_ns - before.all_ns));
        drawing.push(percent(after.screen_ns - before.screen_ns));
        written.push((after.written - before.written) as f64 / MEASURED.as_secs_f64() / 1e3);
    }
    let how = [
        "pmbpf top -I 1s, in a terminal of 80 columns and 24 rows",
        "a ring of processes goes round the cgroups on one CPU, as fast as it can",
        "CPU time of all threads, over 20 s; what the programs in the kernel take is `switches`",
    ];
    let mut section = Section::new(format!("a screen of {COUNT} cgroups"), &how);
    section.promise("pmbpf top", Spread::of(all), "% of a CPU", 1.0);
    section.figure("of that, the thread that draws", Spread::of(drawing), "% of a CPU");
    section.figure("written", Spread::of(written), "kB/s");
    Ok(vec![section])
}

/// Resources that a screen has used so far.
struct Used {
    all_ns: u64,
    screen_ns: u64,
    /// Bytes that were written to its terminal and everywhere else.
    written: u64,
}

/// `pmbpf top` in a terminal, which is never left running.
struct Screen {
    child: Child,
}

impl Screen {
    fn start(bed: &Bed) -> anyhow::Result<Self> {
        let controller: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        let name = ptsname(&controller, Vec::new())?.into_string()?;
        tcsetwinsize(&controller, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 })?;
        let flags = OFlags::NOCTTY.bits().cast_signed();
        let user = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&name)?;
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(&bed.pmbpf).args(["top", "-I", "1s"]);
        command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8");
        command.stdin(user.try_clone()?).stdout(user.try_clone()?).stderr(user);
        let child = command.spawn().context("cannot start pmbpf in a terminal of its own (setsid)")?;
        let mut controller = File::from(controller);
        // A terminal that is not read would block the process that writes to it.
        thread::spawn(move || {
            let mut bytes = [0; 1 << 14];
            while matches!(controller.read(&mut bytes), Ok(1..)) {}
        });
        Ok(Self { child })
    }

    fn used(&mut self) -> anyhow::Result<Used> {
        if let Some(status) = self.child.try_wait()? {
            bail!("pmbpf top ended early: {status}");
        }
        let folder = format!("/proc/{}", self.child.id());
        let read =
            |path: String| fs::read_to_string(&path).with_context(|| format!("cannot read {path}: it ended"));
        let (mut all_ns, mut screen_ns) = (0, 0);
        for task in fs::read_dir(format!("{folder}/task"))? {
            let task = task?.path().display().to_string();
            let text = read(format!("{task}/schedstat"))?;
            let time_ns: u64 = text.split(' ').next().unwrap_or_default().parse()?;
            all_ns += time_ns;
            if read(format!("{task}/comm"))?.trim_end() == "screen" {
                screen_ns += time_ns;
            }
        }
        let text = read(format!("{folder}/io"))?;
        let written = text.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap_or_default();
        Ok(Used { all_ns, screen_ns, written: written.parse()? })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}
