//! Build and run of the binary.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use crate::{
    command::{as_root, output, root, run as succeed, status},
    setup,
    vm::kernel::Architecture,
};

/// Returns the path of the release binary for a processor.
pub(crate) fn place(architecture: Architecture) -> PathBuf {
    let folder = root().join("target");
    match architecture.rust_target() {
        None => folder.join("release/pmbpf"),
        Some(target) => folder.join(target).join("release/pmbpf"),
    }
}

/// Returns a cargo that builds for a processor. Rust's own linker and C library make a static binary for
/// another one.
pub(crate) fn cargo_for(architecture: Architecture) -> anyhow::Result<Command> {
    let mut cargo = setup::all()?.cargo();
    if let Some(target) = architecture.rust_target() {
        setup::target(target)?;
        let variable = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"));
        cargo.env("CARGO_BUILD_TARGET", target).env(variable, "rust-lld");
    }
    Ok(cargo)
}

/// Builds the release binary and returns its path.
pub(crate) fn release(architecture: Architecture) -> anyhow::Result<PathBuf> {
    succeed(cargo_for(architecture)?.args(["build", "--release", "--locked", "--package", "pmu-user"]))?;
    Ok(place(architecture))
}

/// Result of [`fixed`].
pub(crate) struct Fixed {
    /// Path of the binary.
    pub(crate) binary: PathBuf,
    /// Folder of the BPF objects that are in it.
    pub(crate) objects: PathBuf,
}

/// Builds a static release binary for a target, stripped, in a separate folder. Nothing in it depends on
/// where it was built.
pub(crate) fn fixed(target: &str, folder: &Path) -> anyhow::Result<Fixed> {
    setup::target(target)?;
    let home = std::env::var("CARGO_HOME").map(PathBuf::from).ok();
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let mut flags = vec![format!("--remap-path-prefix={}=/rust", setup::sysroot()?.display())];
    // The last match counts.
    flags.extend(home.map(|home| format!("--remap-path-prefix={}=/cargo", home.display())));
    flags.push(format!("--remap-path-prefix={}=/pmbpf", root().display()));
    flags.push(format!("--remap-path-prefix={}=/build", folder.display()));
    let variable = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"));
    let mut cargo = setup::all()?.cargo();
    cargo.args([
        "build",
        "--release",
        "--locked",
        "--package",
        "pmu-user",
        "--bin",
        "pmbpf",
        "--message-format",
        "json-render-diagnostics",
        "--target",
        target,
    ]);
    cargo.arg("--target-dir").arg(folder).env(variable, "rust-lld");
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")).env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    // One unit is the same however many processors build it.
    cargo.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    let messages = output(&mut cargo)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let is_ours = |message: &serde_json::Value| {
        let package = message["package_id"].as_str().unwrap_or_default();
        message["reason"] == "build-script-executed" && package.contains("/pmu-user#")
    };
    let ran = messages.into_iter().find(is_ours);
    let objects = ran.and_then(|message| message["out_dir"].as_str().map(PathBuf::from));
    let objects = objects.context("cargo does not say where pmu-user/build.rs leaves the BPF objects")?;
    Ok(Fixed { binary: folder.join(target).join("release/pmbpf"), objects })
}

/// Builds a bench of the library and returns its path.
pub(crate) fn bench(name: &str) -> anyhow::Result<PathBuf> {
    let mut cargo = cargo_for(Architecture::HOST)?;
    cargo.args(["bench", "--no-run", "--locked", "--package", "pmu-user", "--message-format", "json"]);
    let messages = output(cargo.args(["--bench", name]))?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut built = messages.filter(|message| message["target"]["name"] == name);
    let path = built.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    path.with_context(|| format!("cargo built no bench `{name}`"))
}

/// Builds and runs pmbpf as root, and returns its exit code.
pub(crate) fn run(arguments: &[OsString]) -> anyhow::Result<u8> {
    let program = release(Architecture::HOST)?;
    let status = status(as_root(program)?.args(arguments))?;
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}
