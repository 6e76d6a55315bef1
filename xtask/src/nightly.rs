//! What takes too long for every change: many files that nobody sound would write, through everything that reads files, and a soak.

use anyhow::bail;

use crate::{
    command::{say, status},
    setup, soak,
};

/// Tests of tests/fuzz that try as many files as they are told, and how many.
const FUZZ: [(&str, u32); 3] = [
    ("recordings::every_recording_is_reported_or_refused", 50_000),
    ("perfmon::every_perfmon_directory_is_read_or_refused", 3_000),
    ("btf::every_btf_is_read_or_refused", 3_000),
];

/// Runs all of it, whatever fails; an error at the end if anything did.
pub(crate) fn run() -> anyhow::Result<()> {
    let tools = setup::all()?;
    let mut failed = Vec::new();
    for (test, files) in FUZZ {
        say(&format!("{test}: {files} files"));
        let mut cargo = tools.cargo();
        // Fast, and yet with the checks that find overflows (`profile.fuzz` in Cargo.toml).
        cargo.args([
            "test",
            "--locked",
            "--profile",
            "fuzz",
            "--package",
            "pmu-user",
            "--test",
            "fuzz",
            "--",
        ]);
        cargo.args(["--exact", test, "--nocapture"]).env("PMBPF_FUZZ", files.to_string());
        if !status(&mut cargo)?.success() {
            failed.push(test);
        }
    }
    if let Err(error) = soak::run() {
        say(&format!("soak: {error:#}"));
        failed.push("soak");
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    say("all passed");
    Ok(())
}
