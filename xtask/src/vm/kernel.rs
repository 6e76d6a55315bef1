//! Stock kernels of Debian: found by series, extracted, and never installed.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{Context as _, bail};

use super::{apt::Apt, tools::Tools};
use crate::command::{output, run};

/// Processor of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Architecture {
    /// amd64
    #[value(name = "amd64")]
    X86,
    /// arm64
    #[value(name = "arm64")]
    Arm,
}

impl Architecture {
    /// Architecture of this machine.
    pub(crate) const HOST: Self = if cfg!(target_arch = "aarch64") { Self::Arm } else { Self::X86 };

    /// Returns Debian's name of the architecture.
    pub(crate) const fn debian(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }

    /// Returns Rust's name of the architecture.
    pub(crate) const fn rust(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// Returns the tools' program that removes debugging information.
    pub(super) const fn strip(self) -> &'static str {
        match self {
            Self::X86 => "bin/strip",
            Self::Arm => "bin/aarch64-linux-gnu-strip",
        }
    }

    /// Returns Rust's target, if it is not this machine's own.
    pub(crate) const fn rust_target(self) -> Option<&'static str> {
        match self {
            Self::X86 if cfg!(target_arch = "x86_64") => None,
            Self::X86 => Some("x86_64-unknown-linux-musl"),
            Self::Arm if cfg!(target_arch = "aarch64") => None,
            Self::Arm => Some("aarch64-unknown-linux-musl"),
        }
    }
}

/// A series of kernels as requested: `6.12`, `6.12-arm64`, `6.12-arm64-icount`, `6.12-smt`, or
/// `6.12-systemd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    version: String,
    pub(crate) architecture: Architecture,
    /// Whether the emulator counts instructions. The guest then has one CPU, and its time is what they take.
    pub(super) counts_instructions: bool,
    /// Whether its two CPUs are threads of one core.
    pub(super) threads: bool,
    /// Whether systemd is its first program, with podman installed.
    pub(super) systemd: bool,
}

impl FromStr for Series {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('-');
        let version = parts.next().unwrap_or_default();
        let numbers: Vec<_> = version.split('.').collect();
        let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if numbers.len() != 2 || !numbers.iter().all(is_number) {
            return Err(format!("`{text}` is no series of kernels; one is 6.12, or 6.12-arm64"));
        }
        let mut series = Self {
            version: version.to_owned(),
            architecture: Architecture::X86,
            counts_instructions: false,
            threads: false,
            systemd: false,
        };
        for part in parts {
            match part {
                "amd64" => series.architecture = Architecture::X86,
                "arm64" => series.architecture = Architecture::Arm,
                "icount" => series.counts_instructions = true,
                "smt" => series.threads = true,
                "systemd" => series.systemd = true,
                _ => return Err(format!("`{part}` is neither amd64, arm64, icount, smt nor systemd")),
            }
        }
        Ok(series)
    }
}

impl Series {
    /// Returns the series as Debian's packages are named.
    fn packages(&self) -> String {
        match self.architecture {
            Architecture::X86 => self.version.clone(),
            Architecture::Arm => format!("{}-arm64", self.version),
        }
    }
}

impl fmt::Display for Series {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.packages())?;
        formatter.write_str(if self.counts_instructions { "-icount" } else { "" })?;
        formatter.write_str(if self.threads { "-smt" } else { "" })?;
        formatter.write_str(if self.systemd { "-systemd" } else { "" })
    }
}

/// An extracted kernel.
pub(super) struct Kernel {
    pub(super) series: Series,
    folder: PathBuf,
    /// Release, as `uname -r` prints it.
    pub(super) release: String,
}

