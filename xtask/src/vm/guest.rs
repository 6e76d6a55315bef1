//! A guest from its first instruction to its last: booted or restored, given one command, ended.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{
    kernel::Kernel,
    qemu::{CONSOLE, Machine, Monitor, Work, connect},
    tools::Tools,
};
use crate::command::{root, say, text};

/// Maximum time of a boot: one that takes longer hangs.
const BOOT_MAX: Duration = Duration::from_secs(180);
/// Lines of the console that are shown when a guest fails.
const CONSOLE_LINES: usize = 30;

/// Parts of the guests of a kernel.
pub(super) struct Parts {
    pub(super) kernel: Kernel,
    pub(super) initramfs: PathBuf,
    pub(super) programs: PathBuf,
}

/// A running guest.
pub(super) struct Guest {
    name: String,
    work: Work,
    qemu: Child,
    pub(super) monitor: Monitor,
    control: BufReader<UnixStream>,
    outputs: Vec<JoinHandle<()>>,
    first_output: Arc<OnceLock<Instant>>,
}

/// Source of a guest's state.
pub(super) enum From<'a> {
    /// The kernel's first instruction.
    Boot,
    /// A saved guest.
    Saved(&'a Path),
}

/// Destination of a guest's output.
pub(super) enum Output {
    /// Each stream to that of this process.
    Pass,
    /// Both streams into memory.
    Keep(Kept),
}

/// Output of a guest, kept in memory.
#[derive(Clone, Default)]
pub(super) struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    pub(super) fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text(&bytes)
    }
}

impl io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Guest {
    /// Starts QEMU, and reads what the guest prints.
    pub(super) fn start(
        parts: &Parts,
        tools: &Tools,
        shared: &Path,
        from: &From<'_>,
        output: &Output,
    ) -> anyhow::Result<Self> {
        let name = parts.kernel.series.to_string();
        let work = Work::new(&name)?;
        let machine = Machine {
            series: &parts.kernel.series,
            image: &parts.kernel.image()?,
            initramfs: &parts.initramfs,
            programs: &parts.programs,
            shared,
            work: &work.0,
        };
        let mut command = machine.command(tools);
        if let From::Saved(state) = from {
            command.arg("-incoming").arg(format!("file:{}", state.display()));
        }
        let errors = fs::File::create(work.0.join("qemu.log"))?;
        let mut qemu = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .context("cannot run QEMU")?;
        let mut port = |name: &str| connect(&work.0.join(name), &mut qemu);
        let streams =
            (|| Ok::<_, anyhow::Error>((port("monitor")?, port("control")?, port("out")?, port("err")?)))();
        let (monitor, control, out, err) = streams.inspect_err(|_| keep_log(&work, &name))?;
        let first_output = Arc::new(OnceLock::new());
        let to: [Box<dyn io::Write + Send>; 2] = match output {
            Output::Pass => [Box::new(io::stdout()), Box::new(io::stderr())],
            Output::Keep(kept) => [Box::new(kept.clone()), Box::new(kept.clone())],
        };
        let outputs =
            [out, err].into_iter().zip(to).map(|(from, to)| pass_on(from, to, &first_output)).collect();
        let monitor = Monitor::new(monitor)?;
        Ok(Self { name, work, qemu, monitor, control: BufReader::new(control), outputs, first_output })
    }

    /// Returns a line from the guest, within this time.
    fn line(&mut self, within: Duration) -> anyhow::Result<String> {
        self.control.get_ref().set_read_timeout(Some(within))?;
        let mut line = String::new();
        match self.control.read_line(&mut line) {
            Ok(0) => bail!("the guest died"),
            Ok(_) => Ok(line.trim().to_owned()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                bail!("the guest says nothing for {} s", within.as_secs())
            }
            Err(error) => Err(error).context("the guest is lost"),
        }
    }

    /// Waits until a booting guest accepts commands.
    pub(super) fn wait_ready(&mut self) -> anyhow::Result<()> {
        let line = self.line(BOOT_MAX).context("it hangs while it boots").inspect_err(|_| self.keep_log())?;
        if line != "ready" {
            bail!("the guest says `{line}` instead of `ready`");
        }
        Ok(())
    }

