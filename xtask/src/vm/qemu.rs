//! A guest's machine: QEMU's command line, and QEMU's monitor.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::{
    kernel::{Architecture, Series},
    tools::Tools,
};

const MEMORY_MIB: u32 = 1024;

/// Parts from which a guest is started.
pub(super) struct Machine<'a> {
    pub(super) series: &'a Series,
    pub(super) image: &'a Path,
    pub(super) initramfs: &'a Path,
    pub(super) programs: &'a Path,
    pub(super) shared: &'a Path,
    /// Folder of sockets and the console's log.
    pub(super) work: &'a Path,
}

/// Returns the properties of a machine that a saved guest must find again, in words.
pub(super) fn description(series: &Series) -> String {
    format!("{:?} {MEMORY_MIB} {}", processor(series), kernel_arguments(series.architecture))
}

fn processor(series: &Series) -> Vec<&'static str> {
    let mut options = match series.architecture {
        Architecture::X86 => vec!["-M", "q35", "-cpu", "max"],
        Architecture::Arm => vec!["-M", "virt,gic-version=3", "-cpu", "max"],
    };
    options.extend(match series.counts_instructions {
        false => ["-accel", "tcg,thread=multi"].as_slice(),
        // An instruction takes 2 ns. While the guest sleeps, its time advances at once.
        true => &["-accel", "tcg,thread=single", "-icount", "shift=1,sleep=off"],
    });
    options.extend(match series {
        // The emulated PMU of Arm belongs to the boot CPU.
        Series { counts_instructions: true, architecture: Architecture::Arm, .. } => ["-smp", "1"],
        Series { threads: true, .. } => ["-smp", "2,sockets=1,cores=1,threads=2"],
        _ => ["-smp", "2"],
    });
    options
}

const fn kernel_arguments(architecture: Architecture) -> &'static str {
    match architecture {
        // Older kernels would fall back to a clock that costs a microsecond per read.
        Architecture::X86 => "console=ttyS0 quiet panic=-1 tsc=reliable clocksource=tsc",
        Architecture::Arm => "console=ttyAMA0 quiet panic=-1",
    }
}

impl Machine<'_> {
    /// Returns QEMU's command line.
    pub(super) fn command(&self, tools: &Tools) -> Command {
        let program = match self.series.architecture {
            Architecture::X86 => "bin/qemu-system-x86_64",
            Architecture::Arm => "bin/qemu-system-aarch64",
        };
        let mut qemu = tools.child(program);
        for folder in ["qemu", "seabios"] {
            qemu.arg("-L").arg(tools.root().join("usr/share").join(folder));
        }
        qemu.args(processor(self.series));
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        qemu.args(["-m", &MEMORY_MIB.to_string()]);
        let work = self.work.display();
        qemu.arg("-serial").arg(format!("file:{work}/{CONSOLE}"));
        qemu.args(["-device", "virtio-serial-pci"]);
        for (number, port) in PORTS.iter().enumerate() {
            let number = number + 1;
            qemu.arg("-chardev").arg(format!("socket,id={port},path={work}/{port},server=on,wait=off"));
            qemu.arg("-device").arg(format!("virtserialport,chardev={port},nr={number},name={port}"));
        }
        for disk in [self.programs, self.shared] {
            let disk = disk.display();
            qemu.arg("-drive").arg(format!("file={disk},format=raw,if=virtio,readonly=on,file.locking=off"));
        }
        qemu.arg("-qmp").arg(format!("unix:{work}/monitor,server=on,wait=off"));
        qemu.arg("-kernel").arg(self.image).arg("-initrd").arg(self.initramfs);
        qemu.args(["-append", kernel_arguments(self.series.architecture)]);
        qemu
    }
}

/// Log of the guest's console, in its folder.
pub(super) const CONSOLE: &str = "console.log";

/// Ports between guest and host, as in `tests/vm/init`.
pub(super) const PORTS: [&str; 3] = ["control", "out", "err"];

/// Connects to a socket that QEMU is about to open.
pub(super) fn connect(path: &Path, qemu: &mut Child) -> anyhow::Result<UnixStream> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(_) if qemu.try_wait()?.is_some() => bail!("QEMU ended before the guest began"),
            Err(error) if Instant::now() > deadline => {
                return Err(error).context("QEMU does not answer");
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// QEMU's monitor (QMP).
pub(super) struct Monitor {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Monitor {
    pub(super) fn new(stream: UnixStream) -> anyhow::Result<Self> {
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        let reader = BufReader::new(stream.try_clone()?);
        let mut monitor = Self { stream, reader };
        monitor.line().context("QEMU's monitor does not greet")?;
        monitor.call("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    fn line(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line).context("QEMU's monitor is silent")? == 0 {
            bail!("QEMU ended");
        }
        Ok(serde_json::from_str(&line)?)
    }

    fn send(&mut self, command: &str, arguments: &Value) -> anyhow::Result<()> {
        let text = json!({"execute": command, "arguments": arguments}).to_string();
        Ok(self.stream.write_all(format!("{text}\n").as_bytes())?)
    }

    fn call(&mut self, command: &str, arguments: &Value) -> anyhow::Result<Value> {
        self.send(command, arguments)?;
        loop {
            let mut answer = self.line()?;
            if let Some(error) = answer.get("error") {
                bail!("QEMU refused `{command}`: {}", error["desc"]);
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
        }
    }

    /// Stops the guest and saves it to a file.
    pub(super) fn save(&mut self, file: &Path) -> anyhow::Result<()> {
        self.call("stop", &json!({}))?;
        self.call("migrate", &json!({"uri": format!("file:{}", file.display())}))?;
        self.migrated()
    }

    /// Waits until a guest is saved, or restored.
    pub(super) fn migrated(&mut self) -> anyhow::Result<()> {
        loop {
            let state = self.call("query-migrate", &json!({}))?;
            match state["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => bail!("QEMU cannot save or restore the guest: {state}"),
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Resumes a restored guest.
    pub(super) fn go_on(&mut self) -> anyhow::Result<()> {
        self.call("cont", &json!({})).map(|_| ())
    }

    /// Ends QEMU. The response may be lost.
    pub(super) fn quit(&mut self) {
        let _ = self.send("quit", &json!({}));
    }
}

/// A folder for sockets and logs of one guest, which is removed in the end.
pub(super) struct Work(pub(super) PathBuf);

impl Work {
    pub(super) fn new(name: &str) -> anyhow::Result<Self> {
        // Paths of sockets are short, so this is not below the target folder.
        let folder = std::env::temp_dir().join(format!("pmbpf-vm-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
