//! Execution of programs, with their names in errors.

use std::{
    env,
    ffi::OsStr,
    io::Write as _,
    path::PathBuf,
    process::{Command, ExitStatus},
    time::Duration,
};

use anyhow::{Context as _, bail};

/// Prints a message about the task itself; programs print the rest.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "xtask: {text}");
}

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), std::path::Path::to_path_buf)
}

/// Returns the cargo that runs xtask, in the workspace.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// Returns whether this process runs as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns how long a tool runs: the seconds in the environment's `variable`, or `otherwise`.
pub(crate) fn length(variable: &str, otherwise: Duration) -> anyhow::Result<Duration> {
    let Ok(seconds) = env::var(variable) else { return Ok(otherwise) };
    Ok(Duration::from_secs(seconds.parse().with_context(|| format!("{variable} is not a number"))?))
}

/// Returns a command that runs as root: directly if this process is root, or else through sudo.
pub(crate) fn as_root(program: impl AsRef<OsStr>) -> anyhow::Result<Command> {
    if is_root() {
        return Ok(Command::new(program));
    }
    if !exists("sudo") {
        bail!("this needs root, and there is no sudo: run it as root");
    }
    let mut sudo = Command::new("sudo");
    sudo.arg("--preserve-env=LANG,LC_ALL,NO_COLOR,PATH").arg(program);
    Ok(sudo)
}

/// Returns whether the program is on the path.
pub(crate) fn exists(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Runs a command to its end and returns its exit status.
pub(crate) fn status(command: &mut Command) -> anyhow::Result<ExitStatus> {
    command.status().with_context(|| format!("cannot run {}", shown(command)))
}

/// Runs a command that must succeed.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("{} failed: {status}", shown(command));
    }
    Ok(())
}

/// Returns the standard output of a command that must succeed.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {}", shown(command)))?;
    if !output.status.success() {
        let errors = std::str::from_utf8(&output.stderr).unwrap_or_default().trim().to_owned();
        bail!("{} failed: {}: {errors}", shown(command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{} printed no text", shown(command)))
}

/// Returns the output of a program, with a mark where it is not text.
pub(crate) fn text(bytes: &[u8]) -> String {
    let mark = |invalid: &[u8]| if invalid.is_empty() { "" } else { "\u{fffd}" };
    bytes.utf8_chunks().flat_map(|chunk| [chunk.valid(), mark(chunk.invalid())]).collect()
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.display().to_string()).collect::<Vec<_>>().join(" ")
}
