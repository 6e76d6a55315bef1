//! Installation of what a build needs and is missing. Existing installations are never changed.
//!
//! `core` for BPF is built from rust-src, which must be of the compiler's own version. bpf-linker must be
//! linked to the compiler's own LLVM. Tools go to a cache outside the tree, a folder per version, so that
//! nothing of the user's is replaced.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::command::{cargo, output, run, say};

const LINKER: &str = "0.10.4";
const DENY: &str = "0.20.2";

/// Tools that the build needs.
pub(crate) struct Tools {
    linker: PathBuf,
}

impl Tools {
    /// Returns a cargo that finds the tools.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = cargo();
        cargo.env("PMBPF_BPF_LINKER", &self.linker);
        cargo
    }
}

/// Installs everything that a build needs.
pub(crate) fn all() -> anyhow::Result<Tools> {
    rust_src()?;
    Ok(Tools { linker: linker()? })
}

/// Returns the folder of the compiler.
pub(crate) fn sysroot() -> anyhow::Result<PathBuf> {
    let sysroot =
        output(Command::new("rustc").args(["--print", "sysroot"]).current_dir(crate::command::root()))?;
    Ok(PathBuf::from(sysroot.trim()))
}

fn rust_src() -> anyhow::Result<()> {
    let sysroot = sysroot()?;
    let library = sysroot.join("lib/rustlib/src/rust/library/core/Cargo.toml");
    if library.is_file() {
        return Ok(());
    }
    say("rust-src is missing: the BPF version of `core` is built from it; asking rustup for it");
    component("rust-src").with_context(|| {
        format!(
            "rust-src of this very compiler is needed below {sysroot}; where rustup cannot fetch it, unpack a \
             distribution's package of the same version there",
            sysroot = sysroot.display()
        )
    })
}

/// Installs a component of the pinned toolchain.
pub(crate) fn component(name: &str) -> anyhow::Result<()> {
    run(Command::new("rustup").args(["component", "add", name]).current_dir(crate::command::root()))
}

/// Installs the standard library for another processor, of the pinned toolchain.
pub(crate) fn target(name: &str) -> anyhow::Result<()> {
    let library = output(Command::new("rustc").args(["--print", "target-libdir", "--target", name]))?;
    if Path::new(library.trim()).is_dir() {
        return Ok(());
    }
    run(Command::new("rustup").args(["target", "add", name]).current_dir(crate::command::root()))
}

/// Returns the major version of the LLVM that rustc was built with, for example 22.
fn llvm_major() -> anyhow::Result<u32> {
    let version = output(Command::new("rustc").arg("-vV").current_dir(crate::command::root()))?;
    let line = version.lines().find_map(|line| line.strip_prefix("LLVM version: "));
    let major = line.and_then(|line| line.split('.').next()).and_then(|major| major.parse().ok());
    major.context("rustc -vV names no LLVM version")
}

fn linker() -> anyhow::Result<PathBuf> {
    let llvm = llvm_major()?;
    let feature = format!("rust-llvm-{llvm}");
    let folder = cache()?.join(format!("bpf-linker-{LINKER}-llvm{llvm}"));
    let why = format!("it links the BPF programs and must share rustc's LLVM {llvm}");
    install(&folder, "bpf-linker", LINKER, &["--no-default-features", "--features", &feature], &why)
}

/// Installs cargo-deny, which checks the dependencies against deny.toml.
pub(crate) fn deny() -> anyhow::Result<PathBuf> {
    let folder = cache()?.join(format!("cargo-deny-{DENY}"));
    install(
        &folder,
        "cargo-deny",
        DENY,
        // Unoptimised it builds in half the time, and it has little to do.
        &["--no-default-features", "--debug"],
        "it checks licences and sources of dependencies",
    )
}

fn install(folder: &Path, name: &str, version: &str, options: &[&str], why: &str) -> anyhow::Result<PathBuf> {
    let program = folder.join("bin").join(name);
    if program.is_file() {
        return Ok(program);
    }
    say(&format!("installing {name} {version} into {} (a few minutes, once): {why}", folder.display()));
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut cargo = cargo();
    cargo.args(["install", name, "--version", version, "--locked", "--root"]).arg(folder).args(options);
    // The tool is not part of this workspace, and must not use its settings.
    cargo.current_dir(folder).env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
    run(&mut cargo).with_context(|| format!("{name} {version} could not be installed"))?;
    if !program.is_file() {
        bail!("{name} was installed, but {} is not there", program.display());
    }
    Ok(program)
}

/// Returns the folder where tools are kept between builds.
pub(crate) fn cache() -> anyhow::Result<PathBuf> {
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = base.or_else(home).context("neither XDG_CACHE_HOME nor HOME is set: no place for tools")?;
    Ok(base.join("pmbpf"))
}
