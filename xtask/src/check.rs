//! Checks that need no run: formatting, lints, documentation, architecture, dependencies.

use std::{path::Path, process::Command};

use crate::{
    command::{exists, output, root, run, say, text},
    setup,
    test::rings,
    vm,
};

/// Runs all checks. The first that fails ends it.
pub(crate) fn all() -> anyhow::Result<()> {
    let tools = setup::all()?;
    for component in ["rustfmt", "clippy"] {
        let tool = if component == "clippy" { "clippy-driver" } else { component };
        if output(Command::new(tool).arg("--version").current_dir(root())).is_err() {
            setup::component(component)?;
        }
    }
    say("formatting");
    run(tools.cargo().args(["fmt", "--all", "--check"]))?;
    say("lints");
    // On the host target clippy sees every crate, the BPF programs included.
    run(tools.cargo().args(["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    // Tests that are run only if they are named are linted only if they are named.
    let named = ["clippy", "--locked", "--package", "pmu-user"];
    run(tools.cargo().args(named).args(rings::not_by_default()?).args(["--", "-D", "warnings"]))?;
    say("rings of tests");
    rings::check()?;
    say("documentation");
    let doc = ["doc", "--locked", "--workspace", "--no-deps", "--document-private-items", "--quiet"];
    run(tools.cargo().args(doc).env("RUSTDOCFLAGS", "-D warnings"))?;
    say("architecture");
    run(tools.cargo().args([
        "test",
        "--locked",
        "--quiet",
        "--package",
        "pmu-user",
        "--test",
        "architecture",
    ]))?;
    shell()?;
    say("kernel module");
    vm::lint::checkpatch()?;
    say("dependencies");
    let deny = setup::deny()?;
    // cargo-deny checks every platform's dependencies, of which a build downloads only its own.
    run(tools.cargo().args(["fetch", "--locked", "--quiet"]))?;
    run(held(&deny).args(["bans", "licenses", "sources"]))?;
    advisories(&deny)?;
    say("all checks passed");
    Ok(())
}

/// Returns the command that checks dependencies against deny.toml, without the network.
fn held(deny: &Path) -> Command {
    let mut held = Command::new(deny);
    held.current_dir(root()).args(["--offline", "--workspace", "check", "--hide-inclusion-graph"]);
    held
}

/// Checks advisories about dependencies. Their database comes from the network, everything else is in the
/// lock file. Without the network they are not checked, which is reported and is not a failure.
fn advisories(deny: &Path) -> anyhow::Result<()> {
    let fetched =
        Command::new(deny).current_dir(root()).args(["fetch", "db"]).env("GIT_TERMINAL_PROMPT", "0").output();
    let why = match fetched {
        Ok(fetched) if fetched.status.success() => {
            say("advisories");
            return run(held(deny).arg("advisories"));
        }
        Ok(fetched) => {
            text(&fetched.stderr).lines().rfind(|line| !line.trim().is_empty()).unwrap_or("").to_owned()
        }
        Err(error) => error.to_string(),
    };
    say(&format!("advisories: SKIPPED, their database cannot be fetched: {}", why.trim()));
    Ok(())
}

/// Checks shell scripts, where shellcheck is installed.
fn shell() -> anyhow::Result<()> {
    if !exists("shellcheck") {
        say("shell scripts: SKIPPED, there is no shellcheck");
        return Ok(());
    }
    say("shell scripts");
    let scripts = ["scripts/record-machine.sh", ".ci/run", "tests/vm/init"];
    run(Command::new("shellcheck").args(scripts).current_dir(root()))
}