impl Kernel {
    /// Returns the newest kernel of the series that Debian has, or the one at hand unless `update` is set.
    pub(super) fn get(apt: &mut Apt, tools: &Tools, series: &Series, update: bool) -> anyhow::Result<Self> {
        let folder = apt.cache.join("kernels").join(series.packages());
        if update || !Apt::has(&folder) {
            download(apt, series, &folder).with_context(|| format!("no kernel {series}"))?;
        }
        let modules = modules_folder(&folder)?;
        let release =
            modules.file_name().and_then(|name| name.to_str()).context("no kernel release")?.to_owned();
        if !modules.join("modules.dep").is_file() {
            // From 7.2 on Debian leaves this list to the installation.
            let base = modules.ancestors().nth(3).context("modules lie below lib/modules")?;
            run(tools.command("sbin/depmod").arg("-b").arg(base).arg(&release))?;
        }
        Ok(Self { series: series.clone(), folder, release })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the image that QEMU boots.
    pub(super) fn image(&self) -> anyhow::Result<PathBuf> {
        let inside = modules_folder(&self.folder)?.join("vmlinuz");
        let beside = self.folder.join(format!("boot/vmlinuz-{}", self.release));
        [inside, beside].into_iter().find(|path| path.is_file()).context("the package has no kernel image")
    }

    /// Returns the files of the modules that `wanted` need, in the order to load them. Built-in modules have
    /// none.
    pub(super) fn modules(&self, wanted: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
        let folder = modules_folder(&self.folder)?;
        let lists = |name: &str| {
            fs::read_to_string(folder.join(name))
                .with_context(|| format!("{} has no {name}", folder.display()))
        };
        let (loadable, builtin) = (lists("modules.dep")?, lists("modules.builtin")?);
        let mut order: Vec<&str> = Vec::new();
        for name in wanted {
            if builtin.lines().any(|path| module_name(path) == *name) {
                continue;
            }
            let line = loadable.lines().filter_map(|line| line.split_once(": ").or(line.split_once(':')));
            let (own, needed) = line
                .into_iter()
                .find(|(path, _)| module_name(path) == *name)
                .with_context(|| format!("kernel {} has no module {name}", self.release))?;
            // The list names the nearest first, so the last must be loaded first.
            for path in needed.split_whitespace().rev().chain([own]) {
                if !order.contains(&path) {
                    order.push(path);
                }
            }
        }
        Ok(order.into_iter().map(|path| folder.join(path)).collect())
    }

    /// Returns the headers with which modules for this kernel are built.
    pub(super) fn headers(&self, apt: &mut Apt) -> anyhow::Result<Headers> {
        let folder = apt.cache.join("headers").join(self.series.packages());
        let own = format!("linux-headers-{}", self.release);
        let stale = !folder.join("usr/src").join(&own).is_dir();
        if stale || !Apt::has(&folder) {
            let architecture = self.series.architecture.debian();
            let package = format!("{own}:{architecture}");
            let needed = apt.dependencies(&package)?;
            let parts = needed.into_iter().filter(|name| {
                name.starts_with("linux-kbuild-")
                    || (name.starts_with("linux-headers-") && name.contains("-common"))
            });
            // The programs among them run on the building machine.
            let parts = parts.map(|name| name.split(':').next().unwrap_or(&name).to_owned());
            apt.extract(&folder, &[package].into_iter().chain(parts).collect::<Vec<_>>())?;
        }
        Ok(Headers { build: format!("/usr/src/{own}"), folder })
    }
}

/// Headers in the layout that they have when the folder's `usr/src` and `usr/lib` are shown inside the tools.
pub(super) struct Headers {
    pub(super) folder: PathBuf,
    /// Argument of `make -C`.
    pub(super) build: String,
}

fn download(apt: &mut Apt, series: &Series, folder: &Path) -> anyhow::Result<()> {
    let architecture = series.architecture.debian();
    let version = series.version.replace('.', r"\.");
    let names = apt.search(&format!(r"^linux-image-{version}\..*[0-9]-cloud-{architecture}$"))?;
    let newest = names.last().with_context(|| {
        format!(
            "Debian has none of that series for {architecture} (suites from bullseye to trixie-backports)"
        )
    })?;
    let release = newest.trim_start_matches("linux-image-");
    // From 7.2 on the image is in three packages.
    let mut packages = Vec::new();
    for part in ["image", "binary", "modules", "base"] {
        let name = format!("linux-{part}-{release}");
        if apt.search(&format!("^{}$", name.replace('.', r"\.").replace('+', r"\+")))?.contains(&name) {
            packages.push(format!("{name}:{architecture}"));
        }
    }
    apt.extract(folder, &packages)
}

/// Returns the folder of modules, which is named after the release.
fn modules_folder(folder: &Path) -> anyhow::Result<PathBuf> {
    for base in ["usr/lib/modules", "lib/modules"] {
        let inner = fs::read_dir(folder.join(base)).into_iter().flatten().flatten();
        if let Some(found) = inner.map(|entry| entry.path()).find(|path| path.join("kernel").is_dir()) {
            return Ok(found);
        }
    }
    bail!("{} holds no modules", folder.display())
}

/// Returns the name of a module: that of `kernel/fs/overlayfs/overlay.ko.xz` is `overlay`. Hyphens and
/// underscores are the same.
pub(super) fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

/// Returns the contents of a module file, uncompressed.
pub(super) fn module_bytes(tools: &Tools, path: &Path) -> anyhow::Result<Vec<u8>> {
    match path.extension().and_then(|end| end.to_str()) {
        Some("ko") => fs::read(path).with_context(|| format!("cannot read {}", path.display())),
        Some("xz") => {
            let unpacked = tools.command("bin/xz").arg("-dc").arg(path).output().context("cannot run xz")?;
            if !unpacked.status.success() {
                bail!("{} is damaged", path.display());
            }
            Ok(unpacked.stdout)
        }
        _ => bail!("{} is compressed in a way that is not known here", path.display()),
    }
}

/// Returns QEMU's version, on which saved guests depend.
pub(super) fn qemu_version(tools: &Tools) -> anyhow::Result<String> {
    output(tools.command("bin/qemu-system-x86_64").arg("--version"))
}

#[cfg(test)]
mod tests {
    use super::{Series, module_name};

    #[test]
    fn a_series_is_a_version_and_perhaps_a_processor() {
        assert_eq!("6.12".parse::<Series>().unwrap().to_string(), "6.12");
        assert_eq!("6.12-amd64".parse::<Series>().unwrap().to_string(), "6.12");
        assert_eq!("6.1-arm64".parse::<Series>().unwrap().to_string(), "6.1-arm64");
        assert_eq!("6.1-arm64-icount".parse::<Series>().unwrap().to_string(), "6.1-arm64-icount");
        for wrong in ["6", "6.12.3", "six", "6.", "6.12-riscv64", ""] {
            assert!(wrong.parse::<Series>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_module_is_named_by_its_file() {
        assert_eq!(module_name("kernel/drivers/block/virtio-blk.ko.xz"), "virtio_blk");
        assert_eq!(module_name("kernel/fs/overlayfs/overlay.ko"), "overlay");
    }
}
