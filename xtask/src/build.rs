//! Builds the binary, and runs it.

use std::{ffi::OsString, path::PathBuf};

use crate::{
    command::{as_root, root, run as succeed, status},
    setup,
};

/// Builds `target/release/pmbpf`; its path.
pub(crate) fn release() -> anyhow::Result<PathBuf> {
    let tools = setup::all()?;
    succeed(tools.cargo().args(["build", "--release", "--locked", "--package", "pmu-user"]))?;
    Ok(root().join("target/release/pmbpf"))
}

/// Builds and runs pmbpf as root; its exit code.
pub(crate) fn run(arguments: &[OsString]) -> anyhow::Result<u8> {
    let program = release()?;
    let status = status(as_root(program)?.args(arguments))?;
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}