    /// Runs one line of shell to its end, and returns its exit code.
    pub(super) fn run(&mut self, line: &str, within: Duration) -> anyhow::Result<u8> {
        self.control.get_mut().write_all(format!("{line}\n").as_bytes())?;
        let answer = self.line(within).inspect_err(|_| self.keep_log())?;
        let code = answer.strip_prefix("done ").and_then(|code| code.parse().ok());
        code.with_context(|| format!("the guest says `{answer}` instead of how the command ended"))
    }

    /// Ends the guest, when everything it printed has been passed on. Returns the time of the first byte.
    pub(super) fn end(mut self) -> Option<Instant> {
        self.monitor.quit();
        let _ = self.qemu.wait();
        for output in self.outputs.drain(..) {
            let _ = output.join();
        }
        self.first_output.get().copied()
    }

    /// Keeps the console's log, and prints its end.
    pub(super) fn keep_log(&self) {
        keep_log(&self.work, &self.name);
    }

    /// Returns whether the guest died of the emulator's stale translation (see [`stale_breakpoint`]).
    pub(super) fn died_of_emulator(&self) -> bool {
        let log = fs::read(self.work.0.join(CONSOLE)).unwrap_or_default();
        stale_breakpoint(&text(&log))
    }
}

/// Returns whether a guest's console shows that a breakpoint was hit where none exists any more.
///
/// Linux patches its own text (static keys, trampolines) by way of `int3`: it sets the breakpoint, writes
/// what follows and replaces it (arch/x86/kernel/alternative.c). QEMU, with a thread per CPU, has been seen
/// to execute a translation made while the breakpoint existed, after it was gone. The kernel then finds
/// nothing that it patches there and panics (`exc_int3` in arch/x86/kernel/traps.c). The `Code:` line shows,
/// before the `<byte>` at which the CPU is, another byte than `cc`, which a real breakpoint has.
fn stale_breakpoint(console: &str) -> bool {
    let Some((_, report)) = console.split_once("int3: 0000 [#1]") else { return false };
    let code = report.lines().find_map(|line| line.split_once("Code: ")).map(|(_, code)| code);
    let before =
        code.and_then(|code| code.split_once(" <")).and_then(|(before, _)| before.rsplit(' ').next());
    before.is_some_and(|byte| byte != "cc")
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Copies a guest's console to the target folder, and its end to stderr.
fn keep_log(work: &Work, name: &str) {
    let kept = root().join("target").join(format!("vm-{name}-console.log"));
    let mut log = fs::read(work.0.join(CONSOLE)).unwrap_or_default();
    log.extend(fs::read(work.0.join("qemu.log")).unwrap_or_default());
    let text = text(&log);
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    for line in lines.iter().skip(lines.len().saturating_sub(CONSOLE_LINES)) {
        say(&format!("{name} console: {}", line.escape_debug()));
    }
    match fs::create_dir_all(root().join("target")).and_then(|()| fs::write(&kept, &log)) {
        Ok(()) => say(&format!("{name}: the console's log is kept in {}", kept.display())),
        Err(error) => say(&format!("{name}: the console's log is lost: {error}")),
    }
}

/// Passes on the output of a port, and records when the first byte came.
fn pass_on(
    mut from: UnixStream,
    mut to: Box<dyn io::Write + Send>,
    first: &Arc<OnceLock<Instant>>,
) -> JoinHandle<()> {
    let first = Arc::clone(first);
    thread::spawn(move || {
        let mut bytes = [0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            first.get_or_init(Instant::now);
            // A closed pipe is not a reason to stop the guest.
            let _ = to.write_all(&bytes[..count]).and_then(|()| to.flush());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::stale_breakpoint;

    #[test]
    fn only_a_breakpoint_that_is_gone_is_the_emulator_s() {
        let died = |what: &str, code: &str| {
            format!("[ 1.0] Oops: {what} [#1] SMP\n[ 1.1] RIP: x+0x1\n[ 1.1] Code: {code}\n")
        };
        assert!(stale_breakpoint(&died("int3: 0000", "00 e9 e3 05 00 00 e9 <91> 05 00 00")));
        assert!(!stale_breakpoint(&died("int3: 0000", "00 e9 e3 05 00 00 cc <91> 05 00 00")));
        assert!(!stale_breakpoint(&died("general protection fault: 0000", "00 e9 <91> 05")));
        assert!(!stale_breakpoint("[ 1.0] Oops: int3: 0000 [#1] SMP"));
        assert!(!stale_breakpoint(""));
    }
}
