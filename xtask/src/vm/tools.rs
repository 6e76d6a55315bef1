//! Programs that build and run guests: QEMU, a compiler, squashfs and module tools. They are in a separate
//! Debian folder, and run with that folder's libraries, so that the machine's are neither needed nor changed.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use super::apt::Apt;
use crate::command::{as_root, exists, text};

/// Packages of the tools. QEMU 10, because 7.2 double-faults on kernels from 6.12. gcc-14 builds modules for
/// every kernel.
const PACKAGES: [&str; 25] = [
    "base-files",
    "bash",
    "binutils",
    "binutils-aarch64-linux-gnu",
    "busybox-static",
    "coreutils",
    "cpio",
    "dash",
    "findutils",
    "gawk",
    "gcc-14",
    "gcc-14-aarch64-linux-gnu",
    "grep",
    "kmod",
    "libc6-dev",
    "libc6-dev-arm64-cross",
    "libelf1t64",
    "make",
    "perl-base",
    "qemu-system-arm",
    "qemu-system-x86",
    "sed",
    "squashfs-tools",
    "tar",
    "xz-utils",
];

/// Makes a link that installing a package would have made.
pub(super) fn link(folder: &Path, to: &str, from: &str) -> anyhow::Result<()> {
    std::os::unix::fs::symlink(to, folder.join(from)).with_context(|| format!("cannot create {from}"))
}

/// Folder of the tools.
pub(super) struct Tools(PathBuf);

impl Tools {
    /// Returns the folder, and makes it if needed.
    pub(super) fn get(apt: &mut Apt) -> anyhow::Result<Self> {
        let folder = apt.cache.join("tools");
        if !Apt::has_closed(&folder, &PACKAGES) {
            apt.extract_closed(&folder, "amd64", &PACKAGES).context("the tools that guests need")?;
            link(&folder, "gawk", "usr/bin/awk")?;
        }
        Ok(Self(folder))
    }

    /// Returns the folder, which looks like a Debian system's root.
    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    /// Returns the command of a program of it, with its own loader and libraries.
    pub(super) fn command(&self, program: &str) -> Command {
        self.command_by(Command::new(self.loader()), program)
    }

    /// Returns the command of a program of it that ends when this process does, however it ends.
    pub(super) fn child(&self, program: &str) -> Command {
        if !exists("setpriv") {
            return self.command(program);
        }
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(self.loader());
        self.command_by(command, program)
    }

    fn loader(&self) -> PathBuf {
        self.0.join("usr/lib64/ld-linux-x86-64.so.2")
    }

    fn command_by(&self, mut command: Command, program: &str) -> Command {
        let libraries = self.0.join("usr/lib/x86_64-linux-gnu");
        command.arg("--library-path").arg(&libraries).arg(self.0.join("usr").join(program));
        // QEMU's parts must be of the same build as QEMU itself.
        command.env("QEMU_MODULE_DIR", libraries.join("qemu"));
        command
    }

    /// Builds `what` by a script with this folder as the whole system, in which `shown` (folder, place)
    /// appear. Returns what it printed. Needs root, for mounts that no other process sees and that end with
    /// it.
    pub(super) fn build(&self, what: &str, shown: &[(&Path, &str)], script: &str) -> anyhow::Result<String> {
        let built = self.inside(shown, script)?.output().context("cannot run unshare")?;
        let log = text(&built.stdout);
        if !built.status.success() {
            bail!("{what} does not build:\n{log}{}", text(&built.stderr));
        }
        Ok(log)
    }

    fn inside(&self, shown: &[(&Path, &str)], script: &str) -> anyhow::Result<Command> {
        let mut command = as_root("unshare")?;
        let mut steps = vec!["set -e".to_owned(), "root=$1; shift".to_owned()];
        steps.push("mount -t proc proc \"$root/proc\"; mount --bind /dev \"$root/dev\"".to_owned());
        for (index, (_, place)) in shown.iter().enumerate() {
            let from = index + 2;
            steps.push(format!("mkdir -p \"$root{place}\"; mount --bind \"${{{from}}}\" \"$root{place}\""));
        }
        steps.push("exec chroot \"$root\" /bin/sh -ec \"$1\"".to_owned());
        command.args(["--mount", "--propagation", "private", "sh", "-c", &steps.join("\n"), "sh"]);
        command.arg(&self.0).arg(script).args(shown.iter().map(|(folder, _)| folder));
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin").env("LC_ALL", "C");
        Ok(command)
    }
}
