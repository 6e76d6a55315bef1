//! Parts of a guest's system: an initramfs with its first program, a disk with Debian's programs, a disk with
//! ours.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{
    apt::Apt,
    kernel::{Architecture, Kernel, Series, module_bytes},
    tools::{Tools, link},
};
use crate::command::run;

/// First program of the guest.
pub(super) const INIT: &str = include_str!("../../../tests/vm/init");

/// Drivers and file systems that a guest boots with.
const MODULES: [&str; 5] = ["virtio_pci", "virtio_console", "virtio_blk", "overlay", "squashfs"];

/// Programs that live tests call, and perf to compare with.
const PROGRAMS: [&str; 12] = [
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "kmod",
    "linux-perf",
    "mawk",
    "procps",
    "sed",
    "util-linux",
];

/// Further packages of guests with systemd as their first program: containers, machines and packages.
const WITH_SYSTEMD: &[&str] = &[
    "bash-completion",
    "busybox-static",
    "containerd",
    "crun",
    "dbus",
    "diffutils",
    "docker-cli",
    "docker.io",
    "dpkg",
    "fish",
    "libc-bin",
    "mandoc",
    "podman",
    "runc",
    "systemd",
    "systemd-container",
    "zsh",
];

/// Size of the disk with our files: a saved guest depends on it, so it is always the same.
const SHARED_BYTES: u64 = 1 << 30;

/// An archive that the kernel unpacks into memory.
struct Archive(Vec<u8>);

impl Archive {
    fn add(&mut self, name: &str, mode: u32, contents: &[u8]) -> anyhow::Result<()> {
        let entry = cpio::newc::Builder::new(name).mode(mode).nlink(1);
        let mut writer = entry.write(&mut self.0, u32::try_from(contents.len())?);
        writer.write_all(contents)?;
        writer.finish()?;
        Ok(())
    }

    fn folder(&mut self, name: &str) -> anyhow::Result<()> {
        self.add(name, 0o040_755, &[])
    }

    fn program(&mut self, name: &str, contents: &[u8]) -> anyhow::Result<()> {
        self.add(name, 0o100_755, contents)
    }
}

/// Returns the initramfs of a kernel: busybox, the drivers, and `tests/vm/init`.
pub(super) fn initramfs(apt: &mut Apt, tools: &Tools, kernel: &Kernel) -> anyhow::Result<Vec<u8>> {
    let busybox = match kernel.series.architecture {
        Architecture::X86 => tools.root().join("usr/bin/busybox"),
        Architecture::Arm => {
            let folder = apt.cache.join("busybox-arm64");
            if !Apt::has(&folder) {
                apt.extract(&folder, &["busybox-static:arm64".to_owned()])?;
            }
            folder.join("usr/bin/busybox")
        }
    };
    let mut archive = Archive(Vec::new());
    for folder in
        ["bin", "dev", "lib", "lib/drivers", "proc", "root", "sbin", "sys", "usr", "usr/bin", "usr/sbin"]
    {
        archive.folder(folder)?;
    }
    let busybox = fs::read(&busybox).with_context(|| format!("cannot read {}", busybox.display()))?;
    archive.program("bin/busybox", &busybox)?;
    archive.add("bin/sh", 0o120_777, b"busybox")?;
    archive.program("init", INIT.as_bytes())?;
    for (index, module) in kernel.modules(&MODULES)?.iter().enumerate() {
        archive.add(&format!("lib/drivers/{index:02}.ko"), 0o100_644, &module_bytes(tools, module)?)?;
    }
    Ok(cpio::newc::trailer(archive.0)?)
}

/// Returns the disk with Debian's programs, and makes it if needed.
pub(super) fn programs(apt: &mut Apt, tools: &Tools, series: &Series) -> anyhow::Result<PathBuf> {
    let architecture = series.architecture.debian();
    let kind = if series.systemd { "systemd" } else { "programs" };
    let folder = apt.cache.join(format!("{kind}-{architecture}"));
    let image = folder.with_extension("squashfs");
    let packages: Vec<&str> =
        PROGRAMS.iter().chain(if series.systemd { WITH_SYSTEMD } else { &[] }).copied().collect();
    if Apt::has_closed(&folder, &packages) && image.is_file() {
        return Ok(image);
    }
    apt.extract_closed(&folder, architecture, &packages).context("the programs of guests")?;
    link(&folder, "mawk", "usr/bin/awk")?;
    fs::write(
        folder.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    )?;
    fs::write(folder.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;
    fs::create_dir_all(folder.join("work"))?;
    squash(tools, &folder, &image, &["-comp", "zstd", "-Xcompression-level", "3"])?;
    Ok(image)
}

/// Makes a disk with our files, each with its path here and its path below the guest's `/work`.
pub(super) fn shared(tools: &Tools, work: &Path, files: &[(PathBuf, String)]) -> anyhow::Result<PathBuf> {
    let folder = work.join("shared");
    fs::create_dir_all(&folder)?;
    for (from, to) in files {
        let to = folder.join(to);
        fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
        fs::copy(from, &to).with_context(|| format!("cannot share {}", from.display()))?;
    }
    let image = work.join("shared.squashfs");
    // Compressing takes longer than reading back.
    squash(tools, &folder, &image, &["-noI", "-noD", "-noF", "-noX"])?;
    let file = fs::OpenOptions::new().write(true).open(&image)?;
    if file.metadata()?.len() > SHARED_BYTES {
        anyhow::bail!("the files to share need more than {} MiB", SHARED_BYTES >> 20);
    }
    file.set_len(SHARED_BYTES)?;
    Ok(image)
}

/// Makes an empty disk in place of [`shared`]'s, for a guest that is to be saved.
pub(super) fn nothing_shared(work: &Path) -> anyhow::Result<PathBuf> {
    let image = work.join("shared.squashfs");
    fs::File::create(&image)?.set_len(SHARED_BYTES)?;
    Ok(image)
}

fn squash(tools: &Tools, folder: &Path, image: &Path, options: &[&str]) -> anyhow::Result<()> {
    let part = image.with_extension("part");
    let mut squash = tools.command("bin/mksquashfs");
    squash.arg(folder).arg(&part).args(["-quiet", "-no-progress", "-noappend", "-all-root"]).args(options);
    run(squash.stdout(std::process::Stdio::null()))?;
    fs::rename(&part, image).with_context(|| format!("cannot create {}", image.display()))
}
